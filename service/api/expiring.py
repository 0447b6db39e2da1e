"""Certificates and rows of law that turn soon, with the jobs and deployments that rest on them."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from service.api.http import Authenticated, StrictRoute, Wired
from service.dated_rows import turning
from service.expiring import expiring, warning_days
from service.principals import Caller
from service.resting import live

router = APIRouter(route_class=StrictRoute)


@router.get("/reference/expiring", tags=["reference data"], summary="List what ends soon")
def list_expiring(
    wired: Wired,
    who: Authenticated,
    within: Annotated[
        int | None,
        Query(ge=0, le=3660, description="Days from today; by default those of the house policy."),
    ] = None,
) -> dict[str, Any]:
    """List what ends within some days, and what of yours rests on it.

    `items` are certificates; `rows` are decisions on countries that end, and uses of yours that
    become prohibited or high-risk.
    """
    today = wired.clock().date()
    with wired.transactions.read() as session:
        reference = wired.gate.current(session).reference
        days = warning_days(reference) if within is None else within
        work = tuple(live(session))
    found = expiring(work, reference, today=today, within=days)
    rows = [_seen(who, one.to_json()) for one in turning(work, reference, today=today, within=days)]
    return {
        "as_of": today.isoformat(),
        "within": days,
        "items": [_seen(who, one.to_json()) for one in found],
        "rows": [one for one in rows if one["resting"] or _is_for_all(one)],
    }


def _seen(who: Caller, shown: dict[str, Any]) -> dict[str, Any]:
    shown["resting"] = [each for each in shown["resting"] if who.sees(each["team"])]
    return shown


def _is_for_all(shown: dict[str, Any]) -> bool:
    """Say whether it is news without work of one's own; what is past or others' use is not."""
    return bool(shown["table"] != "uses" and shown["days_left"] >= 0)
