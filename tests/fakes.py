"""Small real implementations for tests: they keep the same contracts as the real parts."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from service.engines.protocol import (
    EngineError,
    Observation,
    RequestConflictError,
    RunRequest,
    RunState,
    UnknownRunError,
)

_BY_CODE = {
    0: RunState.SUCCEEDED,
    1: RunState.FAILED,
    2: RunState.REFUSED,
    75: RunState.INTERRUPTED,
}


@dataclass
class _Run:
    request: RunRequest
    observation: Observation = field(default_factory=lambda: Observation(RunState.RUNNING))
    log: bytes = b""
    events: bytes = b""
    num_starts: int = 1
    num_cancels: int = 0
    is_deaf: bool = False


@dataclass
class FakeEngine:
    """`Engine` in memory. A run stays `running` until a test ends it.

    Faults: `is_unreachable` makes every call fail as a network would; `loses_next_answer` makes the
    next `submit` start the run and then fail; a `deaf` run does not end when it is cancelled.
    """

    is_unreachable: bool = False
    loses_next_answer: bool = False
    runs: dict[str, _Run] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def submit(self, request: RunRequest) -> str:
        self._reach()
        with self._lock:
            known = self.runs.setdefault(request.run_id, _Run(request))
        asked = (request.spec, request.permit, request.output_uri)
        if asked != (known.request.spec, known.request.permit, known.request.output_uri):
            raise RequestConflictError(f"run `{request.run_id}` was submitted with other bytes")
        if self.loses_next_answer:
            self.loses_next_answer = False
            raise EngineError("socket timed out; ask `find`, then try again")
        return f"fake:{request.run_id}"

    def find(self, run_id: str) -> str | None:
        self._reach()
        return f"fake:{run_id}" if run_id in self.runs else None

    def observe(self, ref: str) -> Observation:
        if self.is_unreachable:
            return Observation(RunState.UNKNOWN, reason="unreachable")
        return self._run(ref).observation

    def logs(self, ref: str, start: int) -> bytes:
        self._reach()
        return self._run(ref).log[start:]

    def events(self, ref: str, start: int) -> bytes:
        self._reach()
        return self._run(ref).events[start:]

    def cancel(self, ref: str) -> None:
        self._reach()
        run = self._run(ref)
        run.num_cancels += 1
        if not run.is_deaf and not run.observation.state.is_final:
            run.observation = Observation(RunState.CANCELLED, exit_code=75)

    def list_owned(self) -> Iterator[tuple[str, str]]:
        self._reach()
        yield from ((run_id, f"fake:{run_id}") for run_id in sorted(self.runs))

    def end(self, ref: str, code: int) -> None:
        """End a run as a trainer with this exit status would."""
        self._run(ref).observation = Observation(_BY_CODE[code], exit_code=code)

    def lose(self, ref: str) -> None:
        """Let a run vanish without a trace."""
        self._run(ref).observation = Observation(RunState.FAILED, reason="lost")

    def write(self, ref: str, *, log: bytes = b"", events: bytes = b"") -> None:
        """Add to what a run wrote."""
        run = self._run(ref)
        run.log += log
        run.events += events

    def _reach(self) -> None:
        if self.is_unreachable:
            raise EngineError("connection refused; try again")

    def _run(self, ref: str) -> _Run:
        scheme, _, run_id = ref.partition(":")
        if scheme != "fake" or run_id not in self.runs:
            raise UnknownRunError(f"no run `{ref}`")
        return self.runs[run_id]
