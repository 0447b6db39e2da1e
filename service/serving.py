"""Serve a merged model on this machine, OpenAI-compatible, behind Placet's own gateway.

The server is `transformers serve` (extra `transformers[serving]`), pinned to one model directory:
it answers `/v1/chat/completions` for exactly one model name and refuses any other. It listens on
loopback only and asks nobody for a password, so it must be reached through the gateway, which
authenticates, limits and records. Remote code and model hubs are off.

One folder per attempt, `<root>/<deployment id>.<attempt>/`, supervised as a run is
(`service.engines.supervisor`), so a server outlives the service and is found again. After a crash
or a reboot `start` makes the next attempt, on a new port.
"""

import http.client
import json
import re
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from service.engines import process
from service.engines.process import Phase, ProcessError

PROBE_WITHIN_S = 2.0
GRACE_S = 20.0
_DEPLOYMENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_REF = re.compile(r"serving:([A-Za-z0-9][A-Za-z0-9_-]{0,63}\.[1-9][0-9]{0,5})")
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_OVER = {Phase.OVER, Phase.LOST}


class ServingError(Exception):
    """Raised when a model cannot be served, or it cannot be told; the message says what to do."""


class ServingState(StrEnum):
    """Where a server stands."""

    STARTING = "starting"  # loading weights
    READY = "ready"  # it answers for its model
    STOPPED = "stopped"  # because we asked
    FAILED = "failed"  # it ended by itself; `start` tries again
    UNKNOWN = "unknown"  # cannot be told now: keep asking


@dataclass(frozen=True)
class Endpoint:
    """Where a model answers: `http://127.0.0.1:<port>/v1/chat/completions`, under `name`."""

    ref: str
    port: int
    name: str


@dataclass(frozen=True)
class ServingObservation:
    """What is known of a server now."""

    state: ServingState
    reason: str = ""


