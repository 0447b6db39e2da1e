"""`placet waiver`: ask for an exception, see it, and decide on it as it was shown."""

import argparse
from collections.abc import Mapping
from typing import Any

from service.client import path_of
from service.commands.connection import connected
from service.commands.deciding import confirm
from service.commands.errors import CommandError, Status
from service.commands.output import fields, line, machine, table

_COLUMNS = ("id", "state", "subject", "rule", "approvals_missing", "expires_at")
_NEXT = {
    "requested": "two others decide: placet waiver approve {id}",
    "approved": "it begins by itself at {not_before}",
    "active": "what it is about was decided again; see {subject}",
    "expired": "it is over; request a new one if it is still needed",
    "refused": "it is over; change the job, or request another one",
    "revoked": "it is over; what waited under it was decided again",
}


def request(arguments: argparse.Namespace) -> int:
    """Ask that one violated rule is waived for one job or deployment."""
    body = {
        "rule": arguments.rule,
        "category": "mitigated" if arguments.mitigated else "waiver",
        "reason": arguments.reason,
        "ticket": arguments.ticket,
        "not_before": arguments.not_before,
        "expires_at": arguments.expires,
    }
    with connected(arguments) as client:
        row = client.post(f"{path_of(arguments.id)}/waivers", body, key=arguments.key)
    return _told(arguments, row)


def list_waivers(arguments: argparse.Namespace) -> int:
    """List waivers, oldest first."""
    asked = {"subject": arguments.subject, "state": arguments.state}
    query = {name: value for name, value in asked.items() if value is not None}
    with connected(arguments) as client:
        rows = list(client.items("/v1/waivers", **query))
    if arguments.json:
        machine(rows)
    else:
        table(_COLUMNS, rows)
    return Status.OK


def show_waiver(arguments: argparse.Namespace) -> int:
    """Show one waiver as it stands now."""
    with connected(arguments) as client:
        return _told(arguments, client.get(_path(arguments)))


def approve(arguments: argparse.Namespace) -> int:
    """Approve a requested waiver."""
    return _decide(arguments, outcome="approved")


def refuse(arguments: argparse.Namespace) -> int:
    """Refuse a requested waiver; the reason reaches the team."""
    return _decide(arguments, outcome="refused")


def revoke(arguments: argparse.Namespace) -> int:
    """End a waiver now."""
    with connected(arguments) as client:
        row = client.post(f"{_path(arguments)}/revocation", {"reason": arguments.reason})
    return _told(arguments, row)


def _decide(arguments: argparse.Namespace, *, outcome: str) -> int:
    with connected(arguments) as client:
        row, etag = client.seen(_path(arguments))
        if arguments.seen is not None and etag != f'"{arguments.seen}"':
            raise CommandError(
                f"you looked at version {arguments.seen}, it is at version {row['version']} now;"
                " look again"
            )
        if not arguments.json:
            _show(row)
        confirm(arguments, "approve" if outcome == "approved" else "refuse")
        body = {"outcome": outcome, "reason": arguments.reason}
        after = client.post(f"{_path(arguments)}/decisions", body, etag=etag)
    if arguments.json:
        machine(after)
        return Status.OK
    line()
    line(f"{outcome} version {row['version']} of {row['id']}: it is {after['state']} now")
    line(_NEXT[after["state"]].format(**after))
    return Status.OK


def _path(arguments: argparse.Namespace) -> str:
    if not arguments.id.startswith("wvr_"):
        raise CommandError(f"`{arguments.id[:60]}` is no id of a waiver (wvr_…)", Status.USAGE)
    return f"/v1/waivers/{arguments.id}"


def _told(arguments: argparse.Namespace, row: dict[str, Any]) -> int:
    if arguments.json:
        machine(row)
    else:
        _show(row)
        line()
        line(_NEXT[row["state"]].format(**row))
    return Status.OK


def _show(row: Mapping[str, Any]) -> None:
    names = ("id", "version", "state", "subject", "subject_state", "rule", "rule_version")
    more = ("category", "ticket", "requester", "not_before", "expires_at")
    shown = {name: row[name] for name in (*names, *more)}
    shown["approvals"] = [f"{one['approver']} as {one['role']}" for one in row["approvals"]]
    shown["approvals_missing"] = row["approvals_missing"]
    fields(shown)
    if row["needs_attention"]:
        line(f"{row['subject']} is {row['subject_state']} under a waiver that is over")
