"""Asking the gate inside a transaction: decide, keep all bytes it rests on, record it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from audit.canonical import canonical
from audit.event import EventKind
from policies.decision import Decision
from policies.gate import decide
from policies.policy import Policy
from policies.reference import Reference
from service import lifecycle
from service.clock import later, seconds
from service.ids import Prefix, new_id
from service.lifecycle import DeploymentMove, DeploymentState, JobMove, JobState
from service.tables import Deployment, Job, StoredDecision
from service.transaction import SYSTEM, Transaction


@dataclass(frozen=True)
class Gate:
    """The policy and the reference data in force in this process."""

    policy: Policy
    reference: Reference
    approval_hours: int

    def preview(
        self, facts: dict[str, Any], *, subject_kind: str, subject_id: str, now: datetime
    ) -> Decision:
        """Decide without recording anything."""
        return decide(
            self.policy,
            self.reference,
            facts,
            evaluated_at=seconds(now),
            subject=f"{subject_kind}:{subject_id}",
        )

    def decide(
        self, tx: Transaction, subject: Job | Deployment, facts: dict[str, Any], *, now: datetime
    ) -> tuple[Decision, StoredDecision]:
        """Decide, move the subject, and record both in this transaction.

        A deny is a committed state like any other.
        """
        kind = "job" if isinstance(subject, Job) else "deployment"
        decision = self.preview(facts, subject_kind=kind, subject_id=subject.id, now=now)
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
            policy_digest=tx.keep(self.policy.to_bytes()),
            reference_digest=tx.keep(self.reference.to_bytes()),
            approvals=[{"role": a.role, "count": a.count} for a in decision.approvals],
            expires_at=min(later(now, hours=self.approval_hours), decision.valid_until),
        )
        subject.decision_id = row.id
        tx.record(
            event,
            subject,
            also=[row],
            actor=SYSTEM,
            data={
                "stage": stage,
                "record": row.record_digest,
                "facts": row.facts_digest,
                "policy": row.policy_digest,
                "reference": row.reference_digest,
                "verdict": row.verdict,
                "approvals": [dict(item) for item in row.approvals],
            },
            outcome="denied" if decision.verdict == "deny" else "ok",
        )
        return decision, row

    def rests_on_the_same(self, row: StoredDecision, decision: Decision, record: bytes) -> bool:
        """Say whether a fresh decision has the inputs, verdict and findings of a stored one.

        Time passes between the two: a certificate that ended meanwhile is another finding, and may
        ask for other people.

        If so, the approvals of the stored one still mean what their officers meant.
        """
        stored = Decision.from_record(record)
        return (
            row.facts_digest == decision.facts_digest
            and row.policy_digest == self.policy.digest
            and row.reference_digest == self.reference.digest
            and row.verdict == decision.verdict
            and row.approvals == [{"role": a.role, "count": a.count} for a in decision.approvals]
            and stored.approvals == decision.approvals
            and stored.results == decision.results
        )


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
