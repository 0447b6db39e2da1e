"""Public reports of governance that gave way, replayed against a whole installation.

One test or more for each case; its docstring's first line names the case and what happened there.
"""

import json

import pytest

from audit.canonical import digest
from policies.gate import replay
from service.archive import load


@pytest.fixture
def database_url(tmp_path):
    """Use SQLite alone: other files run the same moves on both databases."""
    return f"sqlite:///{tmp_path / 'placet.db'}"


def document(world, name):
    with world.wired.transactions.read() as session:
        return load(session, name)


def approvals(world, job):
    return f"/v1/jobs/{job['id']}/approvals"


# What was judged is what runs


def test_a_job_that_is_being_stopped_cannot_be_taken_up_again(world):
    """golang/vulndb#1819 (CVE-2023-34091): what is being deleted skips policy."""
    job, _ = world.running_job()
    world.post(f"/v1/jobs/{job['id']}/cancel", seen=job["version"])
    job = world.job(job["id"])
    assert job["state"] == "cancelling"

    for path in (f"/v1/jobs/{job['id']}", f"/v1/jobs/{job['id']}/resume"):
        for method in ("PUT", "PATCH", "POST"):
            answer = world.ask(method, path, "ada", world.job_body(), seen=job["version"])
            assert answer.status in {404, 405}
    answer = world.ask("POST", approvals(world, job), "olaf", {"outcome": "given"}, seen=4)
    assert answer.status in {409, 412}
    assert world.job(job["id"])["state"] == "cancelling"
    decided = world.kinds().count("gate.decided")
    again = world.submit()
    assert again["id"] != job["id"]
    assert again["state"] == "awaiting_approval"
    assert world.kinds().count("gate.decided") == decided + 1


def test_the_gate_judges_the_final_bytes_with_every_default_in_them(world):
    """open-policy-agent/opa#1442: where something is filled in, validation is skipped."""
    body = world.job_body()
    assert "dropout" not in body["training"]
    job = world.post("/v1/jobs", "ada", body)

    record = json.loads(document(world, job["decision"]["record_digest"]))
    stored = document(world, job["document_digest"])
    spec = document(world, job["spec_digest"])
    assert record["facts"]["job"]["document_digest"] == digest(stored)
    assert record["facts"]["job"]["spec_digest"] == digest(spec)
    assert json.loads(stored)["request"]["training"]["dropout"] == "0"
    assert json.loads(spec)["adapter"]["dropout"] == "0"
    assert json.loads(stored)["spec"] == digest(spec)


@pytest.mark.parametrize("which", ["document_digest", "spec_digest"])
def test_bytes_edited_after_the_decision_are_never_used(world, which):
    """oxdeai/oxdeai#253, solankiharsh2837/wolverine-db#4: checked is not what is used."""
    job = world.approved_job()
    body = document(world, job[which])
    world.tamper(
        "document",
        "UPDATE document SET body = :new WHERE digest = :name",
        new=body.replace(b'"seed":17', b'"seed":18'),
        name=job[which],
    )

    world.worker.work()

    assert not world.engine.runs
    job = world.job(job["id"])
    assert (job["state"], job["reason_code"]) == ("expired", "altered")
    assert "request.refused" in world.kinds()


@pytest.mark.parametrize(
    "member",
    ["waiver", "waivers", "placet:skip", "policy", "policy_url", "skip", "decided_by", "approvals"],
)
def test_a_job_that_brings_its_own_excuse_or_policy_is_refused(world, member):
    """bridgecrewio/checkov#7307, skypilot#10374: the file disables its check, names its policy."""
    for path in ("/v1/jobs", "/v1/decisions:preview"):
        answer = world.ask("POST", path, "ada", {**world.job_body(), member: "https://x.example"})
        assert answer.status == 422
        assert answer.problem["errors"] == [
            {"pointer": f"/{member}", "detail": "unknown member; remove it or correct its name"}
        ]
    assert world.get("/v1/jobs")["items"] == []


# Who may say yes


def test_the_name_of_the_decider_comes_from_the_token(world):
    """mcp-hangar/mcp-hangar#665: `decided_by` in the body names somebody else."""
    job = world.submit()
    for member in ("decided_by", "approver", "approver_id", "role"):
        body = {"outcome": "given", member: world.ids["omar"]}
        answer = world.ask("POST", approvals(world, job), "olaf", body, seen=job["version"])
        assert answer.status == 422
        assert answer.problem["errors"][0]["pointer"] == f"/{member}"
    job = world.approve(job, "olaf")

    (given,) = job["decision"]["approvals"]
    assert given["approver"] == world.ids["olaf"]
    entry = next(one for one in world.entries() if one.action == "approval.given")
    assert entry.actor.ref == world.ids["olaf"]


def test_who_asks_does_not_approve_through_any_door(world):
    """ciso-assistant#2967: the requester names themself approver through the API."""
    job = world.submit("both")
    assert job["submitted_by"] == world.ids["both"]

    answer = world.ask(
        "POST", approvals(world, job), "both", {"outcome": "given"}, seen=job["version"]
    )

    assert (answer.status, answer.slug) == (403, "self-approval")
    assert world.job(job["id"])["state"] == "awaiting_approval"
    assert world.kinds()[-1] == "request.refused"


