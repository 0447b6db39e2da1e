"""An installation's own reference data: rows that officers record, over those that ship.

Every act is an append-only row and an entry, and keeps the bytes of all tables as they are in force
from then on: what a decision was made from can be read for as long as there is a log.

    shipped    the tables of this release, the operator's site and the overlay folder; at a start
    recorded   a row takes the place of the shipped one with its key, or is added
    withdrawn  the installation's own row is gone; a shipped one of that key shows again
    hidden     the shipped row of that key is gone

One officer may say what the installation has: certificates, prices, machines, and places of its
own. What the law is, which country a shipped region is in and who owns a shipped provider are not
one person's to change: such rows come with a release, or from the operator's overlay folder.
"""

import json
from dataclasses import dataclass
from typing import Any

from sqlmodel import Session, col, select

from audit.canonical import canonical
from audit.event import EventKind
from policies.overlay import OverlayRow, key_of, lay_over, make_row
from policies.reference import Reference, ReferenceDataError
from service import in_force
from service.archive import load
from service.clock import Clock, seconds
from service.force_tables import ReferenceRow
from service.ids import Prefix, new_id
from service.principals import Caller, Role
from service.problems import NotFound, field_problem
from service.transaction import SYSTEM, Transaction

SHIPPED_TABLE, SHIPPED_KEY = "all", "shipped"
# The verifier holds the log to the same lists: `audit.tables`.
OWN_TABLES = frozenset({"certificates", "flavors", "hosting", "models", "prices"})
"""Tables whose shipped rows an officer may replace or hide."""
ADDED_TABLES = frozenset({"endpoints", "providers", "regions", "services"})
"""Tables that an officer may add to; shipped rows stay as they are."""


@dataclass(frozen=True)
class Attached:
    """The document that a row rests on, for instance a certificate: bytes and their type."""

    body: bytes
    media_type: str


def ship(tx: Transaction, reference: Reference, clock: Clock) -> ReferenceRow | None:
    """Record what this release and its settings bring, unless it is what was recorded last.

    Raises:
        ReferenceDataError: an installation's own row does not fit these tables any more.
    """
    in_force.hold(tx.session, alone=True)
    last = _shipped(tx.session)
    if last is not None and last.row_digest == reference.digest:
        return None
    row = ReferenceRow(
        id=new_id(Prefix.REFERENCE),
        entry_id="",
        created_at=seconds(clock()),
        sequence=_next(tx.session),
        act="shipped",
        table_name=SHIPPED_TABLE,
        row_key=SHIPPED_KEY,
        row_digest=tx.keep(reference.to_bytes()),
        reference_digest=tx.keep(lay_over(reference, overlay(tx.session)).to_bytes()),
    )
    return _record(tx, row, actor=None, reason="")


def record(
    tx: Transaction,
    caller: Caller,
    *,
    table: str,
    members: dict[str, Any],
    attached: Attached | None,
    reason: str,
    clock: Clock,
) -> ReferenceRow:
    """Put an officer's row in force; it says who declares it, from the token and nowhere else.

    Raises:
        Forbidden: not an officer, or no person.
        Unprocessable: an unknown table, a row that the schema or a date refuses, a document or an
            author that the row names itself, or a day of checking that is still to come.
    """
    _check_officer(caller)
    in_force.hold(tx.session, alone=True)
    for name in sorted({"declared_by", "document"} & members.keys()):
        raise field_problem(f"/row/{name}", "is written by the service; leave it out")
    whole = {**members, "declared_by": caller.id}
    if attached is not None:
        whole["document"] = tx.keep(attached.body, attached.media_type)
    try:
        made, base = make_row(table, whole), _base(tx.session)
        _check_may_change(base, table, made.key)
        if str(whole["checked_on"]) > seconds(clock())[:10]:
            raise field_problem("/row/checked_on", "lies in the future; say when you looked")
        now = lay_over(base, [*overlay(tx.session), made])
    except ReferenceDataError as error:
        raise field_problem("/row", str(error)) from error
    row = ReferenceRow(
        id=new_id(Prefix.REFERENCE),
        entry_id="",
        created_at=seconds(clock()),
        created_by=caller.id,
        sequence=_next(tx.session),
        act="recorded",
        table_name=table,
        row_key=made.key,
        row_digest=tx.keep(canonical(whole)),
        document_digest=whole.get("document"),
        reference_digest=tx.keep(now.to_bytes()),
    )
    return _record(tx, row, actor=caller, reason=reason)


