"""Decisions: what the gate would say now, what it said before, and what it said it from."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Discriminator, Tag
from sqlmodel import Session, col, func, select

from policies.policy import Policy
from policies.reference import Reference
from policies.render import explain
from service import deployments, jobs
from service.api.http import (
    After,
    Authenticated,
    Limit,
    StrictRoute,
    Wired,
    cursor,
    page,
)
from service.api.jobs import decision_of
from service.api.language import AskedLanguage
from service.archive import load
from service.installation import Installation
from service.principals import Caller
from service.requests import DeploymentRequest, JobRequest
from service.tables import Deployment, Job, StoredDecision

router = APIRouter(route_class=StrictRoute)


def _kind(body: Any) -> str:
    """Tell a deployment's document from a job's: only the first names a model version."""
    names = body if isinstance(body, dict) else getattr(type(body), "model_fields", {})
    return "DeploymentRequest" if "model_version" in names else "JobRequest"


Previewed = Annotated[
    Annotated[JobRequest, Tag("JobRequest")]
    | Annotated[DeploymentRequest, Tag("DeploymentRequest")],
    Discriminator(_kind),
]
Since = Annotated[
    str,
    Query(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?$",
        description="Only decisions made at or after this day or instant.",
    ),
]


@router.post("/decisions:preview", tags=["decisions"], summary="Preview a decision")
def preview_decision(
    body: Previewed, wired: Wired, who: Authenticated, language: AskedLanguage
) -> JSONResponse:
    """Say what the gate would decide now on a job or a deployment, and record nothing.

    The body is what `POST /v1/jobs` or `POST /v1/deployments` takes; what they refuse is refused
    here. Policy, reference data and waivers are those in force. It binds nobody: what is submitted
    later is decided anew.
    """
    with wired.transactions.read() as session:
        view = _previewed(session, wired, who, body, language)
    return JSONResponse(view, headers={"Content-Language": language})


def _previewed(
    session: Session,
    wired: Installation,
    who: Caller,
    body: JobRequest | DeploymentRequest,
    language: str,
) -> dict[str, Any]:
    if isinstance(body, JobRequest):
        kind = "job"
        decision = jobs.preview(session, who, request=body, context=wired.jobs)
    else:
        kind = "deployment"
        decision = deployments.preview(session, who, asked=body, context=wired.deployments)
    document = decision.document
    policy = Policy.from_bytes(load(session, document["policy"]))
    reference = Reference.from_bytes(load(session, document["reference"]))
    return {
        "subject": kind,
        "verdict": decision.verdict,
        "findings": [dict(one) for one in explain(decision, policy, language, reference)],
        "results": [
            {"rule": r.rule, "version": r.version, "effect": r.effect, "outcome": r.outcome}
            for r in decision.results
        ],
        "approvals_needed": [{"role": a.role, "count": a.count} for a in decision.approvals],
        "evaluated_at": document["evaluated_at"],
        "valid_until": decision.valid_until,
        "record_digest": decision.digest,
        "facts_digest": decision.facts_digest,
        "policy_digest": document["policy"],
        "reference_digest": document["reference"],
        "waivers": [waiver["id"] for waiver in document["waivers"]],
        "language": language,
    }


@router.get("/decisions", tags=["decisions"], summary="List decisions")
def list_decisions(
    request: Request,
    response: Response,
    wired: Wired,
    who: Authenticated,
    limit: Limit = 50,
    after: After = None,
    since: Since = "0001-01-01",
) -> dict[str, Any]:
    """List the decisions on what the caller may see, oldest first."""
    team = func.coalesce(col(Job.team), col(Deployment.team))
    query = (
        select(StoredDecision, team)
        .join(Job, col(Job.id) == col(StoredDecision.subject_id), isouter=True)
        .join(Deployment, col(Deployment.id) == col(StoredDecision.subject_id), isouter=True)
        .where(col(StoredDecision.id) > cursor(after), col(StoredDecision.created_at) >= since)
        .order_by(col(StoredDecision.id))
    )
    items = []
    with wired.transactions.read() as session:
        for row, of_team in session.exec(query):
            if who.sees(str(of_team)):
                items.append(_listed(row, str(of_team)))
            if len(items) > limit:
                break
    return page(request, items, limit=limit, key="id", response=response)


def _listed(row: StoredDecision, team: str) -> dict[str, Any]:
    return {
        "id": row.id,
        "subject": f"{row.subject_kind}:{row.subject_id}",
        "team": team,
        "stage": row.stage,
        "verdict": row.verdict,
        "record_digest": row.record_digest,
        "policy_digest": row.policy_digest,
        "reference_digest": row.reference_digest,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
    }


@router.get(
    "/decisions/{decision_id}/policy", tags=["decisions"], summary="Read the policy that decided"
)
def read_decision_policy(decision_id: str, wired: Wired, who: Authenticated) -> Response:
    """Read the exact bytes of the policy, as they were digested: a replay needs them."""
    with wired.transactions.read() as session:
        row = decision_of(session, who, decision_id)
        return Response(load(session, row.policy_digest), media_type="application/json")


@router.get(
    "/decisions/{decision_id}/reference",
    tags=["decisions"],
    summary="Read the reference data of a decision",
)
def read_decision_reference(decision_id: str, wired: Wired, who: Authenticated) -> Response:
    """Read the exact bytes of the reference data, as they were digested: a replay needs them."""
    with wired.transactions.read() as session:
        row = decision_of(session, who, decision_id)
        return Response(load(session, row.reference_digest), media_type="application/json")
