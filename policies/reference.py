"""Reference data: dated, sourced rows that rules and derived facts rest on.

Law, countries, regions, providers, certificates, licences and prices are rows, never constants
in code. Each row says where it comes from (`source`), when a person last looked (`checked_on`)
and how far to trust it (`confidence`): `primary` (read in the official text), `secondary` (read
in another source), `declared` (the operator answers for it) or `unverified`. An unverified row
counts as unknown as soon as restricted data is involved; only estimates, which permit nothing by
themselves, take it (`policies.estimate`).

    {"format": "placet.reference/1", "site": {"country": "FR", …} | null,
     "tables": {"regions": [{"provider": "ovhcloud", "region": "GRA", "country": "FR", …}], …}}

The operator's own machine is provider `own-site`, region `site`; `site` is its declared row:
{"country", "declared_by", "checked_on"} and, when the operator knows them, "parent_country",
"establishments" (countries) and "hds_self_hosted" (a care establishment that hosts its own
patients' data itself, outside the certificate duty of CSP art. L.1111-8).
"""

import datetime as dt
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from audit.canonical import CanonicalError, Digest, canonical, digest, parse
from policies.evaluator import default_evaluator
from policies.facts import schema

FORMAT = "placet.reference/1"
SITE_PROVIDER = "own-site"
SITE_REGION = "site"
MAX_REFERENCE_BYTES = 8_388_608

Row = Mapping[str, Any]


class ReferenceDataError(ValueError):
    """The reference data is refused; the message names the table or the member."""


@dataclass(frozen=True, eq=False)
class Reference:
    """All tables with look-ups by exact key; `digest` is of `to_bytes()`."""

    tables: Mapping[str, tuple[Row, ...]]
    site: Row | None
    digest: Digest = field(init=False)
    _bytes: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        document = {"format": FORMAT, "site": self.site, "tables": dict(self.tables)}
        object.__setattr__(self, "_bytes", canonical(document))
        object.__setattr__(self, "digest", digest(self._bytes))

    def to_bytes(self) -> bytes:
        """Return the canonical JSON that `from_bytes` reads back."""
        return self._bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> "Reference":
        """Read stored reference data; the last few are kept, being immutable.

        Raises:
            ReferenceDataError: not strict JSON, or not `placet.reference/1`.
        """
        return _read(data)

    def rows(self, table: str) -> tuple[Row, ...]:
        """Return every row of a table; an unknown table has none."""
        return tuple(self.tables.get(table, ()))

    @functools.cached_property
    def regions(self) -> dict[tuple[str, str], Row]:
        """Rows of regions by exact (provider, region); the site's own row included."""
        found = {(str(r["provider"]), str(r["region"])): r for r in self.rows("regions")}
        if self.site is not None:
            site = {"country": self.site["country"], "confidence": "declared"}
            found[(SITE_PROVIDER, SITE_REGION)] = site
        return found

    @functools.cached_property
    def providers(self) -> dict[str, Row]:
        """Rows of providers by id; the site's own row included when its ownership is declared."""
        found = {str(r["id"]): r for r in self.rows("providers")}
        if self.site is not None:
            found[SITE_PROVIDER] = {
                "seat": self.site["country"],
                "parent": self.site.get("parent_country"),
                "establishments": self.site.get("establishments"),
                "attested": True,
                "confidence": "declared",
            }
        return found

    @functools.cached_property
    def services(self) -> dict[tuple[str, str], Row]:
        """Rows of services by exact (provider, service)."""
        return {(str(r["provider"]), str(r["service"])): r for r in self.rows("services")}

    @functools.cached_property
    def categories(self) -> dict[str, Row]:
        """Rows of data categories by tag."""
        return {str(r["tag"]): r for r in self.rows("categories")}

    @functools.cached_property
    def uses(self) -> dict[str, Row]:
        """Rows of prohibited and high-risk uses by code."""
        return {str(r["code"]): r for r in self.rows("uses")}

    @functools.cached_property
    def licences(self) -> dict[str, Row]:
        """Rows of licences by each of their exact ids."""
        return {str(name): r for r in self.rows("licences") for name in r["ids"]}

    @functools.cached_property
    def thresholds(self) -> dict[str, Row]:
        """Rows of thresholds by id."""
        return {str(r["id"]): r for r in self.rows("thresholds")}

    def members(self, name: str, on: dt.date) -> frozenset[str]:
        """Return the countries of a set (`eu`, `eea`, `hds_territory`) in force on a day."""
        return _members(self, name, on)

    def adequacy(self, country: str, on: dt.date) -> str:
        """Return the scope of the adequacy decision for a country: general, conditional, none."""
        return _adequacy(self, country, on)