class LocalServing:
    """Servers as processes of this machine.

    Args:
        root: Folder for the servers' folders; created if absent, for its owner only.
        python: Interpreter of an environment that holds `transformers[serving]`.
        threads: CPU threads a server may use.
        device: `auto`, `cpu` or `cuda:0`, as torch names it.
        clock: Seconds since 1970, for the grace period of `stop`.
    """

    def __init__(
        self,
        root: Path,
        python: Path = Path(sys.executable),
        threads: int = 1,
        *,
        device: str = "auto",
        grace_s: float = GRACE_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ServingError(f"cannot create `{root}`: {error.strerror}") from error
        self._root = root.resolve()
        self._python = python
        self._threads = threads
        self._device = device
        self._grace_s = grace_s
        self._clock = clock

    def start(self, deployment_id: str, model_dir: Path, name: str) -> Endpoint:
        """Serve `model_dir` (merged weights, tokenizer and chat template) under `name`.

        Idempotent while the deployment's server lives. Returns before the weights are loaded:
        `observe` says when it is ready, after some seconds.

        Raises:
            ServingError: The deployment serves another model now, the directory holds none, or
                no process could be started; in the last case start again.
        """
        if not _DEPLOYMENT_ID.fullmatch(deployment_id):
            raise ServingError(f"`{deployment_id!r}` is not a deployment id")
        if not _MODEL_NAME.fullmatch(name):
            raise ServingError(
                f"`{name!r}` is not a model name; use letters, digits, `.`, `_` and `-`"
            )
        if not (model_dir / "config.json").is_file():
            raise ServingError(f"`{model_dir}` holds no `config.json`; export the model first")
        asked = {"model_dir": str(model_dir.resolve()), "name": name}
        try:
            folder, served = self._attempt(deployment_id, asked)
            if {key: served[key] for key in asked} != asked:
                raise ServingError(
                    f"`{deployment_id}` already serves `{served['name']}` from"
                    f" `{served['model_dir']}`; stop it first"
                )
            endpoint = Endpoint(f"serving:{folder.name}", int(served["port"]), name)
            self._launch(folder, endpoint, model_dir.resolve())
        except (OSError, ProcessError) as error:
            raise ServingError(f"cannot serve `{deployment_id}`: {error}; try again") from error
        return endpoint

    def observe(self, ref: str) -> ServingObservation:
        """Say where a server stands; asks it for its model, at most 2 s.

        Raises:
            ServingError: The text is not a reference of a server that was started here.
        """
        folder = self._folder(ref)
        try:
            status = process.status(folder)
            served = _served(folder)
        except (OSError, ProcessError) as error:
            return ServingObservation(ServingState.UNKNOWN, str(error))
        if status.phase in _OVER or (status.phase is Phase.IDLE and status.is_stopped):
            if status.is_stopped:
                return ServingObservation(ServingState.STOPPED)
            code = status.code if status.signal is None else f"signal {status.signal}"
            reason = status.not_started or (
                "lost" if status.phase is Phase.LOST else f"exit status {code}"
            )
            return ServingObservation(ServingState.FAILED, reason)
        if _answers(int(served["port"]), str(served["name"])):
            return ServingObservation(ServingState.READY)
        return ServingObservation(ServingState.STARTING)

    def find(self, deployment_id: str) -> Endpoint | None:
        """Return the deployment's newest server, whatever its state, or None.

        Raises:
            ServingError: It cannot be told.
        """
        try:
            attempts = self._attempts(deployment_id)
            if not attempts:
                return None
            served = _served(attempts[-1])
        except (OSError, ProcessError) as error:
            raise ServingError(f"cannot look for `{deployment_id}`: {error}") from error
        return Endpoint(f"serving:{attempts[-1].name}", int(served["port"]), str(served["name"]))

    def logs(self, ref: str, start: int) -> bytes:
        """Return what the server wrote from byte `start` on, at most 1 MiB."""
        try:
            return process.read_from(self._folder(ref) / "log.txt", start)
        except ProcessError as error:
            raise ServingError(str(error)) from error

    def stop(self, ref: str) -> None:
        """Ask the server to end; repeatable; kills on calls after the grace period.

        Raises:
            ServingError: It could not be asked; call again.
        """
        try:
            process.stop(self._folder(ref), now=self._clock(), grace_s=self._grace_s)
        except ProcessError as error:
            raise ServingError(str(error)) from error

    def _attempt(
        self, deployment_id: str, asked: dict[str, str]
    ) -> tuple[Path, dict[str, str | int]]:
        """Return the living attempt, or make the next one."""
        while True:
            attempts = self._attempts(deployment_id)
            if attempts:
                status = process.status(attempts[-1])
                if status.phase not in _OVER and not status.is_stopped:
                    return attempts[-1], _served(attempts[-1])
            number = int(attempts[-1].suffix[1:]) + 1 if attempts else 1
            served: dict[str, str | int] = {**asked, "port": _free_port()}
            files = {"served.json": json.dumps(served).encode(), "scratch/tmp/.keep": b""}
            folder = self._root / f"{deployment_id}.{number}"
            if process.create(folder, files):  # else another process made it: look again
                return folder, served

    def _attempts(self, deployment_id: str) -> list[Path]:
        named = (
            folder
            for folder in process.folders(self._root)
            if folder.stem == deployment_id and folder.suffix[1:].isdigit()
        )
        return sorted(named, key=lambda folder: int(folder.suffix[1:]))

    def _launch(self, folder: Path, endpoint: Endpoint, model_dir: Path) -> None:
        # The server knows a model by the text it was started with: a link in its working directory
        # makes that text the name and keeps this machine's paths out of its answers.
        link = folder / "scratch" / endpoint.name
        if not link.is_symlink():
            link.symlink_to(model_dir)
        process.launch(
            folder,
            [
                *(str(self._python), "-I", "-u", "-m", "transformers.cli.transformers", "serve"),
                *(endpoint.name, "--host", "127.0.0.1", "--port", str(endpoint.port)),
                *("--device", self._device, "--no-trust-remote-code", "--no-enable-cors"),
            ],
            directory=folder / "scratch",
            environment=process.environment(folder / "scratch", self._threads),
            python=self._python,
        )

    def _folder(self, ref: str) -> Path:
        matched = _REF.fullmatch(ref)
        if matched is None or not (self._root / matched[1]).is_dir():
            raise ServingError(f"no server `{ref!r}` was started here; check the reference")
        return self._root / matched[1]


def _served(folder: Path) -> dict[str, str | int]:
    members: dict[str, str | int] = json.loads((folder / "served.json").read_text())
    return members


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def _answers(port: int, name: str) -> bool:
    """Whether the server on `port` serves `name`; another program on that port does not."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PROBE_WITHIN_S)
    try:
        connection.request("GET", "/v1/models")
        answer = connection.getresponse()
        models = json.loads(answer.read(65_536))["data"]
        return answer.status == http.HTTPStatus.OK and [model["id"] for model in models] == [name]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return False
    finally:
        connection.close()
