"""Dispatch, launch, observe, finish: one run, and nothing believed that was not measured."""

from dataclasses import replace

import pytest
from sqlmodel import select

from audit.canonical import digest
from service import runs
from service.engines.protocol import EngineError, Observation, RunState
from service.log_tables import Document
from service.objects.protocol import ObjectStoreError
from service.permits import verify
from service.tables import Job, Run, StoredDecision
from service.worker import Worker


def stored_runs(world):
    with world.wired.transactions.read() as session:
        return list(session.exec(select(Run)))


def state(world, job):
    return world.job(job["id"])["state"]


def other_policy(world):
    policy = world.in_force.policy
    return replace(
        policy, rules=tuple(rule for rule in policy.rules if rule.id != "budget.nearly-used")
    )


def test_an_approved_job_is_submitted_once(world):
    job = world.approved_job()

    for _ in range(3):
        world.worker.work()

    assert len(world.engine.runs) == 1
    assert len(stored_runs(world)) == 1
    assert world.kinds()[-2:] == ["run.dispatching", "run.started"]
    assert state(world, job) == "running"


def test_the_permit_is_bound_to_the_exact_bytes_and_short_lived(world):
    job, ref = world.running_job()
    request = world.engine.runs[ref.removeprefix("fake:")].request
    now = int(world.clock().timestamp())

    claims = verify(request.permit, world.wired.runs.issuer.public_pem(), at=now)

    assert claims.sub == job["runs"][0]["id"]
    assert claims.spec == digest(request.spec) == job["spec_digest"]
    assert claims.dataset == world.dataset["manifest_digest"]
    assert claims.base_model == world.base_model["files_digest"]
    assert claims.decision == job["decision"]["record_digest"]
    assert claims.document == job["document_digest"]
    assert claims.output == request.output_uri
    assert claims.exp - claims.nbf == 60 * world.wired.settings.permit_minutes


def test_the_intent_is_committed_before_the_engine_is_asked(world):
    seen = []

    class Watching:
        def __getattr__(self, name):
            return getattr(world.engine, name)

        def submit(self, request):
            seen.append((world.kinds()[-1], [run.id for run in stored_runs(world)]))
            return world.engine.submit(request)

    job = world.approved_job()
    wired = replace(world.wired, runs=replace(world.wired.runs, engines={"own-site": Watching()}))
    Worker(wired).work()

    assert seen == [("run.dispatching", [world.job(job["id"])["runs"][0]["id"]])]


def test_after_a_crash_between_intent_and_submit_the_next_pass_launches(world):
    job = world.approved_job()
    runs.dispatch(world.wired.runs, job["id"])
    assert state(world, job) == "dispatching"
    assert not world.engine.runs

    world.worker.work()

    assert len(world.engine.runs) == 1
    assert state(world, job) == "running"


def test_a_lost_answer_is_found_again_and_nothing_runs_twice(world):
    world.engine.loses_next_answer = True
    job = world.approved_job()

    world.worker.work()
    assert state(world, job) == "dispatching"
    world.worker.work()

    assert state(world, job) == "running"
    assert len(world.engine.runs) == 1
    assert len(stored_runs(world)) == 1


def test_an_unreachable_engine_changes_no_state(world):
    job = world.approved_job()
    world.engine.is_unreachable = True
    for _ in range(3):
        world.worker.work()
    assert state(world, job) == "dispatching"
    world.engine.is_unreachable = False

    world.worker.work()

    assert state(world, job) == "running"
    assert len(stored_runs(world)) == 1


def test_a_permit_that_expires_before_the_launch_ends_the_job(world):
    job = world.approved_job()
    runs.dispatch(world.wired.runs, job["id"])
    world.engine.is_unreachable = True
    world.worker.work()
    world.clock.advance(minutes=world.wired.settings.permit_minutes)
    world.engine.is_unreachable = False

    world.worker.work()

    job = world.job(job["id"])
    assert (job["state"], job["reason_code"]) == ("failed", "permit_expired")
    assert not world.engine.runs
    assert world.kinds()[-1] == "run.finished"


