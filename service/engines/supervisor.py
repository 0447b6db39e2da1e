"""Watch one child process and write down how it ended; a script for `python -I -S`.

    supervisor.py FOLDER WORKING_DIRECTORY ARGV…

It imports nothing of ours. It leaves the service at once (double fork, own session), so that it
outlives the service and nobody has to reap it. In FOLDER it keeps, written under a temporary name
and renamed::

    lock               held for its whole life: a second supervisor of the folder ends at once
    supervisor.json    {"pid":…,"start_ticks":…,"boot_id":…}: it has started; written once, ever
    child.json         the same of the child, which leads a process group of its own
    log.txt            the child's output and errors
    exit.json          {"code":0} or {"signal":9} or {"not_started":"…"}: the child is over
    stop.json          written by others: whoever finds it before the start does not start

The child inherits the environment that the service gave to the supervisor. When the child is over,
what is left of its process group is killed.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

STARTED = b"1"


def main() -> int:
    """Fork; the first process waits until the second has started the child or has given up."""
    folder, directory, argv = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0  # another supervisor is at work
    if (folder / "supervisor.json").exists():
        return 0  # one was here and is gone: what was started once is never started again
    readable, writable = os.pipe()
    if os.fork():
        os.close(writable)
        return 0 if os.read(readable, 1) == STARTED else 1
    os.close(readable)
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        # A handler, since an ignored signal would stay ignored in the child.
        signal.signal(number, lambda _number, _frame: None)
    write(folder, "supervisor.json", identity(os.getpid()))
    write(folder, "exit.json", watch(folder, directory, argv, writable))
    return 0


def watch(folder: Path, directory: Path, argv: list[str], started: int) -> dict[str, object]:
    """Run the child to its end and return what `exit.json` will say."""
    if (folder / "stop.json").exists():
        tell(started)
        return {"not_started": "stopped before the start"}
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    log = os.open(folder / "log.txt", flags, 0o600)
    try:
        child = subprocess.Popen(  # noqa: S603 — the service chose the program; no shell
            argv, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
        )
    except OSError as error:
        tell(started)
        return {"not_started": str(error.strerror)}
    write(folder, "child.json", identity(child.pid))
    tell(started)
    code = child.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    return {"code": code} if code >= 0 else {"signal": -code}


def tell(started: int) -> None:
    """Let the first process return to the service."""
    with contextlib.suppress(BrokenPipeError):
        os.write(started, STARTED)
    os.close(started)


def identity(pid: int) -> dict[str, object]:
    """Name a process so that another one with the same number is not taken for it."""
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    ticks = int(stat.rpartition(b")")[2].split()[19])
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return {"pid": pid, "start_ticks": ticks, "boot_id": boot_id}


def write(folder: Path, name: str, value: dict[str, object]) -> None:
    """Write a small file at once and for good."""
    temporary = folder / f".{name}.new"
    with temporary.open("w") as stream:
        json.dump(value, stream)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.rename(folder / name)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(directory)
    os.close(directory)


if __name__ == "__main__":
    sys.exit(main())
