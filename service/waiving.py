"""What people do with waivers: request, approve, refuse, revoke. Each is one row and one entry.

Four eyes twice: two approvers, neither of whom requested the waiver or asked for its subject. When
a waiver becomes active or is revoked, its subject is decided again in the same transaction; what
is under way then is flagged.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from sqlmodel import col, select

from audit.canonical import canonical
from audit.event import EventKind, from_bytes
from audit.keys import strict_base64
from policies.decision import Decision, Finding, GateError, parse_instant
from policies.reference import Reference
from service.approvals import check_version
from service.archive import load, parse_object
from service.clock import Clock, seconds
from service.ids import Prefix, new_id
from service.log_tables import AuditEntry
from service.principals import Caller, Role
from service.problems import Conflict, Forbidden, IllegalState, SelfApproval, field_problem
from service.tables import Job, StoredDecision, StoredWaiver
from service.transaction import Transaction
from service.waiver_requests import WaiverRequest
from service.waivers import OPEN, UNDER_WAY, Subject, WaiverState, counted, standing

REQUEST_FORMAT = "placet.waiver-request/1"
QUORUM = 2
_MAX_DAYS = "waiver_max_days"
_OUTCOMES: Mapping[str, str] = {
    "unknown": "a fact is not known; add it, an unknown is never waived",
    "error": "the rule could not be asked; nothing can be waived",
    "waived": "it is waived already",
}
Again = Callable[[Transaction, Subject], object]
"""Decides a subject again; `service.reconsidering` has it."""


def request(
    tx: Transaction, caller: Caller, *, subject: Subject, asked: WaiverRequest, clock: Clock
) -> StoredWaiver:
    """Record that somebody asks for an exception; nothing changes until two others approve.

    Raises:
        Forbidden: a service account, or neither an officer nor a submitter of the team.
        IllegalState: the subject is past deciding, or was never decided.
        Unprocessable: the rule is not violated or not waivable; a date is misspelt or out of range.
        Conflict: there is one for this rule already.
    """
    caller.require_person("signs no waiver")
    if Role.OFFICER not in caller.roles:
        caller.require(Role.SUBMITTER)
        caller.require_team(subject.team)
    if subject.state not in OPEN or subject.decision_id is None:
        raise IllegalState(f"it is `{subject.state}`; a waiver comes before it runs, not after")
    decision = tx.session.get_one(StoredDecision, subject.decision_id)
    finding = _violated(tx, decision, asked.rule)
    rule = _waivable(tx, decision, finding)
    not_before, expires_at = _interval(tx, decision, asked, seconds(clock()))
    row = StoredWaiver(
        id=new_id(Prefix.WAIVER),
        entry_id="",
        created_at=seconds(clock()),
        team=subject.team,
        subject_kind="job" if isinstance(subject, Job) else "deployment",
        subject_id=subject.id,
        rule=finding.rule,
        rule_version=finding.version,
        category=asked.category,
        ticket=asked.ticket,
        requester_id=caller.id,
        document_digest="",
        not_before=not_before,
        expires_at=expires_at,
        approvals=[],
        state=WaiverState.REQUESTED,
    )
    _check_single(tx, row, clock)
    row.document_digest = tx.keep(_document(row, decision, rule))
    tx.record(
        EventKind.WAIVER_REQUESTED,
        row.entity,
        also=[row],
        actor=caller.actor,
        data={
            "waiver": row.id,
            "rule": row.rule,
            "rule_version": row.rule_version,
            "category": row.category,
            "not_before": row.not_before,
            "expires_at": row.expires_at,
            "digest": row.document_digest,
        },
        private={"reason": asked.reason},
    )
    return row


def approve(
    tx: Transaction,
    caller: Caller,
    *,
    row: StoredWaiver,
    subject: Subject,
    expected_version: int,
    clock: Clock,
    again: Again,
) -> StoredWaiver:
    """Record one approval; with the second the waiver holds and its subject is decided again.

    Raises:
        Forbidden: not a person, or not in a role that the rule names.
        SelfApproval: the caller requested the waiver, or asked for its subject.
        PreconditionFailed: the waiver changed since the caller read it.
        IllegalState: it is not waiting for approvals, its time is over, or its subject is past it.
        Conflict: this person approved already.
    """
    role = _check_decider(tx, caller, row, subject)
    check_version(row, expected_version)
    _check_waiting(row, clock)
    if subject.state not in OPEN:
        raise IllegalState(f"what it is about is `{subject.state}`; a waiver changes nothing there")
    if any(given["approver"] == caller.id for given in row.approvals):
        raise Conflict("you approved this already; a second person is needed")
    if not row.approvals:
        row.reason_digest = _commitment(tx, row)
    now = seconds(clock())
    row.approvals = [*row.approvals, {"approver": caller.id, "role": role, "at": now}]
    is_complete = len(row.approvals) == QUORUM
    if is_complete:
        row.state, row.decided_at = WaiverState.APPROVED, now
    tx.record(
        EventKind.WAIVER_APPROVED,
        row.entity,
        also=[row],
        actor=caller.actor,
        data={"waiver": row.id, "role": role},
    )
    if is_complete and row.not_before <= now:
        again(tx, subject)
    return row


def refuse(
    tx: Transaction,
    caller: Caller,
    *,
    row: StoredWaiver,
    subject: Subject,
    expected_version: int,
    reason: str,
    clock: Clock,
) -> StoredWaiver:
    """Refuse a requested waiver; that is the end of it.

    Raises:
        Forbidden, SelfApproval, PreconditionFailed, IllegalState: as `approve`.
        Unprocessable: no reason.
    """
    role = _check_decider(tx, caller, row, subject)
    check_version(row, expected_version)
    _check_waiting(row, clock)
    if not reason.strip():
        raise field_problem("/reason", "a refusal needs a reason that the team can act on")
    row.state, row.decided_at = WaiverState.REFUSED, seconds(clock())
    tx.record(
        EventKind.WAIVER_REFUSED,
        row.entity,
        also=[row],
        actor=caller.actor,
        data={"waiver": row.id, "role": role},
        outcome="denied",
        private={"reason": reason.strip()},
    )
    return row


def revoke(
    tx: Transaction,
    caller: Caller,
    *,
    row: StoredWaiver,
    subject: Subject,
    reason: str,
    clock: Clock,
    again: Again,
) -> StoredWaiver:
    """End a waiver now. What it let through and does not run yet is decided again at once.

    Raises:
        Forbidden: neither an officer nor who requested it.
        IllegalState: it is over already.
    """
    caller.require_person("signs no waiver")
    if caller.id != row.requester_id:
        caller.require(Role.OFFICER)
    is_over = standing(row, clock()) in {"refused", "revoked", "expired"}
    if is_over:
        raise IllegalState(f"it is `{standing(row, clock())}`; there is nothing left to revoke")
    was_approved = row.state == WaiverState.APPROVED
    row.state, row.revoked_at, row.revoked_by = WaiverState.REVOKED, seconds(clock()), caller.id
    flagged: list[Subject] = []
    if was_approved and subject.state in UNDER_WAY and row.id in counted(tx.session, subject):
        subject.reason_code = "waiver_revoked"
        flagged = [subject]
    tx.record(
        EventKind.WAIVER_REVOKED,
        row.entity,
        also=[row, *flagged],
        actor=caller.actor,
        data={"waiver": row.id},
        private={"reason": reason},
    )
    if was_approved and subject.state in OPEN and row.id in counted(tx.session, subject):
        again(tx, subject)
    return row


def _check_decider(tx: Transaction, caller: Caller, row: StoredWaiver, subject: Subject) -> str:
    """Return the role that the caller decides in; refuse whoever asked for any of it."""
    caller.require_person("signs no waiver")
    named = parse_object(load(tx.session, row.document_digest))["approver_roles"]
    mine = sorted(role for role in caller.roles if role in named)
    if not mine:
        raise Forbidden(f"this waiver is decided by: {', '.join(named)}; you have none of them")
    asked_by = subject.submitted_by if isinstance(subject, Job) else subject.requested_by
    if caller.id == row.requester_id:
        raise SelfApproval("you requested this waiver; two others must decide")
    if caller.id == asked_by:
        raise SelfApproval("the waiver is for what you asked for; two others must decide")
    return str(mine[0])


def _check_waiting(row: StoredWaiver, clock: Clock) -> None:
    if row.state != WaiverState.REQUESTED:
        raise IllegalState(f"it is `{standing(row, clock())}`; only a requested one can be decided")
    if row.expires_at <= seconds(clock()):
        raise IllegalState(f"its time ended at {row.expires_at}; request a new one")


def _check_single(tx: Transaction, row: StoredWaiver, clock: Clock) -> None:
    """Refuse a second waiver for the same: waivers never combine."""
    others = tx.session.exec(
        select(StoredWaiver).where(
            StoredWaiver.subject_kind == row.subject_kind,
            StoredWaiver.subject_id == row.subject_id,
            StoredWaiver.rule == row.rule,
            StoredWaiver.rule_version == row.rule_version,
            col(StoredWaiver.state).in_([WaiverState.REQUESTED, WaiverState.APPROVED]),
        )
    )
    for other in others:
        if standing(other, clock()) != "expired":
            raise Conflict(f"`{other.id}` is there for this rule already; decide or revoke it")


def _violated(tx: Transaction, decision: StoredDecision, rule: str) -> Finding:
    """Return what the latest decision found about a rule, if that can be waived."""
    made = Decision.from_record(load(tx.session, decision.record_digest))
    found = {one.rule: one for one in made.results}
    if rule not in found:
        violated = sorted(one.rule for one in made.results if one.outcome == "violated")
        raise field_problem(
            "/rule",
            f"the latest decision asked no rule `{rule}`; violated are:"
            f" {', '.join(violated) or 'none'}",
        )
    if found[rule].outcome != "violated":
        why = _OUTCOMES.get(found[rule].outcome, "only what is violated can be waived")
        raise field_problem("/rule", f"`{rule}` is `{found[rule].outcome}`: {why}")
    return found[rule]


def _waivable(tx: Transaction, decision: StoredDecision, finding: Finding) -> dict[str, Any]:
    """Return the rule's document as it was asked, if it may be waived."""
    policy = parse_object(load(tx.session, decision.policy_digest))
    rule: dict[str, Any] = next(one for one in policy["rules"] if one["id"] == finding.rule)
    if not rule["waivable"] or rule["version"] != finding.version:
        raise field_problem("/rule", f"`{finding.rule}` cannot be waived; change what it asks for")
    return rule


