"""Each way a signed log can tell a story that must not happen, and the rule that names it."""

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.consent import covers
from audit.invariants import MAX_VIOLATIONS, Invariants


@pytest.fixture
def rules(world, untold):
    """Return a function that reads events and returns [(index, rule)] of the violations.

    The events follow `before`, by default the prologue; they count from 0.
    """

    def read(*events, before=None):
        before = world.prologue() if before is None else before
        invariants = untold([*before, *events])
        return [(each.index - len(before), each.rule) for each in invariants.violations]

    return read


def gated(world, *approvals, quorum=(("officer", 1),)):
    """A job that needs approval, what people said, and its dispatch."""
    decided = world.decided("require_approval", approvals=quorum)
    return [world.submitted(), decided, *approvals, world.dispatching()]


def test_an_allowed_story_breaks_no_rule(world, rules):
    assert rules(*world.story(), before=[]) == []


class TestDispatch:
    @pytest.mark.parametrize("verdict", ["allow", "allow_with_warnings"])
    def test_an_allowed_job_may_be_dispatched(self, world, rules, verdict):
        assert rules(world.submitted(), world.decided(verdict), world.dispatching()) == []

    def test_a_run_without_a_decision(self, world, rules):
        assert rules(world.submitted(), world.dispatching()) == [(1, "dispatch-needs-decision")]

    def test_a_decision_that_comes_after(self, world, rules):
        events = [world.submitted(), world.dispatching(), world.decided()]
        assert rules(*events) == [(1, "dispatch-needs-decision"), (2, "decision-after-end")]

    def test_a_decision_on_another_job(self, world, rules, ids, change):
        other = change(world.decided(), resource=f"job:{ids('job', 9)}")
        assert rules(world.submitted(), other, world.dispatching()) == [
            (1, "decision-needs-request"),
            (2, "dispatch-needs-decision"),
        ]

    def test_a_decision_at_another_stage(self, world, rules):
        events = [world.submitted(), world.decided(stage="deploy"), world.dispatching()]
        assert rules(*events) == [(1, "decision-needs-request"), (2, "dispatch-needs-decision")]

    def test_a_denied_job(self, world, rules):
        events = [world.submitted(), world.decided("deny"), world.dispatching()]
        assert rules(*events) == [(2, "dispatch-after-deny")]

    def test_an_allowed_job_that_was_denied_later(self, world, rules):
        events = [
            world.submitted(),
            world.decided("allow"),
            world.decided("deny", "second record"),
            world.dispatching(),
        ]
        assert rules(*events) == [(3, "dispatch-after-deny"), (3, "dispatch-binds-record")]

    def test_a_denied_job_that_was_allowed_later(self, world, rules):
        events = [world.submitted(), world.decided("deny", "old"), world.decided()]
        assert rules(*events, world.dispatching()) == []

    def test_another_record_than_the_latest(self, world, rules):
        events = [world.submitted(), world.decided("allow", "old"), world.decided()]
        assert rules(*events, world.dispatching("old")) == [(3, "dispatch-binds-record")]

    def test_a_version_of_the_job_is_the_same_job(self, world, rules, change):
        dispatched = change(world.dispatching(), resource=f"job:{world.job}@2")
        assert rules(world.submitted(), world.decided(), dispatched) == []

    def test_one_run_twice(self, world, rules, ids):
        events = [world.submitted(), world.decided(), world.dispatching()]
        again = world.dispatching("second", **self.another_permit(world, ids))
        assert rules(*events, world.decided(record="second"), again) == [
            (3, "decision-after-end"),
            (4, "dispatch-once"),
        ]

    def test_two_runs_on_one_decision(self, world, rules, ids):
        events = [world.submitted(), world.decided(), world.dispatching()]
        again = world.dispatching(run=ids("run", 2), **self.another_permit(world, ids))
        assert rules(*events, again) == [(3, "dispatch-uses-decision-once")]
        assert rules(*events, world.decided(), again) == [
            (3, "decision-after-end"),
            (4, "dispatch-uses-decision-once"),
        ]

    def test_a_job_that_ran_is_not_decided_again(self, world, rules, ids):
        events = [world.submitted(), world.decided(), world.dispatching()]
        second = world.dispatching("2", run=ids("run", 2), **self.another_permit(world, ids))
        assert rules(*events, world.decided(record="2"), second) == [(3, "decision-after-end")]

    @pytest.mark.parametrize("same", ["permit", "permit_digest"])
    def test_two_runs_on_one_permit(self, world, rules, ids, same):
        events = [
            world.submitted(),
            world.decided(),
            world.dispatching(),
            world.decided("allow", "2"),
        ]
        permit = self.another_permit(world, ids) | {same: events[2].data[same]}
        second = world.dispatching("2", run=ids("run", 2), **permit)
        assert rules(*events, second) == [(3, "decision-after-end"), (4, "permit-once")]

    def another_permit(self, world, ids):
        return {"permit": ids("prm", 2), "permit_digest": world.document("another permit")}

    @pytest.mark.parametrize("verdict", ["allow", "allow_with_warnings"])
    def test_an_allowed_job_that_nobody_submitted(self, world, rules, verdict):
        assert rules(world.decided(verdict), world.dispatching()) == [
            (0, "decision-needs-request"),
            (1, "dispatch-needs-request"),
        ]

    @pytest.mark.parametrize("member", ["document", "spec", "dataset", "base_model"])
    def test_other_bytes_than_the_submitted(self, world, rules, ids, member):
        others = {"dataset": ids("ds", 2), "base_model": ids("bm", 2)}
        other = others.get(member) or world.document("what nobody approved")
        events = [
            world.registered_dataset(ids("ds", 2)),
            world.registered_base_model(ids("bm", 2)),
            world.submitted(),
            world.decided(),
            world.dispatching(**{member: other}),
        ]
        assert rules(*events) == [(4, "dispatch-binds-bytes")]

    def test_a_cancelled_job_is_never_dispatched_again(self, world, rules):
        events = [world.submitted(), world.decided(), world.event("job.cancelled")]
        assert rules(*events, world.dispatching()) == [(3, "dispatch-after-cancel")]
        assert rules(*events, world.decided(record="2"), world.dispatching("2")) == [
            (3, "decision-after-end"),
            (4, "dispatch-after-cancel"),
        ]

    @pytest.mark.parametrize("outcome", ["cancelled", "failed", "succeeded"])
    def test_a_run_may_be_cancelled_and_end_as_it_will(self, world, rules, outcome):
        events = [world.submitted(), world.decided(), world.dispatching()]
        end = world.finished(outcome=outcome)
        assert rules(*events, world.event("job.cancelled"), end) == []

    @pytest.mark.parametrize(
        ("kind", "ending"), [("approval.refused", "refusal"), ("approval.expired", "expiry")]
    )
    def test_a_decision_that_ended(self, world, rules, kind, ending):
        data = {"record": world.document("record")}
        if kind == "approval.refused":
            data["role"] = "officer"
        end = world.event(kind, actor=world.officer, **data)
        events = [world.submitted(), world.decided(), end]
        assert rules(*events, world.dispatching()) == [(3, f"dispatch-after-{ending}")]
        second = [world.decided(record="2"), world.dispatching("2")]
        assert rules(*events, *second) == [(3, "decision-after-end")]


