"""`placet reference expiring`: certificates that end soon, and what rests on them."""

import argparse

from service.commands.connection import connected
from service.commands.errors import Status
from service.commands.output import line, machine


def expiring(arguments: argparse.Namespace) -> int:
    """List certificates that end within some days; status 0 also when there are some."""
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
        for each in one["resting"]:
            line(f"    {each['subject']}  {each['team']}  {each['state']}")
        if not one["resting"]:
            line("    nothing of yours rests on it")
    if not found["items"]:
        days = found["within"]
        line("no certificate ends" + ("" if days is None else f" within {days} days"))
    return Status.OK


def _left(days: int) -> str:
    return f"ended {-days} days ago" if days < 0 else f"in {days} days"
