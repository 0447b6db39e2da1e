"""What is under way, with what its latest decision saw: the work that dated rows carry."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlmodel import Session, col, select

from policies.decision import Decision
from service.archive import load
from service.lifecycle import DeploymentState, JobState
from service.tables import Deployment, Job, StoredDecision

LIVE_JOBS = (
    *(JobState.AWAITING_APPROVAL, JobState.APPROVED, JobState.DISPATCHING),
    *(JobState.RUNNING, JobState.CANCELLING),
)
LIVE_DEPLOYMENTS = (
    DeploymentState.AWAITING_APPROVAL,
    DeploymentState.APPROVED,
    DeploymentState.ACTIVE,
)


@dataclass(frozen=True)
class Resting:
    """A job or a deployment that rests on something."""

    subject: str
    team: str
    state: str

    def to_json(self) -> dict[str, str]:
        """Render it."""
        return {"subject": self.subject, "team": self.team, "state": self.state}


@dataclass(frozen=True)
class Work:
    """A live job or deployment and the facts of its latest decision.

    Attributes:
        resting: who it is.
        facts: as the record has them; anything when they broke their contract.
        derived: as the record has them.
        decided_on: the day of the decision, `YYYY-MM-DD`.
    """

    resting: Resting
    facts: Any
    derived: Mapping[str, Any]
    decided_on: str

    def places(self) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Yield each place (compute, endpoint, data, storage) as declared and as derived."""
        facts, derived = self.facts, self.derived
        if not isinstance(facts, Mapping):
            return
        pairs = [
            (facts.get("compute"), derived.get("compute")),
            (facts.get("deploy"), derived.get("serving")),
            *zip(facts.get("datasets") or (), derived.get("datasets") or (), strict=False),
            *zip(facts.get("storage") or (), derived.get("storage") or (), strict=False),
        ]
        for at, known in pairs:
            if isinstance(at, Mapping) and isinstance(known, Mapping):
                yield at, known


def live(session: Session) -> Iterator[Work]:
    """Yield all live work; reads one record for each."""
    for row, decision in _rows(session):
        record = Decision.from_record(load(session, decision.record_digest)).document
        yield Work(
            resting=Resting(row.entity, row.team, row.state),
            facts=record["facts"],
            derived=record["derived"],
            decided_on=decision.created_at[:10],
        )


def _rows(session: Session) -> Iterator[tuple[Job | Deployment, StoredDecision]]:
    yield from session.exec(
        select(Job, StoredDecision)
        .join(StoredDecision, col(StoredDecision.id) == col(Job.decision_id))
        .where(col(Job.state).in_(LIVE_JOBS))
    )
    yield from session.exec(
        select(Deployment, StoredDecision)
        .join(StoredDecision, col(StoredDecision.id) == col(Deployment.decision_id))
        .where(col(Deployment.state).in_(LIVE_DEPLOYMENTS))
    )