class TestRequests:
    def test_a_job_is_submitted_once(self, world, rules):
        assert rules(world.submitted(), world.submitted()) == [(1, "request-once")]

    def test_a_deployment_is_requested_once(self, world, rules):
        events = [world.requested(), world.requested()]
        assert rules(*world.trained(), *events) == [(6, "request-once")]

    def test_a_stranger_asks_for_nothing(self, world, rules, ids):
        assert rules(world.submitted(actor=ids("prn", 9))) == [(0, "request-needs-principal")]

    @pytest.mark.parametrize("kind", ["dataset", "base_model"])
    def test_what_a_job_uses_was_registered(self, world, rules, ids, kind):
        other = {"dataset": ids("ds", 2), "base_model": ids("bm", 2)}[kind]
        assert rules(world.submitted(**{kind: other})) == [(0, "submission-needs-registration")]

    def test_what_a_job_uses_may_be_named_by_digest(self, world, rules):
        manifest, files = world.document("manifest"), world.document("files")
        assert rules(world.submitted(dataset=manifest, base_model=files)) == []
        assert rules(world.submitted(dataset=files, base_model=files)) == [
            (0, "submission-needs-registration")
        ]

    def test_nothing_is_registered_twice(self, world, rules):
        events = [world.registered_dataset(), world.registered_base_model()]
        assert rules(*events) == [(0, "registered-once"), (1, "registered-once")]

    def test_nobody_is_created_twice(self, world, rules):
        events = [world.created(world.submitter, "officer"), world.submitted()]
        decided = world.decided("require_approval", approvals=[("officer", 1)])
        assert rules(*events, decided) == [(0, "principal-once")]

    @pytest.mark.parametrize("end", ["principal.disabled", "erasure.executed"])
    def test_who_is_out_acts_no_more(self, world, rules, end):
        data = {"ground": "retention", "keys": 0, "values": 0} if "erasure" in end else {}
        out = world.event(end, f"principal:{world.submitter}", **data)

        assert rules(out, world.submitted()) == [(1, "disabled-acts-no-more")]

    def test_nobody_changes_who_was_never_created(self, world, rules, ids):
        stranger = f"principal:{ids('prn', 99)}"
        changed = world.event("principal.changed", stranger, roles=["officer"], teams=[])

        assert rules(changed, world.event("principal.disabled", stranger)) == [
            (0, "change-needs-principal"),
            (1, "change-needs-principal"),
        ]

    def test_a_role_that_was_taken_away_approves_nothing(self, world, rules):
        taken = world.event(
            "principal.changed", f"principal:{world.officer}", roles=["auditor"], teams=[]
        )
        found = rules(taken, *gated(world, world.approved()))

        assert (3, "approver-has-role") in found

    def test_a_decision_needs_a_request(self, world, rules):
        assert rules(world.decided()) == [(0, "decision-needs-request")]
        assert rules(world.decided(stage="deploy")) == [(0, "decision-needs-request")]


