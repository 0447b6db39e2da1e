"""Jobs, their decisions and approvals, their runs and logs."""

import asyncio
import functools
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from sqlmodel import Session, col, select

from policies.decision import Decision
from policies.policy import Policy
from policies.reference import Reference
from policies.render import explain
from service import jobs
from service.api import views
from service.api.http import (
    After,
    Authenticated,
    CreationKey,
    Limit,
    SeenVersion,
    StrictRoute,
    Wired,
    cursor,
    once,
    page,
)
from service.approvals import Outcome, decide_on, given_approvals, missing_approvals
from service.archive import load
from service.clock import seconds
from service.installation import Installation
from service.principals import Caller
from service.problems import NotFound
from service.requests import DecisionRequest, JobRequest
from service.tables import Approval, Deployment, Job, ModelVersion, Run, RunProgress, StoredDecision

router = APIRouter(route_class=StrictRoute)
_OVER = {"denied", "refused", "expired", "succeeded", "failed", "cancelled"}


@router.post("/jobs", tags=["jobs"], status_code=201, summary="Submit a job")
def create_job(
    body: JobRequest, wired: Wired, who: Authenticated, key: CreationKey
) -> JSONResponse:
    """Record a fine-tune and the gate's decision on it.

    A denied job answers 201 like any other: the denial is its state, `decision.findings` says why.
    """
    with wired.transactions.write() as tx:

        def work() -> tuple[int, dict[str, Any]]:
            row, _ = jobs.submit(tx, who, request=body, context=wired.jobs)
            tx.session.flush()
            return 201, _job_view(tx.session, row)

        return once(
            tx,
            who,
            key=key,
            route="POST /v1/jobs",
            request=body,
            now=seconds(wired.clock()),
            work=work,
        )


@router.get("/jobs", tags=["jobs"], summary="List jobs")
def list_jobs(
    request: Request,
    response: Response,
    wired: Wired,
    who: Authenticated,
    limit: Limit = 50,
    after: After = None,
    state: Annotated[
        str | None, Query(max_length=40, description="Only jobs in this state.")
    ] = None,
) -> dict[str, Any]:
    """List the jobs that the caller may see, oldest first."""
    query = select(Job).where(col(Job.id) > cursor(after)).order_by(Job.id)
    if state is not None:
        query = query.where(Job.state == state)
    items = []
    with wired.transactions.read() as session:
        for row in session.exec(query):
            if who.sees(row.team):
                items.append(views.job(row))
            if len(items) > limit:
                break
    return page(request, items, limit=limit, key="id", response=response)


@router.get("/jobs/{job_id}", tags=["jobs"], summary="Read a job")
def read_job(job_id: str, wired: Wired, who: Authenticated, response: Response) -> dict[str, Any]:
    """Read a job with its decision and its runs. The ETag is what `If-Match` wants."""
    with wired.transactions.read() as session:
        row = jobs.find(session, who, job_id)
        response.headers["ETag"] = f'"{row.version}"'
        return _job_view(session, row)


@router.post("/jobs/{job_id}/approvals", tags=["jobs"], status_code=201, summary="Decide on a job")
def create_job_approval(
    job_id: str,
    body: DecisionRequest,
    wired: Wired,
    who: Authenticated,
    key: CreationKey,
    seen: SeenVersion,
) -> JSONResponse:
    """Approve or refuse what awaits approval, as an officer who did not ask for it."""
    with wired.transactions.write() as tx:

        def work() -> tuple[int, dict[str, Any]]:
            row = tx.session.get(Job, job_id, with_for_update=True)
            if row is None or not who.sees(row.team):
                raise NotFound(f"no job `{job_id}` that you may see")
            decide_on(
                tx,
                who,
                subject=row,
                expected_version=seen,
                outcome=Outcome(body.outcome),
                reason=body.reason,
                clock=wired.clock,
            )
            tx.session.flush()
            return 201, _job_view(tx.session, row)

        return once(
            tx,
            who,
            key=key,
            route=f"POST /v1/jobs/{job_id}/approvals",
            request=body,
            now=seconds(wired.clock()),
            work=work,
        )


@router.post("/jobs/{job_id}/cancel", tags=["jobs"], summary="Cancel a job")
def cancel_job(job_id: str, wired: Wired, who: Authenticated, seen: SeenVersion) -> JSONResponse:
    """Keep a job from running, or stop it; `cancelling` lasts until the engine confirms."""
    with wired.transactions.write() as tx:
        row = tx.session.get(Job, job_id, with_for_update=True)
        if row is None or not who.sees(row.team):
            raise NotFound(f"no job `{job_id}` that you may see")
        jobs.cancel(tx, who, job=row, expected_version=seen)
        tx.session.flush()
        body = _job_view(tx.session, row)
    return JSONResponse(body, headers={"ETag": f'"{body["version"]}"'})


