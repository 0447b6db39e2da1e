"""What a hostile team, a hostile operator, an outage or a crash may try, and what it gets."""

import json
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.exc import DatabaseError

from policies.rule import Approval
from service import runs
from service.dataset_scan import scan_dataset
from service.ledger import ForkError, Guard, RolledBackError
from service.objects.protocol import ObjectMismatchError, ObjectStoreError
from service.places import Places
from service.problems import Unprocessable
from service.registry import scan_base_model
from service.tables import Principal, StoredDecision

ELSEWHERE = {
    "provider": "ovhcloud",
    "service": "ai-deploy",
    "region": "GRA",
    "flavor": "cpu",
    "gpus": 0,
}


class Broken:
    """Objects of which every call raises."""

    def __init__(self, error):
        self._error = error

    def __getattr__(self, name):
        def fail(*_args, **_options):
            raise self._error

        return fail


class Swapping:
    """Objects that show other bytes to `measure` than to `open`, whenever they are asked."""

    def __init__(self, inner, path, shown):
        self._inner, self._path, self._shown = inner, path, shown
        self._registered = path.read_bytes()

    def open(self, uri):
        self._path.write_bytes(self._shown)
        return self._inner.open(uri)

    def measure(self, uri):
        self._path.write_bytes(self._registered)
        return self._inner.measure(uri)

    def __getattr__(self, name):
        return getattr(self._inner, name)


NOWHERE = Places(endpoints={}, countries={}, site_hosts=frozenset())

# Where and what runs


def test_a_deployment_cannot_be_decided_on_a_place_where_it_will_not_run(world):
    job = world.finished_job()
    body = world.deployment_body(job["runs"][0]["model_version"], compute=ELSEWHERE)

    answer = world.ask("POST", "/v1/deployments", "ada", body)

    assert answer.status == 422
    assert answer.problem["errors"][0]["pointer"] == "/compute/provider"


def test_a_job_on_the_own_site_cannot_claim_an_image_that_does_not_run(world):
    image = f"registry.example/trainer@sha256:{'0' * 64}"

    answer = world.ask("POST", "/v1/jobs", "ada", world.job_body(compute__image=image))

    assert answer.problem["errors"][0]["pointer"] == "/compute/image"


def test_a_job_that_was_cancelled_before_the_launch_reaches_no_engine(world):
    job = world.approved_job()
    runs.dispatch(world.wired.runs, job["id"])
    job = world.job(job["id"])
    world.post(f"/v1/jobs/{job['id']}/cancel", seen=job["version"])

    world.worker.work()

    assert world.job(job["id"])["state"] == "cancelled"
    assert not world.engine.runs


def test_a_cancellation_during_the_launch_reaches_the_engine(world):
    job = world.approved_job()
    runs.dispatch(world.wired.runs, job["id"])
    job = world.job(job["id"])
    submit = world.engine.submit

    def slow(request):
        world.post(f"/v1/jobs/{job['id']}/cancel", seen=job["version"])
        return submit(request)

    world.engine.submit = slow
    runs.launch(world.wired.runs, job["id"])

    (run,) = world.engine.runs.values()
    assert run.num_cancels == 1


def test_approvals_do_not_carry_over_to_a_decision_that_asks_for_more_people(world):
    job = world.approved_job()
    gate = world.wired.gate
    with world.wired.transactions.read() as session:
        row = session.get_one(StoredDecision, job["decision"]["id"])
        record = runs.load(session, row.record_digest)
        facts = json.loads(record)["facts"]
    with world.wired.transactions.read() as session:
        fresh = gate.preview(
            session, facts, subject_kind="job", subject_id=job["id"], now=world.clock()
        )

        assert gate.rests_on_the_same(session, row, fresh, record)
        for changed in ({"approvals": (Approval("officer", 2),)}, {"results": fresh.results[1:]}):
            assert not gate.rests_on_the_same(session, row, replace(fresh, **changed), record)


# Outages and crashes are no evidence


def test_an_outage_of_the_store_changes_no_job(world):
    job = world.approved_job()
    away = replace(world.wired.runs, objects=Broken(ObjectStoreError("unreachable")))

    with pytest.raises(ObjectStoreError):
        runs.dispatch(away, job["id"])

    assert world.job(job["id"])["state"] == "approved"
    assert "request.refused" not in world.kinds()


def test_altered_bytes_end_a_job_and_leave_an_entry(world):
    job = world.approved_job()
    altered = replace(world.wired.runs, objects=Broken(ObjectMismatchError("other bytes")))

    assert runs.dispatch(altered, job["id"]) is None

    job = world.job(job["id"])
    assert (job["state"], job["reason_code"]) == ("expired", "altered")
    assert world.kinds()[-2:] == ["request.refused", "approval.expired"]


def test_an_outage_of_the_store_fails_no_deployment(world):
    deployment = world.approve_deployment(world.request_deployment())
    world.wired = replace(
        world.wired,
        deployments=replace(world.wired.deployments, objects=Broken(ObjectStoreError("away"))),
    )
    world.__post_init__()

    world.worker.work()

    assert world.get(f"/v1/deployments/{deployment['id']}")["state"] == "approved"


