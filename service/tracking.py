"""MLflow as a mirror: people look at runs there, the truth stays in the audit log.

We write a run's parameters, curves, report figures and files, register model versions, and read
back a `snapshot` whose digest tells later whether somebody edited or deleted the run. The snapshot,
canonical JSON (non-integers as the shortest decimal that reads back to the same double)::

    {"experiment":"1","format":"placet.tracking-snapshot/1","lifecycle":"active",
     "metrics":{"eval_loss_after":"1.25"},"params":{"adapter.rank":"16"},"run":"6d0f…",
     "status":"FINISHED","tags":{"placet.run_id":"run_01kb…", …}}

Our tags start with `placet.`; `placet.run_id` and `placet.model_version` make writing idempotent.
MLflow is imported on first use, because that takes seconds, with its telemetry off.
"""

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from audit.canonical import canonical

RUN_TAG = "placet.run_id"
MODEL_VERSION_TAG = "placet.model_version"
METRICS_PER_REQUEST = 1000  # MLflow's limit of a batch
PARAMS_PER_REQUEST = 100  # likewise
DATASET_DIGEST_CHARACTERS = 36  # likewise
_NOT_METRICS = {"seq", "step", "num_steps"}
_QUIET = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
_DEFAULTS = {
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # the worker comes back anyway
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}

RunStatus = Literal["FINISHED", "FAILED", "KILLED"]


class TrackingError(Exception):
    """Raised when MLflow cannot be used; no run's or job's state may change because of it."""


@dataclass(frozen=True)
class TrackedDataset:
    """The dataset version of a run: its id, the digest of its manifest and where that lies."""

    name: str
    digest: str
    source: str


class Tracking:
    """Writes to and reads from one MLflow installation. Every method raises `TrackingError` only.

    Args:
        tracking_uri: `sqlite:////srv/placet/mlflow.db` (embedded) or `https://mlflow.example.eu`.
            A `postgresql://` URI works, too, but when that database is down MLflow keeps trying for
            100 s; a server answers or fails within about 30 s.
        registry_uri: Where model versions are registered, if elsewhere.
        artifact_root: URI or folder for files; needed with a database, a server has its own.
    """

    def __init__(
        self,
        tracking_uri: str,
        registry_uri: str | None = None,
        *,
        artifact_root: str | None = None,
    ) -> None:
        self._tracking_uri = tracking_uri
        self._registry_uri = registry_uri
        self._artifact_root = artifact_root
        self._connected: Any = None

    def start_run(
        self,
        *,
        experiment: str,
        run_id: str,
        tags: Mapping[str, str],
        params: Mapping[str, str],
        dataset: TrackedDataset | None = None,
    ) -> str:
        """Return the MLflow run of our `run_id`, made if there is none.

        A run that was made but not filled (a crash in between) is filled now.
        """
        with _translated(f"start the run of `{run_id}`"):
            client = self._client()
            experiment_id = self._experiment(experiment)
            found = client.search_runs(
                [experiment_id],
                f"tags.`{RUN_TAG}` = '{_quoted(run_id)}'",
                run_view_type=3,  # deleted ones, too: they are ours all the same
                order_by=["attributes.start_time ASC"],
                max_results=1,
            )
            run = found[0] if found else self._create(experiment_id, run_id, tags)
            missing = {key: value for key, value in params.items() if key not in run.data.params}
            self._log_params(run.info.run_id, missing)
            if dataset is not None and not run.inputs.dataset_inputs:
                self._log_dataset(run.info.run_id, dataset)
            return str(run.info.run_id)

    def log_events(self, mlflow_run_id: str, events: Sequence[Mapping[str, object]]) -> int:
        """Write the numbers of `step` and `eval` events as metrics; return how many points.

        Writing an event again changes nothing, since its own instant is its time. A line without
        kind, step or instant is left out: progress is telemetry, not evidence.
        """
        points = [point for event in events for point in _points(event)]
        with _translated(f"log events to `{mlflow_run_id}`"):
            from mlflow.entities import Metric  # noqa: PLC0415 — slow, see the module text

            for first in range(0, len(points), METRICS_PER_REQUEST):
                batch = [
                    Metric(name, value, at_ms, step)
                    for name, value, at_ms, step in points[first : first + METRICS_PER_REQUEST]
                ]
                self._client().log_batch(mlflow_run_id, metrics=batch)
        return len(points)

    def finish(
        self,
        mlflow_run_id: str,
        *,
        status: RunStatus,
        metrics: Mapping[str, str],
        at: datetime,
        artefacts: Path | None = None,
    ) -> None:
        """Close a run with its report's figures (decimal texts) and the files of a folder.

        Repeatable with the same `at`.
        """
        at_ms = _milliseconds(at)
        with _translated(f"finish `{mlflow_run_id}`"):
            from mlflow.entities import Metric  # noqa: PLC0415 — slow, see the module text

            client = self._client()
            if metrics:
                figures = [
                    Metric(name, float(value), at_ms, 0) for name, value in sorted(metrics.items())
                ]
                client.log_batch(mlflow_run_id, metrics=figures)
            if artefacts is not None:
                client.log_artifacts(mlflow_run_id, str(artefacts))
            client.set_terminated(mlflow_run_id, status=status, end_time=at_ms)

    def register_model(
        self, *, name: str, source: str, mlflow_run_id: str, tags: Mapping[str, str]
    ) -> str:
        """Register a model version and return its number, e.g. `"3"`.

        `tags` must hold `placet.model_version`, our id: a version that carries it already is
        returned instead of a second one. `source` is the artefacts' URI. A server refuses a
        `file://` one, as it would be a path of its own; then the run's own folder is named and the
        tag `placet.source` keeps the URI.
        """
        ours = tags.get(MODEL_VERSION_TAG)
        if not ours:
            raise TrackingError(f"expected a tag `{MODEL_VERSION_TAG}`, got none; name our version")
        with _translated(f"register `{name}`"):
            client = self._client()
            if not client.search_registered_models(f"name = '{_quoted(name)}'", max_results=1):
                client.create_registered_model(name)
            for version in client.search_model_versions(f"name = '{_quoted(name)}'"):
                if version.tags.get(MODEL_VERSION_TAG) == ours:
                    return str(version.version)
            is_remote = self._tracking_uri.startswith(("http://", "https://"))
            if is_remote and source.startswith("file:"):
                named = str(client.get_run(mlflow_run_id).info.artifact_uri)
            else:
                named = source
            made = client.create_model_version(
                name, named, run_id=mlflow_run_id, tags={**tags, "placet.source": source}
            )
            return str(made.version)

    def snapshot(self, mlflow_run_id: str) -> bytes:
        """Return what MLflow now says of a run, in canonical bytes; equal bytes mean no edit.

        Taken after `finish`, kept as a digest, compared later. A deleted run has
        `"lifecycle":"deleted"`; one that was purged raises.
        """
        with _translated(f"read `{mlflow_run_id}`"):
            run = self._client().get_run(mlflow_run_id)
            return canonical(
                {
                    "format": "placet.tracking-snapshot/1",
                    "run": run.info.run_id,
                    "experiment": run.info.experiment_id,
                    "status": run.info.status,
                    "lifecycle": run.info.lifecycle_stage,
                    "params": dict(run.data.params),
                    "metrics": {name: repr(value) for name, value in run.data.metrics.items()},
                    "tags": dict(run.data.tags),
                }
            )

    def _client(self) -> Any:
        if self._connected is None:
            from mlflow import MlflowClient  # noqa: PLC0415 — slow, see the module text

            self._connected = MlflowClient(self._tracking_uri, self._registry_uri)
        return self._connected

    def _experiment(self, name: str) -> str:
        client = self._client()
        found = client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        location = None if self._artifact_root is None else f"{self._artifact_root}/{name}"
        return str(client.create_experiment(name, artifact_location=location))

    def _create(self, experiment_id: str, run_id: str, tags: Mapping[str, str]) -> Any:
        return self._client().create_run(
            experiment_id, tags={**tags, RUN_TAG: run_id}, run_name=run_id
        )

    def _log_params(self, mlflow_run_id: str, params: Mapping[str, str]) -> None:
        from mlflow.entities import Param  # noqa: PLC0415 — slow, see the module text

        items = [Param(key, value) for key, value in sorted(params.items())]
        for first in range(0, len(items), PARAMS_PER_REQUEST):
            self._client().log_batch(
                mlflow_run_id, params=items[first : first + PARAMS_PER_REQUEST]
            )

    def _log_dataset(self, mlflow_run_id: str, dataset: TrackedDataset) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag  # noqa: PLC0415 — slow

        short = dataset.digest.removeprefix("sha256:")[:DATASET_DIGEST_CHARACTERS]
        entity = Dataset(dataset.name, short, "placet", dataset.source)
        tags = [InputTag("placet.digest", dataset.digest)]
        self._client().log_inputs(mlflow_run_id, [DatasetInput(entity, tags)])