class TestApprovals:
    def test_an_approved_job(self, world, rules):
        assert rules(*gated(world, world.approved())) == []

    def test_nobody_approved(self, world, rules):
        assert rules(*gated(world)) == [(2, "dispatch-needs-approvals")]

    def test_the_submitter_approved(self, world, rules):
        assert rules(*gated(world, world.approved(world.submitter))) == [
            (2, "no-self-approval"),
            (2, "approver-has-role"),
            (3, "dispatch-needs-approvals"),
        ]

    def test_a_second_submitter_approved(self, world, rules):
        again = world.submitted(actor=world.officer)
        assert rules(again, *gated(world, world.approved())) == [
            (1, "request-once"),
            (3, "no-self-approval"),
            (4, "dispatch-needs-approvals"),
        ]

    def test_self_approval_is_named_even_when_others_approved(self, world, rules):
        events = gated(world, world.approved(world.submitter), world.approved())
        assert rules(*events) == [(2, "no-self-approval"), (2, "approver-has-role")]

    @pytest.mark.parametrize("kind", ["model", "service"])
    def test_a_machine_approved(self, world, rules, change, kind):
        person = world.approved()
        approved = change(person, actor=change(person.actor, kind=kind))
        assert rules(*gated(world, approved)) == [
            (2, "approver-is-human"),
            (3, "dispatch-needs-approvals"),
        ]

    def test_somebody_approved_who_was_never_created(self, world, rules, ids):
        assert rules(*gated(world, world.approved(ids("prn", 9)))) == [
            (2, "approver-has-role"),
            (3, "dispatch-needs-approvals"),
        ]

    def test_somebody_approved_who_was_created_later(self, world, rules, ids):
        late = ids("prn", 9)
        assert rules(*gated(world, world.approved(late), world.created(late, "officer"))) == [
            (2, "approver-has-role"),
            (4, "dispatch-needs-approvals"),
        ]

    def test_somebody_approved_in_a_role_of_others(self, world, rules):
        quorum = [("dpo", 1)]
        approved = world.approved(world.second, role="dpo")
        assert rules(*gated(world, approved, quorum=quorum)) == [
            (2, "approver-has-role"),
            (3, "dispatch-needs-approvals"),
        ]

    def test_a_new_decision_needs_new_approvals(self, world, rules):
        asked = {"verdict": "require_approval", "approvals": [("officer", 1)]}
        events = gated(world, world.approved(), world.decided(**asked))
        assert rules(*events) == [(4, "dispatch-needs-approvals")]
        assert rules(*events[:-1], world.approved(), events[-1]) == []

    def test_the_wrong_role_approved(self, world, rules):
        assert rules(*gated(world, world.approved(role="admin"))) == [
            (3, "dispatch-needs-approvals")
        ]

    def test_an_approval_bound_to_another_record(self, world, rules):
        assert rules(*gated(world, world.approved(record="other"))) == [
            (3, "dispatch-needs-approvals")
        ]

    def test_an_approval_of_another_job(self, world, rules, ids, change):
        other = change(world.approved(), resource=f"job:{ids('job', 2)}")
        assert rules(*gated(world, other)) == [(3, "dispatch-needs-approvals")]

    def test_an_approval_that_comes_after(self, world, rules):
        assert rules(*gated(world), world.approved()) == [(2, "dispatch-needs-approvals")]

    def test_one_person_twice_is_one_person(self, world, rules):
        events = gated(world, world.approved(), world.approved(), quorum=[("officer", 2)])
        assert rules(*events) == [(4, "dispatch-needs-approvals")]

    def test_two_people_are_two(self, world, rules):
        approvals = [world.approved(), world.approved(world.second)]
        assert rules(*gated(world, *approvals, quorum=[("officer", 2)])) == []

    def test_one_person_in_two_roles_fills_one_place(self, world, rules):
        quorum = [("officer", 1), ("dpo", 1)]
        approvals = [world.approved(), world.approved(role="dpo")]
        assert rules(*gated(world, *approvals, quorum=quorum)) == [(4, "dispatch-needs-approvals")]
        second = world.approved(world.second)
        assert rules(*gated(world, *approvals, second, quorum=quorum)) == []

    def test_an_unknown_submitter_leaves_four_eyes_unproven(self, world, rules):
        assert rules(*gated(world, world.approved())[1:]) == [
            (0, "decision-needs-request"),
            (2, "dispatch-needs-request"),
            (2, "dispatch-needs-approvals"),
        ]

    @pytest.mark.parametrize(
        ("kind", "ending"), [("approval.refused", "refusal"), ("approval.expired", "expiry")]
    )
    @pytest.mark.parametrize("record", ["record", "another"])
    def test_one_refusal_outweighs_every_approval(self, world, rules, kind, ending, record):
        data = {"record": world.document(record)}
        if kind == "approval.refused":
            data["role"] = "officer"
        end = world.event(kind, actor=world.second, **data)
        expected = [(4, f"dispatch-after-{ending}")]
        assert rules(*gated(world, world.approved(), end)) == expected
        assert rules(*gated(world, end, world.approved())) == expected


