"""A house of its own for each demo: a folder, a running service in it, and people with tokens."""

import contextlib
import io
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from service import cli
from service.commands.errors import CommandError

_READY_WITHIN_S = 180.0
_STOP_WITHIN_S = 60.0
COUNTRY = "FR"
CENTS_PER_HOUR = 20


@dataclass
class House:
    """One installation on embedded defaults, and the process that serves it."""

    folder: Path
    url: str
    settings: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Start `placet serve --migrate` and wait until it can work.

        Raises:
            CommandError: it ended, or is not ready in time; names its log.
        """
        log = self.folder / "service.log"
        with log.open("ab") as out:
            # A session of its own: Ctrl-C reaches the demo only, which then ends things in order.
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "service.cli", "serve", "--migrate"],
                env={**source_environment(), **self.settings},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        deadline = time.monotonic() + _READY_WITHIN_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise CommandError(f"the service ended: {_last_line(log)} (see {log})")
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/readyz", timeout=5).status_code == httpx.codes.OK:
                    return
            time.sleep(0.2)
        raise CommandError(f"the service is not ready after {_READY_WITHIN_S:.0f} s; see {log}")

    def close(self) -> None:
        """Stop the service in order, and by force when it does not."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def operate(self, *command: str) -> dict[str, Any]:
        """Run one of the operator's commands here, as `placet … --json`.

        Raises:
            CommandError: it did not end with 0.
        """
        out, err = io.StringIO(), io.StringIO()
        with (
            _environment(self.settings),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            status = cli.main([*command, "--json"])
        if status:
            said = err.getvalue().strip() or out.getvalue().strip()[:300]
            raise CommandError(f"`placet {' '.join(command)}` ended with {status}: {said}")
        answer: dict[str, Any] = json.loads(out.getvalue())
        return answer

    def write_settings(self) -> Path:
        """Write the settings as a shell file, so that the house can be opened again."""
        path = self.folder / "settings.env"
        lines = [
            f"export {name}={shlex.quote(value)}\n" for name, value in sorted(self.settings.items())
        ]
        path.write_text("".join(lines), encoding="utf-8")
        return path


def build_house(root: Path, *, models: Path, data: Path) -> House:
    """Make the folder of a new house and its settings; nothing runs yet.

    Args:
        root: where each run gets a folder of its own.
        models: folder of base models that may be registered.
        data: folder of data sets that may be registered.

    Raises:
        CommandError: the folder cannot be made.
    """
    now = datetime.now(UTC)
    folder = root.resolve() / now.strftime("run-%Y%m%d-%H%M%S")
    try:
        folder.mkdir(parents=True, mode=0o700)
    except OSError as error:
        raise CommandError(f"cannot make `{folder}`: {error.strerror}") from error
    port = _free_port()
    settings = {
        "PLACET_DATA_DIR": str(folder / "data"),
        "PLACET_ORIGIN": "demo-house.example/log",
        "PLACET_OBJECT_ROOTS": json.dumps([str(models), str(data)]),
        "PLACET_SITE_COUNTRY": COUNTRY,
        "PLACET_SITE_DECLARED_ON": now.strftime("%Y-%m-%d"),
        "PLACET_SITE_PARENT_COUNTRY": COUNTRY,
        "PLACET_SITE_ESTABLISHMENTS": json.dumps([COUNTRY]),
        "PLACET_SITE_PRICE_CENTS_PER_HOUR": str(CENTS_PER_HOUR),
        "PLACET_PROVIDER_NAME": "Demo House",
        "PLACET_CONTACT": "ai-office@demo-house.example",
        "PLACET_WORKER_INTERVAL_S": "0.5",
        "PLACET_TRAINER_THREADS": str(min(len(os.sched_getaffinity(0)), 8)),
        "PLACET_PORT": str(port),
    }
    return House(folder=folder, url=f"http://127.0.0.1:{port}", settings=settings)


def source_environment() -> dict[str, str]:
    """Return this environment without our settings, able to import our rooms from a checkout."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("PLACET_")}
    return {**mine, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}


def entry_point() -> str:
    """Say how `placet` is started here."""
    return shutil.which("placet") or f"{sys.executable} -m service.cli"


@contextlib.contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    """Put the settings of a house into this process for the time of one command."""
    before = {name: value for name, value in os.environ.items() if name.startswith("PLACET_")}
    _replace(settings)
    try:
        yield
    finally:
        _replace(before)


def _replace(settings: dict[str, str]) -> None:
    for name in [name for name in os.environ if name.startswith("PLACET_")]:
        del os.environ[name]
    os.environ.update(settings)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "it said nothing"
