"""The demo from its first step to the last, and how it ends when it is interrupted."""

import contextlib
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from service.client import OVER, ClientError
from service.commands.errors import CommandError
from service.demo import asking, deploying, proving, training
from service.demo.base_model import obtain
from service.demo.house import CENTS_PER_HOUR, COUNTRY, build_house
from service.demo.stage import DATA, Stage, precision
from service.demo.story import Story

NUM_STEPS = 16
DEFAULT_UPDATES = 12
_CANCEL_WITHIN_S = 30.0
# Worker passes, at 0.5 s each, until a retired endpoint was told to stop.
_PASSES_S = 1.5


@dataclass(frozen=True)
class Wishes:
    """What the demo is asked for.

    Attributes:
        folder: where each run gets a folder of its own.
        cache: where the base model is kept.
        steps: updates to train; None for what a small machine does in about a minute.
    """

    folder: Path
    cache: Path
    steps: int | None = None


def run(wishes: Wishes) -> Path:
    """Run the demo; return the folder with everything that it made.

    Raises:
        CommandError: a step did not do what it claims.
    """
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run(wishes)
    except ClientError as error:
        raise CommandError(f"the demo stops: {error}") from error
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(wishes: Wishes) -> Path:
    steps = DEFAULT_UPDATES if wishes.steps is None else wishes.steps
    if not 1 <= steps <= 10_000:
        raise CommandError(f"expected 1 to 10000 training steps, got {steps}")
    story = Story(NUM_STEPS)
    story.step("A small base model: SmolLM2-135M-Instruct, Apache-2.0")
    model = obtain(wishes.cache, story.say)
    story.step("A house of its own: one process, SQLite, a folder, keys made on first use")
    house = build_house(wishes.folder, models=model.parent, data=DATA.resolve().parent)
    stage = Stage(story=story, house=house, steps=steps)
    story.show(
        folder=str(house.folder),
        address=f"{house.url} (log: {house.folder / 'service.log'})",
        declared=f"this machine stands in {COUNTRY} and an hour costs {CENTS_PER_HOUR} cents:"
        " the operator says so, and the records say that it was only said",
        precision=precision(),
    )
    try:
        with story.waiting("ready after"):
            house.open()
        _walk(stage, model)
    except KeyboardInterrupt:
        story.say("\ninterrupted: stopping what was started")
        raise
    finally:
        _tidy(stage)
    return house.folder


def _walk(stage: Stage, model: Path) -> None:
    asking.introduce(stage)
    asking.register(stage, model)
    asking.be_denied(stage)
    asking.ask(stage)
    asking.try_alone(stage)
    asking.approve_job(stage)
    training.train(stage)
    training.compare(stage)
    deploying.deploy(stage)
    deploying.question(stage)
    deploying.read_documents(stage)
    deploying.retire(stage)
    proving.export(stage)
    proving.verify(stage)
    proving.summarise(stage)


def _tidy(stage: Stage) -> None:
    """Leave nothing running: cancel the run, retire the deployment, stop the service."""
    try:
        with contextlib.suppress(ClientError):
            _cancel_run(stage)
        with contextlib.suppress(ClientError):
            _retire(stage)
    finally:
        for client in stage.people.values():
            client.close()
        stage.house.close()


def _cancel_run(stage: Stage) -> None:
    if "job" not in stage.ids or "submitter" not in stage.people:
        return
    client, path = stage.people["submitter"], f"/v1/jobs/{stage.ids['job']}"
    row, etag = client.seen(path)
    if row["state"] in OVER:
        return
    client.post(f"{path}/cancel", {}, etag=etag)
    deadline = time.monotonic() + _CANCEL_WITHIN_S
    while client.get(path)["state"] not in OVER and time.monotonic() < deadline:
        time.sleep(0.3)


def _retire(stage: Stage) -> None:
    if "deployment" not in stage.ids:
        return
    client, path = stage.people["submitter"], f"/v1/deployments/{stage.ids['deployment']}"
    row, etag = client.seen(path)
    if row["state"] in {"active", "approved", "awaiting_approval"}:
        client.post(f"{path}/retire", {}, etag=etag)
    time.sleep(_PASSES_S)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