class TestRuns:
    @pytest.mark.parametrize(
        ("kind", "data"), [("run.started", {}), ("run.observed", {"state": "running"})]
    )
    def test_a_run_that_was_never_dispatched(self, world, rules, kind, data):
        assert rules(world.event(kind, run=world.run, **data)) == [(0, "run-needs-dispatch")]

    def test_a_finished_run_that_was_never_dispatched(self, world, rules):
        assert rules(world.finished()) == [(0, "run-needs-dispatch")]

    def test_another_run_than_the_dispatched(self, world, rules, ids):
        events = [world.submitted(), world.decided(), world.dispatching()]
        assert rules(*events, world.finished(run=ids("run", 2))) == [(3, "run-needs-dispatch")]

    @pytest.mark.parametrize("resource", ["job", "run"])
    def test_a_run_belongs_to_one_job(self, world, rules, ids, change, resource):
        events = [world.submitted(), world.decided(), world.dispatching()]
        other = change(world.finished(), resource=f"{resource}:{ids(resource, 2)}")
        own = change(world.finished(), resource=f"run:{world.run}")
        assert rules(*events, other) == [(3, "run-of-its-job")]
        assert rules(*events, own) == []

    @pytest.mark.parametrize("kind", ["run.started", "run.observed", "run.finished"])
    def test_nothing_comes_after_the_end_of_a_run(self, world, rules, kind):
        events = [world.submitted(), world.decided(), world.dispatching(), world.finished()]
        after = {
            "run.started": world.event("run.started", run=world.run),
            "run.observed": world.event("run.observed", run=world.run, state="running"),
            "run.finished": world.finished(outcome="failed", artefacts=None),
        }
        assert rules(*events, after[kind]) == [(4, "run-after-finish")]


