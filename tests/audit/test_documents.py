"""A document that says another thing than its entry: requests, permits, reports, waivers."""

import json

import pytest

from audit.canonical import canonical, digest

OTHER = "sha256:" + "0" * 64
SOMEBODY = "prn_00000000000000000000000009"


@pytest.fixture
def rules(world, told):
    """Return a function that reads events after the prologue and gives the broken rules."""
    return lambda *events: [each.rule for each in told([*world.prologue(), *events]).violations]


def allowed(world):
    record = world.recorded()
    return [world.submitted(), world.decided(record=record)], record


def other(text, **changes):
    return canonical({**json.loads(text), **changes}).decode()


class TestRequests:
    @pytest.mark.parametrize(
        "changes",
        [
            {"format": "placet.job/2"},
            {"job": "job_00000000000000000000000009"},
            {"submitted_by": SOMEBODY},
            {"spec": OTHER},
            {"dataset_manifest": OTHER},
            {"base_model_files": OTHER},
            {"request": {"team": "another"}},
            {"request": None},
        ],
    )
    def test_the_document_of_a_job(self, world, rules, changes):
        document = world.document(world.job_text(**changes))
        assert rules(world.submitted(document=document)) == ["request-binds-document"]

    def test_who_asked_is_not_somebody_else_so_that_the_asker_can_approve(self, world, rules):
        document = world.document(world.job_text(submitted_by=world.officer))
        asked = {"verdict": "require_approval", "approvals": [("officer", 1)]}
        record = world.recorded(**asked)
        events = [world.submitted(document=document), world.decided(record=record, **asked)]
        assert rules(*events, world.approved(record=record)) == ["request-binds-document"]

    @pytest.mark.parametrize(
        "changes",
        [
            {"deployment": "dep_00000000000000000000000009"},
            {"requested_by": SOMEBODY},
            {"artefacts": OTHER},
            {"request": {"model_version": "mv_00000000000000000000000009"}},
        ],
    )
    def test_the_document_of_a_deployment(self, world, told, change, changes):
        *before, requested = world.story()[:-4]
        text = world.documents[requested.data["document"]].decode()
        data = {**requested.data, "document": world.document(other(text, **changes))}
        violations = told([*before, change(requested, data=data)]).violations
        assert [each.rule for each in violations] == ["request-binds-document"]

    def test_one_that_cannot_be_read(self, world, rules):
        event = world.submitted(document=world.document("no json"))
        assert rules(event) == ["request-binds-document"]

    def test_one_that_is_not_enclosed_is_missing(self, world, told):
        event = world.submitted()
        del world.documents[event.data["document"]]
        invariants = told([*world.prologue(), event])
        assert (invariants.violations, invariants.missing) == ([], {event.data["document"]})


class TestEngines:
    def test_a_job_runs_where_it_asked_to_run(self, world, rules):
        events, record = allowed(world)
        elsewhere = world.dispatching(record, engine="another-cloud")
        assert rules(*events, elsewhere) == ["dispatch-binds-engine"]

    @pytest.mark.parametrize("asked", [{}, {"compute": None}, {"compute": {}}])
    def test_a_job_that_does_not_say_where_runs_nowhere(self, world, rules, asked):
        document = world.document(world.job_text(request={"team": "radiology", **asked}))
        record = world.recorded()
        events = [world.submitted(document=document), world.decided(record=record)]
        assert "dispatch-binds-engine" in rules(
            *events, world.dispatching(record, document=document)
        )


class TestPermits:
    def dispatched(self, world, **claims):
        events, record = allowed(world)
        data = dict(world.dispatching(record).data)
        permit = world.document(world.permit(data, **claims))
        return [*events, world.dispatching(record, permit_digest=permit)]

    def test_one_that_gives_the_right_breaks_no_rule(self, world, rules):
        assert rules(*self.dispatched(world)) == []

    @pytest.mark.parametrize("claim", ["aud", "sub", "jti", "job", "document", "spec"])
    @pytest.mark.parametrize("value", ["another", None])
    def test_one_for_something_else(self, world, rules, claim, value):
        assert rules(*self.dispatched(world, **{claim: value})) == ["dispatch-binds-permit"]

    @pytest.mark.parametrize("claim", ["dataset", "base_model", "decision"])
    def test_one_for_other_bytes(self, world, rules, claim):
        assert rules(*self.dispatched(world, **{claim: OTHER})) == ["dispatch-binds-permit"]

    @pytest.mark.parametrize(
        "times",
        [
            {"iat": 1796039399},
            {"iat": 1796040602},
            {"iat": None},
            {"exp": 1796040000},
            {"exp": "1"},
        ],
    )
    def test_one_of_another_time(self, world, rules, times):
        assert rules(*self.dispatched(world, **times)) == ["dispatch-binds-permit"]

    @pytest.mark.parametrize("text", ["", "permit", "a.b", "a.!.c", "a.W10.c", "a.bm8.c"])
    def test_bytes_that_are_no_permit(self, world, rules, text):
        events, record = allowed(world)
        forged = world.dispatching(record, permit_digest=world.document(text))
        assert rules(*events, forged) == ["dispatch-binds-permit"]

    def test_one_that_is_still_in_use_is_missing_and_no_violation(self, world, told):
        *before, dispatching = [*world.prologue(), *self.dispatched(world)]
        gone = dispatching.data["permit_digest"]
        del world.documents[gone]
        invariants = told([*before, dispatching])
        assert (invariants.violations, invariants.missing) == ([], {gone})


