"""What is known about a model and its deployment, each value with where it comes from.

`placet.evidence/1` holds, for each field of the catalogue, either a value with its source or the
reason why there is none:

    {"format": "placet.evidence/1", "fields": {
       "base.id": {"value": "HuggingFaceTB/SmolLM2-135M", "unit": null,
                   "source": {"kind": "declared", "by": "prn_…", "on": "2026-11-30", "entry": 12}},
       "evaluation.loss_after": {"value": "1.9310", "unit": null,
                   "source": {"kind": "measured", "run": "run_…", "entry": 41,
                              "document": "sha256:…", "at": "2026-11-30T09:00:00Z"}},
       "art50.notices": {"missing": {"reason": "not_supplied", "note": "", "who": ["deployer"],
                   "asked_by": [{"law": "ai-act", "part": "article", "ref": "50(1)",
                                 "applies_from": "2026-08-02"}]}}}}

A field that is left out is the same as one missing for the reason `not_supplied`; an id that the
catalogue does not know is refused. There is no default value anywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

from audit.canonical import CanonicalError, canonical, is_digest, parse
from model_cards import values
from model_cards.catalogue import Field, Provision, catalogue
from model_cards.values import Value

FORMAT = "placet.evidence/1"


class EvidenceError(ValueError):
    """Evidence that cannot be used; the message names the field and what was expected."""


@dataclass(frozen=True)
class Measured:
    """A run or the log produced the value; `entry` is the index of the log line that says so."""

    at: str
    run: str | None = None
    entry: int | None = None
    document: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the members as written in documents."""
        return {
            "kind": "measured",
            "run": self.run,
            "entry": self.entry,
            "document": self.document,
            "at": self.at,
        }


@dataclass(frozen=True)
class Declared:
    """A person stated the value on a day; `by` is a principal id or a role, not a name."""

    by: str
    on: str
    entry: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the members as written in documents."""
        return {"kind": "declared", "by": self.by, "on": self.on, "entry": self.entry}


@dataclass(frozen=True)
class Reference:
    """A row of the dated reference data (law, regions, licences) gives the value."""

    row: str
    checked_on: str

    def to_json(self) -> dict[str, Any]:
        """Return the members as written in documents."""
        return {"kind": "reference", "row": self.row, "checked_on": self.checked_on}


Source: TypeAlias = Measured | Declared | Reference


class Reason(StrEnum):
    """Why a value is missing."""

    NOT_SUPPLIED = "not_supplied"
    NOT_MEASURED = "not_measured"
    NOT_APPLICABLE = "not_applicable"
    EMPTY = "empty"
    WITHHELD = "withheld"


@dataclass(frozen=True)
class Claim:
    """A value and its source. `unit` may be left out; the catalogue's is the only one accepted."""

    value: Value
    source: Source
    unit: str | None = None


