"""Certificates that end soon, with the jobs and deployments that rest on them."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from service import expiring
from service.api.http import Authenticated, StrictRoute, Wired

router = APIRouter(route_class=StrictRoute)


@router.get("/reference/expiring", tags=["reference data"], summary="List certificates that end")
def list_expiring(
    wired: Wired,
    who: Authenticated,
    within: Annotated[
        int | None,
        Query(ge=0, le=3660, description="Days from today; by default those of the house policy."),
    ] = None,
) -> dict[str, Any]:
    """List certificates that end within some days, and what of yours would be without one then."""
    today = wired.clock().date()
    with wired.transactions.read() as session:
        reference = wired.gate.current(session).reference
        days = expiring.warning_days(reference) if within is None else within
        found = expiring.expiring(session, reference, today=today, within=days)
    items = []
    for one in found:
        shown = one.to_json()
        shown["resting"] = [each for each in shown["resting"] if who.sees(each["team"])]
        items.append(shown)
    return {"as_of": today.isoformat(), "within": days, "items": items}
