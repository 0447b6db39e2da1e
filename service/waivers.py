"""Waivers: exceptions that named people sign, and the one function that says which are active.

    requested ── approved by two ── active while not_before ≤ now < expires_at
        │              └─ revoked: ends at once
        └─ refused, revoked

`active_for` is asked by the gate for every decision: at submission, preview, dispatch, activation
and when something is decided again. A record keeps the waivers it was made with, so that a replay
and a what-if see the same ones; whether one holds at an instant is `policies.waiver`'s answer.
"""

from datetime import datetime
from enum import StrEnum

import structlog
from sqlmodel import Session, select

from policies.waiver import Waiver, WaiverError
from service.clock import seconds
from service.tables import StoredWaiver

log = structlog.get_logger(__name__)


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
    found = [waiver for row in rows if (waiver := _as_waiver(row)) is not None]
    return tuple(waiver for waiver in found if waiver.is_active(seconds(now)))


def _as_waiver(row: StoredWaiver) -> Waiver | None:
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
