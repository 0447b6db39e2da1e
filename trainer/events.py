"""Progress for people, `events.jsonl`: one JSON object a line, flushed as it is written.

    {"seq":4,"at":"2026-11-30T10:00:07.120Z","kind":"step","step":1,"num_steps":18,"loss":2.91,
     "tokens":2031,"lr":0.0002,"grad_norm":1.7}

Kinds: plan, start, step, eval, checkpoint, finish, refused, error. `seq` continues when a run is
resumed on the same scratch directory. This is telemetry, not evidence: numbers are JSON floats.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

KINDS = ("plan", "start", "step", "eval", "checkpoint", "finish", "refused", "error")


def utc_now() -> datetime:
    """Return the time of day, aware, in UTC."""
    return datetime.now(UTC)


def instant(at: datetime) -> str:
    """Write an instant with seconds."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


class EventLog:
    """Appends events to a file."""

    def __init__(self, path: Path, clock: Callable[[], datetime] = utc_now) -> None:
        self._path, self._clock = path, clock
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_bytes() if path.exists() else b""
        self._seq = before.count(b"\n")
        if before and not before.endswith(b"\n"):  # a killed process left half a line
            path.write_bytes(before[: before.rfind(b"\n") + 1])

    def write(self, kind: str, **members: object) -> None:
        """Append one event.

        Raises:
            ValueError: for an unknown kind, or a number that is not finite.
        """
        if kind not in KINDS:
            raise ValueError(f"expected a known kind of event, got `{kind}`")
        at = self._clock()
        stamp = at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"
        event = {"seq": self._seq, "at": stamp, "kind": kind, **members}
        line = json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        with self._path.open("ab") as file:
            file.write(line.encode() + b"\n")
        self._seq += 1

    def read(self) -> bytes:
        """Return all lines so far."""
        return self._path.read_bytes() if self._path.exists() else b""
