"""`placet reference expiring`: certificates and rows of law that end soon, and what rests on it."""

import argparse
from typing import Any

from service.commands.connection import connected
from service.commands.errors import Status
from service.commands.output import line, machine


def expiring(arguments: argparse.Namespace) -> int:
    """List what ends within some days; status 0 also when there is something."""
    query = {} if arguments.within is None else {"within": arguments.within}
    with connected(arguments) as client:
        found = client.get("/v1/reference/expiring", **query)
    if arguments.json:
        machine(found)
        return Status.OK
    for one in found["items"]:
        regions = ", ".join(one["regions"])
        line(
            f"{one['valid_until']}  {_left(one['days_left'])}  {one['scheme']}"
            f"  {one['provider']} / {one['service']} / {regions}"
        )
        _resting(one)
    for one in found["rows"]:
        line(
            f"{one['on']}  {_left(one['days_left'], one['change'])}  {one['table']}  {one['key']}"
            f"  {one['change']}"
        )
        _resting(one)
    if not found["items"] and not found["rows"]:
        days = found["within"]
        line("nothing ends" + ("" if days is None else f" within {days} days"))
    return Status.OK


def _resting(one: dict[str, Any]) -> None:
    for each in one["resting"]:
        line(f"    {each['subject']}  {each['team']}  {each['state']}")
    if not one["resting"]:
        line("    nothing of yours rests on it")


def _left(days: int, change: str = "ends") -> str:
    past = "ended" if change == "ends" else "started"
    return f"{past} {-days} days ago" if days < 0 else f"in {days} days"
