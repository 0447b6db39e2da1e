"""What the worker does with one job: dispatch, launch, observe, finish.

Each step commits before it asks the outside for anything, and can be repeated after a crash:

    approved ─ dispatch: re-check everything, issue the permit, commit the intent
    dispatching ─ launch: find first, then submit (idempotent by run id)
    running ─ observe: the engine's state; a transport error changes nothing
            ─ finish: fetch the report, hash the artefacts again, compare, record
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from sqlmodel import Session, select

from audit.canonical import canonical
from audit.event import EventKind
from service import lifecycle
from service.approvals import expire, given_approvals, missing_approvals
from service.archive import AlteredDocumentError, load
from service.clock import instant, later, seconds
from service.engines.protocol import Engine, Observation, RunRequest, RunState
from service.ids import Prefix, new_id
from service.jobs import JobContext, facts_of, manifest_uri, request_of
from service.lifecycle import JobMove, JobState
from service.objects.protocol import (
    ObjectMismatchError,
    ObjectMissingError,
    ObjectRefusedError,
    Objects,
)
from service.permits import Issuer
from service.requests import JobRequest
from service.tables import BaseModel, DatasetVersion, Job, Run, RunProgress, StoredDecision
from service.tracking import TrackedDataset, Tracking, TrackingError
from service.transaction import SYSTEM, Transaction, Transactions
from trainer.contract import ContractError, RunReport

log = structlog.get_logger(__name__)
ARTEFACTS_FORMAT = "placet.artefacts/1"


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
    environment: Mapping[str, str]
    tracking: Tracking


def dispatch(context: RunContext, job_id: str) -> str | None:
    """Commit the intent to run an approved job; return the run's id, or None if it may not run.

    Everything is checked again, on the bytes themselves: documents against their digests, policy,
    reference data and facts as of now, approvals against the decision.
    """
    now = context.jobs.clock()
    with context.transactions.write() as tx:
        job = tx.session.get_one(Job, job_id, with_for_update=True)
        if job.state != JobState.APPROVED:
            return None
        decision = tx.session.get_one(StoredDecision, job.decision_id)
        if decision.expires_at <= seconds(now):
            expire(tx, job)
            return None
        try:
            request = _checked_request(context, tx.session, job)
        except (AlteredDocumentError, ObjectMismatchError, ObjectMissingError) as error:
            log.warning("dispatch.refused", job_id=job.id, reason=str(error))
            _refuse_altered(tx, job)
            return None
        dataset = tx.session.get_one(DatasetVersion, job.dataset_id)
        base = tx.session.get_one(BaseModel, job.base_model_id)
        facts = facts_of(request, job, dataset, base, context.jobs)
        gate = context.jobs.gate
        fresh = gate.preview(facts, subject_kind="job", subject_id=job.id, now=now)
        if not gate.rests_on_the_same(decision, fresh, load(tx.session, decision.record_digest)):
            gate.decide(tx, job, facts, now=now)
            return None
        distinct = [
            row
            for row in given_approvals(tx.session, decision)
            if row.approver_id != job.submitted_by
        ]
        if missing_approvals(decision, distinct):
            log.error("dispatch.unapproved", job_id=job.id)
            return None
        run = _permitted_run(
            context, tx, job, request=request, decision=decision, dataset=dataset, base=base
        )
        return run.id


def _checked_request(context: RunContext, session: Session, job: Job) -> JobRequest:
    """Read the job's documents back and check every digest that the permit will carry."""
    request = request_of(load(session, job.document_digest))
    load(session, job.spec_digest)
    dataset = session.get_one(DatasetVersion, job.dataset_id)
    context.objects.get(
        manifest_uri(context.jobs.manifests, dataset.manifest_digest),
        expected=dataset.manifest_digest,
    )
    return request


def _refuse_altered(tx: Transaction, job: Job) -> None:
    tx.record(
        EventKind.REQUEST_REFUSED,
        f"job:{job.id}",
        actor=SYSTEM,
        data={"problem": "altered", "route": "/dispatch"},
        outcome="denied",
    )
    job.reason_code = "altered"  # from here on: a governed row changes with its own entry only
    expire(tx, job)


