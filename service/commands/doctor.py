"""`placet doctor`: is this installation fit to run? Each check is one line; 1 when one fails.

The packages come first and alone: when a stranger overlays one of ours, nothing else can be
believed, or even imported.
"""

import argparse
import importlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from service.commands.errors import Status
from service.commands.output import line, machine
from service.commands.rooms import ROOMS, foreign_rooms


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; `outcome` is ok, warning or failed."""

    name: str
    outcome: str
    detail: str


def doctor(arguments: argparse.Namespace) -> int:
    """Look at everything that an installation rests on, and change nothing."""
    found = []
    for check in _all():
        found.append(check)
        if not arguments.json:
            line(f"{check.outcome:<8} {check.name:<12} {check.detail}")
    is_fit = all(check.outcome != "failed" for check in found)
    if arguments.json:
        machine({"ok": is_fit, "checks": [asdict(check) for check in found]})
    return Status.OK if is_fit else Status.REFUSED


def _all() -> Iterator[Check]:
    wrong = foreign_rooms()
    for room, detail in wrong.items():
        yield Check("packages", "failed", f"`{room}` {detail}")
    if wrong:
        return
    yield Check("packages", "ok", f"{', '.join(ROOMS)} are ours")
    checks: Callable[[], Iterator[Check]] = importlib.import_module("service.commands.checks").run
    yield from checks()
