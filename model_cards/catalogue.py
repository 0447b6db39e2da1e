"""The fields that documents are made of: `schema/fields.json`, read once.

The catalogue is data, so that a lawyer can change a label, an article or a date without touching
code. One field:

    {"id": "base.id", "section": "base", "kind": "line", "unit": null,
     "documents": ["model-card", "transparency"], "who": ["submitter"],
     "asked_by": [{"law": "ai-act", "part": "annex", "ref": "IV 2(a)",
                   "applies_from": "2027-12-02"}],
     "label": {"en": "Base model", "fr": "Modèle de base", …}}

`asked_by` names the provisions under which somebody may ask for the value, and the day from which
they apply where the system falls under them; the reading of the law is dated by `checked_on`.

Source: Regulation (EU) 2024/1689 as consolidated on 2026-07-27 (Art. 3, 5, 6, 10, 12 to 15, 19, 26,
50, 53, Annexes III, IV, XI, XII); Regulation (EU) 2016/679 (Art. 5, 6, 9, 28, 35, 44).
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from audit.canonical import Digest, digest

LANGUAGES = ("en", "fr", "de", "es", "pt", "pl")
DOCUMENTS = ("model-card", "transparency")
SCHEMA = Path(__file__).parent / "schema" / "fields.json"


@dataclass(frozen=True)
class Provision:
    """A place in a law that asks for a value, and the first day it applies."""

    law: str
    part: str
    ref: str
    applies_from: str

    @property
    def key(self) -> str:
        """Return one word for counting, such as `ai-act article 13(3)(a)`."""
        return f"{self.law} {self.part} {self.ref}"

    def to_json(self) -> dict[str, str]:
        """Return the four members as written in documents."""
        return {
            "law": self.law,
            "part": self.part,
            "ref": self.ref,
            "applies_from": self.applies_from,
        }


@dataclass(frozen=True)
class Field:
    """One row of the catalogue."""

    id: str
    section: str
    kind: str
    unit: str | None
    documents: tuple[str, ...]
    who: tuple[str, ...]
    asked_by: tuple[Provision, ...]
    label: dict[str, str]


@dataclass(frozen=True)
class Law:
    """How a law is called: its title as published, and its short name in each language."""

    title: str
    source: str
    short: dict[str, str]


@dataclass(frozen=True)
class Catalogue:
    """All fields in reading order, the sections they stand in, and the laws they cite."""

    fields: dict[str, Field]
    sections: dict[str, dict[str, str]]
    laws: dict[str, Law]
    checked_on: str
    digest: Digest

    def of(self, document: str) -> tuple[Field, ...]:
        """Return the fields of one document, `model-card` or `transparency`, in order."""
        return tuple(field for field in self.fields.values() if document in field.documents)


@cache
def catalogue() -> Catalogue:
    """Read the catalogue that ships with this version."""
    data = SCHEMA.read_bytes()
    raw = json.loads(data)
    fields = [
        Field(
            id=row["id"],
            section=row["section"],
            kind=row["kind"],
            unit=row["unit"],
            documents=tuple(row["documents"]),
            who=tuple(row["who"]),
            asked_by=tuple(Provision(**provision) for provision in row["asked_by"]),
            label=row["label"],
        )
        for row in raw["fields"]
    ]
    return Catalogue(
        fields={field.id: field for field in fields},
        sections={row["id"]: row["label"] for row in raw["sections"]},
        laws={name: Law(**law) for name, law in raw["laws"].items()},
        checked_on=raw["checked_on"],
        digest=digest(data),
    )
