"""Officers decide: four eyes, a quorum by role, bound to one decision record and one version.

A decision on a job or a deployment is one row and one entry. A refusal needs a reason and ends the
matter at once; approvals count until every role that the decision asks for has its number.
"""

from collections import Counter
from enum import StrEnum

from sqlmodel import Session, select

from audit.event import EventKind
from service import lifecycle
from service.clock import Clock, seconds
from service.ids import Prefix, new_id
from service.lifecycle import DeploymentMove, DeploymentState, JobMove, JobState
from service.principals import Caller, Role
from service.problems import (
    Conflict,
    Forbidden,
    IllegalState,
    PreconditionFailed,
    SelfApproval,
    field_problem,
)
from service.tables import Approval, Deployment, Job, StoredDecision, StoredWaiver
from service.transaction import SYSTEM, Transaction

Subject = Job | Deployment


class Outcome(StrEnum):
    """What an officer decided."""

    GIVEN = "given"
    REFUSED = "refused"


def check_version(subject: Subject | StoredWaiver, expected: int) -> None:
    """Refuse a caller who saw another version.

    Raises:
        PreconditionFailed: names both versions.
    """
    if subject.version != expected:
        raise PreconditionFailed(
            f"you decided on version {expected}, it is now at version {subject.version};"
            " read it again and decide on what it says now",
            version=subject.version,
        )


def decide_on(
    tx: Transaction,
    caller: Caller,
    *,
    subject: Subject,
    expected_version: int,
    outcome: Outcome,
    reason: str,
    clock: Clock,
) -> Approval:
    """Record one officer's decision and move the subject when that settles it.

    Raises:
        Forbidden: not a person, not an officer, or none of the roles still needed.
        SelfApproval: the officer asked for it.
        PreconditionFailed: the subject changed since the officer read it.
        IllegalState: nothing is to be decided, or the gate's decision expired.
        Conflict: this officer decided already.
        Unprocessable: a refusal without a reason.
    """
    _check_decider(caller, subject)
    check_version(subject, expected_version)
    if subject.state != "awaiting_approval" or subject.decision_id is None:
        raise IllegalState(f"it is `{subject.state}`; only what awaits approval can be decided")
    decision = tx.session.get_one(StoredDecision, subject.decision_id)
    if decision.expires_at <= seconds(clock()):
        raise IllegalState(f"the gate's decision expired at {decision.expires_at}; submit it again")
    reason = reason.strip()
    if outcome is Outcome.REFUSED and not reason:
        raise field_problem("/reason", "a refusal needs a reason that the team can act on")
    given = given_approvals(tx.session, decision)
    if any(row.approver_id == caller.id for row in given):
        raise Conflict("you decided on this already; a second officer is needed for the quorum")
    role = _role_to_fill(caller, decision, given)
    row = Approval(
        id=new_id(Prefix.APPROVAL),
        entry_id="",
        created_at=seconds(clock()),
        subject_kind=decision.subject_kind,
        subject_id=subject.id,
        decision_id=decision.id,
        approver_id=caller.id,
        role=role,
        outcome=outcome,
    )
    kind = EventKind.APPROVAL_GIVEN
    if outcome is Outcome.REFUSED:
        kind = _move(subject, "refuse")
    elif not missing_approvals(decision, [*given, row]):
        kind = _move(subject, "approve")
    tx.record(
        kind,
        subject,
        also=[row],
        actor=caller.actor,
        data={"record": decision.record_digest, "role": role},
        outcome="ok" if outcome is Outcome.GIVEN else "denied",
        private={"reason": reason} if reason else None,
    )
    return row


def _check_decider(caller: Caller, subject: Subject) -> None:
    """Refuse whoever is no person, no officer, or asked for it."""
    caller.require(Role.OFFICER)
    caller.require_person("cannot decide")
    asked_by = subject.submitted_by if isinstance(subject, Job) else subject.requested_by
    if asked_by == caller.id:
        raise SelfApproval("you asked for this yourself; another officer must decide")


def expire(tx: Transaction, subject: Subject) -> None:
    """Let what nobody decided or used in time expire."""
    decision = tx.session.get_one(StoredDecision, subject.decision_id)
    kind = _move(subject, "expire")
    tx.record(kind, subject, actor=SYSTEM, data={"record": decision.record_digest})


def given_approvals(session: Session, decision: StoredDecision) -> list[Approval]:
    """List the approvals given on one decision, oldest first."""
    rows = select(Approval).where(Approval.decision_id == decision.id).order_by(Approval.id)
    return [row for row in session.exec(rows) if row.outcome == Outcome.GIVEN]


def missing_approvals(decision: StoredDecision, given: list[Approval]) -> dict[str, int]:
    """Say how many approvals each role still owes, distinct approvers each counting once."""
    have = Counter(row.role for row in {row.approver_id: row for row in given}.values())
    owed = {item["role"]: item["count"] - have[item["role"]] for item in decision.approvals}
    return {role: count for role, count in owed.items() if count > 0}


def _role_to_fill(caller: Caller, decision: StoredDecision, given: list[Approval]) -> str:
    owed = missing_approvals(decision, given)
    mine = [role for role in owed if role in caller.roles]
    if not mine:
        raise Forbidden(
            f"this decision still needs: {', '.join(sorted(owed))}; you have none of them"
        )
    return mine[0]


def _move(subject: Subject, move: str) -> EventKind:
    if isinstance(subject, Job):
        state, kind = lifecycle.follow(lifecycle.JOB, JobState(subject.state), JobMove(move))
        subject.state = state
        return kind
    step, kind = lifecycle.follow(
        lifecycle.DEPLOYMENT, DeploymentState(subject.state), DeploymentMove(move)
    )
    subject.state = step
    return kind
