"""Waivers end to end: who may sign one, what it changes, when it ends, and what the log says."""

import json
import os
import threading
from datetime import timedelta

import pytest
from loopback import answering
from sqlalchemy.exc import DBAPIError
from sqlmodel import select
from world import open_world

from audit.verify import verify
from policies.gate import decide, replay
from policies.policy import Policy
from policies.reference import Reference
from policies.rule import Rule
from policies.waiver import Waiver
from service import cli, hosting, runs, waivers
from service.archive import load
from service.log_tables import AuditEntry, SealedValue
from service.reconsidering import decide_again
from service.serving import ServingState
from service.tables import Job, StoredDecision

REASON = "Hannelore Zwiebelfisch waits for the grant"
START, END = "2026-11-30T12:00:00Z", "2026-12-07T00:00:00Z"


def ask_for(world, job, who="ada", **changes):
    """Ask for a waiver; return the answer."""
    body = {
        "rule": "budget.limit",
        "reason": REASON,
        "ticket": "GRC-1042",
        "expires_at": END,
    } | changes
    return world.ask("POST", f"/v1/jobs/{job['id']}/waivers", who, body)


def requested(world, job, who="ada", **changes):
    answer = ask_for(world, job, who, **changes)
    assert answer.status == 201, answer.content
    return answer.json


def decision_on(world, waiver, who, outcome="approved", seen=None, reason=""):
    return world.ask(
        "POST",
        f"/v1/waivers/{waiver['id']}/decisions",
        who,
        {"outcome": outcome, "reason": reason},
        seen=waiver["version"] if seen is None else seen,
    )


def signed(world, waiver, *officers):
    """Let officers approve a waiver, each after the other."""
    for who in officers or ("olaf", "omar"):
        answer = decision_on(world, waiver, who)
        assert answer.status == 201, answer.content
        waiver = answer.json
    return waiver


def revoke(world, waiver, who="olaf"):
    return world.ask(
        "POST", f"/v1/waivers/{waiver['id']}/revocation", who, {"reason": REASON}, key=None
    )


def outcomes(job):
    return {finding["rule"]: finding["outcome"] for finding in job["decision"]["findings"]}


def approved(world, job):
    """Let officers approve a job as often as it asks for."""
    for who in ("olaf", "omar"):
        if job["state"] == "awaiting_approval":
            job = world.approve(job, who)
    assert job["state"] == "approved", job
    return job


def waived_job(world, **changes):
    """A job that was denied for its budget, with a waiver that holds; return both."""
    job = world.submit(budget_cents=0)
    assert job["state"] == "denied"
    waiver = signed(world, requested(world, job, **changes))
    return world.job(job["id"]), waiver


def finished(world, job):
    """Let a running job succeed; return it."""
    ref = f"fake:{job['runs'][0]['id']}"
    event = {"seq": 1, "at": "2026-11-30T12:00:02.000Z", "kind": "step", "step": 1, "loss": 2.0}
    world.engine.write(ref, log=b"hello\n", events=json.dumps(event).encode() + b"\n")
    world.write_report(job)
    world.engine.end(ref, 0)
    world.worker.work()
    job = world.job(job["id"])
    assert job["state"] == "succeeded", job
    return job


def bundle_of(world):
    made = world.post("/v1/exports", "vera", {"recipient": "auditor"})
    path = world.folder / "bundle.zip"
    path.write_bytes(world.ask("GET", made["bundle"], "vera").content)
    return path


def check_log(world):
    """Check that an export of the log verifies, once the permits in it are spent."""
    world.clock.advance(hours=24)
    report = verify(bundle_of(world), world.wired.ledger.vkeys)
    assert report.exit_code == 0, report


@pytest.fixture
def one(lone_world):
    """Give a world on SQLite, for what does not depend on the database."""
    return lone_world


