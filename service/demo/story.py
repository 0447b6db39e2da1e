"""Telling what happens: numbered steps in plain words, each with the seconds since the start."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from service.commands.output import printable

_MARGIN = " " * 11


class Story:
    """Prints the demo's steps as they happen.

    Args:
        num_steps: how many there will be.
    """

    def __init__(self, num_steps: int) -> None:
        self._started = time.monotonic()
        self._num_steps = num_steps
        self._step = 0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    @property
    def margin(self) -> str:
        """What stands before a line below a step."""
        return _MARGIN

    def step(self, title: str) -> None:
        """Begin the next step."""
        self._step += 1
        self._print(f"\n[{self.elapsed_s:6.1f} s] {self._step}/{self._num_steps}  {title}")

    def say(self, text: str) -> None:
        """Explain something below the step."""
        for each in text.splitlines():
            self._print(_MARGIN + each)

    def show(self, **values: object) -> None:
        """Show names and values below the step."""
        width = max(map(len, values))
        for name, value in values.items():
            first, *more = str(value).split("\n")
            self._print(f"{_MARGIN}{name.replace('_', ' '):<{width}}  {first}")
            for each in more:
                self._print(f"{_MARGIN}{'':<{width}}  {each}")

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Say what is waited for, and then how long it took."""
        begun = time.monotonic()
        yield
        self._print(f"{_MARGIN}{what}: {time.monotonic() - begun:.1f} s")

    def _print(self, text: str) -> None:
        print("\n".join(map(printable, text.split("\n"))), flush=True)  # noqa: T201 — a command's output
