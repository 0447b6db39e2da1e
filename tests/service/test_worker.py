"""The worker's two loops: they go on after any failure, and stop when they are told."""

import time
from dataclasses import replace

import pytest

from service.engines.protocol import EngineError
from service.ledger import RolledBackError
from service.worker import Worker


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    pytest.fail("it did not happen in time")


@pytest.fixture
def quick(lone_world):
    settings = lone_world.wired.settings.model_copy(update={"worker_interval_s": 0.02})
    return replace(lone_world.wired, settings=settings)


def test_a_started_worker_publishes_and_runs_jobs(lone_world, quick):
    job = lone_world.approved_job()
    worker = Worker(quick)
    worker.start()
    try:
        until(lambda: lone_world.job(job["id"])["state"] == "running")
        until(lambda: lone_world.ask("GET", "/readyz", None).status == 200)
        until(lambda: quick.ledger.latest().size == len(lone_world.entries()))
    finally:
        worker.stop()

    assert len(lone_world.engine.runs) == 1


def test_stopping_a_worker_stops_no_run(lone_world, quick):
    lone_world.running_job()
    worker = Worker(quick)
    worker.start()
    worker.stop()

    (run,) = lone_world.engine.runs.values()
    assert run.num_cancels == 0


def test_a_bug_in_one_pass_ends_one_pass(lone_world, quick, operator_log):
    worker = Worker(quick)
    calls = []

    class Faulty:
        def find(self, run_id):
            calls.append(run_id)
            if len(calls) == 1:
                raise KeyError("a bug")
            if len(calls) == 2:
                raise EngineError("away")
            return lone_world.engine.find(run_id)

        def __getattr__(self, name):
            return getattr(lone_world.engine, name)

    job = lone_world.approved_job()
    worker = Worker(replace(quick, runs=replace(quick.runs, engines={"own-site": Faulty()})))
    worker.start()
    try:
        until(lambda: lone_world.job(job["id"])["state"] == "running")
    finally:
        worker.stop()

    events = [line["event"] for line in operator_log]
    assert "worker.step_failed" in events
    assert "worker.retry" in events


def test_a_rolled_back_database_keeps_the_worker_from_starting(lone_world, quick):
    Worker(quick).publish()
    size, root, note = quick.ledger.guard.read()
    quick.ledger.guard.write(size + 1, root, note)

    with pytest.raises(RolledBackError):
        Worker(quick).start()


def test_a_signer_that_stops_is_an_alarm_and_jobs_go_on(lone_world, quick, operator_log):
    worker = Worker(quick)
    worker.start()
    try:
        until(lambda: quick.ledger.latest() is not None)
        size, root, note = quick.ledger.guard.read()
        quick.ledger.guard.write(size + 1000, root, note)
        job = lone_world.approved_job()
        until(lambda: any(line["event"] == "log.signing_stopped" for line in operator_log))
        until(lambda: lone_world.job(job["id"])["state"] == "running")
    finally:
        worker.stop()


def test_operator_logs_name_nobody(lone_world, quick, operator_log):
    lone_world.engine.is_unreachable = True
    lone_world.approved_job()
    Worker(quick).work()
    lone_world.ask("POST", "/v1/jobs", "vera", {"reason": "Ada Quillfeather is ill"})

    text = repr(operator_log)
    assert operator_log
    assert "Quillfeather" not in text
    for token in lone_world.tokens.values():
        assert token not in text