class TestTheWholeWay:
    def test_a_denied_job_is_waived_approved_dispatched_and_verifies(self, world):
        job = world.submit(budget_cents=0)
        assert (job["state"], outcomes(job)["budget.limit"]) == ("denied", "violated")

        waiver = requested(world, job)
        assert (waiver["state"], waiver["approvals_missing"]) == ("requested", 2)
        waiver = decision_on(world, waiver, "olaf").json
        assert (waiver["state"], waiver["approvals_missing"]) == ("requested", 1)
        assert world.job(job["id"])["state"] == "denied"
        waiver = decision_on(world, waiver, "omar").json
        assert (waiver["state"], waiver["approvals_missing"]) == ("active", 0)

        again = world.job(job["id"])
        assert again["state"] in {"awaiting_approval", "approved"}
        assert again["decision"]["id"] != job["decision"]["id"]
        assert outcomes(again)["budget.limit"] == "waived"
        assert again["decision"]["verdict"] in {"allow_with_warnings", "require_approval"}
        record = world.get(f"/v1/decisions/{again['decision']['id']}/record")
        assert [one["id"] for one in record["waivers"]] == [waiver["id"]]

        approved(world, again)
        world.worker.work()
        assert world.job(job["id"])["state"] == "running"
        check_log(world)
        assert world.kinds().count("waiver.approved") == 2

    def test_its_export_replays_byte_for_byte(self, one, capsys):
        job, _ = waived_job(one)
        approved(one, job)
        one.worker.work()
        one.clock.advance(hours=24)

        path = bundle_of(one)
        keys = [word for key in one.wired.ledger.vkeys for word in ("--vkey", key)]
        status = cli.main(["verify", str(path), *keys, "--replay", "--json"])

        told = capsys.readouterr().out
        assert status == 0, told
        assert {x["id"]: x["outcome"] for x in json.loads(told)["levels"]}["L8"] == "pass"

    def test_two_violated_rules_need_two_waivers(self, one):
        job = one.submit(budget_cents=0, purpose__prohibited_practices=["art5.1.a"])
        signed(one, requested(one, job))

        after = one.job(job["id"])

        assert after["state"] == "denied"
        assert outcomes(after)["budget.limit"] == "waived"
        assert outcomes(after)["use.prohibited"] == "violated"

    def test_one_that_begins_later_waits_for_its_day(self, one):
        job, waiver = waived_job(one, not_before="2026-12-01T00:00:00Z")
        assert (job["state"], waiver["state"]) == ("denied", "approved")
        one.worker.work()
        assert one.job(job["id"])["state"] == "denied"

        one.clock.advance(hours=12)
        one.worker.work()

        after = one.job(job["id"])
        assert outcomes(after)["budget.limit"] == "waived"
        assert after["state"] != "denied"

    def test_a_refused_one_changes_nothing(self, one):
        job = one.submit(budget_cents=0)
        answer = decision_on(one, requested(one, job), "olaf", "refused", reason="no money, no job")

        assert (answer.status, answer.json["state"]) == (201, "refused")
        assert one.job(job["id"])["state"] == "denied"
        assert decision_on(one, answer.json, "omar").slug == "illegal-state"
        assert requested(one, job)["state"] == "requested"  # another may be asked for