@router.get("/jobs/{job_id}/log", tags=["jobs"], summary="Read a job's log")
def read_job_log(
    job_id: str,
    wired: Wired,
    who: Authenticated,
    start: Annotated[int, Query(ge=0, le=2**53 - 1, description="First byte.")] = 0,
) -> Response:
    """Read what the newest run wrote, from a byte on; `X-Next` is where to go on."""
    with wired.transactions.read() as session:
        run, progress = _newest_run(session, jobs.find(session, who, job_id))
    text = b""
    if run is not None and progress is not None and progress.engine_ref is not None:
        text = wired.runs.engines[run.engine].logs(progress.engine_ref, start)
    return PlainTextResponse(
        text.decode("utf-8", "replace"), headers={"X-Next": str(start + len(text))}
    )


@router.get("/jobs/{job_id}/events", tags=["jobs"], summary="Follow a job live")
async def follow_job(job_id: str, wired: Wired, who: Authenticated) -> StreamingResponse:
    """Stream state and progress as server-sent events until the job is over."""
    await asyncio.to_thread(_check_visible, wired, who, job_id)

    async def stream() -> AsyncIterator[bytes]:
        last = ""
        while True:
            text = await asyncio.to_thread(_snapshot, wired, who, job_id)
            if text != last:
                yield f"event: job\ndata: {text}\n\n".encode()
                last = text
            if json.loads(text)["state"] in _OVER:
                return
            await asyncio.sleep(0.5)

    return StreamingResponse(stream(), media_type="text/event-stream")


@router.get("/decisions/{decision_id}", tags=["decisions"], summary="Read a decision")
def read_decision(
    decision_id: str,
    wired: Wired,
    who: Authenticated,
    language: Annotated[
        str, Query(pattern="^[a-z]{2}$", description="Language of the explanation.")
    ] = "en",
) -> dict[str, Any]:
    """Read a decision with an explanation of each finding: value seen, law, what to change."""
    with wired.transactions.read() as session:
        row = decision_of(session, who, decision_id)
        return decision_view(session, row, language=language)


@router.get(
    "/decisions/{decision_id}/record", tags=["decisions"], summary="Read a decision's record"
)
def read_decision_record(decision_id: str, wired: Wired, who: Authenticated) -> Response:
    """Read the exact bytes of the decision record, as they were digested and logged."""
    with wired.transactions.read() as session:
        row = decision_of(session, who, decision_id)
        return Response(load(session, row.record_digest), media_type="application/json")


def decision_view(session: Session, row: StoredDecision, *, language: str) -> dict[str, Any]:
    """Render a decision with explained findings, from the policy it was made under."""
    decision = Decision.from_record(load(session, row.record_digest))
    policy = _policy(load(session, row.policy_digest))
    given = given_approvals(session, row)
    everyone = session.exec(
        select(Approval).where(Approval.decision_id == row.id).order_by(Approval.id)
    )
    reference = Reference.from_bytes(load(session, row.reference_digest))
    findings = [dict(item) for item in explain(decision, policy, language, reference)]
    return views.decision(row, findings, list(everyone), missing_approvals(row, given))


@functools.lru_cache(maxsize=8)
def _policy(body: bytes) -> Policy:
    """Read a stored policy once; a policy never changes under its bytes."""
    return Policy.from_bytes(body)


def _job_view(session: Session, row: Job) -> dict[str, Any]:
    view = views.job(row)
    decision = session.get(StoredDecision, row.decision_id) if row.decision_id else None
    view["decision"] = None if decision is None else decision_view(session, decision, language="en")
    runs = []
    for run in session.exec(select(Run).where(Run.job_id == row.id).order_by(Run.id)):
        model = session.exec(select(ModelVersion).where(ModelVersion.run_id == run.id)).first()
        runs.append(views.run(run, session.get(RunProgress, run.id), model))
    view["runs"] = runs
    return view


def _newest_run(session: Session, job: Job) -> tuple[Run | None, RunProgress | None]:
    run = session.exec(
        select(Run).where(Run.job_id == job.id).order_by(col(Run.id).desc()).limit(1)
    ).first()
    return run, None if run is None else session.get(RunProgress, run.id)


def _check_visible(wired: Installation, who: Caller, job_id: str) -> None:
    with wired.transactions.read() as session:
        jobs.find(session, who, job_id)


def _snapshot(wired: Installation, who: Caller, job_id: str) -> str:
    with wired.transactions.read() as session:
        job = jobs.find(session, who, job_id)
        run, progress = _newest_run(session, job)
        return json.dumps(
            {
                "id": job.id,
                "state": job.state,
                "version": job.version,
                "reason_code": job.reason_code,
                "run": None if run is None else run.id,
                "progress": None if progress is None else progress.last_event,
            }
        )


def decision_of(session: Session, who: Caller, decision_id: str) -> StoredDecision:
    """Return a decision on something that the caller may see.

    Raises:
        NotFound: no such decision, or another team's.
    """
    row = session.get(StoredDecision, decision_id)
    if row is not None:
        subject: Job | Deployment | None = (
            session.get(Job, row.subject_id)
            if row.subject_kind == "job"
            else session.get(Deployment, row.subject_id)
        )
        if subject is not None and who.sees(subject.team):
            return row
    raise NotFound(f"no decision `{decision_id}` that you may see")
