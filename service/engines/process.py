"""Processes that outlive the service: one folder each, started at most once, found again later.

A folder is complete or absent (it is made beside and renamed), so creating it is the one atomic
step that decides a race. `launch` starts `supervisor`, whose lock and files make the second launch
of a folder a no-op; so a crash at any point is mended by calling `create` and `launch` again.

A process is known by its number, its start time and the boot it belongs to: a number alone may be
another's by now. Children are found by their session and by a variable that they inherit, also when
their supervisor was killed. Linux only: `/proc` is read.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from service.engines import supervisor

MARK = "PLACET_SUPERVISED"
LAUNCH_WITHIN_S = 30.0
MAX_READ_BYTES = 1 << 20
TEMPORARY_PREFIX = ".new-"


INHERITED = (
    "CUDA_VISIBLE_DEVICES",
    "LANG",
    "LD_LIBRARY_PATH",
    "NVIDIA_VISIBLE_DEVICES",
    "PATH",
    "SSL_CERT_FILE",
    "TZ",
)


class ProcessError(Exception):
    """Raised when a folder or a process of this machine cannot be handled; try again."""


class Phase(StrEnum):
    """Where a supervised process stands."""

    IDLE = "idle"  # its folder exists, nobody launched it
    STARTING = "starting"
    RUNNING = "running"
    OVER = "over"  # its end was witnessed
    LOST = "lost"  # it is gone and nobody saw how


@dataclass(frozen=True)
class Status:
    """What is known of a supervised process.

    Attributes:
        phase: Where it stands.
        code: Exit status, when it ended by itself.
        signal: Signal that ended it.
        not_started: Why it never ran, when its end is that it never began.
        is_stopped: Whether `stop` was asked for.
    """

    phase: Phase
    code: int | None = None
    signal: int | None = None
    not_started: str = ""
    is_stopped: bool = False


@dataclass(frozen=True)
class _Identity:
    pid: int
    start_ticks: int
    boot_id: str


@dataclass(frozen=True)
class _Process:
    pid: int
    group: int
    session: int
    start_ticks: int


def create(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Create `folder` with these files, owner-only and flushed; False when it exists already.

    Raises:
        ProcessError: The disk does not take it.
    """
    temporary = folder.with_name(f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}")
    try:
        temporary.mkdir(mode=0o700)
        for name, data in files.items():
            path = temporary / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        if folder.exists():
            return False
        temporary.rename(folder)  # fails on a folder that is not empty
        _sync(folder.parent)
    except OSError as error:
        if folder.exists():
            return False
        raise ProcessError(
            f"cannot create `{folder}`: {error.strerror}; check free space and permissions"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return True


def environment(scratch: Path, threads: int) -> dict[str, str]:
    """Return the variables a child gets: none of the service's own but those in `INHERITED`.

    Its home is `scratch`, so that no credentials file of this user is found; model hubs are off.
    """
    return {
        **{name: os.environ[name] for name in INHERITED if name in os.environ},
        "DO_NOT_TRACK": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "1",
        "HOME": str(scratch),
        "OMP_NUM_THREADS": str(threads),
        "TMPDIR": str(scratch / "tmp"),
        "TRANSFORMERS_OFFLINE": "1",
    }


def launch(
    folder: Path,
    argv: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    python: Path,
) -> None:
    """Start the program under a supervisor unless this folder's was started before.

    Returns when the program runs or has failed to start; `status` tells. The environment is exactly
    what is given, plus a mark; it is not written down.

    Raises:
        ProcessError: No supervisor could be started; launching again is safe.
    """
    command = [str(python), "-I", "-S", supervisor.__file__, str(folder), str(directory), *argv]
    try:
        with (folder / "supervisor.log").open("ab") as log:
            done = subprocess.run(  # noqa: S603 — our own script and a list of arguments; no shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment, MARK: str(folder)},
                cwd=folder,
                start_new_session=True,
                timeout=LAUNCH_WITHIN_S,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProcessError(f"cannot start a process for `{folder.name}`: {error}") from error
    if done.returncode != 0:
        raise ProcessError(
            f"the supervisor of `{folder.name}` failed; see `{folder / 'supervisor.log'}`"
        )


def status(folder: Path) -> Status:
    """Say where the folder's process stands; reads some files and `/proc`, changes nothing.

    Raises:
        ProcessError: It cannot be told now.
    """
    try:
        is_stopped = (folder / "stop.json").exists()
        supervising = _read_identity(folder / "supervisor.json")
        if supervising is None:
            if not folder.is_dir():
                raise ProcessError(f"there is no folder `{folder}`")
            return Status(Phase.IDLE, is_stopped=is_stopped)
        if (ended := _ended(folder, is_stopped=is_stopped)) is not None:
            return ended
        if _is_alive(supervising):
            has_child = (folder / "child.json").exists()
            phase = Phase.RUNNING if has_child else Phase.STARTING
        elif any(True for _ in _members(folder)):
            phase = Phase.RUNNING  # its supervisor was killed: the end will not be witnessed
        else:
            # The end may have been written between the first look and the last.
            ended = _ended(folder, is_stopped=is_stopped)
            return ended or Status(Phase.LOST, is_stopped=is_stopped)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProcessError(f"cannot tell how `{folder.name}` stands: {error}") from error
    return Status(phase, is_stopped=is_stopped)


def stop(folder: Path, *, now: float, grace_s: float) -> None:
    """Ask the process to end; from `grace_s` after the first call on, every call kills.

    Without effect when it is over. `now` is in seconds on a clock that all callers share.

    Raises:
        ProcessError: It could not be asked; call again.
    """
    try:
        with contextlib.suppress(FileExistsError):
            temporary = folder / f".stop-{secrets.token_hex(8)}"
            temporary.write_text(json.dumps({"requested_at": now}))
            try:
                os.link(temporary, folder / "stop.json")
            finally:
                temporary.unlink()
        requested_at = float(json.loads((folder / "stop.json").read_text())["requested_at"])
        number = signal.SIGKILL if now - requested_at >= grace_s else signal.SIGTERM
        for group in {process.group for process in _members(folder)}:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, number)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProcessError(f"cannot stop `{folder.name}`: {error}; try again") from error


def read_from(path: Path, start: int) -> bytes:
    """Return a growing file's bytes from `start` on, at most 1 MiB; none when it is not there.

    Raises:
        ProcessError: It cannot be read.
    """
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, start))
            return stream.read(MAX_READ_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise ProcessError(f"cannot read `{path}`: {error.strerror}") from error


def folders(root: Path) -> Iterator[Path]:
    """Yield the complete folders below `root`, by name."""
    try:
        entries = sorted(root.iterdir())
    except OSError as error:
        raise ProcessError(f"cannot read `{root}`: {error.strerror}") from error
    for entry in entries:
        if entry.is_dir() and not entry.name.startswith("."):
            yield entry


def _ended(folder: Path, *, is_stopped: bool) -> Status | None:
    try:
        end = json.loads((folder / "exit.json").read_text())
    except FileNotFoundError:
        return None
    return Status(
        Phase.OVER,
        code=end.get("code"),
        signal=end.get("signal"),
        not_started=end.get("not_started", ""),
        is_stopped=is_stopped,
    )


def _read_identity(path: Path) -> _Identity | None:
    try:
        members = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return _Identity(members["pid"], members["start_ticks"], members["boot_id"])


def _is_alive(identity: _Identity) -> bool:
    if identity.boot_id != _boot_id():
        return False
    process = _process(identity.pid)
    return process is not None and process.start_ticks == identity.start_ticks


def _members(folder: Path) -> Iterator[_Process]:
    """Find the living processes that descend from the folder's supervisor, itself left out."""
    supervising = _read_identity(folder / "supervisor.json")
    if supervising is None or supervising.boot_id != _boot_id():
        return
    mark = f"{MARK}={folder}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == supervising.pid:
            continue
        process = _process(int(entry.name))
        if (
            process is not None
            and process.session == supervising.pid
            and process.start_ticks >= supervising.start_ticks
            and mark in _environment(process.pid)
        ):
            yield process


def _process(pid: int) -> _Process | None:
    """Read a process's line in `/proc` (proc(5), `stat`); None for one that is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] in {b"Z", b"X"}:
        return None
    return _Process(pid, int(fields[2]), int(fields[3]), int(fields[19]))


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
