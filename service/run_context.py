"""What running jobs needs from the installation, and the one run of a job that is open."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlmodel import Session, select

from service.engines.protocol import Engine
from service.jobs import JobContext
from service.objects.protocol import (
    Objects,
)
from service.permits import Issuer
from service.tables import Run
from service.tracking import Tracking
from service.transaction import Transactions


@dataclass(frozen=True)
class RunContext:
    """What running jobs needs from the installation.

    Args:
        transactions: the database.
        jobs: what submitting needs; dispatch asks the gate again.
        engines: provider → engine.
        issuer: signs permits.
        issuer_name: their `iss`.
        objects: where outputs lie.
        outputs: URI prefix; each run writes under its own id only.
        permit_minutes: within which a permit must be used.
        environment: storage credentials for the trainer, nothing else.
        tracking: MLflow, a mirror.
    """

    transactions: Transactions
    jobs: JobContext
    engines: Mapping[str, Engine]
    issuer: Issuer
    issuer_name: str
    objects: Objects
    outputs: str
    permit_minutes: int
    environment: Mapping[str, str] = field(repr=False)
    tracking: Tracking


def open_run(session: Session, job_id: str) -> Run:
    """Return the run of a job that is not over."""
    return session.exec(select(Run).where(Run.job_id == job_id, Run.outcome == None)).one()  # noqa: E711