class TestItsEnd:
    def test_revoked_before_dispatch_nothing_runs_and_the_log_says_so(self, world):
        job, waiver = waived_job(world)
        job = approved(world, job)

        assert revoke(world, waiver, "omar").json["state"] == "revoked"

        after = world.job(job["id"])
        assert (after["state"], outcomes(after)["budget.limit"]) == ("denied", "violated")
        world.worker.work()
        assert not world.engine.runs
        entries = [e for e in world.entries() if e.resource.startswith(f"job:{job['id']}")]
        assert [str(e.action) for e in entries][-2:] == ["waiver.revoked", "gate.decided"]
        assert entries[-1].data["verdict"] == "deny"
        check_log(world)

    def test_revoked_while_it_awaits_approval_it_is_denied_again(self, one):
        job, waiver = waived_job(one)
        if job["state"] != "awaiting_approval":
            pytest.fail(f"the shipped rules ask for an approval here, got {job['state']}")

        revoke(one, waiver)

        assert one.job(job["id"])["state"] == "denied"

    def test_expired_before_dispatch_nothing_runs(self, world):
        job, waiver = waived_job(world, expires_at="2026-11-30T12:30:00Z")
        approved(world, job)
        world.clock.advance(minutes=30)

        world.worker.work()

        assert world.job(job["id"])["state"] == "denied"
        assert not world.engine.runs
        assert world.get(f"/v1/waivers/{waiver['id']}")["state"] == "expired"
        size = len(world.entries())
        world.worker.work()
        assert len(world.entries()) == size  # decided again once, not in every pass

    def test_the_dispatch_itself_checks_it(self, one):
        job, _ = waived_job(one, expires_at="2026-11-30T12:30:00Z")
        approved(one, job)
        one.clock.advance(minutes=30)

        assert runs.dispatch(one.wired.runs, job["id"]) is None
        assert one.job(job["id"])["state"] == "denied"

    def test_revoked_while_it_runs_it_is_flagged_and_its_model_is_not_deployed(self, one):
        job, waiver = waived_job(one)
        approved(one, job)
        one.worker.work()
        job = one.job(job["id"])
        assert job["state"] == "running"

        after = revoke(one, waiver).json

        assert (after["state"], after["needs_attention"]) == ("revoked", True)
        assert one.job(job["id"])["reason_code"] == "waiver_revoked"
        model = finished(one, job)["runs"][0]["model_version"]
        answer = one.ask("POST", "/v1/deployments", "ada", one.deployment_body(model))
        assert (answer.status, answer.slug) == (409, "illegal-state")
        assert waiver["id"] in answer.problem["detail"]

    def test_revoked_while_a_deployment_waits_it_does_not_start(self, one):
        job, waiver = waived_job(one)
        approved(one, job)
        one.worker.work()
        deployment = one.request_deployment(finished(one, one.job(job["id"])))
        for who in ("olaf", "omar"):
            if deployment["state"] == "awaiting_approval":
                deployment = one.approve_deployment(deployment, who)
        assert deployment["state"] == "approved"

        revoke(one, waiver)
        one.worker.work()

        after = one.get(f"/v1/deployments/{deployment['id']}")
        assert (after["state"], after["reason_code"]) == ("failed", "waiver_revoked")
        assert not one.host.started

    def test_ended_while_it_runs_it_needs_attention(self, one):
        job, waiver = waived_job(one, expires_at="2026-11-30T13:00:00Z")
        approved(one, job)
        one.worker.work()
        assert one.get(f"/v1/waivers/{waiver['id']}")["needs_attention"] is False

        one.clock.advance(hours=1)

        assert one.get(f"/v1/waivers/{waiver['id']}")["needs_attention"] is True

    def test_a_new_version_of_the_rule_ends_it(self, one):
        job, _ = waived_job(one)
        with one.wired.transactions.read() as session:
            row = session.get_one(StoredDecision, job["decision"]["id"])
            facts = json.loads(load(session, row.facts_digest))
            policy = Policy.from_bytes(load(session, row.policy_digest))
            reference = Reference.from_bytes(load(session, row.reference_digest))
            held = waivers.active_for(session, f"job:{job['id']}", one.clock())
        newer = Policy(
            policy.packs,
            tuple(
                Rule({**rule.document, "version": "9.9.9"}) if rule.id == "budget.limit" else rule
                for rule in policy.rules
            ),
        )

        def verdict(rules):
            return decide(
                rules,
                reference,
                facts,
                evaluated_at=START,
                subject=f"job:{job['id']}",
                waivers=held,
            ).verdict

        assert (verdict(policy), verdict(newer)) == (job["decision"]["verdict"], "deny")

    @pytest.mark.parametrize("state", ["refused", "revoked", "expired"])
    def test_what_is_over_is_not_revoked_again(self, one, state):
        job = one.submit(budget_cents=0)
        waiver = requested(one, job)
        if state == "refused":
            decision_on(one, waiver, "olaf", "refused", reason="no")
        elif state == "revoked":
            assert revoke(one, waiver, "ada").json["state"] == "revoked"  # its requester may
        else:
            one.clock.advance(days=8)
        assert revoke(one, waiver).slug == "illegal-state"


