"""What an engine promises.

An engine turns one request into at most one run, however often it is asked. The rules that every
engine keeps, because breaking them has cost others money (dstack #3453, SkyPilot #10155 and #4410,
submitit #1659):

* `submit` is idempotent by run id. `find` is asked before every retry.
* A transport error never changes a state: `observe` answers `UNKNOWN`, which is never final, and
  everything else raises `EngineError`.
* A run is over only when the engine says so.
* `cancel` states a wish; it is asserted again until `observe` says that the run is over.
* `list_owned` names every run that the engine knows as ours, for a sweep in both directions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class EngineError(Exception):
    """Raised when an engine cannot be reached or does not do what it was asked.

    Whether a submission arrived is then open: ask `find`.
    """


class RequestConflictError(EngineError):
    """Raised when a run id was submitted before with other bytes; nothing was started."""


class UnknownRunError(EngineError):
    """Raised when a reference names no run of this engine."""


class RunState(StrEnum):
    """Where a run stands, in our words."""

    QUEUED = "queued"  # accepted, nothing runs yet
    STARTING = "starting"  # being allocated, pulled or launched
    RUNNING = "running"
    FINALIZING = "finalizing"  # computed, outputs not all stored: not a success yet
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # stopped with a checkpoint, can be resumed
    REFUSED = "refused"  # the trainer refused the permit, a digest or the data
    CANCELLED = "cancelled"  # stopped because we asked
    UNKNOWN = "unknown"  # the engine cannot tell now: keep asking

    @property
    def is_final(self) -> bool:
        """Whether no other state can follow."""
        return self in _FINAL


_FINAL = frozenset(
    {
        RunState.SUCCEEDED,
        RunState.FAILED,
        RunState.INTERRUPTED,
        RunState.REFUSED,
        RunState.CANCELLED,
    }
)


@dataclass(frozen=True)
class RunRequest:
    """All that an engine gets to know of a run.

    Attributes:
        run_id: Our id; the engine's idempotency key.
        spec: Bytes of the trainer's job specification, stored as they are.
        permit: The signed permit, a compact JSON Web Token.
        output_uri: Folder URI under which the run writes.
        environment: Variables for the trainer, for instance the storage credentials; kept in
            memory, never written down by an engine that can avoid it.
    """

    run_id: str
    spec: bytes
    permit: str = field(repr=False)
    output_uri: str
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Observation:
    """What an engine says about a run now.

    Attributes:
        state: Where it stands.
        exit_code: The trainer's exit status, if it has ended by itself and the engine knows it.
        reason: A short code or sentence for people; empty when the state says all.
    """

    state: RunState
    exit_code: int | None = None
    reason: str = ""


class Engine(Protocol):
    """A place where runs happen. References are opaque texts that outlive this process."""

    def submit(self, request: RunRequest) -> str:
        """Start the run unless it was started before; return its reference.

        Raises:
            RequestConflictError: The run id was used before with other bytes.
            EngineError: It is not known whether the run was started; ask `find`, then try again.
        """
        ...

    def find(self, run_id: str) -> str | None:
        """Return the reference of a run that was started, or None.

        Raises:
            EngineError: The engine cannot tell.
        """
        ...

    def observe(self, ref: str) -> Observation:
        """Say where a run stands; `UNKNOWN` when the engine cannot tell.

        Raises:
            UnknownRunError: The text is not a reference of this engine.
        """
        ...

    def logs(self, ref: str, start: int) -> bytes:
        """Return what the run wrote from byte `start` on, at most 1 MiB; empty at the end.

        Raises:
            EngineError: The log cannot be read now.
        """
        ...

    def events(self, ref: str, start: int) -> bytes:
        """Return progress lines (JSON, one a line) from byte `start` on, as `logs` does.

        The last line may still be incomplete.
        """
        ...

    def cancel(self, ref: str) -> None:
        """Ask the run to end; repeatable, without effect on one that is over.

        Raises:
            EngineError: The wish could not be passed on; assert it again.
        """
        ...

    def list_owned(self) -> Iterator[tuple[str, str]]:
        """Yield `(run id, reference)` of every run this engine holds for us, over or not."""
        ...