class TestModels:
    @pytest.fixture
    def trained(self, world):
        """A finished run, without its model version."""
        return world.trained()[:-1]

    def test_the_model_of_a_run(self, world, rules, trained):
        assert rules(*trained, world.modelled()) == []

    def test_a_model_of_no_run(self, world, rules, ids, trained):
        for changes in ({"run": ids("run", 2)}, {"job": ids("job", 2)}):
            assert rules(*trained, world.modelled(**changes)) == [(4, "model-needs-run")]

    @pytest.mark.parametrize("outcome", ["failed", "cancelled", "refused"])
    def test_a_model_of_a_run_without_success(self, world, rules, trained, outcome):
        trained[-1] = world.finished(outcome=outcome)
        assert rules(*trained, world.modelled()) == [(4, "model-needs-success")]

    def test_a_model_of_a_run_that_goes_on(self, world, rules, trained):
        assert rules(*trained[:-1], world.modelled()) == [(3, "model-needs-success")]

    def test_a_model_of_other_artefacts(self, world, rules, trained):
        other = world.modelled(artefacts=world.document("bytes that nobody trained"))
        assert rules(*trained, other) == [(4, "model-binds-artefacts")]
        trained[-1] = world.finished(artefacts=None)
        assert rules(*trained, world.modelled()) == [
            (3, "finish-binds-report"),
            (4, "model-binds-artefacts"),
        ]

    def test_two_models_of_one_run(self, world, rules, ids, trained):
        for second in (world.modelled(ids("mv", 2)), world.modelled()):
            assert rules(*trained, world.modelled(), second) == [(5, "model-once")]


class TestActivation:
    def story(self, world, *, without=None, verdict="allow", approvals=()):
        events = {
            "request": world.requested(),
            "decision": world.decided(verdict, "deploy record", "deploy", approvals),
            "card": world.issued("card"),
            "transparency": world.issued("transparency"),
            "activation": world.activated(),
        }
        return [event for name, event in events.items() if name != without]

    @pytest.fixture
    def rules(self, world, rules):
        """Read the events after those of a trained model."""
        return functools.partial(rules, before=[*world.prologue(), *world.trained()])

    def test_an_allowed_deployment(self, world, rules):
        assert rules(*self.story(world)) == []

    def test_nobody_requested_it(self, world, rules):
        assert rules(*self.story(world, without="request")) == [
            (0, "decision-needs-request"),
            (3, "activation-needs-request"),
        ]

    def test_a_model_that_was_never_registered(self, world, rules, ids):
        events = self.story(world)
        events[0], events[-1] = (
            world.requested(ids("mv", 9)),
            world.activated(model_version=ids("mv", 9)),
        )
        assert rules(*events) == [(0, "request-needs-model"), (4, "activation-binds-artefacts")]

    def test_another_model_than_the_requested(self, world, rules, ids):
        events = self.story(world)
        events[0] = world.requested(ids("mv", 9))
        assert rules(*events) == [(0, "request-needs-model"), (4, "activation-binds-model")]

    def test_other_artefacts_than_the_registered(self, world, rules):
        events = self.story(world)
        events[-1] = world.activated(artefacts=world.document("bytes that nobody trained"))
        assert rules(*events) == [(4, "activation-binds-artefacts")]

    def test_it_is_activated_once(self, world, rules):
        again = [world.decided("allow", "2", "deploy"), world.activated("2")]
        assert rules(*self.story(world), *again) == [
            (5, "decision-after-end"),
            (6, "activation-once"),
        ]
        assert rules(*self.story(world), world.activated()) == [
            (5, "activation-uses-decision-once"),
            (5, "activation-once"),
        ]

    @pytest.mark.parametrize(
        ("kind", "data"), [("retired", {}), ("failed", {"reason_code": "endpoint_failed"})]
    )
    def test_an_end_is_one_end(self, world, rules, kind, data):
        end = world.event(f"deployment.{kind}", f"deployment:{world.deployment}", **data)
        events = self.story(world)
        assert rules(*events, end) == []
        assert rules(*events[:4], end, events[4]) == [(5, "activation-after-end")]
        again = world.decided("allow", "another record", "deploy")
        assert rules(*events[:4], end, again) == [(5, "decision-after-end")]
        assert rules(*events, end, end) == [(6, "entry-id-unique"), (6, "end-once")]
        assert rules(end) == [(0, "end-needs-request")]

    def test_a_refused_deployment(self, world, rules):
        data = {"record": world.document("deploy record"), "role": "officer"}
        resource = f"deployment:{world.deployment}"
        refused = world.event("approval.refused", resource, actor=world.officer, **data)
        events = self.story(world)
        assert rules(*events[:2], refused, *events[2:]) == [(5, "activation-after-refusal")]

    @pytest.mark.parametrize("without", ["decision", "card", "transparency"])
    def test_each_thing_before_it_is_needed(self, world, rules, without):
        assert rules(*self.story(world, without=without)) == [(3, f"activation-needs-{without}")]

    @pytest.mark.parametrize("document", ["card", "transparency"])
    def test_another_document_than_the_issued(self, world, rules, document):
        events = self.story(world)
        events[-1] = world.activated(**{document: world.document("another")})
        assert rules(*events) == [(4, f"activation-needs-{document}")]

    def test_a_document_of_another_deployment(self, world, rules, ids):
        events = self.story(world)
        events[2] = world.issued("card", deployment=ids("dep", 2))
        assert rules(*events) == [(4, "activation-needs-card")]

    def test_a_document_issued_after(self, world, rules):
        events = self.story(world, without="card")
        assert rules(*events, world.issued("card")) == [(3, "activation-needs-card")]

    def test_a_denied_deployment(self, world, rules):
        assert rules(*self.story(world, verdict="deny")) == [(4, "activation-after-deny")]

    def test_an_unapproved_deployment(self, world, rules):
        events = self.story(world, verdict="require_approval", approvals=[("officer", 1)])
        assert rules(*events) == [(4, "activation-needs-approvals")]

    def test_an_approved_deployment(self, world, rules, change):
        events = self.story(world, verdict="require_approval", approvals=[("officer", 1)])
        approved = change(
            world.approved(record="deploy record"), resource=f"deployment:{world.deployment}"
        )
        assert rules(*events[:2], approved, *events[2:]) == []

    def test_the_requester_approved(self, world, rules, change):
        events = self.story(world, verdict="require_approval", approvals=[("officer", 1)])
        approved = change(
            world.approved(world.submitter, record="deploy record"),
            resource=f"deployment:{world.deployment}",
        )
        assert rules(*events[:2], approved, *events[2:]) == [
            (2, "no-self-approval"),
            (2, "approver-has-role"),
            (5, "activation-needs-approvals"),
        ]

    def test_a_decision_to_train_is_none_to_deploy(self, world, rules):
        events = self.story(world)
        events[1] = world.decided("allow", "deploy record", "train")
        assert rules(*events) == [(1, "decision-after-end"), (4, "activation-needs-decision")]

    def test_another_record_than_the_latest(self, world, rules):
        events = self.story(world)
        events[-1] = world.activated("old")
        assert rules(*events) == [(4, "activation-binds-record")]