class TestExpiredEverywhere:
    """kyverno#17473: one door honoured an expired exception that another did not."""

    def test_every_door_says_the_same(self, one, monkeypatch, capsys):
        job, waiver = waived_job(one, expires_at="2026-11-30T12:30:00Z")
        record = one.ask("GET", f"/v1/decisions/{job['decision']['id']}/record").content
        one.clock.advance(minutes=30)

        assert one.get(f"/v1/waivers/{waiver['id']}")["state"] == "expired"
        assert one.get("/v1/waivers?state=active")["items"] == []
        with answering(one.app) as url:
            monkeypatch.setenv("PLACET_URL", url)
            monkeypatch.setenv("PLACET_TOKEN", one.tokens["ada"])
            assert cli.main(["waiver", "show", waiver["id"], "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["state"] == "expired"
        with one.wired.transactions.read() as session:
            assert waivers.active_for(session, f"job:{job['id']}", one.clock()) == ()
            row = session.get_one(StoredDecision, job["decision"]["id"])
            policy, reference = (
                load(session, name) for name in (row.policy_digest, row.reference_digest)
            )
        # As of then it held, and a replay says so; as of now the same waiver counts for nothing.
        assert replay(record, policy, reference).identical
        document = json.loads(record)
        held = [Waiver.from_document(each) for each in document["waivers"]]
        now = decide(
            Policy.from_bytes(policy),
            Reference.from_bytes(reference),
            document["facts"],
            evaluated_at="2026-11-30T12:30:00Z",
            subject=document["subject"],
            waivers=held,
        )
        assert now.verdict == "deny"
        one.worker.work()
        assert one.job(job["id"])["state"] == "denied"


class TestFourEyes:
    def test_the_requester_does_not_approve(self, one):
        job = one.submit(budget_cents=0)
        waiver = requested(one, job, "olaf")
        answer = decision_on(one, waiver, "olaf")
        assert (answer.status, answer.slug) == (403, "self-approval")
        assert one.get(f"/v1/waivers/{waiver['id']}")["approvals"] == []

    def test_the_submitter_does_not_approve(self, one):
        job = one.submit("both", budget_cents=0)
        waiver = requested(one, job, "ada")
        assert decision_on(one, waiver, "both").slug == "self-approval"

    def test_one_officer_counts_once(self, one):
        waiver = decision_on(one, requested(one, one.submit(budget_cents=0)), "olaf").json
        answer = decision_on(one, waiver, "olaf")
        assert (answer.status, answer.slug) == (409, "conflict")
        assert one.get(f"/v1/waivers/{waiver['id']}")["state"] == "requested"

    @pytest.mark.parametrize("who", ["ada", "vera", "root"])
    def test_only_officers_approve(self, one, who):
        waiver = requested(one, one.submit(budget_cents=0), "olaf")
        assert decision_on(one, waiver, who).slug == "forbidden"

    def test_another_team_neither_asks_nor_sees(self, one):
        job = one.submit(budget_cents=0)
        assert ask_for(one, job, "eve").status == 404
        waiver = requested(one, job)
        assert one.ask("GET", f"/v1/waivers/{waiver['id']}", "eve").status == 404
        assert one.get("/v1/waivers", "eve")["items"] == []
        assert decision_on(one, waiver, "eve").status == 404

    @pytest.mark.parametrize("who", ["vera", "root"])
    def test_only_submitters_and_officers_ask(self, one, who):
        assert ask_for(one, one.submit(budget_cents=0), who).slug == "forbidden"

    def test_only_officers_and_the_requester_revoke(self, one):
        waiver = requested(one, one.submit(budget_cents=0), "olaf")
        assert revoke(one, waiver, "ada").slug == "forbidden"
        assert revoke(one, waiver, "omar").status == 200

    def test_a_refusal_needs_a_reason(self, one):
        waiver = requested(one, one.submit(budget_cents=0))
        answer = decision_on(one, waiver, "olaf", "refused")
        assert answer.problem["errors"][0]["pointer"] == "/reason"

    def test_who_saw_another_version_decides_nothing(self, one):
        waiver = requested(one, one.submit(budget_cents=0))
        decision_on(one, waiver, "olaf")
        answer = decision_on(one, waiver, "omar")
        assert (answer.status, answer.slug) == (412, "stale")
        assert decision_on(one, waiver, "omar", seen=2).json["state"] == "active"

    def test_a_decision_needs_the_version_that_was_seen(self, one):
        waiver = requested(one, one.submit(budget_cents=0))
        path = f"/v1/waivers/{waiver['id']}/decisions"
        assert one.ask("POST", path, "olaf", {"outcome": "approved"}).status == 428


class TestWhatCanBeWaived:
    def refused(self, world, job, **changes):
        before = world.counts()
        answer = ask_for(world, job, **changes)
        assert answer.status == 422, answer.content
        assert world.counts() == before
        error = answer.problem["errors"][0]
        return error["pointer"], error["detail"]

    @pytest.mark.parametrize(
        "spelt",
        [
            "2026-12-07",
            "2026-12-07T00:00Z",
            "2026-12-07T00:00:00",
            "2026-12-07T00:00:00+00:00",
            "2026-12-07T00:00:00.000Z",
            "2026-12-07 00:00:00Z",
            "20261207T000000Z",
            "2026-12-07T00:00:00z",
            "2026-W50-1T00:00:00Z",
            "2026-13-07T00:00:00Z",
            "2026-12-32T00:00:00Z",
            "2026-12-07T24:00:00Z",
            "\uff12026-12-07T00:00:00Z",
            "",
        ],
    )
    def test_an_instant_has_one_spelling(self, shared_denied, spelt):
        world, job = shared_denied
        assert self.refused(world, job, expires_at=spelt)[0] == "/expires_at"
        assert self.refused(world, job, not_before=spelt or "now")[0] == "/not_before"

    @pytest.mark.parametrize(
        ("changes", "pointer", "said"),
        [
            ({"expires_at": START}, "/expires_at", "expected after"),
            ({"expires_at": "2027-02-28T12:00:01Z"}, "/expires_at", "at most 90 days"),
            ({"not_before": "2026-11-30T11:59:59Z"}, "/not_before", "is past"),
            ({"not_before": END}, "/expires_at", "expected after"),
            ({"rule": "residency.*"}, "/rule", ""),
            ({"rule": "*"}, "/rule", ""),
            ({"rule": "no.such"}, "/rule", "budget.limit"),
            ({"rule": "residency.compute"}, "/rule", "only what is violated"),
            ({"rule": "use.prohibited"}, "/rule", "cannot be waived"),
            ({"category": "all"}, "/category", ""),
            ({"reason": "  "}, "/reason", ""),
            ({"ticket": "see my mail"}, "/ticket", "an identifier such as `GRC-1042`"),
            ({"ticket": "ana-sousa"}, "/ticket", "at least one digit"),
            ({"subject": "job:*"}, "/subject", "unknown member"),
            ({"approvers": ["prn_x"]}, "/approvers", "unknown member"),
        ],
    )
    def test_each_refusal_names_the_field_and_what_was_expected(
        self, shared_denied, changes, pointer, said
    ):
        world, job = shared_denied
        found = self.refused(world, job, **changes)
        assert found[0] == pointer
        assert said in found[1]

    def test_ninety_days_are_not_too_long(self, one):
        job = one.submit(budget_cents=0)
        assert requested(one, job, expires_at="2027-02-28T12:00:00Z")["state"] == "requested"

    def test_an_unknown_is_never_waived(self, make_world):
        world = make_world(site_price_cents_per_hour=None)
        job = world.submit()
        assert outcomes(job)["budget.limit"] == "unknown"
        pointer, detail = self.refused(world, job)
        assert pointer == "/rule"
        assert "unknown is never waived" in detail

    def test_there_is_one_for_each_rule(self, one):
        job = one.submit(budget_cents=0)
        first = requested(one, job)
        answer = ask_for(one, job)
        assert (answer.status, answer.slug) == (409, "conflict")
        assert first["id"] in answer.problem["detail"]

    def test_a_repeat_with_its_key_makes_one(self, one):
        job = one.submit(budget_cents=0)
        body = {"rule": "budget.limit", "reason": "x", "ticket": "T-1", "expires_at": END}
        path = f"/v1/jobs/{job['id']}/waivers"
        first, second = (one.ask("POST", path, "ada", body, key="the-same") for _ in range(2))
        assert first.json == second.json
        assert len(one.get("/v1/waivers")["items"]) == 1

    def test_what_runs_or_is_over_is_not_waived(self, one):
        job, waiver = waived_job(one)
        approved(one, job)
        one.worker.work()
        assert ask_for(one, job).slug == "illegal-state"
        assert waiver["subject_state"] != "running"

    def test_an_approval_that_comes_too_late_is_refused(self, one):
        job = one.submit(budget_cents=0)
        waiver = decision_on(one, requested(one, job), "olaf").json
        one.clock.advance(days=7)
        assert decision_on(one, waiver, "omar").slug == "illegal-state"
        assert one.get(f"/v1/waivers/{waiver['id']}")["state"] == "expired"

    @pytest.mark.parametrize(
        "member", ["waiver", "waivers", "skip", "placet:skip", "checkov:skip=budget.limit"]
    )
    def test_what_is_judged_carries_no_exemption(self, shared_denied, member):
        world, _ = shared_denied
        answer = world.ask("POST", "/v1/jobs", "ada", world.job_body() | {member: "budget.limit"})
        assert answer.status == 422
        assert "unknown member" in answer.problem["detail"]

    @pytest.mark.parametrize("subject", ["job_*", "job_", "*", "JOB_1"])
    def test_a_subject_is_named_whole(self, shared_denied, subject):
        world, _ = shared_denied
        assert ask_for(world, {"id": subject}).status == 404


@pytest.fixture(scope="module")
def shared_denied(shared_world):
    return shared_world, shared_world.submit(
        budget_cents=0, purpose__prohibited_practices=["art5.1.a"]
    )


class TestTheLog:
    def test_the_reason_is_sealed_and_bound(self, one):
        job, waiver = waived_job(one)
        record = one.get(f"/v1/decisions/{job['decision']['id']}/record")
        with one.wired.transactions.read() as session:
            bodies = list(session.exec(select(AuditEntry.body)))
            sealed = session.exec(
                select(SealedValue).where(
                    SealedValue.entry_id
                    == next(e.id for e in one.entries() if e.action == "waiver.requested")
                )
            ).one()
        assert sealed.field == "reason"
        assert not any(b"Zwiebelfisch" in body for body in bodies)
        assert "Zwiebelfisch" not in json.dumps([record, waiver])
        assert b"Zwiebelfisch" not in bundle_of(one).read_bytes()
        assert record["waivers"][0]["reason_digest"].startswith("sha256:")

    def test_each_act_is_one_entry_about_the_subject(self, one):
        job, waiver = waived_job(one)
        acts = [e for e in one.entries() if str(e.action).startswith("waiver.")]
        assert [str(e.action) for e in acts] == ["waiver.requested", *["waiver.approved"] * 2]
        assert {e.resource for e in acts} == {f"job:{job['id']}"}
        assert acts[0].data == {
            "waiver": waiver["id"],
            "rule": "budget.limit",
            "rule_version": waiver["rule_version"],
            "category": "waiver",
            "not_before": START,
            "expires_at": END,
            "digest": waiver["document_digest"],
        }
        assert [e.actor.ref for e in acts[1:]] == [one.ids["olaf"], one.ids["omar"]]

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE waiver SET state = 'approved'",
            "UPDATE waiver SET expires_at = '2099-01-01T00:00:00Z'",
            "DELETE FROM waiver",
        ],
    )
    def test_no_row_changes_without_its_entry(self, world, statement):
        waiver = requested(world, world.submit(budget_cents=0))
        if statement.startswith("UPDATE"):
            world.worker.publish()  # SQLite takes the row's own entry until it is sequenced
            statement += ", entry_id = entry_id || ''"
        with pytest.raises(DBAPIError):
            world.change(statement)
        assert world.get(f"/v1/waivers/{waiver['id']}") == waiver

    @pytest.mark.parametrize(
        "change",
        [
            "approvals = '[]'",
            "expires_at = '2026-12-07'",
            "rule = '*'",
            "reason_digest = NULL",
            "state = 'requested'",
        ],
    )
    def test_a_row_that_was_spoilt_counts_for_nothing(self, one, change):
        job, _ = waived_job(one)
        one.tamper("waiver", f"UPDATE waiver SET {change}")

        with one.wired.transactions.read() as session:
            assert waivers.active_for(session, f"job:{job['id']}", one.clock()) == ()
        approved(one, job)
        one.worker.work()
        assert one.job(job["id"])["state"] == "denied"

    @pytest.mark.parametrize(
        ("change", "rule"),
        [
            ("expires_at = '2027-06-07T00:00:00Z'", "waived-binds-terms"),
            ("requester_id = (SELECT max(id) FROM principal)", "waived-binds-terms"),
            ("reason_digest = document_digest", "waived-binds-reason"),
            (
                "state = 'approved', revoked_at = NULL",
                "waived-after-revocation",
            ),
        ],
    )
    def test_a_row_that_was_changed_behind_the_log_is_found_by_the_verifier(
        self, one, change, rule
    ):
        job, waiver = waived_job(one)
        if "revoked_at" in change:
            revoke(one, waiver)
        one.tamper("waiver", f"UPDATE waiver SET {change}")
        with one.wired.transactions.write() as tx:
            row = tx.session.get_one(Job, job["id"])
            decide_again(tx, row, training=one.wired.jobs, serving=one.wired.deployments)
        assert outcomes(one.job(job["id"]))["budget.limit"] == "waived"

        report = verify(bundle_of(one), one.wired.ledger.vkeys)

        assert rule in {violation.rule for violation in report.violations}


