"""Public reports of governance that gave way, replayed against a whole installation.

One test or more for each case; its docstring's first line names the case and what happened there.
"""

import json

import pytest

from audit.canonical import digest
from policies.checked import Checked
from policies.decision import Decision
from policies.gate import replay
from policies.policy import Policy
from policies.reference import Reference
from policies.render import explain
from policies.rule import Rule
from policies.sarif import to_sarif
from policies.what_if import compare
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


# Exceptions


UNTIL = "2026-12-02T12:00:00Z"


def waived_job(world):
    """Return a job over budget that runs on a waiver until `UNTIL`, and the waiver."""
    job = world.submit(budget_cents=1)
    assert job["state"] == "denied"
    asked = {"rule": "budget.limit", "reason": "the grant came", "ticket": "GRC-1"}
    path = f"/v1/jobs/{job['id']}/waivers"
    waiver = world.post(path, "ada", {**asked, "expires_at": UNTIL})
    for officer in ("olaf", "omar"):
        path = f"/v1/waivers/{waiver['id']}/decisions"
        body = {"outcome": "approved"}
        waiver = world.post(path, officer, body, seen=waiver["version"])
    return world.job(job["id"]), waiver


def said_of_budget(world, decision):
    """Say what each door makes of the budget rule in one stored decision."""
    path = f"/v1/decisions/{decision['id']}"
    record, rules, rows = (
        world.ask("GET", f"{path}/{part}", "vera").content
        for part in ("record", "policy", "reference")
    )
    made, policy = Decision.from_record(record), Policy.from_bytes(rules)
    reference = Reference.from_bytes(rows)
    (again,) = compare([record], policy, {reference.digest: reference})
    assert (again.direction, again.rules) == ("same", ())
    assert replay(record, rules, rows).identical
    api = [one["outcome"] for one in decision["findings"] if one["rule"] == "budget.limit"]
    findings = [dict(one) for one in explain(made, policy)]
    report = to_sarif([Checked("job", made.verdict, findings, [])])["runs"][0]["results"]
    sarif = [
        "waived" if "suppressions" in one else "violated"
        for one in report
        if one["ruleId"] == "budget.limit"
    ]
    stored = [one.outcome for one in made.results if one.rule == "budget.limit"]
    assert api == sarif == stored
    return stored


def test_an_expired_exception_counts_through_no_door(world):
    """kyverno/kyverno#17473: the command line and reports honour an expired exception."""
    job, waiver = waived_job(world)
    assert said_of_budget(world, job["decision"]) == ["waived"]
    assert world.get(f"/v1/waivers/{waiver['id']}")["state"] == "active"
    job = world.approve(job)
    assert job["state"] == "approved"

    world.clock.advance(days=2)
    world.worker.work()

    job = world.job(job["id"])
    assert world.get(f"/v1/waivers/{waiver['id']}")["state"] == "expired"
    assert job["state"] == "denied"
    assert said_of_budget(world, job["decision"]) == ["violated"]
    assert not world.engine.runs


def test_an_exception_is_made_by_the_guarded_door_only(world):
    """golang/vulndb#3230 (CVE-2024-48921), kyverno/kyverno#17367: made beside the guarded door."""
    job = world.submit(budget_cents=1)
    asked = {"rule": "budget.limit", "reason": "x", "ticket": "GRC-1", "expires_at": UNTIL}
    for method, path in (
        ("POST", "/v1/waivers"),
        ("POST", "/v0/waivers"),
        ("PUT", f"/v1/jobs/{job['id']}/waivers"),
        ("PATCH", "/v1/waivers/wvr_1"),
    ):
        assert world.ask(method, path, "ada", asked).status in {404, 405}
    for member in ("approvers", "approvals", "state", "subject", "requester"):
        answer = world.ask("POST", f"/v1/jobs/{job['id']}/waivers", "ada", {**asked, member: []})
        assert answer.status == 422
    waiver = world.post(f"/v1/jobs/{job['id']}/waivers", "ada", asked)

    path, seen = f"/v1/waivers/{waiver['id']}/decisions", waiver["version"]
    for who, status in (("ada", 403), ("eve", 404), ("vera", 403), ("root", 403)):
        assert world.ask("POST", path, who, {"outcome": "approved"}, seen=seen).status == status
    waiver = world.post(path, "olaf", {"outcome": "approved"}, seen=seen)
    twice = world.ask("POST", path, "olaf", {"outcome": "approved"}, seen=waiver["version"])

    assert twice.status == 409
    assert world.job(job["id"])["state"] == "denied"
    assert said_of_budget(world, world.job(job["id"])["decision"]) == ["violated"]


# The rules change while something waits


def changed_rule(policy, rule_id, **members):
    rules = tuple(
        Rule({**rule.document, **members}) if rule.id == rule_id else rule for rule in policy.rules
    )
    return Policy(policy.packs, rules)


@pytest.mark.parametrize(
    ("members", "state"),
    [
        ({"approvals": [{"role": "officer", "count": 2}]}, "awaiting_approval"),
        ({"effect": "deny", "approvals": []}, "denied"),
    ],
    ids=["two officers instead of one", "denied"],
)
def test_an_approval_under_older_rules_is_stale(world, members, state):
    """mcp-hangar/mcp-hangar#674: approved, then the policy is tightened during the wait."""
    job = world.approved_job()
    world.restart(policy=changed_rule(world.in_force.policy, "approval.officer", **members))

    world.worker.work()

    again = world.job(job["id"])
    assert again["state"] == state
    assert again["decision"]["id"] != job["decision"]["id"]
    assert again["decision"]["policy_digest"] != job["decision"]["policy_digest"]
    assert again["decision"]["approvals"] == []
    assert not world.engine.runs
    assert "run.dispatching" not in world.kinds()
    old = world.get(f"/v1/decisions/{job['decision']['id']}")
    assert old["verdict"] == "require_approval"
    assert old["policy_digest"] == job["decision"]["policy_digest"]
