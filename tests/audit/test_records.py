"""A record that contradicts its entry, and a decision used outside its time: each has a name."""

import json
from datetime import datetime

import pytest

from audit.canonical import canonical

OTHER = "sha256:" + "0" * 64
NAMED = {
    "subject": "job:job_00000000000000000000000009",
    "verdict": "allow_with_warnings",
    "policy": OTHER,
    "reference": OTHER,
    "approvals": [{"role": "officer", "count": 1}],
    "evaluated_at": "2026-11-30T11:49:59Z",
    "valid_until": "2026-11-30T11:59:59Z",
}


@pytest.fixture
def found(world, told):
    """Return a function that reads events after the prologue: [(index, rule, detail)]."""

    def read(*events):
        before = world.prologue()
        invariants = told([*before, *events])
        return [(v.index - len(before), v.rule, v.detail) for v in invariants.violations]

    return read


@pytest.fixture
def rules(found):
    """Return a function that reads events after the prologue: [(index, rule)]."""
    return lambda *events: [(index, rule) for index, rule, _ in found(*events)]


def decided(world, **changes):
    """A job that was asked for and decided on, with a record that says something else."""
    record = world.recorded(**changes)
    return [world.submitted(), world.decided(record=record), world.dispatching(record)]


class TestRecord:
    def test_one_that_says_what_its_entry_says_breaks_no_rule(self, world, rules):
        assert rules(*decided(world)) == []

    @pytest.mark.parametrize(("member", "value"), NAMED.items())
    def test_each_member_that_both_name_is_compared(self, world, found, member, value):
        violations = found(*decided(world, **{member: value}))
        assert violations[0][:2] == (1, "decision-binds-record")
        assert violations[0][2].endswith(f"says another {member}")

    @pytest.mark.parametrize("member", [*NAMED, "facts_digest"])
    def test_a_member_that_is_not_there_is_another_one(self, world, found, member):
        record = json.loads(world.recorded())
        del record[member]
        violations = found(world.submitted(), world.decided(record=canonical(record).decode()))
        assert (1, "decision-binds-record") in [each[:2] for each in violations]
        assert member in violations[0][2]

    @pytest.mark.parametrize("value", [None, 1, True, "2026-11-30", "2026-13-30T12:00:00Z"])
    @pytest.mark.parametrize("member", ["evaluated_at", "valid_until"])
    def test_a_time_that_is_none(self, world, rules, member, value):
        assert rules(*decided(world, **{member: value}))[0] == (1, "decision-binds-record")

    @pytest.mark.parametrize("at", ["2026-11-30T11:50:01Z", "2026-11-30T12:10:00Z"])
    def test_clocks_of_one_house_may_differ_a_little(self, world, rules, at):
        assert rules(*decided(world, evaluated_at=at)) == []

    def test_the_digest_of_other_facts(self, world, found):
        violations = found(*decided(world, facts_digest=OTHER))
        assert violations[0][2].endswith("says another facts_digest, facts")

    def test_facts_that_do_not_have_their_digest(self, world, found):
        violations = found(*decided(world, facts={"stage": "train", "dataset": "another"}))
        assert violations[0][2].endswith("says another facts")

    def test_facts_of_another_stage(self, world, found):
        record = world.recorded(facts={"stage": "deploy"})
        facts = json.loads(record)["facts"]
        record = world.recorded(facts=facts, facts_digest=world.document("deploy facts"))
        event = world.decided(record=record, facts=world.document("deploy facts"))
        assert found(world.submitted(), event)[0][2].endswith("says another stage")

    def test_without_facts_there_is_nothing_but_a_deny(self, world, rules):
        for verdict, expected in (("deny", []), ("allow", [(1, "decision-binds-record")])):
            record = world.recorded(verdict, facts=None)
            assert rules(world.submitted(), world.decided(verdict, record)) == expected

    def test_fewer_approvals_than_the_record_asks_for(self, world, rules):
        asked = {"verdict": "require_approval", "approvals": [("officer", 2)]}
        record = world.recorded(**asked)
        fewer = world.decided("require_approval", record, approvals=[("officer", 1)])
        assert rules(world.submitted(), fewer) == [(1, "decision-binds-record")]
        assert rules(world.submitted(), world.decided(record=record, **asked)) == []

    @pytest.mark.parametrize("count", [True, "1", [1]])
    def test_a_value_of_another_type_is_another_one(self, world, rules, count):
        record = world.recorded("require_approval", approvals=[("officer", count)])
        asked = world.decided("require_approval", record, approvals=[("officer", 1)])
        assert rules(world.submitted(), asked) == [(1, "decision-binds-record")]

    @pytest.mark.parametrize("text", ["", "[]", "1", '{"format":"placet.decision/2"}', "{", "{}"])
    def test_one_that_cannot_be_read(self, world, rules, text):
        event = world.decided(record=text)
        assert rules(world.submitted(), event) == [(1, "decision-record-readable")]

    def test_one_that_is_not_enclosed_is_missing_and_no_violation(self, world, told):
        events = [*world.prologue(), *decided(world)]
        del world.documents[events[-1].data["record"]]
        invariants = told(events)
        assert invariants.violations == []
        assert invariants.missing == {events[-1].data["record"]}


