"""Waivers: exceptions that named people sign, and the one function that says which are active.

    requested ── approved by two ── active while not_before ≤ now < expires_at
        │              └─ revoked: ends at once
        └─ refused, revoked

`active_for` is asked by the gate for every decision: at submission, preview, dispatch, activation
and when something is decided again. A record keeps the waivers it was made with, so that a replay
and a what-if see the same ones; whether one holds at an instant is `policies.waiver`'s answer.

Only what the latest decision found `violated` can be waived, on a rule that says `waivable`, in the
version that was asked. The acts are in `service.waiving`.
"""

from datetime import datetime
from enum import StrEnum

import structlog
from sqlmodel import Session, col, or_, select

from policies.decision import Decision
from policies.waiver import Waiver, WaiverError
from service.archive import load
from service.clock import seconds
from service.principals import Caller
from service.problems import NotFound
from service.tables import Deployment, Job, StoredDecision, StoredWaiver

log = structlog.get_logger(__name__)
Subject = Job | Deployment
OPEN = frozenset({"denied", "awaiting_approval", "approved"})
"""States in which a waiver can still change what the gate says."""
UNDER_WAY = frozenset({"dispatching", "running", "cancelling", "active"})


class WaiverState(StrEnum):
    """Where a waiver stands; an approved one still has its dates."""

    REQUESTED = "requested"
    APPROVED = "approved"
    REFUSED = "refused"
    REVOKED = "revoked"


def active_for(session: Session, subject: str, now: datetime) -> tuple[Waiver, ...]:
    """Return the waivers of one subject (`job:job_…`, `deployment:dep_…`) that hold at an instant.

    The subject is compared whole; nothing else is looked at. In the order of their ids.
    """
    kind, _, name = subject.partition(":")
    rows = session.exec(
        select(StoredWaiver)
        .where(
            StoredWaiver.subject_kind == kind,
            StoredWaiver.subject_id == name,
            StoredWaiver.state == WaiverState.APPROVED,
        )
        .order_by(StoredWaiver.id)
    )
    found = [waiver for row in rows if (waiver := as_waiver(row)) is not None]
    return tuple(waiver for waiver in found if waiver.is_active(seconds(now)))


def as_waiver(row: StoredWaiver) -> Waiver | None:
    """Read an approved row as the gate takes it; one that is malformed never counts."""
    try:
        return Waiver(
            id=row.id,
            rule=row.rule,
            rule_version=row.rule_version,
            subject=row.entity,
            category=row.category,
            reason_digest=str(row.reason_digest),
            requester=row.requester_id,
            approvers=tuple(str(given["approver"]) for given in row.approvals),
            not_before=row.not_before,
            expires_at=row.expires_at,
            revoked_at=row.revoked_at,
        )
    except (KeyError, WaiverError) as error:
        log.warning("waiver.malformed", waiver_id=row.id, reason=str(error))
        return None


def standing(row: StoredWaiver, now: datetime) -> str:
    """Say where a waiver stands now: its state, or `active` or `expired`."""
    at = seconds(now)
    if row.state in {WaiverState.REFUSED, WaiverState.REVOKED}:
        return row.state
    waiver = as_waiver(row) if row.state == WaiverState.APPROVED else None
    if waiver is not None and waiver.is_active(at):
        return "active"
    return "expired" if row.expires_at <= at else row.state


def find(session: Session, caller: Caller, waiver_id: str) -> StoredWaiver:
    """Return a waiver that the caller may see.

    Raises:
        NotFound: no such waiver, or another team's.
    """
    row = session.get(StoredWaiver, waiver_id)
    if row is None or not caller.sees(row.team):
        raise NotFound(f"no waiver `{waiver_id}` that you may see; try `placet waiver list`")
    return row


def locked(session: Session, caller: Caller, waiver_id: str) -> tuple[StoredWaiver, Subject]:
    """Lock a waiver that the caller may see, then what it is about.

    Raises:
        NotFound: no such waiver, or another team's.
    """
    row = session.get(StoredWaiver, waiver_id, with_for_update=True)
    if row is None or not caller.sees(row.team):
        raise NotFound(f"no waiver `{waiver_id}` that you may see; try `placet waiver list`")
    if row.subject_kind == "job":
        return row, session.get_one(Job, row.subject_id, with_for_update=True)
    return row, session.get_one(Deployment, row.subject_id, with_for_update=True)


def subject_of(session: Session, row: StoredWaiver) -> Subject:
    """Return what a waiver is about."""
    if row.subject_kind == "job":
        return session.get_one(Job, row.subject_id)
    return session.get_one(Deployment, row.subject_id)


def counted(session: Session, subject: Subject) -> frozenset[str]:
    """Name the waivers that the latest decision on a subject was made with."""
    if subject.decision_id is None:
        return frozenset()
    stored = session.get_one(StoredDecision, subject.decision_id)
    decision = Decision.from_record(load(session, stored.record_digest))
    return frozenset(str(one["id"]) for one in decision.document["waivers"])


def revoked_under(session: Session, subject: Subject) -> str | None:
    """Name a waiver that the latest decision on a subject counted and that was revoked since.

    What was trained under one must not be deployed. One that merely ended after the training held
    while it was needed.
    """
    for name in sorted(counted(session, subject)):
        row = session.get(StoredWaiver, name)
        if row is None or row.state == WaiverState.REVOKED:
            return name
    return None


def needs_attention(session: Session, row: StoredWaiver, now: datetime) -> bool:
    """Say whether something is under way that this waiver allowed and does not allow any more."""
    if standing(row, now) not in {"revoked", "expired"} or not row.reason_digest:
        return False
    subject = subject_of(session, row)
    return subject.state in UNDER_WAY and row.id in counted(session, subject)


def turned(session: Session, kind: type[Job] | type[Deployment], now: datetime) -> list[str]:
    """List what must be decided again: a waiver began or ended since the latest decision."""
    at, made = seconds(now), col(StoredDecision.created_at)
    begins, ends = col(StoredWaiver.not_before), col(StoredWaiver.expires_at)
    rows = (
        select(col(kind.id))
        .join(StoredWaiver, col(StoredWaiver.subject_id) == col(kind.id))
        .join(StoredDecision, col(StoredDecision.id) == col(kind.decision_id))
        .where(
            col(StoredWaiver.state) == WaiverState.APPROVED,
            col(kind.state).in_(OPEN),
            or_(
                (begins <= at) & (made < begins) & (at < ends),
                (ends <= at) & (made < ends) & (col(kind.state) != "denied"),
            ),
        )
        .order_by(col(kind.id))
        .distinct()
    )
    return list(session.exec(rows))
