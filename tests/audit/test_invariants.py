"""Each way a signed log can tell a story that must not happen, and the rule that names it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.invariants import MAX_VIOLATIONS, Invariants, covers


@pytest.fixture
def rules(world):
    """Return a function that reads events and returns [(index, rule)] of the violations."""

    def read(*events):
        invariants = Invariants(world.origin)
        for index, event in enumerate(events):
            invariants.read(index, event)
        return [(each.index, each.rule) for each in invariants.violations]

    return read


def gated(world, *approvals, quorum=(("officer", 1),)):
    """A job that needs approval, what people said, and its dispatch."""
    decided = world.decided("require_approval", approvals=quorum)
    return [world.submitted(), decided, *approvals, world.dispatching()]


def test_an_allowed_story_breaks_no_rule(world, rules):
    assert rules(*world.story()) == []


class TestDispatch:
    @pytest.mark.parametrize("verdict", ["allow", "allow_with_warnings"])
    def test_an_allowed_job_may_be_dispatched(self, world, rules, verdict):
        assert rules(world.submitted(), world.decided(verdict), world.dispatching()) == []

    def test_a_run_without_a_decision(self, world, rules):
        assert rules(world.submitted(), world.dispatching()) == [(1, "dispatch-needs-decision")]

    def test_a_decision_that_comes_after(self, world, rules):
        events = [world.submitted(), world.dispatching(), world.decided()]
        assert rules(*events) == [(1, "dispatch-needs-decision")]

    def test_a_decision_on_another_job(self, world, rules, ids, change):
        other = change(world.decided(), resource=f"job:{ids('job', 9)}")
        assert rules(world.submitted(), other, world.dispatching()) == [
            (2, "dispatch-needs-decision")
        ]

    def test_a_decision_at_another_stage(self, world, rules):
        events = [world.submitted(), world.decided(stage="deploy"), world.dispatching()]
        assert rules(*events) == [(2, "dispatch-needs-decision")]

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

    def test_one_run_twice(self, world, rules):
        events = [world.submitted(), world.decided(), world.dispatching(), world.dispatching()]
        assert rules(*events) == [(3, "dispatch-once")]

    def test_two_runs_of_one_job(self, world, rules, ids):
        events = [world.submitted(), world.decided(), world.dispatching()]
        assert rules(*events, world.dispatching(run=ids("run", 2))) == []


class TestApprovals:
    def test_an_approved_job(self, world, rules):
        assert rules(*gated(world, world.approved())) == []

    def test_nobody_approved(self, world, rules):
        assert rules(*gated(world)) == [(2, "dispatch-needs-approvals")]

    def test_the_submitter_approved(self, world, rules):
        assert rules(*gated(world, world.approved(world.submitter))) == [
            (2, "no-self-approval"),
            (3, "dispatch-needs-approvals"),
        ]

    def test_a_second_submitter_approved(self, world, rules):
        again = world.event("job.submitted", actor=world.officer, **world.submitted().data)
        assert rules(again, *gated(world, world.approved())) == [
            (3, "no-self-approval"),
            (4, "dispatch-needs-approvals"),
        ]

    def test_self_approval_is_named_even_when_others_approved(self, world, rules):
        events = gated(world, world.approved(world.submitter), world.approved())
        assert rules(*events) == [(2, "no-self-approval")]

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
        assert rules(*gated(world, world.approved())[1:]) == [(2, "dispatch-needs-approvals")]

    @pytest.mark.parametrize("kind", ["approval.refused", "approval.expired"])
    def test_what_was_withdrawn_does_not_count(self, world, rules, kind):
        data = {"record": world.document("record")}
        if kind == "approval.refused":
            data["role"] = "officer"
        end = world.event(kind, actor=world.second, **data)
        assert rules(*gated(world, world.approved(), end)) == [(4, "dispatch-needs-approvals")]
        assert rules(*gated(world, end, world.approved())) == []


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

    def test_an_allowed_deployment(self, world, rules):
        assert rules(*self.story(world)) == []

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
            (5, "activation-needs-approvals"),
        ]

    def test_a_decision_to_train_is_none_to_deploy(self, world, rules):
        events = self.story(world)
        events[1] = world.decided("allow", "deploy record", "train")
        assert rules(*events) == [(4, "activation-needs-decision")]

    def test_another_record_than_the_latest(self, world, rules):
        events = self.story(world)
        events[-1] = world.activated("old")
        assert rules(*events) == [(4, "activation-binds-record")]


class TestEntries:
    def test_a_gap(self, world):
        invariants = Invariants(world.origin)
        invariants.read(0, world.started())
        invariants.read(2, world.started())

        assert [(v.index, v.rule) for v in invariants.violations] == [(2, "indices-contiguous")]

    def test_a_duplicated_id(self, world, rules, change):
        first = world.started()
        assert rules(first, change(world.started(), id=first.id)) == [(1, "entry-id-unique")]

    def test_an_entry_of_a_foreign_log(self, world, rules, change):
        assert rules(change(world.started(), log="example.com/other")) == [(0, "log-is-origin")]

    def test_the_list_is_bounded_and_the_count_is_not(self, world):
        invariants = Invariants("another")
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
