"""The policy in force: bundles that maintainers signed, and what one in the shadow would say."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from sqlmodel import Session, col, select

from audit.canonical import CanonicalError, canonical
from service import in_force, policy_bundles, shadowing
from service.api.decisions import Since
from service.api.http import (
    After,
    Authenticated,
    CreationKey,
    Limit,
    StrictRoute,
    Wired,
    cursor,
    known_answer,
    once,
    page,
)
from service.clock import seconds
from service.force_tables import PolicyAct
from service.installation import Installation
from service.policy_bundles import RejectedError
from service.principals import Role
from service.problems import Unprocessable, field_problem

router = APIRouter(route_class=StrictRoute)
_ROUTE = "POST /v1/policies"


class PolicyRequest(BaseModel):
    """A signed bundle to put in force."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    bundle: dict[str, Any] = Field(
        description="A `placet.policy-bundle/1`, as `placet policy sign` wrote it.", max_length=40
    )
    mode: Literal["enforce", "shadow"] = Field(
        default="enforce", description="`shadow` decides beside the policy in force, for nothing."
    )
    reason: Annotated[str, StringConstraints(min_length=3, max_length=2000)] = Field(
        description="Why now; kept sealed beside the log."
    )


@router.get("/policies/current", tags=["policies"], summary="Read what is in force")
def read_current(wired: Wired, who: Authenticated) -> dict[str, Any]:
    """Say which policy and reference data decide now, what is tried, and what was rejected last."""
    del who  # any authenticated caller may know what decides
    with wired.transactions.read() as session:
        return described(session, wired)


@router.get("/policies", tags=["policies"], summary="List acts on the policy")
def list_policies(
    request: Request,
    response: Response,
    wired: Wired,
    who: Authenticated,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List what was enforced, tried in the shadow or rejected, oldest first."""
    del who
    with wired.transactions.read() as session:
        rows = session.exec(
            select(PolicyAct)
            .where(col(PolicyAct.id) > cursor(after))
            .order_by(PolicyAct.id)
            .limit(limit + 1)
        )
        items = [_view(row) for row in rows]
    return page(request, items, limit=limit, key="id", response=response)


@router.post("/policies", tags=["policies"], status_code=201, summary="Put a bundle in force")
def activate_policy(
    body: PolicyRequest, wired: Wired, who: Authenticated, key: CreationKey
) -> JSONResponse:
    """Check a bundle and put all of it in force from this commit on: officers only.

    Two maintainers signed it, its day has come, its packs load, its own tests pass and its number
    is new. Otherwise nothing of it is used, the policy in force stays, and an entry says why.
    """
    policy_bundles.check_activator(who)
    with wired.transactions.read() as session:
        if known := known_answer(session, who, key=key, route=_ROUTE, request=body):
            return known
    try:
        data = canonical(body.bundle)
    except CanonicalError as error:
        raise field_problem("/bundle", str(error)) from error
    keys = policy_bundles.trusted_keys(wired.settings.policy_keys)
    now = wired.clock()
    try:
        examined = policy_bundles.examine(data, keys=keys, mode=body.mode, now=now)
        with wired.transactions.write() as tx:
            in_force.hold(tx.session, alone=True)

            def work() -> tuple[int, dict[str, Any]]:
                row = policy_bundles.activate(
                    tx, who, examined=examined, mode=body.mode, reason=body.reason, now=now
                )
                return 201, _view(row)

            return once(tx, who, key=key, route=_ROUTE, request=body, now=seconds(now), work=work)
    except RejectedError as error:
        with wired.transactions.write() as tx:
            row = policy_bundles.reject(tx, who, data=data, error=error, now=now)
        still = f"number {row.number} stays in force"
        raise Unprocessable(
            f"the bundle was rejected, {still}: {error}",
            errors=[{"pointer": "/bundle", "detail": str(error)}],
            reason_code=error.code,
        ) from error


@router.get(
    "/policies/shadow/differences", tags=["policies"], summary="List what the shadow would change"
)
def list_differences(
    wired: Wired, who: Authenticated, since: Since = "0001-01-01"
) -> dict[str, Any]:
    """List where the policy in the shadow came to another verdict, by rule and by team.

    Of the policy that is tried now, or was tried last; officers and auditors only.
    """
    who.require(Role.OFFICER, Role.AUDITOR)
    with wired.transactions.read() as session:
        return shadowing.differences(session, since=since)


def described(session: Session, wired: Installation) -> dict[str, Any]:
    """Say what is in force, for people and for `/readyz`."""
    now = wired.gate.current(session)
    shadow, rejected = in_force.shadow_act(session), policy_bundles.last_rejection(session)
    enforced = in_force.newest_act(session, "enforce")
    return {
        "policy": now.policy.digest,
        "number": now.number,
        "signers": [] if enforced is None else list(enforced.signers),
        "rules": len(now.policy.rules),
        "reference": now.reference.digest,
        "shadow": None if shadow is None else _view(shadow),
        "rejected": None if rejected is None else _view(rejected),
    }


def _view(row: PolicyAct) -> dict[str, Any]:
    return {
        "id": row.id,
        "act": row.act,
        "number": row.number,
        "policy_digest": row.policy_digest,
        "bundle_digest": row.bundle_digest,
        "signers": list(row.signers),
        "reason_code": row.reason_code,
        "created_by": row.created_by,
        "created_at": row.created_at,
    }
