"""Interrupt and go on: bit-equal on a CPU, whatever the step and the way it ended."""

import os
import signal

import pytest

from trainer import recipe
from trainer.checkpoints import Checkpoints
from trainer.contract import digest
from trainer.refusal import Exit
from trainer.signals import DeadlineError, Stop, StopRequestedError


class KilledError(BaseException):
    """Stands for SIGKILL: nothing in the trainer may catch it."""


def after_update(monkeypatch, number, action):
    """Let `action()` happen right after update `number`."""
    plain = recipe.update

    def counted(*args, **kwargs):
        done = plain(*args, **kwargs)
        if kwargs["step"] + 1 == number:
            action()
        return done

    monkeypatch.setattr(recipe, "update", counted)


def kill():
    raise KilledError


def train_and_be_killed(world, monkeypatch, number):
    with monkeypatch.context() as patch:
        after_update(patch, number, kill)
        with pytest.raises(KilledError):
            world.train()


def outcome(world):
    report = world.report()
    return (
        report.loss_curve,
        report.metrics["eval_loss_before"],
        report.metrics["eval_loss_after"],
        report.artefacts["adapter/adapter_model.safetensors"].digest,
        report.ledger["tokens_trained"],
        report.base_model["adapter_at_start"],
    )


def test_a_killed_run_goes_on_bit_equal_from_any_step(make_world, monkeypatch):
    straight = make_world("straight")
    assert straight.train() == Exit.DONE
    steps = straight.report().ledger["steps_done"]
    assert steps >= 8
    for number in (1, 3, 5, steps):
        world = make_world(f"killed{number}")
        train_and_be_killed(world, monkeypatch, number)
        assert not (world.out / "report.json").exists()

        assert world.train() == Exit.DONE

        assert outcome(world) == outcome(straight)
        assert world.report().num_segments == (2 if number > 3 else 1)


def test_asked_to_stop_it_saves_and_leaves_with_75(make_world, monkeypatch, capfd):
    straight, world = make_world("straight"), make_world("asked")
    assert straight.train() == Exit.DONE
    with monkeypatch.context() as patch:
        after_update(patch, 4, lambda: os.kill(os.getpid(), signal.SIGTERM))
        assert world.train() == Exit.INTERRUPTED
    assert world.events()[-1]["status"] == "interrupted"
    assert (world.out / "checkpoints/step-00000004/MANIFEST.json").exists()
    assert not (world.out / "report.json").exists()
    assert "interrupted: start it again" in capfd.readouterr().err

    assert world.train() == Exit.DONE

    assert outcome(world) == outcome(straight)
    assert world.report().num_segments == 2
    seqs = [event["seq"] for event in world.events()]
    assert seqs == list(range(len(seqs)))


def test_only_the_newest_checkpoints_are_kept_and_a_torn_one_is_passed_over(world, monkeypatch):
    train_and_be_killed(world, monkeypatch, 8)
    found = sorted(p.name for p in (world.out / "checkpoints").iterdir())
    assert found == ["step-00000003", "step-00000006"]  # keep is 2
    newest = world.out / "checkpoints/step-00000006"
    checkpoints = Checkpoints(
        world.output, run_id="run_1", spec_digest=digest(world.spec.to_bytes())
    )
    assert checkpoints.newest().progress.step == 6

    body = (newest / "adapter.safetensors").read_bytes()
    (newest / "adapter.safetensors").write_bytes(body[:-1] + b"\x01")
    assert checkpoints.newest().progress.step == 3
    (newest / "adapter.safetensors").write_bytes(body)
    (newest / "MANIFEST.json").unlink()
    assert checkpoints.newest().progress.step == 3
    other = Checkpoints(world.output, run_id="run_2", spec_digest=digest(b""))
    assert other.newest() is None


def test_minutes_used_up_are_a_failure_that_says_so(world, monkeypatch, capfd):
    monkeypatch.setattr(Stop, "limit", lambda self, _: setattr(self, "_deadline", 0.0))

    assert world.train() == Exit.FAILED

    assert world.report().reason == "deadline"
    assert "failed: deadline" in capfd.readouterr().err


def test_a_failing_run_reports_and_ends_its_permit(world, monkeypatch, capfd):
    def broken():
        raise RuntimeError("device lost\nbadly")

    with monkeypatch.context() as patch:
        after_update(patch, 2, broken)
        assert world.train() == Exit.FAILED

    assert (world.report().status, world.report().reason) == ("failed", "RuntimeError")
    assert world.report().ledger["steps_done"] == 1
    assert capfd.readouterr().err == "failed: RuntimeError: device lost badly\n"
    assert "device lost" in (world.scratch / "traceback.txt").read_text()
    assert world.train() == Exit.REFUSED


def test_the_flag_and_the_deadline_are_polled():
    now = [0.0]
    stop = Stop(clock=lambda: now[0])
    stop.limit(5)
    stop.poll()
    now[0] = 6.0
    with pytest.raises(DeadlineError):
        stop.poll()
    stop.request()
    with pytest.raises(StopRequestedError):
        stop.poll()


def test_max_steps_limits_the_updates(world):
    world.change(max_steps=3)

    assert world.train() == Exit.DONE

    assert world.report().ledger["steps_done"] == 3
    assert len(world.report().loss_curve) == 3
