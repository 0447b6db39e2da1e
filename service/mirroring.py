"""Live progress of a run, copied to its row and to MLflow; an outage there costs nothing here."""

import json
import math

from sqlmodel import Session

from service.archive import load
from service.engines.protocol import Engine
from service.jobs import request_of
from service.run_context import RunContext
from service.tables import DatasetVersion, Job, Run, RunProgress, StoredDecision
from service.tracking import TrackedDataset, TrackingError


def mirror_progress(context: RunContext, engine: Engine, run_id: str, ref: str) -> None:
    """Copy whole progress lines to the row and to MLflow; an outage there costs nothing here.

    After an outage the same lines are sent again: the offset moves only when MLflow took them.
    """
    with context.transactions.read() as session:
        progress = session.get_one(RunProgress, run_id)
        chunk = engine.events(ref, progress.events_offset)
        whole = chunk[: chunk.rfind(b"\n") + 1]
        events = _progress(whole)
        if not events:
            return
        tracked, failure = progress.mlflow_run_id, None
        try:
            tracked = tracked or _tracked(context, session, run_id)
            context.tracking.log_events(tracked, events)
        except TrackingError as error:
            failure = str(error)
    with context.transactions.write() as tx:
        row = tx.session.get_one(RunProgress, run_id)
        row.mlflow_run_id, row.tracking_error, row.last_event = tracked, failure, events[-1]
        if failure is None:
            row.events_offset += len(whole)
        tx.session.add(row)


def _progress(lines: bytes) -> list[dict[str, object]]:
    """Read progress lines. What is not a JSON object of plain, storable values is left out."""
    events = []
    for line in lines.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            events.append({k: v for k, v in event.items() if _is_plain(k) and _is_plain(v)})
    return events


def _is_plain(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, str):
        return len(value) <= 500 and value.isprintable()
    return value is None or isinstance(value, int)


def _tracked(context: RunContext, session: Session, run_id: str) -> str:
    """Start (or find) the MLflow run that mirrors ours."""
    run = session.get_one(Run, run_id)
    job = session.get_one(Job, run.job_id)
    dataset = session.get_one(DatasetVersion, job.dataset_id)
    request = request_of(load(session, job.document_digest))
    return context.tracking.start_run(
        experiment=job.team,
        run_id=run.id,
        tags={
            "placet.job": job.id,
            "placet.permit": run.permit_id,
            "placet.decision": session.get_one(StoredDecision, job.decision_id).record_digest,
            "placet.dispatch_entry": run.entry_id,
        },
        params={
            **{f"training.{k}": str(v) for k, v in request.training.model_dump().items()},
            "base_model": job.base_model_id,
            "dataset": dataset.id,
        },
        dataset=TrackedDataset(name=dataset.id, digest=dataset.manifest_digest, source=dataset.uri),
    )