def test_a_run_that_started_before_its_permit_expired_goes_on(world):
    world.engine.loses_next_answer = True
    job = world.approved_job()
    world.worker.work()
    world.clock.advance(hours=3)

    world.worker.work()

    assert state(world, job) == "running"


def test_an_approval_that_is_not_used_in_time_expires(world):
    job = world.approved_job()
    world.clock.advance(hours=73)

    world.worker.work()

    assert state(world, job) == "expired"
    assert not world.engine.runs
    assert world.kinds()[-1] == "approval.expired"


def test_a_job_that_nobody_decides_expires(world):
    job = world.submit()
    world.clock.advance(hours=73)

    world.worker.work()

    assert state(world, job) == "expired"
    late = world.ask(
        "POST", f"/v1/jobs/{job['id']}/approvals", "olaf", {"outcome": "given"}, seen=3
    )
    assert (late.status, late.slug) == (409, "illegal-state")


@pytest.mark.parametrize("what", ["policy", "reference"])
def test_a_changed_basis_brings_the_job_back_to_the_officers(world, what):
    job = world.approved_job()
    changed = {"policy": other_policy(world)}
    if what == "reference":
        from policies.load import load_reference

        site = dict(world.in_force.reference.site)
        changed = {"reference": load_reference(site=site | {"checked_on": "2026-11-29"})}

    world.restart(**changed)
    world.worker.work()

    again = world.job(job["id"])
    assert again["state"] == "awaiting_approval"
    assert again["decision"]["id"] != job["decision"]["id"]
    assert again["decision"]["approvals"] == []
    assert not world.engine.runs
    assert world.kinds()[-1] == "gate.decided"


def test_facts_that_changed_to_the_worse_deny_the_job(world):
    job = world.approved_job()
    world.tamper(
        "dataset_version",
        "UPDATE dataset_version SET region = 'BHS', provider = 'ovhcloud' WHERE id = :id",
        id=world.dataset["id"],
    )

    world.worker.work()

    assert state(world, job) == "denied"
    assert not world.engine.runs


@pytest.mark.parametrize("which", ["document_digest", "spec_digest"])
@pytest.mark.parametrize("how", ["changed", "gone"])
def test_altered_documents_are_never_dispatched(world, which, how):
    job = world.approved_job()
    if how == "changed":
        with world.wired.transactions.read() as session:
            body = session.get_one(Document, job[which]).body
        new = body.replace(b'"seed":17', b'"seed":18')
        assert new != body
        world.tamper(
            "document", "UPDATE document SET body = :new WHERE digest = :d", new=new, d=job[which]
        )
    else:
        world.tamper("document", "DELETE FROM document WHERE digest = :d", d=job[which])

    world.worker.work()

    assert not world.engine.runs
    assert not stored_runs(world)
    job_after = world.job(job["id"])
    assert (job_after["state"], job_after["reason_code"]) == ("expired", "altered")
    refused = world.entries()[-2]
    assert refused.action == "request.refused"
    assert refused.data == {"problem": "altered", "route": "/dispatch"}
    assert refused.resource.startswith(f"job:{job['id']}")


@pytest.mark.parametrize("how", ["changed", "gone"])
def test_an_altered_manifest_is_never_dispatched(world, how):
    job = world.approved_job()
    uri = f"{world.wired.jobs.manifests}/{world.dataset['manifest_digest'].replace(':', '-')}.json"
    if how == "changed":
        world.wired.objects.put(uri, b"{}")
    else:
        world.wired.objects.delete(uri)

    world.worker.work()

    assert not world.engine.runs
    assert world.job(job["id"])["reason_code"] == "altered"