class TestShadow:
    """The record made beside it is told about by the same entry, so it must tell the same."""

    def beside(self, world, said="deny", **changes):
        tried = world.enforced("tried", number=1, mode="shadow", signers=["a+1", "b+2"])
        record = world.recorded("deny", **{"policy": world.document("tried"), **changes})
        shadow = {
            "policy": world.document("tried"),
            "record": world.document(record),
            "verdict": said,
        }
        told = world.decided(record=world.recorded(), shadow=shadow)
        return [tried, world.submitted(), told]

    def own(self, violations):
        return [each for each in violations if each[0] == 2]

    def test_an_honest_one(self, world, rules):
        assert self.own(rules(*self.beside(world))) == []

    @pytest.mark.parametrize(
        "member", ["subject", "policy", "reference", "evaluated_at", "facts_digest"]
    )
    def test_one_that_says_something_else(self, world, rules, member):
        changes = {member: NAMED.get(member, OTHER)}
        found = self.own(rules(*self.beside(world, **changes)))
        assert found == [(2, "decision-binds-record")]

    def test_another_verdict(self, world, rules):
        assert self.own(rules(*self.beside(world, "allow"))) == [(2, "decision-binds-record")]


class TestTimes:
    @pytest.mark.parametrize(
        ("at", "expected"),
        [
            ("2026-12-07T11:59:59.999Z", []),
            ("2026-12-07T12:00:00.000Z", [(2, "dispatch-in-time")]),
            ("2026-11-30T11:49:59.999Z", [(2, "dispatch-in-time")]),
            ("2026-11-30T11:50:00.000Z", []),
        ],
    )
    def test_a_decision_is_used_while_it_is_valid(self, world, rules, change, at, expected):
        submitted, made, dispatching = decided(world)
        issued = int(datetime.fromisoformat(at).timestamp())
        permit = world.permit(dispatching.data, iat=issued, exp=issued + 60)
        data = {**dispatching.data, "permit_digest": world.document(permit)}
        assert rules(submitted, made, change(dispatching, at=at, data=data)) == expected

    def test_a_deployment_is_activated_while_its_decision_is_valid(self, world, told, change):
        *before, activated = world.story()
        late = change(activated, at="2026-12-07T12:00:00.000Z")
        assert [v.rule for v in told([*before, late]).violations] == ["activation-in-time"]

    def test_a_dispatch_that_was_dated_back(self, world, rules, change):
        asked = {"verdict": "require_approval", "approvals": [("officer", 1)]}
        record = world.recorded(**asked)
        late = change(world.approved(record=record), at="2026-12-09T09:00:00.000Z")
        events = [world.submitted(), world.decided(record=record, **asked), late]
        assert rules(*events, world.dispatching(record)) == [(3, "dispatch-in-time")]