def withdraw(
    tx: Transaction, caller: Caller, *, table: str, key: str, reason: str, clock: Clock
) -> ReferenceRow:
    """Take away what is in force under a key: the installation's own row, else the shipped one.

    Raises:
        Forbidden: not an officer, or no person.
        NotFound: nothing is in force there.
    """
    _check_officer(caller)
    in_force.hold(tx.session, alone=True)
    base, rows = _base(tx.session), overlay(tx.session)
    own = next((one for one in rows if (one.table, one.key) == (table, key)), None)
    if own is not None and own.row is not None:
        act, left = "withdrawn", [one for one in rows if one is not own]
    elif own is None and _has(base, table, key):
        _check_may_change(base, table, key)
        act, left = "hidden", [*rows, OverlayRow(table, key, None)]
    else:
        raise NotFound(f"no row `{key}` is in force in `{table}`; see `placet reference list`")
    row = ReferenceRow(
        id=new_id(Prefix.REFERENCE),
        entry_id="",
        created_at=seconds(clock()),
        created_by=caller.id,
        sequence=_next(tx.session),
        act=act,
        table_name=table,
        row_key=key,
        reference_digest=tx.keep(lay_over(base, left).to_bytes()),
    )
    return _record(tx, row, actor=caller, reason=reason)


def overlay(session: Session) -> tuple[OverlayRow, ...]:
    """Return the installation's own rows as they are in force, and the shipped keys it hides."""
    latest: dict[tuple[str, str], ReferenceRow] = {}
    for row in session.exec(select(ReferenceRow).order_by(col(ReferenceRow.sequence))):
        if row.act != "shipped":
            latest[row.table_name, row.row_key] = row
    return tuple(
        OverlayRow(row.table_name, row.row_key, row_of(session, row))
        for row in latest.values()
        if row.act != "withdrawn"
    )


def row_of(session: Session, row: ReferenceRow) -> dict[str, Any] | None:
    """Return the row that an act recorded; None when it recorded none."""
    if row.act != "recorded" or row.row_digest is None:
        return None
    found: dict[str, Any] = json.loads(load(session, row.row_digest))
    return found


def latest_acts(session: Session) -> dict[tuple[str, str], ReferenceRow]:
    """Return the last act on each key that an officer touched."""
    acts = session.exec(select(ReferenceRow).order_by(col(ReferenceRow.sequence)))
    return {(row.table_name, row.row_key): row for row in acts if row.act != "shipped"}


def _base(session: Session) -> Reference:
    shipped = _shipped(session)
    if shipped is None or shipped.row_digest is None:
        raise NotFound("no reference data is in force yet; start the service or the worker once")
    return in_force.reference_of(session, shipped.row_digest)


def _shipped(session: Session) -> ReferenceRow | None:
    acts = select(ReferenceRow).where(ReferenceRow.act == "shipped")
    return session.exec(acts.order_by(col(ReferenceRow.sequence).desc()).limit(1)).first()


def _has(reference: Reference, table: str, key: str) -> bool:
    try:
        return any(key_of(table, row) == key for row in reference.rows(table))
    except ReferenceDataError:
        return False


def _next(session: Session) -> int:
    last = in_force.newest_row(session)
    return 0 if last is None else last.sequence + 1


def _check_officer(caller: Caller) -> None:
    caller.require(Role.OFFICER)
    caller.require_person("cannot change what decides")


def _check_may_change(base: Reference, table: str, key: str) -> None:
    if table in OWN_TABLES or (table in ADDED_TABLES and not _has(base, table, key)):
        return
    what = "a row that ships" if table in ADDED_TABLES else "what the law says"
    raise field_problem(
        "/table",
        f"`{table}` `{key}` is {what}, and not for one officer to change; the operator can put the"
        " row into the overlay folder (PLACET_REFERENCE_DIR), which is logged when it is read",
    )


def _record(
    tx: Transaction, row: ReferenceRow, *, actor: Caller | None, reason: str
) -> ReferenceRow:
    tx.record(
        EventKind.REFERENCE_RECORDED,
        row,
        actor=SYSTEM if actor is None else actor.actor,
        data={
            "table": row.table_name,
            "key": row.row_key,
            "row": row.row_digest,
            "document": row.document_digest,
            "reference": row.reference_digest,
        },
        private={"reason": reason.strip()} if reason.strip() else None,
    )
    return row