def test_a_spec_swapped_for_another_valid_one_is_not_dispatched(world):
    other = world.submit(training__seed=99)
    job = world.approved_job()
    world.tamper(
        "job",
        "UPDATE job SET spec_digest = :s WHERE id = :id",
        s=other["spec_digest"],
        id=job["id"],
    )

    world.worker.work()

    assert not world.engine.runs
    assert state(world, job) == "awaiting_approval"


def test_a_quorum_struck_from_the_database_is_not_believed(world):
    job = world.submit()
    world.tamper("decision", "UPDATE decision SET approvals = '[]'")
    world.tamper("job", "UPDATE job SET state = 'approved' WHERE id = :id", id=job["id"])

    world.worker.work()

    assert not world.engine.runs


def test_a_state_set_by_hand_without_approvals_is_not_dispatched(world, operator_log):
    job = world.submit()
    world.tamper("job", "UPDATE job SET state = 'approved' WHERE id = :id", id=job["id"])

    world.worker.work()

    assert not world.engine.runs
    assert not stored_runs(world)
    assert any(line["event"] == "dispatch.unapproved" for line in operator_log)


def test_a_store_that_is_away_does_not_end_an_approved_job(world):
    class Away:
        def __getattr__(self, name):
            def fail(*_args, **_options):
                raise ObjectStoreError("connection refused; try again")

            return fail

    job = world.approved_job()
    away = replace(world.wired, runs=replace(world.wired.runs, objects=Away()))

    Worker(away).work()
    assert state(world, job) == "approved"
    world.worker.work()

    assert state(world, job) == "running"


def test_progress_is_visible_and_mirrored(world):
    job, ref = world.running_job()
    world.engine.write(ref, log=b"epoch 1\n", events=b'{"kind":"step","step":1,"loss":2.5}\n{"kin')

    world.worker.work()

    assert world.job(job["id"])["runs"][0]["progress"] == {"kind": "step", "step": 1, "loss": 2.5}
    assert world.job(job["id"])["runs"][0]["mlflow_run"].startswith("ml-run_")
    log = world.ask("GET", f"/v1/jobs/{job['id']}/log?start=6")
    assert (log.content, log.headers["x-next"]) == (b"1\n", "8")
    far = world.ask("GET", f"/v1/jobs/{job['id']}/log?start=9007199254740991")
    assert (far.status, far.content) == (200, b"")


@pytest.mark.parametrize(
    "line",
    [
        b"garbage",
        b'{"kind":"step","loss":NaN}',
        b'{"kind":"step","loss":1e999}',
        b"[1,2]",
        b"7",
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"kind":"step","loss":Infinity,"x":"\\u0000"}',
        b'{"kind":"step","x":"\\ud800"}',
    ],
    ids=range(9),
)
def test_strange_progress_stops_neither_the_run_nor_the_worker(world, line):
    job, ref = world.running_job()
    other, other_ref = world.running_job()
    world.engine.write(ref, events=line + b"\n")
    world.worker.work()
    assert world.ask("GET", f"/v1/jobs/{job['id']}").status == 200
    for each, its in ((job, ref), (other, other_ref)):
        world.write_report(each)
        world.engine.end(its, 0)

    world.worker.work()

    assert state(world, other) == "succeeded"
    assert state(world, job) == "succeeded"


def test_mlflow_that_is_away_does_not_hold_up_a_run(world):
    world.tracking.is_away = True
    job, ref = world.running_job()
    world.engine.write(ref, events=b'{"kind":"step","step":1}\n')
    world.worker.work()
    assert world.job(job["id"])["runs"][0]["tracking_error"]
    world.write_report(job)
    world.engine.end(ref, 0)

    world.worker.work()

    assert state(world, job) == "succeeded"


def test_an_unknown_state_is_visible_and_logged_once(world):
    job, _ = world.running_job()
    run = world.engine.runs[job["runs"][0]["id"]]
    run.observation = Observation(RunState.UNKNOWN)
    for _ in range(3):
        world.worker.work()

    view = world.job(job["id"])
    assert (view["state"], view["runs"][0]["state"]) == ("running", "unknown")
    assert world.kinds().count("run.observed") == 1


