"""Runs as processes of this machine.

One folder per run, `<root>/<run id>/`: what was asked (`spec.json`, `permit.jwt`, `issuer.pem`,
`output.txt`), what the supervisor writes (`supervisor` lists it) and `scratch/`, where the trainer
works. A reference is `local:<run id>`. Runs outlive the service's own process; what ends a whole
container or systemd unit ends them, too (use `KillMode=process`).

The trainer gets a minimal environment (`process.environment`) plus what the request names.

Python is started with `-I`, which ignores `PYTHONPATH`, the working directory and the user's site:
a file planted in a run's folder is never imported. `-I -m trainer` would find an installed wheel
only, so a constant `-c` text first puts the folder that holds *this service's* `trainer` package at
the head of `sys.path` and then does what `-m trainer` does. So the program that runs is always the
one whose contract the service was started with, from a wheel and from a source checkout alike.
"""

import importlib.util
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from service.engines import process
from service.engines.process import Phase, ProcessError, Status
from service.engines.protocol import (
    EngineError,
    Observation,
    RequestConflictError,
    RunRequest,
    RunState,
    UnknownRunError,
)

GRACE_S = 120.0
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_BOOTSTRAP = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1));"
    " runpy.run_module('trainer', run_name='__main__', alter_sys=True)"
)
_BY_CODE = {
    0: RunState.SUCCEEDED,
    1: RunState.FAILED,
    2: RunState.REFUSED,
    75: RunState.INTERRUPTED,
}


@dataclass(frozen=True)
class RunPaths:
    """What the trainer's command line names."""

    run_id: str
    output_uri: str
    spec: Path
    permit: Path
    issuer_key: Path
    scratch: Path


Command = Callable[[RunPaths], list[str]]


def trainer_command(python: Path, threads: int) -> Command:
    """Return the function that builds the command line of `trainer train`.

    Raises:
        EngineError: There is no `trainer` package.
    """
    spec = importlib.util.find_spec("trainer")
    if spec is None or spec.origin is None:
        raise EngineError("there is no `trainer` package; install `placet[trainer]`")
    home = str(Path(spec.origin).resolve().parent.parent)

    def command(paths: RunPaths) -> list[str]:
        return [
            *(str(python), "-I", "-u", "-c", _BOOTSTRAP, home),
            "train",
            *("--spec", str(paths.spec)),
            *("--permit", str(paths.permit)),
            *("--issuer-key", str(paths.issuer_key)),
            *("--run-id", paths.run_id),
            *("--output", paths.output_uri),
            *("--scratch", str(paths.scratch)),
            *("--threads", str(threads)),
        ]

    return command