def _interval(
    tx: Transaction, decision: StoredDecision, asked: WaiverRequest, now: str
) -> tuple[str, str]:
    """Check the dates: one spelling, half-open, no longer than the data says for this rule."""
    start = asked.not_before or now
    instants = {}
    for pointer, text in (("/not_before", start), ("/expires_at", asked.expires_at)):
        try:
            instants[pointer] = parse_instant(text)
        except GateError as error:
            raise field_problem(pointer, str(error)) from error
    if start < now:
        raise field_problem("/not_before", f"{start} is past; leave it out to start now")
    if asked.expires_at <= start:
        raise field_problem("/expires_at", f"expected after {start}, got {asked.expires_at}")
    thresholds = Reference.from_bytes(load(tx.session, decision.reference_digest)).thresholds
    longest = thresholds.get(f"{_MAX_DAYS}.{asked.rule}") or thresholds.get(_MAX_DAYS)
    if longest is None or "value" not in longest:
        raise field_problem("/rule", f"reference data has no `{_MAX_DAYS}`; nothing can be waived")
    if instants["/expires_at"] - instants["/not_before"] > timedelta(days=longest["value"]):
        raise field_problem(
            "/expires_at", f"`{asked.rule}` may be waived for at most {longest['value']} days"
        )
    return start, asked.expires_at


def _document(row: StoredWaiver, decision: StoredDecision, rule: Mapping[str, Any]) -> bytes:
    """Write what is asked for, without its reason: the approvers approve these bytes."""
    return canonical(
        {
            "format": REQUEST_FORMAT,
            "waiver": row.id,
            "subject": row.entity,
            "record": decision.record_digest,
            "rule": row.rule,
            "rule_version": row.rule_version,
            "category": row.category,
            "ticket": row.ticket,
            "requester": row.requester_id,
            "approver_roles": sorted({a["role"] for a in rule["approvals"]}) or [Role.OFFICER],
            "not_before": row.not_before,
            "expires_at": row.expires_at,
        }
    )


def _commitment(tx: Transaction, row: StoredWaiver) -> str:
    """Name the sealed reason as records do: its commitment in the entry of the request."""
    entry = tx.session.exec(select(AuditEntry).where(AuditEntry.id == row.entry_id)).one()
    return f"sha256:{strict_base64(from_bytes(entry.body).sealed['reason']).hex()}"