def at_once(*acts):
    """Do several things at the same moment; return what came of each."""
    answers, start = {}, threading.Barrier(len(acts))

    def run(number, act):
        start.wait()
        answers[number] = act()

    threads = [threading.Thread(target=run, args=each) for each in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answers[number] for number in range(len(acts))]


class TestAtOnce:
    def test_two_approvals_of_one_version_count_once(self, world):
        job = world.submit(budget_cents=0)
        waiver = requested(world, job)

        both = at_once(
            *(lambda who=who: decision_on(world, waiver, who) for who in ("olaf", "omar"))
        )

        assert sorted(answer.status for answer in both) == [201, 412]
        after = world.get(f"/v1/waivers/{waiver['id']}")
        assert len(after["approvals"]) == 1
        assert world.job(job["id"])["state"] == "denied"

    def test_an_approval_and_a_revocation_leave_nothing_active(self, world):
        job = world.submit(budget_cents=0)
        waiver = signed(world, requested(world, job), "olaf")

        approval, revocation = at_once(
            lambda: decision_on(world, waiver, "omar"), lambda: revoke(world, waiver, "ada")
        )

        assert revocation.status == 200
        assert approval.status in {201, 409, 412}
        assert world.get(f"/v1/waivers/{waiver['id']}")["state"] == "revoked"
        assert world.job(job["id"])["state"] == "denied"
        check_log(world)

    def test_a_dispatch_and_a_revocation_agree(self, world):
        job, waiver = waived_job(world)
        approved(world, job)

        run, revocation = at_once(
            lambda: runs.dispatch(world.wired.runs, job["id"]), lambda: revoke(world, waiver)
        )

        assert revocation.status == 200
        after = world.job(job["id"])
        if run is None:
            assert after["state"] == "denied"
        else:
            assert (after["state"], after["reason_code"]) == ("dispatching", "waiver_revoked")
        check_log(world)

    def test_a_run_that_the_engine_never_heard_of_is_not_launched_after_a_revocation(self, world):
        job, waiver = waived_job(world)
        approved(world, job)
        assert runs.dispatch(world.wired.runs, job["id"]) is not None
        assert revoke(world, waiver).status == 200

        world.worker.work()

        after = world.job(job["id"])
        assert (after["state"], after["reason_code"]) == ("failed", "waiver_revoked")
        assert not world.engine.runs
        assert world.kinds()[-1] == "run.finished"