def test_a_run_is_seen_again_after_it_was_unknown(world):
    job, _ = world.running_job()
    run = world.engine.runs[job["runs"][0]["id"]]
    run.observation = Observation(RunState.UNKNOWN)
    world.worker.work()
    run.observation = Observation(RunState.RUNNING)

    world.worker.work()

    assert world.job(job["id"])["runs"][0]["state"] == "running"


def test_a_finished_run_is_measured_and_recorded(world):
    job = world.finished_job()

    finished = next(entry for entry in world.entries() if entry.action == "run.finished")
    run = stored_runs(world)[0]
    assert finished.data == {
        "run": run.id,
        "outcome": "succeeded",
        "report": run.report_digest,
        "artefacts": run.artefacts_digest,
    }
    assert job["runs"][0]["model_version"].startswith("mv_")
    assert world.kinds()[-1] == "model_version.registered"


def finish(world, *, code=0, **report):
    job, ref = world.running_job()
    if report is not None:
        world.write_report(job, **report)
    world.engine.end(ref, code)
    world.worker.work()
    job = world.job(job["id"])
    return job["state"], job["reason_code"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"run_id": "run_other"}, "report_foreign"),
        ({"permit_id": "prm_other"}, "report_foreign"),
        ({"spec_digest": "sha256:" + "0" * 64}, "report_foreign"),
        ({"surprise": 1}, "report_malformed"),
        ({"seed": "x"}, "report_malformed"),
        ({"status": "splendid"}, "report_malformed"),
        ({"status": "failed", "reason": "out_of_memory"}, "out_of_memory"),
        ({"artefacts": {}}, "artefact_missing"),
        (
            {"artefacts": {"adapter/x": {"digest": "sha256:" + "0" * 64, "size_bytes": 1}}},
            "artefact_missing",
        ),
        (
            {
                "artefacts": {
                    "adapter/weights.bin": {"digest": "sha256:" + "0" * 64, "size_bytes": 100}
                }
            },
            "artefact_differs",
        ),
        (
            {"artefacts": {"../../x": {"digest": "sha256:" + "0" * 64, "size_bytes": 1}}},
            "artefact_refused",
        ),
        (
            {"artefacts": {"/etc/passwd": {"digest": "sha256:" + "0" * 64, "size_bytes": 1}}},
            "artefact_refused",
        ),
    ],
    ids=range(12),
)
def test_a_report_that_does_not_hold_fails_the_job_with_a_code(lone_world, changes, reason):
    assert finish(lone_world, **changes) == ("failed", reason)
    assert lone_world.kinds()[-1] == "run.finished"
    assert not lone_world.tracking.models


def test_a_success_without_a_report_is_a_failure(world):
    job, ref = world.running_job()
    world.engine.end(ref, 0)

    world.worker.work()

    job = world.job(job["id"])
    assert (job["state"], job["reason_code"]) == ("failed", "report_missing")


def test_an_artefact_that_changed_after_the_report_is_noticed(world):
    job, ref = world.running_job()
    world.write_report(job)
    output = f"{world.wired.runs.outputs}/{job['runs'][0]['id']}"
    world.wired.objects.put(f"{output}/adapter/weights.bin", b"poisoned")
    world.engine.end(ref, 0)

    world.worker.work()

    assert world.job(job["id"])["reason_code"] == "artefact_differs"


@pytest.mark.parametrize(
    ("code", "status", "outcome"),
    [(1, "failed", "failed"), (2, "refused", "refused"), (75, "interrupted", "failed")],
)
def test_how_the_trainer_ended_is_how_the_job_ends(world, code, status, outcome):
    state_and_reason = finish(world, code=code, status=status, reason="dataset_differs")

    assert state_and_reason == ("failed", "dataset_differs")
    finished = next(entry for entry in world.entries() if entry.action == "run.finished")
    assert finished.data["outcome"] == outcome
    assert finished.data["report"] is not None
    assert finished.data["artefacts"] is None