@pytest.mark.parametrize("who", ["ada", "vera", "root", "eve"])
def test_a_broad_permission_is_no_right_to_answer(world, who):
    """apache/airflow#72157: anybody with a broad permission may answer."""
    job = world.submit()

    answer = world.ask(
        "POST", approvals(world, job), who, {"outcome": "given"}, seen=job["version"]
    )

    assert answer.status in {403, 404}
    assert world.job(job["id"])["state"] == "awaiting_approval"
    assert world.job(job["id"])["decision"]["approvals"] == []


def test_a_decision_is_read_by_the_policy_that_made_it(world):
    """woojubb/robota#2392: a rule that is edited meanwhile changes what was asked for."""
    job = world.submit()
    decision = job["decision"]
    path = f"/v1/decisions/{decision['id']}"
    record, rules, reference = (
        world.ask("GET", f"{path}/{part}", "vera").content
        for part in ("record", "policy", "reference")
    )

    assert digest(rules) == json.loads(record)["policy"] == decision["policy_digest"]
    assert replay(record, rules, reference).identical
    assert world.get(path)["findings"] == decision["findings"]
    assert world.get(path)["approvals_needed"] == decision["approvals_needed"]


def test_what_was_approved_and_then_stopped_never_runs(world):
    """ciso-assistant#4650: accepted, then revoked, and the lock stays."""
    job = world.approved_job()
    world.post(f"/v1/jobs/{job['id']}/cancel", "olaf", seen=job["version"])

    world.worker.work()

    assert world.job(job["id"])["state"] == "cancelled"
    assert not world.engine.runs
    assert world.kinds()[-1] == "job.cancelled"
    assert "run.dispatching" not in world.kinds()


def test_everything_that_waits_is_shown_to_officers(world):
    """flyteorg/flyte#4433: an approval below a condition is never shown."""
    waiting = {
        world.submit(name=f"job-{number}", purpose__high_risk_areas=areas)["id"]
        for number, areas in enumerate([[], ["annex3.4.a"], ["annex3.5.b"]])
    }

    shown = world.get("/v1/jobs?state=awaiting_approval", "olaf")["items"]

    assert {job["id"] for job in shown} == waiting
    for job in shown:
        assert world.job(job["id"], "olaf")["decision"]["approvals_missing"]


def test_what_nobody_answers_expires_and_the_requester_sees_it(world):
    """pensarai/apex#638: nobody answers, and it waits for ever."""
    job = world.submit()
    world.clock.advance(days=8)

    world.worker.work()

    job = world.job(job["id"])
    assert job["state"] == "expired"
    assert world.kinds()[-1] == "approval.expired"
    assert not world.engine.runs
    late = world.ask(
        "POST", approvals(world, job), "olaf", {"outcome": "given"}, seen=job["version"]
    )
    assert (late.status, late.slug) == (409, "illegal-state")


# What is asked


@pytest.mark.parametrize("value", [None, "", " ", 0])
def test_a_region_that_is_not_set_is_refused_not_defaulted(world, value):
    """roboflow/inference#2474: the region is unset while enforcement is on."""
    body = world.job_body(compute__region=value)
    assert world.ask("POST", "/v1/jobs", "ada", body).status == 422
    del body["compute"]["region"]
    answer = world.ask("POST", "/v1/jobs", "ada", body)
    assert answer.problem["errors"] == [{"pointer": "/compute/region", "detail": "is missing"}]


def test_a_site_whose_country_nobody_declared_is_denied(make_world):
    """roboflow/inference#2474: the region is unset while enforcement is on."""
    world = make_world(site_country=None, site_declared_on=None)

    assert world.submit()["state"] == "denied"


def test_the_same_key_with_another_body_is_a_conflict(world):
    """NovaSky-AI/SkyRL#2035: a repeated request with another body is taken for the first."""
    first = world.ask("POST", "/v1/jobs", "ada", world.job_body(), key="one-and-only")
    same = world.ask("POST", "/v1/jobs", "ada", world.job_body(), key="one-and-only")
    other = world.ask("POST", "/v1/jobs", "ada", world.job_body(budget_cents=7), key="one-and-only")

    assert (first.status, same.status) == (201, 201)
    assert first.json["id"] == same.json["id"]
    assert (other.status, other.slug) == (422, "idempotency-mismatch")
    assert world.kinds()[-1] == "request.refused"
    assert len(world.get("/v1/jobs")["items"]) == 1


def test_a_purpose_is_answered_by_codes_and_by_nothing_else(world):
    """microsoft/agent-governance-toolkit#756: social scoring passes for lack of a keyword."""
    told = {"purpose__description": "rate citizens on behaviour for government rewards"}
    assert world.ask("POST", "/v1/jobs", "ada", world.job_body(**told)).status == 422

    job = world.submit(purpose__prohibited_practices=["art5.1.c"])

    assert job["state"] == "denied"
    assert "use.prohibited" in {one["rule"] for one in job["decision"]["findings"]}
