"""Reading the demo's run in MLflow, as anyone with access to the tracking store could."""

import time
from pathlib import Path
from typing import Any

from mlflow import MlflowClient

from service.client import Client
from service.commands.errors import CommandError

_WITHIN_S = 60.0


def wait_for_version(client: Client, job: str) -> dict[str, Any]:
    """Wait until the worker registered the model version of a job's run.

    Raises:
        CommandError: there is none in time.
    """
    deadline = time.monotonic() + _WITHIN_S
    while time.monotonic() < deadline:
        runs = client.get(f"/v1/jobs/{job}")["runs"]
        if runs and runs[-1]["model_version"]:
            return client.get(f"/v1/model-versions/{runs[-1]['model_version']}")
        time.sleep(0.3)
    raise CommandError(f"no model version is registered after {_WITHIN_S:.0f} s")


def read_run(settings: dict[str, str], run: str) -> dict[str, float]:
    """Return the last value of each metric of an MLflow run.

    Raises:
        CommandError: a metric that the run must have is not there.
    """
    store = Path(settings["PLACET_DATA_DIR"]) / "mlflow.db"
    metrics: dict[str, float] = dict(
        MlflowClient(tracking_uri=f"sqlite:///{store}").get_run(run).data.metrics
    )
    for name in ("eval_loss_before", "eval_loss_after", "perplexity_before", "perplexity_after"):
        if name not in metrics:
            raise CommandError(f"the MLflow run `{run}` has no `{name}`")
    return metrics
