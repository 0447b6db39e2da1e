"""How a command ends when it cannot do what was asked: one line and an exit status."""

from enum import IntEnum


class Status(IntEnum):
    """Exit statuses of every command but `verify`, which has its own (`audit.report`)."""

    OK = 0
    REFUSED = 1  # refused, denied or failed
    USAGE = 2  # the request itself must change: usage, a malformed file, a missing extra
    INTERRUPTED = 130  # as a shell reports SIGINT


class CommandError(Exception):
    """The command did not do what was asked.

    Args:
        message: what is wrong and what to do, in one line.
        status: the exit status.
    """

    def __init__(self, message: str, status: Status = Status.REFUSED) -> None:
        super().__init__(" ".join(message.split()))
        self.status = status