@dataclass(frozen=True)
class Missing:
    """No value, and why. `who` and `asked_by` come from the catalogue when left out."""

    reason: Reason = Reason.NOT_SUPPLIED
    note: str = ""
    who: tuple[str, ...] = ()
    asked_by: tuple[Provision, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """One `Claim` or `Missing` for every field of the catalogue, in the catalogue's order."""

    fields: dict[str, Claim | Missing] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Claim | Missing]) -> "Evidence":
        """Check what was given and complete it with what is missing.

        A blank text or an empty table says nothing and becomes `Missing(EMPTY)`.

        Raises:
            EvidenceError: an unknown field id, a value of the wrong kind, a unit that is not the
                catalogue's, or a source without a well-formed date.
        """
        known = catalogue().fields
        if unknown := sorted(set(given) - set(known)):
            raise EvidenceError(f"unknown field {unknown[0]!a}: expected an id of fields.json")
        return cls({name: _checked(row, given.get(name, Missing())) for name, row in known.items()})

    def to_json(self) -> bytes:
        """Write `placet.evidence/1` in canonical form, missing fields included."""
        return canonical(
            {
                "format": FORMAT,
                "fields": {name: item_to_json(item) for name, item in self.fields.items()},
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> "Evidence":
        """Read `placet.evidence/1`.

        Raises:
            EvidenceError: not that format, or a field `of` refuses.
        """
        try:
            raw = parse(data)
        except CanonicalError as cause:
            raise EvidenceError(f"not evidence: {cause}") from cause
        if not isinstance(raw, dict) or set(raw) != {"format", "fields"}:
            raise EvidenceError("expected an object with format and fields only")
        rows = raw["fields"]
        if raw["format"] != FORMAT or not isinstance(rows, dict):
            raise EvidenceError(f"expected format {FORMAT} with an object of fields")
        return cls.of({name: item_from_json(name, row) for name, row in rows.items()})


def item_to_json(item: Claim | Missing) -> dict[str, Any]:
    """Write one field's claim or gap."""
    if isinstance(item, Claim):
        return {"value": item.value, "unit": item.unit, "source": item.source.to_json()}
    asked_by = [provision.to_json() for provision in item.asked_by]
    return {
        "missing": {
            "reason": item.reason.value,
            "note": item.note,
            "who": list(item.who),
            "asked_by": asked_by,
        }
    }


def item_from_json(name: str, raw: Any) -> Claim | Missing:
    """Read one field's claim or gap; what is in it is checked by `fault`.

    Raises:
        EvidenceError: neither of the two shapes.
    """
    try:
        if set(raw) == {"missing"}:
            return _gap_from_json(**raw["missing"])
        if set(raw) <= {"value", "source", "unit"}:
            source = dict(raw["source"])
            return Claim(raw["value"], _SOURCES[source.pop("kind")](**source), raw.get("unit"))
    except (KeyError, TypeError, ValueError) as cause:
        raise EvidenceError(f"field {name!a}: {cause}; see model_cards.evidence") from cause
    raise EvidenceError(f"field {name!a}: expected a value with its source, or missing")


def fault(kind: str, item: Claim | Missing) -> str | None:
    """Say what is wrong with a claim of `kind`, or with a gap; None when it is right."""
    if isinstance(item, Claim):
        return values.fault(kind, item.value) or _source_fault(item.source)
    if item.note and not values.is_line(item.note):
        return "expected a note of one line, at most 500 characters"
    if not all(map(values.is_code, item.who)):
        return "expected who as role names"
    for place in item.asked_by:
        texts = (place.law, place.part, place.ref)
        if not all(map(values.is_line, texts)) or not values.is_date(place.applies_from):
            return "expected provisions as in fields.json"
    return None


_SOURCES: dict[str, type[Measured | Declared | Reference]] = {
    "measured": Measured,
    "declared": Declared,
    "reference": Reference,
}


def _gap_from_json(reason: str, note: str = "", who: Any = (), asked_by: Any = ()) -> Missing:
    if isinstance(who, str):
        raise TypeError("expected who as a list of role names")
    places = tuple(Provision(**place) for place in asked_by)
    return Missing(Reason(reason), note, tuple(who), places)


def _checked(row: Field, item: Claim | Missing) -> Claim | Missing:
    if isinstance(item, Claim) and values.is_empty(item.value):
        item = Missing(Reason.EMPTY)
    found = fault(row.kind, item)
    if isinstance(item, Claim) and found is None and item.unit not in (None, row.unit):
        found = f"expected unit {row.unit}, got {item.unit!a}"
    if found:
        raise EvidenceError(f"field {row.id}: {found}")
    if isinstance(item, Claim):
        return replace(item, unit=row.unit)
    return replace(item, who=item.who or row.who, asked_by=item.asked_by or row.asked_by)


def _source_fault(source: Source) -> str | None:
    if isinstance(source, Reference):
        good = values.is_line(source.row) and values.is_date(source.checked_on)
        return None if good else "expected a reference row and the day it was checked"
    if source.entry is not None and not values.is_count(source.entry):
        return "expected the log entry as a whole number"
    if isinstance(source, Declared):
        good = values.is_line(source.by) and values.is_date(source.on)
        return None if good else "expected who declared it and on which day (YYYY-MM-DD)"
    if source.run is not None and not values.is_code(source.run):
        return "expected the run as an id"
    if source.document is not None and not is_digest(source.document):
        return "expected the report as a digest"
    return None if values.is_instant(source.at) else "expected when it was measured, as an instant"
