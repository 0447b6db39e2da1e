"""Waivers: ask for an exception, decide on it, end it."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from sqlmodel import Session, col, select

from service import waivers, waiving
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
from service.clock import seconds
from service.installation import Installation
from service.principals import Caller
from service.problems import NotFound
from service.reconsidering import decide_again
from service.tables import Deployment, Job, StoredWaiver
from service.transaction import Transaction
from service.waiver_requests import WaiverDecision, WaiverRequest, WaiverRevocation

router = APIRouter(route_class=StrictRoute)
_States = Literal["requested", "approved", "active", "expired", "refused", "revoked"]


@router.post(
    "/jobs/{job_id}/waivers", tags=["waivers"], status_code=201, summary="Ask for a waiver"
)
def create_job_waiver(
    job_id: str, body: WaiverRequest, wired: Wired, who: Authenticated, key: CreationKey
) -> JSONResponse:
    """Ask that one violated rule is waived for one job, until a date.

    Two approvers have to sign; neither may have asked for the waiver or submitted the job.
    """
    return _create(Job, job_id, body, wired=wired, who=who, key=key)


@router.post(
    "/deployments/{deployment_id}/waivers",
    tags=["waivers"],
    status_code=201,
    summary="Ask for a waiver",
)
def create_deployment_waiver(
    deployment_id: str, body: WaiverRequest, wired: Wired, who: Authenticated, key: CreationKey
) -> JSONResponse:
    """Ask that one violated rule is waived for one deployment, until a date."""
    return _create(Deployment, deployment_id, body, wired=wired, who=who, key=key)


@router.get("/waivers", tags=["waivers"], summary="List waivers")
def list_waivers(
    request: Request,
    response: Response,
    wired: Wired,
    who: Authenticated,
    limit: Limit = 50,
    after: After = None,
    subject: Annotated[
        str | None, Query(max_length=80, description="Only of `job:job_…` or `deployment:dep_…`.")
    ] = None,
    state: Annotated[_States | None, Query(description="Only those that stand so now.")] = None,
) -> dict[str, Any]:
    """List the waivers that the caller may see, oldest first."""
    query = select(StoredWaiver).where(col(StoredWaiver.id) > cursor(after))
    if subject is not None:
        kind, _, name = subject.partition(":")
        query = query.where(StoredWaiver.subject_kind == kind, StoredWaiver.subject_id == name)
    items = []
    with wired.transactions.read() as session:
        for row in session.exec(query.order_by(StoredWaiver.id)):
            stands = waivers.standing(row, wired.clock())
            if who.sees(row.team) and state in {None, stands}:
                items.append(_view(session, row, wired))
            if len(items) > limit:
                break
    return page(request, items, limit=limit, key="id", response=response)


@router.get("/waivers/{waiver_id}", tags=["waivers"], summary="Read a waiver")
def read_waiver(
    waiver_id: str, wired: Wired, who: Authenticated, response: Response
) -> dict[str, Any]:
    """Read a waiver as it stands now. The ETag is what `If-Match` wants."""
    with wired.transactions.read() as session:
        row = waivers.find(session, who, waiver_id)
        response.headers["ETag"] = f'"{row.version}"'
        return _view(session, row, wired)


@router.post(
    "/waivers/{waiver_id}/decisions",
    tags=["waivers"],
    status_code=201,
    summary="Decide on a waiver",
)
def create_waiver_decision(
    waiver_id: str,
    body: WaiverDecision,
    wired: Wired,
    who: Authenticated,
    key: CreationKey,
    seen: SeenVersion,
) -> JSONResponse:
    """Approve or refuse a requested waiver, as somebody who asked for none of it.

    With the second approval it holds, and what it is about is decided again.
    """
    with wired.transactions.write() as tx:

        def work() -> tuple[int, dict[str, Any]]:
            row, subject = waivers.locked(tx.session, who, waiver_id)
            if body.outcome == "approved":
                waiving.approve(
                    tx,
                    who,
                    row=row,
                    subject=subject,
                    expected_version=seen,
                    clock=wired.clock,
                    again=_again(wired),
                )
            else:
                waiving.refuse(
                    tx,
                    who,
                    row=row,
                    subject=subject,
                    expected_version=seen,
                    reason=body.reason,
                    clock=wired.clock,
                )
            tx.session.flush()
            return 201, _view(tx.session, row, wired)

        return once(
            tx,
            who,
            key=key,
            route=f"POST /v1/waivers/{waiver_id}/decisions",
            request=body,
            now=seconds(wired.clock()),
            work=work,
        )


@router.post("/waivers/{waiver_id}/revocation", tags=["waivers"], summary="Revoke a waiver")
def revoke_waiver(
    waiver_id: str, body: WaiverRevocation, wired: Wired, who: Authenticated
) -> JSONResponse:
    """Revoke a waiver, whatever its version: what waits under it is decided again at once.

    What runs under it already is flagged and goes on; cancel or retire it if it must stop.
    """
    with wired.transactions.write() as tx:
        row, subject = waivers.locked(tx.session, who, waiver_id)
        waiving.revoke(
            tx,
            who,
            row=row,
            subject=subject,
            reason=body.reason,
            clock=wired.clock,
            again=_again(wired),
        )
        tx.session.flush()
        view = _view(tx.session, row, wired)
    return JSONResponse(view, headers={"ETag": f'"{view["version"]}"'})


def _create(
    kind: type[Job] | type[Deployment],
    name: str,
    body: WaiverRequest,
    *,
    wired: Installation,
    who: Caller,
    key: str,
) -> JSONResponse:
    word = "job" if kind is Job else "deployment"
    with wired.transactions.write() as tx:

        def work() -> tuple[int, dict[str, Any]]:
            subject = tx.session.get(kind, name, with_for_update=True)
            if not isinstance(subject, Job | Deployment) or not who.sees(subject.team):
                raise NotFound(f"no {word} `{name}` that you may see")
            row = waiving.request(tx, who, subject=subject, asked=body, clock=wired.clock)
            tx.session.flush()
            return 201, _view(tx.session, row, wired)

        return once(
            tx,
            who,
            key=key,
            route=f"POST /v1/{word}s/{name}/waivers",
            request=body,
            now=seconds(wired.clock()),
            work=work,
        )


def _again(wired: Installation) -> waiving.Again:
    def again(tx: Transaction, subject: waivers.Subject) -> None:
        decide_again(tx, subject, training=wired.jobs, serving=wired.deployments)

    return again


def _view(session: Session, row: StoredWaiver, wired: Installation) -> dict[str, Any]:
    return views.waiver(
        row,
        state=waivers.standing(row, wired.clock()),
        subject_state=waivers.subject_of(session, row).state,
        missing=max(0, waiving.QUORUM - len(row.approvals)),
        needs_attention=waivers.needs_attention(session, row, wired.clock()),
    )
