"""The reference data that the log says are in force: what ships, and an officer's own rows over it.

A part of level L6; `audit.invariants` lists the rules. A reference.recorded names the whole of the
data that are in force from then on (`reference`). They must be what ships with every own row that
the log has named so far, in its place, and nothing else:

    shipped    table "all", key "shipped": `row` is the digest of all tables that ship
    recorded   `row` is the digest of an own row: it takes the place of the shipped one, or is added
    withdrawn  no `row`, and there is an own row of this key: it is gone
    hidden     no `row`, and there is none: the shipped row of this key is gone

A row's key is made of its members. Kept rows stay in their order; own rows follow, by their keys.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from audit.canonical import JsonValue, canonical
from audit.consent import Violate
from audit.enclosed import Enclosed, Members, UnreadableError, differing
from audit.event import Event
from audit.waivable import REFERENCE_FORMAT

KEYS: Mapping[str, tuple[str, ...]] = {
    "certificates": ("scheme", "provider", "service", "regions", "valid_from"),
    "endpoints": ("host",),
    "flavors": ("provider", "flavor"),
    "hosting": ("id",),
    "models": ("id",),
    "prices": ("provider", "flavor", "currency"),
    "providers": ("id",),
    "regions": ("provider", "region"),
    "services": ("provider", "service"),
}
"""The members that make a row's key, for the tables that officers may say something about."""
ADDED = frozenset({"endpoints", "providers", "regions", "services"})
"""Those of them in which shipped rows stay as they are."""

_Rows = list[dict[str, JsonValue]]
_Place = tuple[str, str]


class Tables:
    """Follows what ships and each own row; holds the data of every act against them."""

    def __init__(self, violate: Violate, enclosed: Enclosed) -> None:
        self._violate = violate
        self._enclosed = enclosed
        self._shipped: str | None = None
        self._shipped_data: Members | None = None
        self._own: dict[_Place, Members | None] = {}
        self._unknown: set[_Place] = set()

    def ship(self, event: Event) -> None:
        """Take in what ships."""
        self._shipped, self._shipped_data = str(event.data["row"]), None
        self._guarded(event, self._check_whole)

    def record(self, event: Event) -> None:
        """Take in an act on one row of a table in `KEYS`."""
        self._guarded(event, self._check_row)
        self._guarded(event, self._check_whole)

    def _guarded(self, event: Event, check: Callable[[Event], None]) -> None:
        try:
            check(event)
        except UnreadableError as cause:
            place = f"{event.data['table']} {event.data['key']}"
            self._violate("reference-readable", f"{place}: {cause}")

    def _check_row(self, event: Event) -> None:
        """Check one row against its entry, and lay it over what ships.

        Raises:
            UnreadableError: the row or what ships cannot be read.
        """
        data = event.data
        place = table, key = str(data["table"]), str(data["key"])
        is_taken_away, is_own = data["row"] is None, self._own.get(place) is not None
        row = None if is_taken_away else self._enclosed.read(str(data["row"]))
        wrong = [] if row is None else _wrong_members(event, row)
        is_shipped = self._is_shipped(table, key)
        if is_shipped and table in ADDED and not (is_taken_away and is_own):
            self._violate("reference-is-not-law", f"{table} {key} is a row that ships")
        if is_shipped is False and is_taken_away and not (is_own or place in self._unknown):
            wrong.append("no such row")
        if wrong:
            self._violate("reference-row-binds-entry", f"{table} {key}: {', '.join(wrong)}")
        if is_taken_away and (is_own or place in self._unknown):
            self._own.pop(place, None)
        else:
            self._own[place] = row
        self._unknown.discard(place)
        if row is None and not is_taken_away:
            self._unknown.add(place)

    def _is_shipped(self, table: str, key: str) -> bool | None:
        """Say whether a row with this key ships; None when what ships is not enclosed."""
        shipped = self._read_shipped()
        if shipped is None:
            return None
        return any(_key(table, row) == key for row in _tables_of(shipped).get(table, []))

    def _check_whole(self, event: Event) -> None:
        """Check that all data in force are what ships under the own rows, and nothing else.

        Raises:
            UnreadableError: a document cannot be read.
        """
        reference = str(event.data["reference"])
        if not self._own:
            if reference != self._shipped:
                self._violate("reference-is-what-was-said", "it is not what ships")
            return
        whole, shipped = self._enclosed.read(reference, REFERENCE_FORMAT), self._read_shipped()
        if whole is None or shipped is None or self._unknown:
            return
        expected = {**shipped, "tables": _laid_over(_tables_of(shipped), self._own)}
        if wrong := _differing(expected, whole):
            detail = f"no entry says what it holds under {', '.join(wrong)}"
            self._violate("reference-is-what-was-said", detail)

    def _read_shipped(self) -> Members | None:
        if self._shipped_data is None and self._shipped is not None:
            self._shipped_data = self._enclosed.read(self._shipped, REFERENCE_FORMAT)
        return self._shipped_data


def _wrong_members(event: Event, row: Members) -> list[str]:
    wrong = differing({"declared_by": event.actor.ref}, row)
    if row.get("document") != event.data["document"]:
        wrong.append("document")
    if _key(str(event.data["table"]), row) != event.data["key"]:
        wrong.append("key")
    return wrong


def _laid_over(
    tables: Mapping[str, _Rows], own: Mapping[_Place, Members | None]
) -> dict[str, Sequence[Members]]:
    laid: dict[str, Sequence[Members]] = dict(tables)
    for table in sorted({table for table, _ in own}):
        keys = sorted(key for name, key in own if name == table)
        kept = [row for row in tables.get(table, []) if _key(table, row) not in keys]
        added = (own[table, key] for key in keys)
        laid[table] = [*kept, *(row for row in added if row is not None)]
    return laid


def _differing(expected: Mapping[str, object], whole: Members) -> list[str]:
    """Name the tables, and the members beside them, that are not what is expected."""
    found: set[str] = set()
    for one, two in (
        (expected, whole),
        (expected["tables"], whole.get("tables")),
    ):
        known, said = _spelt(one), _spelt(two)
        found |= {name for name in {*known, *said} if known.get(name) != said.get(name)}
    return sorted(found)


def _spelt(value: object) -> dict[str, bytes]:
    members = value if isinstance(value, dict) else {}
    return {name: canonical(member) for name, member in members.items()}


def _tables_of(document: Members) -> dict[str, _Rows]:
    tables = document.get("tables")
    is_readable = isinstance(tables, dict) and all(
        isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
        for rows in tables.values()
    )
    if not is_readable:
        raise UnreadableError("reference data have tables of rows")
    return cast("dict[str, _Rows]", tables)


def _key(table: str, row: Members) -> str:
    """Return a row's key: its members, joined by `/`; an open date is `-`, "" when one lacks."""
    names = KEYS[table]
    return "/".join(map(_part, (row[name] for name in names))) if row.keys() >= set(names) else ""


def _part(value: JsonValue) -> str:
    if value is None:
        return "-"
    return "+".join(sorted(map(str, value))) if isinstance(value, list) else str(value)
