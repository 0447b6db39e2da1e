"""What the worker does with one job: dispatch, launch, observe, finish.

Each step commits before it asks the outside for anything, and can be repeated after a crash:

    approved ─ dispatch: re-check everything, issue the permit, commit the intent
    dispatching ─ launch: find first, then submit (idempotent by run id)
    running ─ observe: the engine's state; a transport error changes nothing
            ─ finish: fetch the report, hash the artefacts again, compare, record
"""

from collections.abc import Mapping

import structlog
from sqlmodel import Session

from audit.event import EventKind
from service import lifecycle
from service.approvals import expire, given_approvals, missing_approvals
from service.archive import AlteredDocumentError, load
from service.clock import instant, later, seconds
from service.engines.protocol import RunRequest, RunState
from service.finishing import close, finish
from service.ids import Prefix, new_id
from service.jobs import facts_of, manifest_uri, request_of
from service.lifecycle import JobMove, JobState
from service.mirroring import mirror_progress
from service.objects.protocol import (
    ObjectMismatchError,
    ObjectMissingError,
)
from service.requests import JobRequest
from service.run_context import RunContext, open_run
from service.tables import BaseModel, DatasetVersion, Job, Run, RunProgress, StoredDecision
from service.transaction import SYSTEM, Transaction
from service.waivers import revoked_under

log = structlog.get_logger(__name__)


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
        facts = facts_of(tx.session, request, job, dataset, base, context=context.jobs)
        gate = context.jobs.gate
        fresh = gate.preview(tx.session, facts, subject_kind="job", subject_id=job.id, now=now)
        record = load(tx.session, decision.record_digest)
        if not gate.rests_on_the_same(tx.session, decision, fresh, record):
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
        tx.session.add(RunProgress(run_id=run.id))
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
    exact = {"document": job.document_digest, "spec": job.spec_digest}
    digests = {
        **exact,
        "dataset": dataset.manifest_digest,
        "base_model": base.files_digest,
        "decision": decision.record_digest,
    }
    permit = _permit(context, run_id, permit_id, job=job, request=request, digests=digests)
    state, kind = lifecycle.follow(lifecycle.JOB, JobState(job.state), JobMove.DISPATCH)
    job.state = state
    run = Run(
        id=run_id,
        entry_id="",
        created_at=seconds(now),
        job_id=job.id,
        engine=request.compute.provider,
        permit_id=permit_id,
        permit_digest=tx.keep(permit.encode(), "application/jwt"),
        output_uri=_output(context, run_id),
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
            "permit_digest": run.permit_digest,
            **exact,
            "dataset": dataset.id,
            "base_model": base.id,
            "record": decision.record_digest,
            "engine": run.engine,
        },
    )
    return run


def _permit(
    context: RunContext,
    run_id: str,
    permit_id: str,
    *,
    job: Job,
    request: JobRequest,
    digests: Mapping[str, str],
) -> str:
    """Sign the right to run exactly these digests once, soon, into one place."""
    issued = int(context.jobs.clock().timestamp())
    return context.issuer.issue(
        {
            "iss": context.issuer_name,
            "aud": "placet-trainer",
            "sub": run_id,
            "jti": permit_id,
            "iat": issued,
            "nbf": issued,
            "exp": issued + 60 * context.permit_minutes,
            "job": job.id,
            **digests,
            "output": _output(context, run_id),
            "max_minutes": request.max_minutes,
        }
    )


def _output(context: RunContext, run_id: str) -> str:
    return f"{context.outputs}/{run_id}"


def launch(context: RunContext, job_id: str) -> None:
    """Ask the engine for the run that was committed; after a crash, find it before asking again."""
    with context.transactions.read() as session:
        run = open_run(session, job_id)
        asked = session.get_one(Job, job_id)
        is_revoked = revoked_under(session, asked) is not None
        permit = load(session, run.permit_digest).decode()
        spec = load(session, asked.spec_digest)
        too_late = later(instant(run.created_at), minutes=context.permit_minutes)
    engine = context.engines[run.engine]
    ref = engine.find(run.id)
    if ref is None and asked.state == JobState.CANCELLING:
        close(context, run.id, JobMove.STOP, "cancelled", reason=None)
        return
    if ref is None and is_revoked:  # nothing runs yet, so nothing has to be stopped
        close(context, run.id, JobMove.FAIL, "failed", reason="waiver_revoked")
        return
    if ref is None and too_late <= seconds(context.jobs.clock()):
        close(context, run.id, JobMove.FAIL, "failed", reason="permit_expired")
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
        run = open_run(session, job_id)
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
    mirror_progress(context, engine, run.id, ref)
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
