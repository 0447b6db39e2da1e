"""Composition root of the worker: a loop for the log, one for jobs, one for deployments.

Each is level-triggered: each pass looks at what is and does the next step, so a crash anywhere is
followed by the same step again. Stopping the worker stops no run and no endpoint.
"""

import threading
from collections.abc import Callable

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import col, select

from service import hosting, models, runs, waivers
from service.approvals import expire
from service.clock import seconds
from service.engines.protocol import EngineError
from service.expiring import DailyWarning
from service.installation import Installation
from service.ledger import ClockError, ForkError, RolledBackError
from service.lifecycle import DeploymentState, JobState
from service.objects.protocol import ObjectError
from service.problems import Unavailable
from service.reconsidering import decide_again
from service.serving import ServingError
from service.tables import Deployment, EndpointState, Job, StoredDecision
from service.transaction import Transaction
from service.witnesses import QuorumError

log = structlog.get_logger(__name__)
# What the outside may do to a pass; the next pass tries again.
_TRANSIENT = (
    *(EngineError, ObjectError, QuorumError, ServingError, SQLAlchemyError, OSError),
    Unavailable,
)


class Worker:
    """Runs the loops in threads until `stop`.

    Args:
        installation: what to work on.
    """

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._stop = threading.Event()
        self._certificates = DailyWarning()
        self._threads = [
            threading.Thread(target=self._loop, args=("log", self.publish), daemon=True),
            threading.Thread(target=self._loop, args=("jobs", self._work_jobs), daemon=True),
            threading.Thread(
                target=self._loop, args=("deployments", self._work_deployments), daemon=True
            ),
        ]

    def start(self) -> None:
        """Start the log if it is new, then the loops.

        Raises:
            RolledBackError: the database is older than what was signed.
        """
        self._installation.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let the present pass end; what it committed stays."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=30)

    def run(self) -> None:
        """Work until stopped from another thread or a signal handler."""
        self.start()
        self._stop.wait()
        self.stop()

    def publish(self) -> None:
        """Give indexes and publish a checkpoint, if there is anything new."""
        self._installation.ledger.sequence()
        self._installation.ledger.publish()

    def work(self) -> None:
        """Do the next step of everything that waits for one."""
        self._work_jobs()
        self._work_deployments()

    def _work_jobs(self) -> None:
        context = self._installation.runs
        for job_id in self._overdue(Job):
            self._step(self._expire_job, job_id)
        for job_id in self._turned(Job):
            self._step(self._reconsider_job, job_id)
        for job_id in self._jobs(JobState.APPROVED):
            self._step(lambda one: runs.dispatch(context, one), job_id)
        for job_id in self._jobs(JobState.DISPATCHING):
            self._step(lambda one: runs.launch(context, one), job_id)
        for job_id in self._jobs(JobState.RUNNING, JobState.CANCELLING):
            self._step(lambda one: runs.observe(context, one), job_id)
        with self._installation.transactions.read() as session:
            finished = models.waiting_runs(session)
        for run_id in finished:
            self._step(lambda one: models.register(context, one), run_id)

    def _work_deployments(self) -> None:
        context = self._installation.deployments
        self._step(self._warn, "certificates")
        for deployment_id in self._overdue(Deployment):
            self._step(self._expire_deployment, deployment_id)
        for deployment_id in self._turned(Deployment):
            self._step(self._reconsider_deployment, deployment_id)
        for deployment_id in self._deployments(DeploymentState.APPROVED):
            self._step(lambda one: hosting.advance(context, one), deployment_id)
        for deployment_id in self._deployments(DeploymentState.ACTIVE):
            self._step(lambda one: hosting.watch(context, one), deployment_id)
        for deployment_id in self._orphaned_endpoints():
            self._step(lambda one: hosting.stop_endpoint(context, one), deployment_id)

    def _loop(self, name: str, once: Callable[[], None]) -> None:
        while not self._stop.wait(self._installation.settings.worker_interval_s):
            try:
                once()
            except (RolledBackError, ForkError, ClockError) as error:
                log.critical("log.signing_stopped", reason=str(error))
            except _TRANSIENT as error:
                log.warning("worker.retry", loop=name, reason=str(error)[:300])
            except Exception:  # a composition root: a bug in one pass ends one pass
                log.exception("worker.failed", loop=name)

    def _step(self, act: Callable[[str], object], subject: str) -> object:
        """Do one step; neither an outage nor a bug there may keep the others waiting."""
        try:
            return act(subject)
        except _TRANSIENT as error:
            log.warning("worker.retry", subject=subject, reason=str(error)[:300])
            return None
        except Exception:  # a composition root: a bug in one step ends one step
            log.exception("worker.step_failed", subject=subject)
            return None

    def _warn(self, _: str) -> None:
        """Say once a day which certificates end soon, and what rests on them."""
        today = self._installation.clock().date()
        with self._installation.transactions.read() as session:
            reference = self._installation.gate.current(session).reference
            self._certificates.say(session, reference, today=today)

    def _expire_job(self, job_id: str) -> None:
        with self._installation.transactions.write() as tx:
            job = tx.session.get_one(Job, job_id, with_for_update=True)
            if job.state == JobState.AWAITING_APPROVAL:
                expire(tx, job)

    def _expire_deployment(self, deployment_id: str) -> None:
        with self._installation.transactions.write() as tx:
            row = tx.session.get_one(Deployment, deployment_id, with_for_update=True)
            if row.state == DeploymentState.AWAITING_APPROVAL:
                expire(tx, row)

    def _reconsider_job(self, job_id: str) -> None:
        with self._installation.transactions.write() as tx:
            self._decide_again(tx, tx.session.get_one(Job, job_id, with_for_update=True))

    def _reconsider_deployment(self, deployment_id: str) -> None:
        with self._installation.transactions.write() as tx:
            row = tx.session.get_one(Deployment, deployment_id, with_for_update=True)
            self._decide_again(tx, row)

    def _decide_again(self, tx: Transaction, subject: Job | Deployment) -> None:
        house = self._installation
        decide_again(tx, subject, training=house.jobs, serving=house.deployments)

    def _turned(self, kind: type[Job] | type[Deployment]) -> list[str]:
        """List what a waiver began or ended for since it was decided."""
        with self._installation.transactions.read() as session:
            return waivers.turned(session, kind, self._installation.clock())

    def _overdue(self, kind: type[Job] | type[Deployment]) -> list[str]:
        """List what awaits approval under a decision that expired."""
        now = seconds(self._installation.clock())
        rows = (
            select(col(kind.id))
            .join(StoredDecision, col(StoredDecision.id) == col(kind.decision_id))
            .where(col(kind.state) == "awaiting_approval", col(StoredDecision.expires_at) <= now)
        )
        with self._installation.transactions.read() as session:
            return list(session.exec(rows))

    def _jobs(self, *states: JobState) -> list[str]:
        with self._installation.transactions.read() as session:
            rows = select(Job.id).where(col(Job.state).in_(states)).order_by(Job.id)
            return list(session.exec(rows))

    def _deployments(self, state: DeploymentState) -> list[str]:
        with self._installation.transactions.read() as session:
            rows = select(Deployment.id).where(Deployment.state == state).order_by(Deployment.id)
            return list(session.exec(rows))

    def _orphaned_endpoints(self) -> list[str]:
        """List deployments that must not answer but still have an endpoint."""
        over = [
            *(DeploymentState.RETIRED, DeploymentState.FAILED, DeploymentState.DENIED),
            *(DeploymentState.EXPIRED, DeploymentState.REFUSED),  # once started, then decided again
        ]
        with self._installation.transactions.read() as session:
            rows = (
                select(Deployment.id)
                .join(EndpointState, col(EndpointState.deployment_id) == col(Deployment.id))
                .where(col(Deployment.state).in_(over), col(EndpointState.ref).is_not(None))
            )
            return list(session.exec(rows))
