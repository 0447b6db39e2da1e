"""Model versions, deployments, their documents, and the gateway in front of the model."""

import json
from typing import Any

import httpx
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from sqlmodel import Session, col, select

from model_cards import render
from service import deployments, models
from service.api import views
from service.api.http import (
    After,
    Authenticated,
    CreationKey,
    Limit,
    SeenVersion,
    StrictRequest,
    StrictRoute,
    Wired,
    cursor,
    once,
    page,
)
from service.api.jobs import decision_view
from service.approvals import Outcome, decide_on
from service.archive import load
from service.clock import seconds
from service.lifecycle import DeploymentState
from service.problems import Conflict, EngineUnavailable, NotFound, field_problem
from service.requests import DecisionRequest, DeploymentRequest
from service.tables import Deployment, EndpointState, ModelVersion, StoredDecision

router = APIRouter(route_class=StrictRoute)
public = APIRouter()
_ANSWER_SECONDS = 120.0


@router.get("/model-versions", tags=["model versions"], summary="List model versions")
def list_model_versions(
    request: Request,
    response: Response,
    wired: Wired,
    who: Authenticated,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List the model versions that the caller may see, oldest first."""
    items = []
    with wired.transactions.read() as session:
        query = select(ModelVersion).where(col(ModelVersion.id) > cursor(after))
        for row in session.exec(query.order_by(ModelVersion.id)):
            if who.sees(row.team):
                items.append(views.model_version(row))
            if len(items) > limit:
                break
    return page(request, items, limit=limit, key="id", response=response)


@router.get(
    "/model-versions/{model_version_id}", tags=["model versions"], summary="Read a model version"
)
def read_model_version(model_version_id: str, wired: Wired, who: Authenticated) -> dict[str, Any]:
    """Read one model version."""
    with wired.transactions.read() as session:
        return views.model_version(models.find(session, who, model_version_id))


@router.post("/deployments", tags=["deployments"], status_code=201, summary="Ask for a deployment")
def create_deployment(
    body: DeploymentRequest, wired: Wired, who: Authenticated, key: CreationKey
) -> JSONResponse:
    """Record a deployment and the gate's decision at stage `deploy`."""
    with wired.transactions.write() as tx:

        def work() -> tuple[int, dict[str, Any]]:
            row, _ = deployments.request(tx, who, asked=body, context=wired.deployments)
            tx.session.flush()
            return 201, _deployment_view(tx.session, row)

        return once(
            tx,
            who,
            key=key,
            route="POST /v1/deployments",
            request=body,
            now=seconds(wired.clock()),
            work=work,
        )


@router.get("/deployments", tags=["deployments"], summary="List deployments")
def list_deployments(
    request: Request,
    response: Response,
    wired: Wired,
    who: Authenticated,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List the deployments that the caller may see, oldest first."""
    items = []
    with wired.transactions.read() as session:
        query = select(Deployment).where(col(Deployment.id) > cursor(after))
        for row in session.exec(query.order_by(Deployment.id)):
            if who.sees(row.team):
                items.append(views.deployment(row))
            if len(items) > limit:
                break
    return page(request, items, limit=limit, key="id", response=response)


@router.get("/deployments/{deployment_id}", tags=["deployments"], summary="Read a deployment")
def read_deployment(
    deployment_id: str, wired: Wired, who: Authenticated, response: Response
) -> dict[str, Any]:
    """Read a deployment with its decision. The ETag is what `If-Match` wants."""
    with wired.transactions.read() as session:
        row = deployments.find(session, who, deployment_id)
        response.headers["ETag"] = f'"{row.version}"'
        return _deployment_view(session, row)


@router.post(
    "/deployments/{deployment_id}/approvals",
    tags=["deployments"],
    status_code=201,
    summary="Decide on a deployment",
)
def create_deployment_approval(
    deployment_id: str,
    body: DecisionRequest,
    wired: Wired,
    who: Authenticated,
    key: CreationKey,
    seen: SeenVersion,
) -> JSONResponse:
    """Approve or refuse what awaits approval, as an officer who did not ask for it."""
    with wired.transactions.write() as tx:

        def work() -> tuple[int, dict[str, Any]]:
            row = tx.session.get(Deployment, deployment_id, with_for_update=True)
            if row is None or not who.sees(row.team):
                raise NotFound(f"no deployment `{deployment_id}` that you may see")
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
            return 201, _deployment_view(tx.session, row)

        return once(
            tx,
            who,
            key=key,
            route=f"POST /v1/deployments/{deployment_id}/approvals",
            request=body,
            now=seconds(wired.clock()),
            work=work,
        )


@router.post(
    "/deployments/{deployment_id}/retire", tags=["deployments"], summary="Retire a deployment"
)
def retire_deployment(
    deployment_id: str, wired: Wired, who: Authenticated, seen: SeenVersion
) -> JSONResponse:
    """Retire a deployment; it stops answering at once."""
    with wired.transactions.write() as tx:
        row = tx.session.get(Deployment, deployment_id, with_for_update=True)
        if row is None or not who.sees(row.team):
            raise NotFound(f"no deployment `{deployment_id}` that you may see")
        deployments.retire(tx, who, row=row, expected_version=seen)
        tx.session.flush()
        body = _deployment_view(tx.session, row)
    return JSONResponse(body, headers={"ETag": f'"{body["version"]}"'})


@router.get(
    "/deployments/{deployment_id}/card.{form}",
    tags=["deployments"],
    summary="Read a model card",
)
def read_card(deployment_id: str, form: str, wired: Wired, who: Authenticated) -> Response:
    """Read the model card as `json` (the digested bytes), `md` (Hugging Face README) or `html`."""
    with wired.transactions.read() as session:
        row = deployments.find(session, who, deployment_id)
        body = _issued(session, row.card_digest, deployment_id)
    return _rendered(
        body, form, markdown=render.card_markdown, html=render.card_html, name=deployment_id
    )


@router.get(
    "/deployments/{deployment_id}/transparency.{form}",
    tags=["deployments"],
    summary="Read a transparency record",
)
def read_transparency(deployment_id: str, form: str, wired: Wired, who: Authenticated) -> Response:
    """Read the transparency record as `json` (the digested bytes) or `html`."""
    with wired.transactions.read() as session:
        row = deployments.find(session, who, deployment_id)
        body = _issued(session, row.transparency_digest, deployment_id)
    return _rendered(body, form, markdown=None, html=render.transparency_html, name=deployment_id)


@public.get(
    "/transparency/{deployment_id}",
    tags=["deployments"],
    summary="Public transparency page",
    response_class=HTMLResponse,
)
def public_transparency(deployment_id: str, wired: Wired) -> HTMLResponse:
    """Show the transparency record of a deployment to anyone who meets it."""
    with wired.transactions.read() as session:
        row = session.get(Deployment, deployment_id)
        body = _issued(session, None if row is None else row.transparency_digest, deployment_id)
    return HTMLResponse(
        render.transparency_html(body),
        headers={"Content-Security-Policy": f"default-src 'none'; style-src '{render.STYLE_HASH}'"},
    )


@router.post(
    "/deployments/{deployment_id}/openai/v1/chat/completions",
    tags=["gateway"],
    summary="Ask the model",
)
async def chat(
    deployment_id: str, request: StrictRequest, wired: Wired, who: Authenticated
) -> Response:
    """Pass an OpenAI-compatible chat request to the deployed model, and say that it is AI.

    Only an active deployment answers. `AI-Disclosure` and `Link: rel="transparency"` name the
    record of the system that answered (AI Act Art. 50).
    """
    with wired.transactions.read() as session:
        row = deployments.find(session, who, deployment_id)
        endpoint = session.get(EndpointState, deployment_id)
    if row.state != DeploymentState.ACTIVE or endpoint is None or endpoint.port is None:
        raise Conflict(f"the deployment is `{row.state}`; only an active one answers")
    body = await request.foreign_json()
    if not isinstance(body, dict):
        raise field_problem("", "expected a JSON object with `messages`")
    if body.get("stream"):
        raise field_problem("/stream", "answers are not streamed here; leave it out or send false")
    body["model"] = row.name
    url = f"http://127.0.0.1:{endpoint.port}/v1/chat/completions"
    try:
        # No proxy of the environment: what people write stays on this machine.
        async with httpx.AsyncClient(timeout=_ANSWER_SECONDS, trust_env=False) as client:
            answer = await client.post(
                url, content=json.dumps(body), headers={"Content-Type": "application/json"}
            )
    except httpx.HTTPError as error:
        raise EngineUnavailable(
            f"the endpoint does not answer ({type(error).__name__}); try again, or look at"
            f" `placet deployment {deployment_id}`"
        ) from error
    return Response(
        answer.content,
        answer.status_code,
        media_type=answer.headers.get("content-type", "application/json"),
        headers={
            "AI-Disclosure": "This answer was generated by an AI system.",
            "Link": f'<{wired.settings.url}/transparency/{deployment_id}>; rel="transparency"',
            "Placet-Artefacts": str(row.artefacts_digest),
        },
    )


def _deployment_view(session: Session, row: Deployment) -> dict[str, Any]:
    view = views.deployment(row)
    decision = session.get(StoredDecision, row.decision_id) if row.decision_id else None
    view["decision"] = None if decision is None else decision_view(session, decision, language="en")
    return view


def _issued(session: Session, name: str | None, deployment_id: str) -> bytes:
    if name is None:
        raise NotFound(f"`{deployment_id}` has no such document; it is issued at activation")
    return load(session, name)


def _rendered(body: bytes, form: str, *, markdown: Any, html: Any, name: str) -> Response:
    if form == "json":
        return Response(body, media_type="application/json")
    if form == "html":
        return HTMLResponse(html(body))
    if form == "md" and markdown is not None:
        return Response(markdown(body), media_type="text/markdown; charset=utf-8")
    raise NotFound(f"no `{form}` of the document of `{name}`")