def _permitted_run(
    context: RunContext,
    tx: Transaction,
    job: Job,
    *,
    request: JobRequest,
    decision: StoredDecision,
    dataset: DatasetVersion,
    base: BaseModel,
) -> Run:
    """Issue the permit and record run, permit and move as one entry."""
    now = context.jobs.clock()
    run_id, permit_id = new_id(Prefix.RUN), new_id(Prefix.PERMIT)
    output = f"{context.outputs}/{run_id}"
    issued = int(now.timestamp())
    permit = context.issuer.issue(
        {
            "iss": context.issuer_name,
            "aud": "placet-trainer",
            "sub": run_id,
            "jti": permit_id,
            "iat": issued,
            "nbf": issued,
            "exp": issued + 60 * context.permit_minutes,
            "job": job.id,
            "document": job.document_digest,
            "spec": job.spec_digest,
            "dataset": dataset.manifest_digest,
            "base_model": base.files_digest,
            "decision": decision.record_digest,
            "output": output,
            "max_minutes": request.max_minutes,
        }
    )
    state, kind = lifecycle.follow(lifecycle.JOB, JobState(job.state), JobMove.DISPATCH)
    job.state = state
    engine = request.compute.provider
    run = Run(
        id=run_id,
        entry_id="",
        created_at=seconds(now),
        job_id=job.id,
        engine=engine,
        permit_id=permit_id,
        permit_digest=tx.keep(permit.encode(), "application/jwt"),
        output_uri=output,
        state=RunState.QUEUED,
    )
    tx.record(
        kind,
        job,
        also=[run],
        actor=SYSTEM,
        data={
            "run": run_id,
            "permit": permit_id,
            "document": job.document_digest,
            "spec": job.spec_digest,
            "dataset": dataset.id,
            "base_model": base.id,
            "record": decision.record_digest,
            "engine": engine,
        },
    )
    tx.session.add(RunProgress(run_id=run_id))
    return run


def launch(context: RunContext, job_id: str) -> None:
    """Ask the engine for the run that was committed; after a crash, find it before asking again."""
    with context.transactions.read() as session:
        run = _open_run(session, job_id)
        asked = session.get_one(Job, job_id)
        permit = load(session, run.permit_digest).decode()
        spec = load(session, asked.spec_digest)
        too_late = later(instant(run.created_at), minutes=context.permit_minutes)
    engine = context.engines[run.engine]
    ref = engine.find(run.id)
    if ref is None and asked.state == JobState.CANCELLING:
        _close(context, run.id, JobMove.STOP, "cancelled", reason=None)
        return
    if ref is None and too_late <= seconds(context.jobs.clock()):
        _close(context, run.id, JobMove.FAIL, "failed", reason="permit_expired")
        return
    if ref is None:
        ref = engine.submit(
            RunRequest(
                run_id=run.id,
                spec=spec,
                permit=permit,
                output_uri=run.output_uri,
                environment=context.environment,
            )
        )
    with context.transactions.write() as tx:
        job = tx.session.get_one(Job, job_id, with_for_update=True)
        progress = tx.session.get_one(RunProgress, run.id)
        progress.engine_ref = ref
        tx.session.add(progress)
        if job.state == JobState.DISPATCHING:
            state, kind = lifecycle.follow(lifecycle.JOB, JobState.DISPATCHING, JobMove.START)
            job.state = state
            row = tx.session.get_one(Run, run.id)
            row.state = RunState.RUNNING
            tx.record(kind, job, also=[row], actor=SYSTEM, data={"run": run.id})
        is_wanted = job.state == JobState.RUNNING
    if not is_wanted:  # cancelled or closed while the engine was asked
        engine.cancel(ref)


def observe(context: RunContext, job_id: str) -> None:
    """Look at a run: mirror its progress, re-assert a cancellation, finish it when it is over."""
    with context.transactions.read() as session:
        job = session.get_one(Job, job_id)
        run = _open_run(session, job_id)
        progress = session.get_one(RunProgress, run.id)
        ref = progress.engine_ref
    engine = context.engines[run.engine]
    if ref is None:
        ref = engine.find(run.id)
        if ref is None:
            launch(context, job_id)
            return
    if job.state == JobState.CANCELLING:
        engine.cancel(ref)
    observed = engine.observe(ref)
    _mirror_progress(context, engine, run.id, ref)
    if observed.state.is_final:
        finish(context, run.id, observed)
    elif observed.state is RunState.UNKNOWN and run.state != RunState.UNKNOWN:
        _note_state(context, run.id, observed.state)
    elif observed.state is not RunState.UNKNOWN and run.state == RunState.UNKNOWN:
        _note_state(context, run.id, RunState.RUNNING)


def _note_state(context: RunContext, run_id: str, state: RunState) -> None:
    """Make an unknown state visible, in the row and in the log, and its end."""
    with context.transactions.write() as tx:
        run = tx.session.get_one(Run, run_id)
        run.state = state
        tx.record(
            EventKind.RUN_OBSERVED, run, actor=SYSTEM, data={"run": run_id, "state": state.value}
        )


