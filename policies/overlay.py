"""An installation's own rows over the reference data that ship: replaced, added or hidden by key.

Nothing of what ships is changed. A row has a key in its table (`key_of`); an overlay row of the
same key takes the shipped row's place, another key adds a row, and a key without a row hides the
shipped one. What comes out is reference data like any other, checked against the same schema, with
a digest of its own.

    lay_over(reference, [OverlayRow("regions", "own-site/lyon", {"provider": "own-site", …}),
                         OverlayRow("endpoints", "s3.example.org", None)])

An overlay row says who declares it (`declared_by`), when they looked (`checked_on`), where it comes
from (`source`) and how far to trust it (`confidence`). A certificate says its `number`, service,
regions, activities, first and last day and, when its document is kept, that document's digest.
"""

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policies.reference import FORMAT, Reference, ReferenceDataError, Row, check

TABLES: Mapping[str, tuple[str, ...]] = {
    "adequacy": ("country", "scope", "from"),
    "calendar": ("id",),
    "categories": ("tag",),
    "certificates": ("scheme", "provider", "service", "regions", "valid_from"),
    "country_sets": ("set", "from"),
    "endpoints": ("host",),
    "estimates": ("id",),
    "flavors": ("provider", "flavor"),
    "hosting": ("id",),
    "licences": ("ids",),
    "models": ("id",),
    "prices": ("provider", "flavor", "currency"),
    "providers": ("id",),
    "regions": ("provider", "region"),
    "services": ("provider", "service"),
    "thresholds": ("id",),
    "uses": ("code",),
}
"""The members that make a row's key, by table; a list counts by its sorted items."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}", re.ASCII)
_DAYS = ("checked_on", "from", "until", "valid_from", "valid_until", "date")


@dataclass(frozen=True)
class OverlayRow:
    """One key of one table, and the row that holds there; None hides the shipped row."""

    table: str
    key: str
    row: Row | None


def key_of(table: str, row: Row) -> str:
    """Return a row's key: its members, joined by `/`; an open date is `-`.

    Raises:
        ReferenceDataError: an unknown table, a member that is not there, or one that has
            characters which a key cannot hold (letters, digits and `._:/@+-` are allowed).
    """
    if table not in TABLES:
        known = ", ".join(sorted(TABLES))
        raise ReferenceDataError(f"there is no table {table!a}; expected one of {known}")
    parts = [_part(table, row, name) for name in TABLES[table]]
    key = "/".join(parts)
    if _KEY.fullmatch(key) is None:
        raise ReferenceDataError(
            f"`{table}`: {key[:60]!a} is no key; use letters, digits and `._:/@+-` in its members"
        )
    return key


def _part(table: str, row: Row, name: str) -> str:
    if name not in row:
        raise ReferenceDataError(f"`{table}`: the row lacks `{name}`")
    value = row[name]
    if value is None:
        return "-"
    return "+".join(sorted(map(str, value))) if isinstance(value, list) else str(value)


def make_row(table: str, row: Mapping[str, Any]) -> OverlayRow:
    """Check one row that somebody declares, and name its key.

    Raises:
        ReferenceDataError: no such table, the row breaks the schema, it says nobody declares it, a
            day that is none, an end before its start, or a certificate without number or days.
    """
    key = key_of(table, row)
    check({"format": FORMAT, "site": None, "tables": {table: [dict(row)]}})
    if not row.get("declared_by"):
        raise ReferenceDataError(f"`{table}` `{key}`: `declared_by` says who answers for the row")
    _check_days(table, key, row)
    if table == "certificates":
        for name in ("number", "valid_from", "valid_until"):
            if row.get(name) is None:
                raise ReferenceDataError(f"`{table}` `{key}`: a certificate needs `{name}`")
    return OverlayRow(table, key, dict(row))


def _check_days(table: str, key: str, row: Row) -> None:
    for name in _DAYS:
        if row.get(name) is not None:
            try:
                dt.date.fromisoformat(row[name])
            except ValueError as cause:
                raise ReferenceDataError(f"`{table}` `{key}`: `{name}` is no day") from cause
    for first, last in (("valid_from", "valid_until"), ("from", "until")):
        if row.get(first) and row.get(last) and row[last] < row[first]:
            raise ReferenceDataError(f"`{table}` `{key}`: `{last}` is before `{first}`")


def lay_over(reference: Reference, rows: Sequence[OverlayRow]) -> Reference:
    """Return the reference data with overlay rows in place; of two with one key the last holds.

    Raises:
        ReferenceDataError: an unknown table, a key that is not the row's own, or the whole breaks
            the schema or has a key twice.
    """
    latest: dict[str, dict[str, Row | None]] = {}
    for one in rows:
        if one.row is not None and key_of(one.table, one.row) != one.key:
            raise ReferenceDataError(f"`{one.table}` `{one.key}` is not the key of its row")
        if one.table not in TABLES:
            raise ReferenceDataError(f"there is no table {one.table!a}")
        latest.setdefault(one.table, {})[one.key] = one.row
    if not latest:
        return reference
    tables = {name: list(rows) for name, rows in reference.tables.items()}
    for table, changed in latest.items():
        kept = [row for row in tables.get(table, []) if _name(table, row) not in changed]
        added = (changed[key] for key in sorted(changed))
        tables[table] = [*kept, *(row for row in added if row is not None)]
    check({"format": FORMAT, "site": reference.site, "tables": tables})
    return Reference({name: tuple(rows) for name, rows in tables.items()}, reference.site)


def rows_of(reference: Reference) -> Iterable[tuple[str, str, Row]]:
    """Yield (table, key, row) of everything in force, in the order of the tables.

    A shipped row whose members no key can hold has the key "".
    """
    for table in sorted(reference.tables):
        for row in reference.tables[table]:
            yield table, _name(table, row), row


def _name(table: str, row: Row) -> str:
    try:
        return key_of(table, row)
    except ReferenceDataError:
        return ""