def test_a_bug_in_one_step_does_not_keep_the_others_waiting(world):
    _, broken = world.running_job()
    healthy, ref = world.running_job()
    observe = world.engine.observe

    def fail_on_one(asked):
        if asked == broken:
            raise LookupError
        return observe(asked)

    world.engine.observe = fail_on_one
    world.write_report(healthy)
    world.engine.end(ref, 0)

    world.worker.work()

    assert world.job(healthy["id"])["state"] == "succeeded"


# The past


def restore(world, backup):
    database = Path(str(world.wired.database.url.database))
    world.wired.database.dispose()
    for name in ("", "-wal", "-shm"):
        database.with_name(database.name + name).unlink(missing_ok=True)
    shutil.copy(backup, database)


def grow(world, count):
    for _ in range(count):  # each refusal is an entry
        world.ask("POST", "/v1/exports", "eve", {"recipient": "auditor"})


@pytest.fixture
def restored_world(lone_world):
    """Give a log that was published, then restored from a backup that lacks the last entries."""
    world, ledger = lone_world, lone_world.wired.ledger
    world.worker.publish()
    world.wired.database.dispose()
    database = Path(str(world.wired.database.url.database))
    backup = shutil.copy(database, database.with_suffix(".bak"))
    grow(world, 3)
    world.worker.publish()
    restore(world, backup)
    return world, ledger


def blindly(ledger):
    """Give indexes as somebody would who neither sees the guard nor what is published."""
    elsewhere = ledger.guard.path.parent / "elsewhere"
    prefix = ledger.prefix.removesuffix("/log") + "/elsewhere"
    return replace(ledger, guard=Guard(elsewhere / "signer.json"), prefix=prefix).sequence()


def test_a_restored_database_cannot_grow_past_what_was_signed_and_sign_again(restored_world):
    world, ledger = restored_world
    published = ledger.read("checkpoint")
    grow(world, 1)
    with pytest.raises(RolledBackError):
        ledger.sequence()
    with pytest.raises(RolledBackError):
        ledger.publish()
    grow(world, 7)
    blindly(ledger)

    with pytest.raises(ForkError):
        ledger.publish()

    assert ledger.read("checkpoint") == published


@pytest.mark.parametrize(("count", "error"), [(1, RolledBackError), (8, ForkError)])
def test_a_lost_guard_does_not_permit_a_second_history(restored_world, count, error):
    world, ledger = restored_world
    ledger.guard.path.unlink()
    grow(world, count)
    with pytest.raises(RolledBackError):
        ledger.sequence()
    blindly(ledger)

    with pytest.raises(error):
        ledger.publish()


def test_a_lost_guard_of_an_intact_log_heals(lone_world):
    world, ledger = lone_world, lone_world.wired.ledger
    world.worker.publish()
    ledger.guard.path.unlink()
    grow(world, 2)

    ledger.sequence()

    assert ledger.publish() == len(world.entries())
    assert ledger.guard.path.exists()


# Bytes that change while they are looked at


def test_rows_are_looked_at_in_the_bytes_that_are_recorded(world):
    path = world.folder / "data" / "helpdesk.jsonl"
    clean = path.read_bytes().splitlines(keepends=True)[0]
    objects = Swapping(world.wired.sources, path, clean)

    with pytest.raises(Unprocessable, match="changed while it was read"):
        scan_dataset(objects, NOWHERE, uri=path.as_uri(), name="x", licence="MIT")


def test_parameters_are_counted_in_the_bytes_that_are_recorded(world):
    folder = world.folder / "base"
    header = json.dumps({"w": {"shape": [1], "dtype": "F32"}}).encode()
    small = struct.pack("<Q", len(header)) + header
    objects = Swapping(world.wired.sources, folder / "model.safetensors", small)

    with pytest.raises(Unprocessable, match="changed while it was read"):
        scan_base_model(objects, NOWHERE, uri=folder.as_uri())


def test_callers_cannot_register_what_the_installation_keeps_itself(make_world, tmp_path):
    world = make_world(object_roots=(str(tmp_path),))  # an operator who opened too much
    home = world.wired.settings.home
    for folder in (home / "keys", home / "objects" / "runs", home, home.parent):
        for path, body in (
            ("/v1/datasets", world.dataset_body(uri=folder.as_uri())),
            ("/v1/base-models", {"name": "x", "uri": folder.as_uri(), "licence": "MIT"}),
        ):
            answer = world.ask("POST", path, "ada", body)
            assert "own data" in answer.problem["detail"], (folder, path)


# Personal data


def test_errors_of_the_database_hold_no_values(world):
    ghost = Principal(id="prn_x", entry_id="x", kind="human", name="Jane Roe", roles=[], teams=[])

    def insert():
        with world.wired.transactions.write() as tx:
            tx.session.add(ghost)

    with pytest.raises(DatabaseError) as caught:
        insert()

    assert "Jane Roe" not in str(caught.value)
