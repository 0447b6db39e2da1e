"""`placet approve` and `placet refuse`: an officer decides on what was shown, nothing else."""

import argparse
import sys
from typing import Any

from service.client import path_of
from service.commands import deployments, jobs
from service.commands.connection import connected
from service.commands.errors import CommandError, Status
from service.commands.findings import verdict_of
from service.commands.output import line, machine


def approve(arguments: argparse.Namespace) -> int:
    """Approve a job or a deployment."""
    return _decide(arguments, outcome="given")


def refuse(arguments: argparse.Namespace) -> int:
    """Refuse a job or a deployment; the reason reaches the team."""
    return _decide(arguments, outcome="refused")


def _decide(arguments: argparse.Namespace, *, outcome: str) -> int:
    with connected(arguments) as client:
        row, etag = client.seen(path_of(arguments.id))
        if arguments.seen is not None and etag != f'"{arguments.seen}"':
            raise CommandError(
                f"you looked at version {arguments.seen}, it is at version {row['version']} now;"
                " look again"
            )
        if not arguments.json:
            _show(row)
        confirm(arguments, "approve" if outcome == "given" else "refuse")
        after = client.decide(arguments.id, outcome=outcome, reason=arguments.reason, etag=etag)
    if arguments.json:
        machine(after)
        return Status.OK
    verb = "approved" if outcome == "given" else "refused"
    line()
    line(f"{verb} version {row['version']} of {arguments.id}: it is {after['state']} now")
    if after["state"] == "awaiting_approval":
        line(verdict_of(after["decision"]))
    return Status.OK


def _show(row: dict[str, Any]) -> None:
    if "model_version" in row:
        deployments.show(row, as_json=False)
    else:
        jobs.show(row, as_json=False)


def confirm(arguments: argparse.Namespace, verb: str) -> None:
    """Ask a person at a terminal once more; a script has said all it will say."""
    if arguments.yes or arguments.json or not sys.stdin.isatty():
        return
    sys.stdout.write(f"\n{verb} this? [y/N] ")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandError("nothing was decided")