def test_a_vanished_run_fails_the_job(world):
    job, ref = world.running_job()
    world.engine.lose(ref)

    world.worker.work()

    job = world.job(job["id"])
    assert (job["state"], job["reason_code"]) == ("failed", "report_missing")


def cancel(world, job, who="ada"):
    return world.post(f"/v1/jobs/{job['id']}/cancel", who, seen=world.job(job["id"])["version"])


def test_a_cancellation_is_asserted_until_the_engine_confirms(world):
    job, ref = world.running_job()
    run = world.engine.runs[ref.removeprefix("fake:")]
    run.is_deaf = True
    assert cancel(world, job)["state"] == "cancelling"
    for _ in range(3):
        world.worker.work()
    assert run.num_cancels == 3
    assert state(world, job) == "cancelling"
    run.is_deaf = False

    world.worker.work()
    world.worker.work()

    assert state(world, job) == "cancelled"
    assert [entry.data for entry in world.entries()][-1]["outcome"] == "cancelled"


def test_a_job_cancelled_before_its_launch_never_starts(world):
    job = world.approved_job()
    runs.dispatch(world.wired.runs, job["id"])
    cancel(world, job)

    world.worker.work()
    world.worker.work()

    assert not world.engine.runs
    assert state(world, job) == "cancelled"


@pytest.mark.parametrize("wait", ["awaiting_approval", "approved"])
def test_a_waiting_job_is_cancelled_at_once(world, wait):
    job = world.submit() if wait == "awaiting_approval" else world.approved_job()

    assert cancel(world, job, "olaf")["state"] == "cancelled"
    world.worker.work()
    assert not world.engine.runs


def test_what_is_over_cannot_be_cancelled(world):
    job = world.finished_job()

    answer = world.ask("POST", f"/v1/jobs/{job['id']}/cancel", seen=world.job(job["id"])["version"])

    assert (answer.status, answer.slug) == (409, "illegal-state")
    assert world.entries()[-1].data["problem"] == "illegal-state"


def test_a_run_that_succeeded_while_being_cancelled_succeeds(world):
    job, ref = world.running_job()
    world.engine.runs[ref.removeprefix("fake:")].is_deaf = True
    cancel(world, job)
    world.write_report(job)
    world.engine.end(ref, 0)

    world.worker.work()

    assert state(world, job) == "succeeded"


def test_a_broken_job_does_not_keep_others_waiting(world, operator_log):
    broken = world.approved_job()
    runs.dispatch(world.wired.runs, broken["id"])
    world.tamper(
        "document", "UPDATE document SET body = :new WHERE media_type = 'application/jwt'", new=b"x"
    )
    job = world.submit()
    job = world.approve(job)

    world.worker.work()
    world.worker.work()

    assert state(world, job) == "running"
    assert any(line["event"] == "worker.step_failed" for line in operator_log)


def test_two_workers_dispatch_a_job_once(world):
    import threading

    job = world.approved_job()
    workers = [threading.Thread(target=Worker(world.wired).work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    world.worker.work()

    assert len(stored_runs(world)) == 1
    assert len(world.engine.runs) == 1
    assert world.kinds().count("run.dispatching") == 1
    assert state(world, job) == "running"


def test_the_decision_of_a_run_stays_readable(world):
    job, _ = world.running_job()
    with world.wired.transactions.read() as session:
        row = session.get_one(Job, job["id"])
        decision = session.get_one(StoredDecision, row.decision_id)
    answer = world.ask("GET", f"/v1/decisions/{decision.id}/record")

    assert digest(answer.content) == decision.record_digest


def test_engine_errors_reach_callers_as_problems(world):
    job, _ = world.running_job()
    world.engine.is_unreachable = True
    with pytest.raises(EngineError):
        world.engine.logs("fake:x", 0)

    answer = world.ask("GET", f"/v1/jobs/{job['id']}/log")

    assert answer.status in {502, 503}
    assert answer.problem["detail"]