class TestCommand:
    @pytest.fixture
    def placet(self, one, monkeypatch, capfd):
        monkeypatch.setattr(os, "umask", lambda mask: mask)
        with answering(one.app) as url:
            monkeypatch.setenv("PLACET_URL", url)

            def run(who, *words):
                monkeypatch.setenv("PLACET_TOKEN", one.tokens[who])
                capfd.readouterr()
                status = cli.main(["waiver", *map(str, words)])
                said = capfd.readouterr()
                return status, said.out, said.err

            yield run

    def test_a_waiver_is_requested_listed_approved_and_revoked(self, one, placet):
        job = one.submit(budget_cents=0)
        asked = ("--rule", "budget.limit", "--reason", REASON, "--ticket", "GRC-1042")
        status, out, _ = placet("ada", "request", job["id"], *asked, "--expires", END)
        assert status == 0
        assert "placet waiver approve wvr_" in out
        status, out, _ = placet("ada", "list", "--json")
        (waiver,) = json.loads(out)
        status, out, _ = placet("olaf", "approve", waiver["id"], "--yes")
        assert (status, "requested now" in out) == (0, True)
        status, out, _ = placet("omar", "approve", waiver["id"], "--json")
        assert (status, json.loads(out)["state"]) == (0, "active")
        status, out, _ = placet("vera", "show", waiver["id"])
        assert one.ids["olaf"] in out
        status, out, _ = placet("omar", "revoke", waiver["id"], "--reason", "the grant failed")
        assert (status, "revoked" in out) == (0, True)
        assert "Zwiebelfisch" not in out

    def test_a_refusal_reaches_the_log(self, one, placet):
        waiver = requested(one, one.submit(budget_cents=0))
        assert placet("olaf", "refuse", waiver["id"], "--reason", "no money")[0] == 0
        assert one.kinds()[-1] == "waiver.refused"

    def test_another_id_or_version_is_said_in_one_line(self, one, placet):
        status, _, err = placet("olaf", "approve", "job_1", "--yes")
        assert (status, "wvr_" in err) == (2, True)
        waiver = requested(one, one.submit(budget_cents=0))
        status, _, err = placet("olaf", "approve", waiver["id"], "--seen", "7", "--yes")
        assert (status, "version 7" in err) == (1, True)

    def test_a_wrong_date_names_its_field(self, one, placet):
        job = one.submit(budget_cents=0)
        asked = ("--rule", "budget.limit", "--reason", "x", "--ticket", "T-1")
        status, _, err = placet("ada", "request", job["id"], *asked, "--expires", "2026-12-07")
        assert status == 2
        assert "/expires_at" in err
        assert "YYYY-MM-DDThh:mm:ssZ" in err


