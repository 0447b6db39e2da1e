"""Stop when asked: a flag that every loop polls, and the run's deadline.

A signal handler only sets the flag; `poll` raises at the next safe place, so that a save is never
torn. SIGTERM and SIGINT mean: save and leave with exit code 75, to be started again.
"""

import signal
import time
from collections.abc import Callable
from types import FrameType


class StopRequestedError(Exception):
    """The process was asked to stop; the run can be resumed."""


class DeadlineError(RuntimeError):
    """The run used all its permitted minutes."""


class Stop:
    """The flag and the deadline."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._requested = False
        self._deadline: float | None = None

    def install(self) -> None:
        """Let SIGTERM and SIGINT set the flag."""
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self._requested = True

    def request(self) -> None:
        """Set the flag."""
        self._requested = True

    def limit(self, seconds: float) -> None:
        """Let the run end `seconds` from now."""
        self._deadline = self._clock() + seconds

    def poll(self) -> None:
        """Return, or raise when it is time to stop.

        Raises:
            StopRequestedError: when the flag is set.
            DeadlineError: when the deadline has passed.
        """
        if self._requested:
            raise StopRequestedError("the process was asked to stop")
        if self._deadline is not None and self._clock() > self._deadline:
            raise DeadlineError("the run used all its permitted minutes; ask for more")
