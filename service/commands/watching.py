"""`placet watch`: live progress of a job, or of a deployment until it answers.

On a terminal one line with a bar is redrawn; elsewhere each change is a line of its own, and with
`--json` a JSON document.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from service.client import Client, path_of
from service.commands.connection import connected
from service.commands.errors import Status
from service.commands.output import line, machine, printable

_SETTLED = frozenset({"active", "denied", "refused", "expired", "failed", "retired"})
_BAR = 24
_POLL_S = 0.5


def watch(arguments: argparse.Namespace) -> int:
    """Follow a job or a deployment; status 1 when it does not end well."""
    with connected(arguments) as client:
        if path_of(arguments.id).startswith("/v1/deployments/"):
            return _watch_deployment(client, arguments)
        show: Callable[[dict[str, Any]], None] = machine if arguments.json else Live().show
        state = "unknown"
        for event in client.follow(arguments.id):
            state = event["state"]
            show(event)
    return Status.OK if state == "succeeded" else Status.REFUSED


def _watch_deployment(client: Client, arguments: argparse.Namespace) -> int:
    last = ""
    while True:
        row = client.get(f"/v1/deployments/{arguments.id}")
        if row["state"] != last:
            last = row["state"]
            if arguments.json:
                machine({"id": row["id"], "state": last, "reason_code": row["reason_code"]})
            else:
                line(f"{row['id']} is {last}" + _because(row))
                sys.stdout.flush()
        if last in _SETTLED:
            return Status.OK if last == "active" else Status.REFUSED
        time.sleep(_POLL_S)


class Live:
    """Draws a job's progress: redrawn on a terminal, line by line elsewhere.

    Args:
        out: where to draw.
        indent: what stands before each line.
    """

    def __init__(self, out: TextIO | None = None, indent: str = "") -> None:
        self._out = out or sys.stdout
        self._indent = indent
        self._is_open = False
        self._last = ""

    def show(self, event: dict[str, Any]) -> None:
        """Draw one event of `Client.follow`."""
        text, is_step = told(event)
        if text == self._last:
            return
        self._last = text
        text = printable(self._indent + text)
        if not self._out.isatty():
            self._out.write(text + "\n")
        elif is_step:
            width = shutil.get_terminal_size().columns - 1
            self._out.write("\r\x1b[K" + text[:width])
            self._is_open = True
        else:
            self.close()
            self._out.write(text + "\n")
        self._out.flush()

    def close(self) -> None:
        """End the line that is being redrawn."""
        if self._is_open:
            self._out.write("\n")
            self._is_open = False


def told(event: dict[str, Any]) -> tuple[str, bool]:
    """Say an event in one line, and whether the next one may take its place."""
    progress = event.get("progress") or {}
    state = event["state"]
    if state not in {"running", "cancelling"} or not progress:
        return f"{state}{_because(event)}", False
    step, total = int(progress.get("step") or 0), int(progress.get("num_steps") or 0)
    loss = progress.get("loss")
    kind = progress.get("kind")
    if kind == "eval" and isinstance(loss, int | float):
        return f"held-out loss {progress.get('when', '')} training: {loss:.4f}", False
    if kind == "plan":
        return f"planned: {total} updates, {progress.get('tokens', '?')} tokens", False
    if kind != "step" or not total:
        return f"{state}: {kind}", False
    done = _BAR * step // total
    parts = [f"[{'#' * done}{'.' * (_BAR - done)}] {step}/{total}"]
    if isinstance(loss, int | float):
        parts.append(f"loss {loss:.4f}")
    if isinstance(progress.get("tokens"), int):
        parts.append(f"{progress['tokens']} tokens")
    if isinstance(progress.get("seconds"), int | float):
        parts.append(f"{progress['seconds']:.0f} s")
    return "  ".join(parts), True


def _because(row: dict[str, Any]) -> str:
    return f" ({row['reason_code']})" if row.get("reason_code") else ""