class TestDeployments:
    @pytest.fixture
    def lenient(self, tmp_path):
        """A world whose rule on oversight may be waived; the shipped one may not."""
        world = open_world(made(tmp_path / "lenient"), f"sqlite:///{tmp_path / 'lenient.db'}")
        policy = world.in_force.policy
        rules = tuple(
            Rule({**rule.document, "waivable": True}) if rule.id == "deploy.oversight" else rule
            for rule in policy.rules
        )
        world.restart(policy=Policy(policy.packs, rules))
        yield world
        world.wired.database.dispose()

    def waived(self, world, **changes):
        """A deployment that nobody oversees, with a waiver that holds; return both."""
        row = world.request_deployment(oversight_contact="")
        assert (row["state"], outcomes(row)["deploy.oversight"]) == ("denied", "violated")
        body = {"rule": "deploy.oversight", "reason": REASON, "ticket": "GRC-7"}
        answer = world.ask(
            "POST",
            f"/v1/deployments/{row['id']}/waivers",
            "ada",
            body | {"expires_at": END, "category": "mitigated"} | changes,
        )
        assert answer.status == 201, answer.content
        waiver = signed(world, answer.json)
        row = self.read(world, row)
        assert outcomes(row)["deploy.oversight"] == "waived"
        for who in ("olaf", "omar"):
            if row["state"] == "awaiting_approval":
                row = world.approve_deployment(row, who)
        assert row["state"] == "approved"
        return row, waiver

    def read(self, world, row):
        return world.get(f"/v1/deployments/{row['id']}")

    def test_a_waived_one_is_approved_and_activated_and_verifies(self, lenient):
        row, _ = self.waived(lenient)
        lenient.worker.work()
        lenient.worker.work()
        assert self.read(lenient, row)["state"] == "active"
        check_log(lenient)

    def test_revoked_before_it_starts_it_is_denied(self, lenient):
        row, waiver = self.waived(lenient)
        revoke(lenient, waiver)
        lenient.worker.work()
        assert self.read(lenient, row)["state"] == "denied"
        assert not lenient.host.started

    def test_ended_while_it_starts_it_is_not_activated(self, lenient):
        row, _ = self.waived(lenient, expires_at="2026-11-30T12:30:00Z")
        lenient.host.state = ServingState.STARTING
        lenient.worker.work()
        lenient.host.state = ServingState.READY
        lenient.clock.advance(minutes=30)

        hosting.advance(lenient.wired.deployments, row["id"])

        assert self.read(lenient, row)["state"] == "denied"
        lenient.worker.work()
        assert lenient.host.stopped
        check_log(lenient)

    def test_revoked_while_it_answers_it_is_flagged(self, lenient):
        row, waiver = self.waived(lenient)
        lenient.worker.work()
        lenient.worker.work()

        after = revoke(lenient, waiver).json

        assert after["needs_attention"] is True
        row = self.read(lenient, row)
        assert (row["state"], row["reason_code"]) == ("active", "waiver_revoked")

    def test_the_shipped_rule_on_oversight_cannot_be_waived(self, one):
        row = one.request_deployment(oversight_contact="")
        assert outcomes(row)["deploy.oversight"] == "violated"
        answer = one.ask(
            "POST",
            f"/v1/deployments/{row['id']}/waivers",
            "ada",
            {"rule": "deploy.oversight", "reason": "x", "ticket": "T-1", "expires_at": END},
        )
        assert answer.status == 422
        assert "cannot be waived" in answer.problem["detail"]


def made(folder):
    folder.mkdir()
    return folder


def test_nothing_is_active_for_a_name_that_only_resembles(one):
    job, waiver = waived_job(one)
    with one.wired.transactions.read() as session:
        now = one.clock()
        subject = f"job:{job['id']}"
        assert [each.id for each in waivers.active_for(session, subject, now)] == [waiver["id"]]
        for other in (subject + "x", "job:%", "job:*", f"deployment:{job['id']}", job["id"], ""):
            assert waivers.active_for(session, other, now) == ()
        late = now + timedelta(days=8)
        assert waivers.active_for(session, subject, late) == ()