def _mirror_progress(context: RunContext, engine: Engine, run_id: str, ref: str) -> None:
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


def finish(context: RunContext, run_id: str, observed: Observation) -> None:
    """Read what the run left, believe only what can be measured again, and record the end."""
    with context.transactions.read() as session:
        run = session.get_one(Run, run_id)
        job = session.get_one(Job, run.job_id)
    report_bytes, report, reason = _report(context, run, job)
    artefacts: bytes | None = None
    if report is not None and reason is None and observed.state is RunState.SUCCEEDED:
        artefacts, reason = _measured_artefacts(context, run, report)
    if observed.state is RunState.SUCCEEDED and reason is None:
        move, outcome = JobMove.SUCCEED, "succeeded"
    elif job.state == JobState.CANCELLING and observed.state in {
        RunState.CANCELLED,
        RunState.INTERRUPTED,
    }:
        move, outcome, reason = JobMove.STOP, "cancelled", None
    else:
        move, outcome = JobMove.FAIL, "failed"
        if observed.state is RunState.REFUSED:
            outcome = "refused"
        reason = _code(reason or observed.reason or observed.state.value)
    _close(
        context,
        run_id,
        move,
        outcome,
        reason=reason,
        report=report_bytes,
        artefacts=artefacts if outcome == "succeeded" else None,
    )


def _close(
    context: RunContext,
    run_id: str,
    move: JobMove,
    outcome: str,
    *,
    reason: str | None,
    report: bytes | None = None,
    artefacts: bytes | None = None,
) -> None:
    with context.transactions.write() as tx:
        run = tx.session.get_one(Run, run_id)
        job = tx.session.get_one(Job, run.job_id, with_for_update=True)
        tx.session.refresh(run)  # it was read before the lock
        if run.outcome is not None:
            return
        state, kind = lifecycle.follow(lifecycle.JOB, JobState(job.state), move)
        job.state = state
        job.reason_code = reason
        run.state, run.outcome = outcome, outcome
        run.report_digest = None if report is None else tx.keep(report)
        run.artefacts_digest = None if artefacts is None else tx.keep(artefacts)
        tx.record(
            kind,
            job,
            also=[run],
            actor=SYSTEM,
            data={
                "run": run_id,
                "outcome": outcome,
                "report": run.report_digest,
                "artefacts": run.artefacts_digest,
            },
            outcome="ok" if outcome == "succeeded" else "error",
        )


def _report(
    context: RunContext, run: Run, job: Job
) -> tuple[bytes | None, RunReport | None, str | None]:
    """Fetch the run report and check that it speaks of this run; say why not in a code."""
    try:
        body = context.objects.get(f"{run.output_uri}/report.json")
    except ObjectMissingError:
        return None, None, "report_missing"
    try:
        report = RunReport.from_bytes(body)
    except ContractError:
        return None, None, "report_malformed"
    if (report.run_id, report.permit_id, report.spec_digest) != (
        run.id,
        run.permit_id,
        job.spec_digest,
    ):
        return None, None, "report_foreign"
    if report.status != "succeeded":
        return body, report, report.reason or f"report_{report.status}"
    return body, report, None


def _measured_artefacts(
    context: RunContext, run: Run, report: RunReport
) -> tuple[bytes | None, str | None]:
    """Hash every artefact again; the report's digests are claims until then."""
    files = {}
    for path, claimed in sorted(report.artefacts.items()):
        try:
            stored = context.objects.measure(f"{run.output_uri}/{path}")
        except ObjectMissingError:
            return None, "artefact_missing"
        except ObjectRefusedError:
            return None, "artefact_refused"
        if (stored.digest, stored.size_bytes) != (claimed.digest, claimed.size_bytes):
            return None, "artefact_differs"
        files[path] = {"digest": stored.digest, "size_bytes": stored.size_bytes}
    if not files:
        return None, "artefact_missing"
    return canonical({"format": ARTEFACTS_FORMAT, "run": run.id, "files": files}), None


def _open_run(session: Session, job_id: str) -> Run:
    return session.exec(select(Run).where(Run.job_id == job_id, Run.outcome == None)).one()  # noqa: E711


def _code(text: str) -> str:
    """Reduce an engine's words to a short code: codes may enter documents, sentences may not."""
    return "".join(char if char.isalnum() else "_" for char in text.lower())[:60] or "unknown"