class TestReports:
    @pytest.fixture
    def finished(self, world, rules):
        """Return a function that gives the rules broken by the end of a run."""
        events, record = allowed(world)
        before = [*events, world.dispatching(record)]
        return lambda **changes: rules(*before, world.finished(**changes))

    def text(self, world, label, **changes):
        return world.document(other(world.documents[world.document(label)], **changes))

    def test_an_honest_end_breaks_no_rule(self, finished):
        assert finished() == []

    @pytest.mark.parametrize(
        "changes",
        [
            {"status": "failed"},
            {"run_id": "run_00000000000000000000000009"},
            {"permit_id": "prm_00000000000000000000000009"},
            {"spec_digest": OTHER},
            {"artefacts": {}},
            {"artefacts": {"adapter/w.bin": {"digest": OTHER, "size_bytes": 1}}},
        ],
    )
    def test_a_failed_run_said_to_have_succeeded_or_another_one(self, world, finished, changes):
        report = self.text(world, "report", **changes)
        assert finished(report=report) == ["finish-binds-report"]

    def test_the_artefacts_of_another_run(self, world, finished):
        left = self.text(world, "artefacts", run="run_00000000000000000000000009")
        assert finished(artefacts=left) == ["finish-binds-report"]

    @pytest.mark.parametrize("member", ["report", "artefacts"])
    def test_a_success_that_left_nothing(self, finished, member):
        assert finished(**{member: None}) == ["finish-binds-report"]

    def test_a_failure_needs_no_report_and_no_success_in_it(self, world, finished):
        assert finished(outcome="failed", report=None, artefacts=None) == []
        report = self.text(world, "report", status="failed")
        assert finished(outcome="failed", report=report, artefacts=None) == []

    def test_the_report_of_another_run_is_none_of_a_failure_either(self, world, finished):
        report = self.text(world, "report", run_id="run_00000000000000000000000009")
        assert finished(outcome="failed", report=report, artefacts=None) == ["finish-binds-report"]


class TestWaivers:
    @pytest.mark.parametrize(
        ("member", "value"),
        [
            ("waiver", "wvr_00000000000000000000000009"),
            ("subject", "job:job_00000000000000000000000009"),
            ("requester", SOMEBODY),
            ("record", OTHER),
            ("rule", "hds.certificate"),
            ("rule_version", "2.0.0"),
            ("category", "mitigated"),
            ("not_before", "2026-12-01T00:00:00Z"),
            ("expires_at", "2026-12-01T00:00:00Z"),
        ],
    )
    def test_two_people_signed_another_document(self, world, rules, member, value):
        record = world.recorded("deny")
        events = [world.submitted(), world.decided("deny", record)]
        asked = world.waiver_requested(document={member: value})
        assert rules(*events, asked) == ["waiver-binds-document"]


class TestModelsUnderWaivers:
    """What was trained under a waiver that was revoked is neither asked for nor activated."""

    def story(self, world):
        record, deployed = world.waived_record(), world.recorded(stage="deploy")
        training = [
            world.submitted(),
            world.decided("deny", world.recorded("deny")),
            world.waiver_requested(),
            world.waiver_approved(),
            world.waiver_approved(world.second),
            world.decided("allow_with_warnings", record),
            world.dispatching(record),
            world.finished(),
            world.modelled(),
        ]
        revoked = world.event("waiver.revoked", actor=world.officer, waiver=world.waiver)
        deploying = [
            world.requested(),
            world.decided("allow", deployed, "deploy"),
            world.issued("card"),
            world.issued("transparency"),
            world.activated(deployed),
        ]
        return training, revoked, deploying

    def test_while_the_waiver_stands_it_is_deployed(self, world, rules):
        training, _, deploying = self.story(world)
        assert rules(*training, *deploying) == []

    def test_after_a_revocation_it_is_neither_requested_nor_activated(self, world, rules, change):
        training, revoked, deploying = self.story(world)
        early = change(revoked, at="2026-11-30T11:49:00.000Z")
        assert rules(*training, early, *deploying) == ["model-after-waiver"] * 2

    def test_two_acts_at_once_may_not_know_of_each_other(self, world, rules):
        training, revoked, deploying = self.story(world)
        assert rules(*training, revoked, *deploying) == []


def test_the_documents_of_the_test_world_have_the_digests_that_others_name(world):
    job = json.loads(world.job_text())
    assert job["spec"] == world.document("spec") == digest(b"spec")