class TestEntries:
    def test_a_gap(self, world):
        invariants = Invariants(world.origin, world.documents.get)
        invariants.read(0, world.started())
        invariants.read(2, world.started())

        assert [(v.index, v.rule) for v in invariants.violations] == [(2, "indices-contiguous")]

    def test_a_duplicated_id(self, world, rules, change):
        first = world.started()
        again = change(world.started(), id=first.id)
        assert rules(first, again) == [(1, "entry-id-unique")]

    def test_an_entry_of_a_foreign_log(self, world, rules, change):
        assert rules(change(world.started(), log="example.com/other")) == [(0, "log-is-origin")]

    def test_the_list_is_bounded_and_the_count_is_not(self, world):
        invariants = Invariants("another", world.documents.get)
        for index in range(150):
            invariants.read(index, world.started())

        assert len(invariants.violations) == MAX_VIOLATIONS
        assert invariants.num_violations == 150


class TestCovers:
    def test_the_longest_chain_of_reseating_works(self):
        places = [f"r{n}" for n in range(100)]
        given_ = [(f"p{n}", f"r{m}") for n in range(100) for m in (n, n + 1)]

        assert covers(places, given_)
        assert covers(places[::-1], given_)
        assert not covers([*places, "r100", "r101"], given_)

    def test_no_demand_is_not_met(self):
        assert not covers([], [("a", "officer")])

    @given(
        st.lists(st.sampled_from("xyz"), min_size=1, max_size=4),
        st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz")), max_size=8),
    )
    def test_it_finds_an_assignment_exactly_when_one_exists(self, places, given_):
        def exists(rest, used):
            return not rest or any(
                role == rest[0] and person not in used and exists(rest[1:], used | {person})
                for person, role in given_
            )

        assert covers(places, given_) is exists(places, frozenset())
