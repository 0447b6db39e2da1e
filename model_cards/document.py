"""The common body of a model card and a transparency record.

    {"format": "placet.model-card/1", "catalogue": "sha256:…", "law_checked_on": "2026-11-30",
     "completeness": {"measured": 31, "declared": 24, "missing": 9, "by_article":
        [{"law": "ai-act", "part": "article", "ref": "13(3)(a)", "applies_from": "2027-12-02",
          "supplied": 2, "missing": 0}, …]},
     "fields": [{"id", "section", "kind", "status": "measured", "value", "unit", "source",
                 "asked_by"},
                {"id", "section", "kind", "status": "missing", "reason", "note", "who",
                 "asked_by"}, …]}

`status` is measured, declared, reference or missing; a reference row is counted as declared,
because somebody checked it on a day and nothing here measured it. The bytes are canonical JSON
and depend on the evidence alone. Reading does not need the catalogue that wrote the document.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from audit.canonical import CanonicalError, Digest, canonical, digest, is_digest, parse_canonical
from model_cards import values
from model_cards.catalogue import Field, Provision, catalogue
from model_cards.evidence import Claim, Evidence, EvidenceError, Missing, fault, item_from_json

FORMATS: Final = {
    "model-card": "placet.model-card/1",
    "transparency": "placet.transparency/1",
}
_MEMBERS: Final = {"format", "catalogue", "law_checked_on", "completeness", "fields"}


class DocumentError(ValueError):
    """Bytes that are not one of our documents; the message says what was expected."""


@dataclass(frozen=True)
class Row:
    """One field of a document, as written there."""

    id: str
    section: str
    kind: str
    item: Claim | Missing
    asked_by: tuple[Provision, ...]

    @property
    def status(self) -> str:
        """Return measured, declared, reference or missing."""
        return "missing" if isinstance(self.item, Missing) else self.item.source.to_json()["kind"]


@dataclass(frozen=True)
class ArticleCount:
    """How many of the values a provision asks for are there."""

    provision: Provision
    supplied: int
    missing: int


@dataclass(frozen=True)
class Completeness:
    """How much of a document is measured, declared (reference data included) and missing."""

    measured: int
    declared: int
    missing: int
    by_article: tuple[ArticleCount, ...]

    @property
    def total(self) -> int:
        """Return the number of fields."""
        return self.measured + self.declared + self.missing


@dataclass(frozen=True)
class Document:
    """A model card or a transparency record, read."""

    name: str
    digest: Digest
    law_checked_on: str
    rows: tuple[Row, ...]
    completeness: Completeness

    def claim(self, field_id: str) -> Claim | None:
        """Return the claim of a field, or None when it is missing or not in this document."""
        found = next((row.item for row in self.rows if row.id == field_id), None)
        return found if isinstance(found, Claim) else None


def build(name: str, evidence: Evidence) -> bytes:
    """Write the document `model-card` or `transparency` from evidence, in canonical form."""
    rows = [
        Row(row.id, row.section, row.kind, evidence.fields[row.id], _asked_by(row, evidence))
        for row in catalogue().of(name)
    ]
    return canonical(
        {
            "format": FORMATS[name],
            "catalogue": catalogue().digest,
            "law_checked_on": catalogue().checked_on,
            "completeness": _completeness_json(_count(rows)),
            "fields": [_row_to_json(row) for row in rows],
        }
    )


def read(data: bytes) -> Document:
    """Read a document's bytes strictly.

    Raises:
        DocumentError: not canonical JSON, not one of our formats, a field of the wrong shape, or
            counts that are not those of its fields.
    """
    try:
        raw = parse_canonical(data)
    except CanonicalError as cause:
        raise DocumentError(f"not a document: {cause}") from cause
    if not isinstance(raw, dict) or set(raw) != _MEMBERS:
        raise DocumentError(f"expected an object with {', '.join(sorted(_MEMBERS))} only")
    checked_on = raw["law_checked_on"]
    if not isinstance(checked_on, str) or not values.is_date(checked_on):
        raise DocumentError("expected law_checked_on as a day such as 2026-11-30")
    if not is_digest(raw["catalogue"]):
        raise DocumentError("expected catalogue as a digest")
    name = next((name for name, text in FORMATS.items() if text == raw["format"]), None)
    fields = raw["fields"]
    if name is None or not isinstance(fields, list):
        raise DocumentError(f"expected one of {', '.join(FORMATS.values())} with a list of fields")
    rows = tuple(_row_from_json(row) for row in fields)
    counted = _count(rows)
    if len({row.id for row in rows}) != len(rows):
        raise DocumentError("a field appears twice: expected each once")
    if _completeness_json(counted) != raw["completeness"]:
        raise DocumentError("completeness does not match the fields: expected their own counts")
    return Document(name, digest(data), checked_on, rows, counted)


def completeness(document: bytes) -> Completeness:
    """Count what a document holds; raises `DocumentError` as `read` does."""
    return read(document).completeness


def _asked_by(row: Field, evidence: Evidence) -> tuple[Provision, ...]:
    item = evidence.fields[row.id]
    return item.asked_by if isinstance(item, Missing) else row.asked_by


def _count(rows: Iterable[Row]) -> Completeness:
    statuses: list[str] = []
    places: dict[Provision, list[int]] = {}
    for row in rows:
        statuses.append(row.status)
        for place in dict.fromkeys(row.asked_by):
            places.setdefault(place, [0, 0])[row.status == "missing"] += 1
    ordered = sorted(places, key=lambda place: (place.law, place.part, place.ref))
    return Completeness(
        measured=statuses.count("measured"),
        declared=statuses.count("declared") + statuses.count("reference"),
        missing=statuses.count("missing"),
        by_article=tuple(ArticleCount(place, *places[place]) for place in ordered),
    )


def _completeness_json(counted: Completeness) -> dict[str, Any]:
    return {
        "measured": counted.measured,
        "declared": counted.declared,
        "missing": counted.missing,
        "by_article": [
            {**count.provision.to_json(), "supplied": count.supplied, "missing": count.missing}
            for count in counted.by_article
        ],
    }


def _row_to_json(row: Row) -> dict[str, Any]:
    head = {
        "id": row.id,
        "section": row.section,
        "kind": row.kind,
        "status": row.status,
        "asked_by": [place.to_json() for place in row.asked_by],
    }
    if isinstance(row.item, Claim):
        source = row.item.source.to_json()
        return {**head, "value": row.item.value, "unit": row.item.unit, "source": source}
    gap = row.item
    return {**head, "reason": gap.reason.value, "note": gap.note, "who": list(gap.who)}


def _row_from_json(raw: Any) -> Row:
    try:
        asked_by = tuple(Provision(**place) for place in raw["asked_by"])
        if raw["status"] == "missing":
            gap = {key: raw[key] for key in ("reason", "note", "who", "asked_by")}
            item = item_from_json(raw["id"], {"missing": gap})
        else:
            item = item_from_json(raw["id"], {key: raw[key] for key in ("value", "unit", "source")})
        row = Row(raw["id"], raw["section"], raw["kind"], item, asked_by)
    except (KeyError, TypeError, EvidenceError) as cause:
        raise DocumentError(f"a field has the wrong shape: {cause}") from cause
    head = (row.id, row.section, row.kind)
    if not all(map(values.is_code, head)) or row.kind not in values.KINDS:
        raise DocumentError(f"field {row.id!a}: expected an id, a section and a known kind")
    if isinstance(item, Claim) and not (item.unit is None or values.is_line(item.unit)):
        raise DocumentError(f"field {row.id!a}: expected a unit of one line or null")
    found = fault(row.kind, item) or fault(row.kind, Missing(asked_by=asked_by))
    if found or _row_to_json(row) != raw:
        raise DocumentError(f"field {row.id!a}: {found or 'has another shape than ours'}")
    return row
