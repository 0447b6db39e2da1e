"""Asking the gate inside a transaction: decide, keep all bytes it rests on, record it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from sqlmodel import Session

from audit.canonical import JsonValue, canonical
from audit.event import EventKind
from policies.decision import Decision
from policies.gate import decide
from policies.policy import Policy
from service import in_force, lifecycle
from service.clock import later, seconds
from service.ids import Prefix, new_id
from service.in_force import InForce
from service.lifecycle import DeploymentMove, DeploymentState, JobMove, JobState
from service.tables import Deployment, Job, StoredDecision
from service.transaction import SYSTEM, Transaction
from service.waivers import active_for

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Gate:
    """The gate of an installation; what it decides by is in force in its database."""

    approval_hours: int

    def current(self, session: Session) -> InForce:
        """Return what is in force in this transaction, which keeps it to its end.

        Raises:
            Unavailable: nothing was put in force yet.
        """
        return in_force.current(session)

    def preview(
        self,
        session: Session,
        facts: dict[str, Any],
        *,
        subject_kind: str,
        subject_id: str,
        now: datetime,
    ) -> Decision:
        """Decide by what is in force, waivers included, without recording anything."""
        policy = self.current(session).policy
        return self._asked(session, policy, facts, f"{subject_kind}:{subject_id}", now)

    def _asked(
        self, session: Session, policy: Policy, facts: dict[str, Any], subject: str, now: datetime
    ) -> Decision:
        return decide(
            policy,
            self.current(session).reference,
            facts,
            evaluated_at=seconds(now),
            subject=subject,
            waivers=active_for(session, subject, now),
        )

    def decide(
        self, tx: Transaction, subject: Job | Deployment, facts: dict[str, Any], *, now: datetime
    ) -> tuple[Decision, StoredDecision]:
        """Decide, move the subject, and record both in this transaction.

        A deny is a committed state like any other. A policy in the shadow decides on the same facts
        at the same instant; its record is kept and named, and nothing else comes of it.
        """
        kind = "job" if isinstance(subject, Job) else "deployment"
        now_in_force = self.current(tx.session)
        name = f"{kind}:{subject.id}"
        decision = self._asked(tx.session, now_in_force.policy, facts, name, now)
        event, stage = _move(subject, decision.verdict)
        row = StoredDecision(
            id=new_id(Prefix.DECISION),
            entry_id="",
            created_at=seconds(now),
            subject_kind=kind,
            subject_id=subject.id,
            stage=stage,
            verdict=decision.verdict,
            record_digest=tx.keep(decision.record),
            facts_digest=tx.keep(canonical(facts)),
            policy_digest=now_in_force.policy.digest,
            reference_digest=now_in_force.reference.digest,
            approvals=[{"role": a.role, "count": a.count} for a in decision.approvals],
            expires_at=min(later(now, hours=self.approval_hours), decision.valid_until),
        )
        subject.decision_id = row.id
        data = _entry_of(row)
        if now_in_force.shadow is not None:
            tried = self._asked(tx.session, now_in_force.shadow, facts, name, now)
            data["shadow"] = {
                "policy": now_in_force.shadow.digest,
                "record": tx.keep(tried.record),
                "verdict": tried.verdict,
            }
        tx.record(
            event,
            subject,
            also=[row],
            actor=SYSTEM,
            data=data,
            outcome="denied" if decision.verdict == "deny" else "ok",
        )
        return decision, row

    def rests_on_the_same(
        self, session: Session, row: StoredDecision, decision: Decision, record: bytes
    ) -> bool:
        """Say whether a fresh decision has the inputs, verdict and findings of a stored one.

        Time passes between the two: a certificate that ended meanwhile is another finding, and may
        ask for other people. So is a policy or a row of reference data that changed: then the
        approvals are stale, and what was approved is decided again.

        If so, the approvals of the stored one still mean what their officers meant.
        """
        stored, now = Decision.from_record(record), self.current(session)
        same = {
            "facts": row.facts_digest == decision.facts_digest,
            "policy": row.policy_digest == now.policy.digest,
            "reference": row.reference_digest == now.reference.digest,
            "verdict": row.verdict == decision.verdict,
            "approvals": row.approvals
            == [{"role": a.role, "count": a.count} for a in decision.approvals]
            and stored.approvals == decision.approvals,
            "results": stored.results == decision.results,
            "waivers": stored.document["waivers"] == decision.document["waivers"],
        }
        changed = sorted(name for name, holds in same.items() if not holds)
        if changed:
            log.warning("approval.stale", subject=row.entity, decision=row.id, changed=changed)
        return not changed


def _entry_of(row: StoredDecision) -> dict[str, JsonValue]:
    return {
        "stage": row.stage,
        "record": row.record_digest,
        "facts": row.facts_digest,
        "policy": row.policy_digest,
        "reference": row.reference_digest,
        "verdict": row.verdict,
        "approvals": [dict(item) for item in row.approvals],
    }


def _move(subject: Job | Deployment, verdict: str) -> tuple[EventKind, str]:
    name = {"deny": "deny", "require_approval": "ask"}.get(verdict, "allow")
    if isinstance(subject, Job):
        state, kind = lifecycle.follow(lifecycle.JOB, JobState(subject.state), JobMove(name))
        subject.state = state
        return kind, "train"
    step, kind = lifecycle.follow(
        lifecycle.DEPLOYMENT, DeploymentState(subject.state), DeploymentMove(name)
    )
    subject.state = step
    return kind, "deploy"