@functools.lru_cache(maxsize=512)
def _members(reference: Reference, name: str, on: dt.date) -> frozenset[str]:
    return frozenset(
        country
        for row in reference.rows("country_sets")
        if row["set"] == name and in_force(row, on)
        for country in row["members"]
    )


@functools.lru_cache(maxsize=512)
def _adequacy(reference: Reference, country: str, on: dt.date) -> str:
    scopes = {
        str(row["scope"])
        for row in reference.rows("adequacy")
        if row["country"] == country and in_force(row, on)
    }
    return "general" if "general" in scopes else next(iter(scopes), "none")


@functools.lru_cache(maxsize=8)
def _read(data: bytes) -> Reference:
    try:
        document: Any = parse(data, max_bytes=MAX_REFERENCE_BYTES)
    except CanonicalError as cause:
        raise ReferenceDataError(f"reference data: {cause}") from cause
    check(document)
    tables = {name: tuple(rows) for name, rows in document["tables"].items()}
    return Reference(tables, document["site"])


def in_force(row: Row, on: dt.date) -> bool:
    """Say whether a row holds on a day; `from` and `until` are both inclusive, null is open."""
    since, until = row["from"], row["until"]
    day = on.isoformat()
    return (since is None or since <= day) and (until is None or day <= until)


@dataclass(frozen=True, slots=True)
class StaleRow:
    """A row that nobody has looked at for long: where it is and since when."""

    table: str
    key: str
    checked_on: str
    confidence: str
    source: str


def stale(reference: Reference, on: dt.date, days: int) -> tuple[StaleRow, ...]:
    """List rows last checked more than `days` days before `on`, the longest ago first.

    The key is the row's key in `KEYS`, else its number in the table, from 1.

    Raises:
        ValueError: `days` is negative.
    """
    if days < 0:
        raise ValueError(f"expected 0 days or more, got {days}")
    limit = (on - dt.timedelta(days=days)).isoformat()
    found = [
        StaleRow(
            table, _name(table, row, number), row["checked_on"], row["confidence"], row["source"]
        )
        for table in sorted(reference.tables)
        for number, row in enumerate(reference.rows(table), start=1)
        if row["checked_on"] < limit
    ]
    return tuple(sorted(found, key=lambda one: (one.checked_on, one.table, one.key)))


def _name(table: str, row: Row, number: int) -> str:
    keys = KEYS[table](row) if table in KEYS else [number]
    first = keys[0]
    return "/".join(map(str, first)) if isinstance(first, tuple) else str(first)


@functools.cache
def _checker() -> Any:
    return default_evaluator().compile(schema("reference"))


KEYS: Mapping[str, Callable[[Row], Sequence[object]]] = {
    "regions": lambda r: [(r["provider"], r["region"])],
    "providers": lambda r: [r["id"]],
    "services": lambda r: [(r["provider"], r["service"])],
    "categories": lambda r: [r["tag"]],
    "endpoints": lambda r: [r["host"]],
    "licences": lambda r: r["ids"],
    "flavors": lambda r: [(r["provider"], r["flavor"])],
    "prices": lambda r: [(r["provider"], r["flavor"], r["currency"])],
    "thresholds": lambda r: [r["id"]],
    "estimates": lambda r: [r["id"]],
    "hosting": lambda r: [r["id"]],
    "models": lambda r: [r["id"]],
    "uses": lambda r: [r["code"]],
}


def check(document: Any) -> None:
    """Check reference data against `schema/reference.json` and for duplicate keys.

    Raises:
        ReferenceDataError: naming the first wrong place.
    """
    checker = _checker()
    if not checker.is_valid(document):
        pointer, keyword = checker.failures(document)[0]
        raise ReferenceDataError(f"reference data: `{pointer}` breaks `{keyword}`")
    for table, key in KEYS.items():
        found = [k for row in document["tables"].get(table, ()) for k in key(row)]
        twice = sorted({str(k) for k in found if found.count(k) > 1})
        if twice:
            raise ReferenceDataError(f"reference data: `{table}` has `{twice[0]}` twice")