@contextlib.contextmanager
def _translated(action: str) -> Iterator[None]:
    """Turn what MLflow and the libraries below it raise into our error."""
    failures = _failures()
    try:
        yield
    except failures as error:
        line = " ".join(str(error).split())[:300] or type(error).__name__
        raise TrackingError(
            f"cannot {action}: {line}; check that MLflow runs and answers at its URI, then try"
            " again"
        ) from error


def _failures() -> tuple[type[Exception], ...]:
    """Name what may come out of MLflow; the first call imports it."""
    os.environ.update(_QUIET)
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    try:
        from alembic.util import CommandError  # noqa: PLC0415 — slow, see the module text
        from mlflow.exceptions import MlflowException  # noqa: PLC0415 — same
        from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 — same
    except ImportError as error:
        raise TrackingError("MLflow is not installed; install `placet[service]`") from error
    return (MlflowException, SQLAlchemyError, CommandError, OSError, ValueError, KeyError)


def _points(event: Mapping[str, object]) -> Iterator[tuple[str, float, int, int]]:
    """Yield `(metric, value, milliseconds since 1970, step)` of one progress event."""
    kind, step, at = event.get("kind"), event.get("step"), event.get("at")
    if kind not in {"step", "eval"} or not isinstance(step, int) or not isinstance(at, str):
        return
    try:
        at_ms = _milliseconds(datetime.fromisoformat(at))
    except ValueError:
        return
    for name, value in event.items():
        if name in _NOT_METRICS or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        number = float(value)
        if math.isfinite(number):
            prefix = "eval_" if kind == "eval" and not name.startswith("eval_") else ""
            yield f"{prefix}{name}", number, at_ms, step


def _milliseconds(instant: datetime) -> int:
    if instant.tzinfo is None:
        raise ValueError("expected an instant with its offset, got a naive one")
    return round(instant.timestamp() * 1000)


def _quoted(name: str) -> str:
    """Refuse what would leave MLflow's quoted filter text, in which nothing can be escaped."""
    if "'" in name or not name.isprintable():
        raise ValueError(f"an id or name cannot hold quotes or control characters, got {name!r}")
    return name
