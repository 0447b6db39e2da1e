"""Model versions: what a successful run produced, registered here first and mirrored in MLflow."""

import tempfile
from datetime import timedelta
from pathlib import Path

import structlog
from sqlmodel import Session, col, select

from audit.event import EventKind
from service.archive import load
from service.clock import instant, seconds
from service.ids import Prefix, new_id
from service.principals import Caller
from service.problems import NotFound
from service.run_context import RunContext
from service.tables import Job, ModelVersion, Run, RunProgress, StoredDecision
from service.tracking import TrackingError
from service.transaction import SYSTEM
from trainer.contract import RunReport

log = structlog.get_logger(__name__)
_PATIENCE = timedelta(minutes=5)


def waiting_runs(session: Session) -> list[str]:
    """List successful runs that no model version stands for yet, oldest first."""
    rows = (
        select(Run.id)
        .join(ModelVersion, col(ModelVersion.run_id) == col(Run.id), isouter=True)
        .where(Run.outcome == "succeeded", col(ModelVersion.id).is_(None))
        .order_by(Run.id)
    )
    return list(session.exec(rows))


def register(context: RunContext, run_id: str) -> str | None:
    """Register the model version of a successful run; return its id, or None to try again later.

    MLflow is asked first, since our entry names its version. When it stays away for five minutes,
    the model version is registered without it: MLflow is a mirror, not the truth.
    """
    with context.transactions.read() as session:
        run = session.get_one(Run, run_id)
        job = session.get_one(Job, run.job_id)
        decision = session.get_one(StoredDecision, job.decision_id)
        report = RunReport.from_bytes(load(session, str(run.report_digest)))
    progress = _named(context, run_id)
    version, failure = _mirrored(
        context, run, job=job, decision=decision, progress=progress, report=report
    )
    if failure is not None:
        log.warning("tracking.unavailable", run_id=run_id, reason=failure)
        if context.jobs.clock() - instant(report.finished_at) < _PATIENCE:
            _note_failure(context, run_id, failure)
            return None
    with context.transactions.write() as tx:
        row = ModelVersion(
            id=str(progress.model_version_id),
            entry_id="",
            created_at=seconds(context.jobs.clock()),
            team=job.team,
            name=job.name,
            job_id=job.id,
            run_id=run.id,
            artefacts_digest=str(run.artefacts_digest),
            mlflow_run_id=progress.mlflow_run_id,
            mlflow_version=version,
        )
        tx.record(
            EventKind.MODEL_VERSION_REGISTERED,
            row,
            actor=SYSTEM,
            data={
                "job": job.id,
                "run": run.id,
                "artefacts": row.artefacts_digest,
                "mlflow_run": row.mlflow_run_id,
                "mlflow_version": version,
            },
        )
        stored = tx.session.get_one(RunProgress, run_id)
        stored.tracking_error = failure
        tx.session.add(stored)
        return row.id


def find(session: Session, caller: Caller, model_version_id: str) -> ModelVersion:
    """Return a model version that the caller may see.

    Raises:
        NotFound: no such model version, or another team's.
    """
    row = session.get(ModelVersion, model_version_id)
    if row is None or not caller.sees(row.team):
        raise NotFound(f"no model version `{model_version_id}` that you may see")
    return row


def _mirrored(
    context: RunContext,
    run: Run,
    *,
    job: Job,
    decision: StoredDecision,
    progress: RunProgress,
    report: RunReport,
) -> tuple[str | None, str | None]:
    """Bring MLflow up to date; return its version of the model, and why not if it is away."""
    tracked = progress.mlflow_run_id
    if tracked is None:
        return None, "the run was never mirrored"
    tags = {
        "placet.model_version": str(progress.model_version_id),
        "placet.job": job.id,
        "placet.run": run.id,
        "placet.decision": decision.record_digest,
        "placet.finish_entry": run.entry_id,
        "placet.artefacts": str(run.artefacts_digest),
    }
    try:
        with tempfile.TemporaryDirectory() as folder:
            for path in report.artefacts:
                target = Path(folder) / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(context.objects.get(f"{run.output_uri}/{path}"))
            context.tracking.finish(
                tracked,
                status="FINISHED",
                metrics={name: f"{value:f}" for name, value in report.metrics.items()},
                at=instant(report.finished_at),
                artefacts=Path(folder),
            )
        version = context.tracking.register_model(
            name=job.name, source=f"{run.output_uri}/adapter", mlflow_run_id=tracked, tags=tags
        )
    except TrackingError as error:
        return None, str(error)
    return version, None


def _named(context: RunContext, run_id: str) -> RunProgress:
    """Choose the model version's id once, so that a retry registers it under the same one."""
    with context.transactions.write() as tx:
        row = tx.session.get_one(RunProgress, run_id)
        if row.model_version_id is None:
            row.model_version_id = new_id(Prefix.MODEL_VERSION)
            tx.session.add(row)
        return row


def _note_failure(context: RunContext, run_id: str, failure: str) -> None:
    with context.transactions.write() as tx:
        row = tx.session.get_one(RunProgress, run_id)
        row.tracking_error = failure
        tx.session.add(row)