class LocalEngine:
    """`Engine` over processes of this machine.

    Args:
        root: Folder for the runs' folders; created if absent, for its owner only.
        issuer_key_pem: File of the permit issuer's public key; copied into each run.
        python: Interpreter of supervisor and trainer, usually this one's virtual environment.
        threads: CPU threads a run may use.
        grace_s: Seconds between the first `cancel` and the first that kills.
        clock: Seconds since 1970, for that grace.
        command: Builds the trainer's command line; tests run a small script instead.
    """

    def __init__(
        self,
        root: Path,
        issuer_key_pem: Path,
        python: Path = Path(sys.executable),
        threads: int = 1,
        *,
        grace_s: float = GRACE_S,
        clock: Callable[[], float] = time.time,
        command: Command | None = None,
    ) -> None:
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise EngineError(f"cannot create `{root}`: {error.strerror}") from error
        self._root = root.resolve()
        self._issuer_key_pem = issuer_key_pem
        self._python = python
        self._threads = threads
        self._grace_s = grace_s
        self._clock = clock
        self._command = command or trainer_command(python, threads)

    def submit(self, request: RunRequest) -> str:
        """See `Engine.submit`; takes some tenths of a second."""
        folder = self._folder(request.run_id)
        asked = {
            "spec.json": request.spec,
            "permit.jwt": request.permit.encode(),
            "output.txt": request.output_uri.encode(),
        }
        try:
            key = self._issuer_key_pem.read_bytes()
            process.create(folder, {**asked, "issuer.pem": key, "scratch/tmp/.keep": b""})
            for name, data in asked.items():
                if (folder / name).read_bytes() != data:
                    raise RequestConflictError(
                        f"run `{request.run_id}` was submitted before with another `{name}`;"
                        " dispatch the job under a new run id"
                    )
            process.launch(
                folder,
                self._command(self._paths(folder, request)),
                directory=folder / "scratch",
                environment={
                    **process.environment(folder / "scratch", self._threads),
                    **request.environment,
                    "PLACET_RUN_ID": request.run_id,
                },
                python=self._python,
            )
        except (OSError, ProcessError) as error:
            raise EngineError(f"cannot submit `{request.run_id}`: {error}; try again") from error
        return f"local:{request.run_id}"

    def find(self, run_id: str) -> str | None:
        """See `Engine.find`; a folder whose process was never launched does not count."""
        folder = self._folder(run_id)
        self._check_root()
        try:
            if not folder.is_dir() or process.status(folder).phase is Phase.IDLE:
                return None
        except (OSError, ProcessError) as error:
            raise EngineError(f"cannot look for `{run_id}`: {error}; try again") from error
        return f"local:{run_id}"

    def observe(self, ref: str) -> Observation:
        """See `Engine.observe`."""
        try:
            status = process.status(self._known(ref))
        except UnknownRunError:
            raise
        except (EngineError, ProcessError) as error:
            return Observation(RunState.UNKNOWN, reason=str(error))
        return _observation(status)

    def logs(self, ref: str, start: int) -> bytes:
        """See `Engine.logs`."""
        return self._read(ref, Path("log.txt"), start)

    def events(self, ref: str, start: int) -> bytes:
        """See `Engine.events`."""
        return self._read(ref, Path("scratch", "events.jsonl"), start)

    def cancel(self, ref: str) -> None:
        """See `Engine.cancel`: SIGTERM, and SIGKILL on calls after the grace period."""
        folder = self._known(ref)
        try:
            process.stop(folder, now=self._clock(), grace_s=self._grace_s)
        except ProcessError as error:
            raise EngineError(str(error)) from error

    def list_owned(self) -> Iterator[tuple[str, str]]:
        """See `Engine.list_owned`."""
        try:
            for folder in process.folders(self._root):
                if _RUN_ID.fullmatch(folder.name):
                    yield folder.name, f"local:{folder.name}"
        except ProcessError as error:
            raise EngineError(f"cannot list the runs: {error}; try again") from error

    def _folder(self, run_id: str) -> Path:
        if not _RUN_ID.fullmatch(run_id):
            raise UnknownRunError(f"`{run_id!r}` is not a run id; expected `run_…`")
        return self._root / run_id

    def _known(self, ref: str) -> Path:
        scheme, _, run_id = ref.partition(":")
        if scheme != "local":
            raise UnknownRunError(f"`{ref!r}` is not a reference of this engine")
        folder = self._folder(run_id)
        self._check_root()
        if not folder.is_dir():
            raise UnknownRunError(f"no run `{ref}` was submitted here; check the reference")
        return folder

    def _check_root(self) -> None:
        """Tell a run that never was from a disk that is not there now."""
        if not self._root.is_dir():
            raise EngineError(f"the folder `{self._root}` is gone; mount it and try again")

    def _read(self, ref: str, name: Path, start: int) -> bytes:
        try:
            return process.read_from(self._known(ref) / name, start)
        except ProcessError as error:
            raise EngineError(str(error)) from error

    def _paths(self, folder: Path, request: RunRequest) -> RunPaths:
        return RunPaths(
            run_id=request.run_id,
            output_uri=request.output_uri,
            spec=folder / "spec.json",
            permit=folder / "permit.jwt",
            issuer_key=folder / "issuer.pem",
            scratch=folder / "scratch",
        )


def _observation(status: Status) -> Observation:
    """Translate a process's end into a run's; asked to stop and stopped is cancelled."""
    match status.phase:
        case Phase.IDLE if status.is_stopped:
            return Observation(RunState.CANCELLED, reason="stopped before the start")
        case Phase.IDLE:
            return Observation(RunState.QUEUED, reason="not launched; submit it again")
        case Phase.STARTING:
            return Observation(RunState.STARTING)
        case Phase.RUNNING:
            return Observation(RunState.RUNNING, reason="stopping" if status.is_stopped else "")
        case Phase.LOST:
            state = RunState.CANCELLED if status.is_stopped else RunState.FAILED
            return Observation(state, reason="lost")
        case Phase.OVER:
            return _ended(status)


def _ended(status: Status) -> Observation:
    if status.not_started:
        state = RunState.CANCELLED if status.is_stopped else RunState.FAILED
        return Observation(state, reason=status.not_started)
    if status.signal is not None:
        state = RunState.CANCELLED if status.is_stopped else RunState.FAILED
        return Observation(state, reason=f"signal {status.signal}")
    code = -1 if status.code is None else status.code
    state = _BY_CODE.get(code, RunState.FAILED)
    if state is RunState.INTERRUPTED and status.is_stopped:
        state = RunState.CANCELLED
    reason = "" if code in _BY_CODE else f"exit status {code}"
    return Observation(state, exit_code=code, reason=reason)
