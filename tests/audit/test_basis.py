"""Nobody decides by rules or rows that the log did not put in force before: each lie has a name."""

from dataclasses import replace

import pytest

from audit.event import Actor

SIGNED = {"bundle": "sha256:" + "ab" * 32, "signers": ["a+00000001", "b+00000002"]}


@pytest.fixture
def rules(world, untold):
    """Return a function that reads events after the prologue: [(index, rule)], counted from 0."""

    def read(*events, before=None):
        before = world.prologue() if before is None else before
        invariants = untold([*before, *events])
        return [(each.index - len(before), each.rule) for each in invariants.violations]

    return read


@pytest.fixture
def officer(world):
    """Return a function that makes an officer the one who acted."""
    return lambda event: replace(event, actor=Actor("human", world.officer, "token"))


def signed(world, number, policy="other policy", **changes):
    event = world.enforced(policy, number=number, **(SIGNED | changes))
    return replace(event, actor=Actor("human", world.officer, "token"))


def test_a_decision_by_what_is_in_force_breaks_no_rule(world, rules):
    assert rules(world.submitted(), world.decided()) == []


def test_rules_that_were_swapped_behind_the_log(world, rules):
    lie = world.decided(policy=world.document("milder policy"))
    assert rules(world.submitted(), lie) == [(1, "decision-under-policy")]


def test_rows_that_were_swapped_behind_the_log(world, rules):
    lie = world.decided(reference=world.document("kinder rows"))
    assert rules(world.submitted(), lie) == [(1, "decision-under-reference")]


def test_a_log_that_never_said_what_is_in_force(world, rules):
    hidden = ("policy.activated", "reference.recorded")
    before = [each for each in world.prologue() if each.action not in hidden]
    assert rules(world.submitted(), world.decided(), before=before) == [
        (1, "decision-under-policy"),
        (1, "decision-under-reference"),
    ]


def test_a_policy_that_was_put_in_force_only_afterwards(world, rules):
    decided = world.decided(policy=world.document("other policy"))
    assert rules(world.submitted(), decided, signed(world, 1)) == [(1, "decision-under-policy")]


def test_the_policy_before_the_last_one(world, rules):
    assert rules(world.submitted(), signed(world, 1), world.decided()) == [
        (2, "decision-under-policy")
    ]


def test_a_decision_by_a_policy_that_was_left_is_not_used(world, rules):
    before = [world.submitted(), world.decided(), signed(world, 1)]
    assert rules(*before, world.dispatching()) == [(3, "dispatch-under-policy")]


def test_a_decision_by_rows_that_were_left_is_not_used(world, rules):
    before = [world.submitted(), world.decided(), world.referenced("other rows")]
    assert rules(*before, world.dispatching()) == [(3, "dispatch-under-reference")]


@pytest.mark.parametrize("which", ["policy", "reference"])
def test_a_deployment_is_not_activated_by_what_was_left(world, rules, which):
    act = signed(world, 1) if which == "policy" else world.referenced("other rows")
    *before, activated = world.story()
    assert rules(act, activated, before=before) == [(1, f"activation-under-{which}")]


def test_a_new_policy_decides_from_its_entry_on(world, rules):
    decided = world.decided(policy=world.document("other policy"))
    assert rules(world.submitted(), world.decided(), signed(world, 1), decided) == []


@pytest.mark.parametrize("number", [1, 2])
def test_numbers_only_grow(world, rules, number):
    assert rules(signed(world, 2), signed(world, number, "third")) == [(1, "policy-number-grows")]


def test_a_policy_with_one_signer_or_the_same_one_twice(world, rules):
    for signers in ([], ["a+00000001"], ["a+00000001", "a+00000001"]):
        assert rules(signed(world, 1, signers=signers)) == [(0, "policy-signed-by-two")]


def test_a_policy_that_no_officer_put_in_force(world, rules):
    for actor in (
        Actor("human", world.submitter, "token"),
        Actor("service", "placet", "internal"),
        Actor("service", world.officer, "token"),
    ):
        assert rules(replace(signed(world, 1), actor=actor)) == [(0, "policy-by-officer")]


def test_a_bundle_does_not_give_way_to_what_ships(world, rules):
    assert rules(signed(world, 1), world.enforced()) == [(1, "policy-needs-bundle")]


@pytest.mark.parametrize("changes", [{"number": 3}, {"signers": ["a+1", "b+2"]}])
def test_what_ships_has_no_number_and_no_signers(world, rules, changes):
    assert rules(world.enforced(**changes)) == [(0, "policy-needs-bundle")]


def test_a_policy_that_comes_back_says_so(world, rules):
    quietly = [signed(world, 1, "one"), signed(world, 2, "two"), signed(world, 3, "one")]
    assert rules(*quietly) == [(2, "policy-rollback-is-said")]
    openly = signed(world, 3, "one", rollback_of=2)
    assert rules(*quietly[:2], openly) == []
    wrongly = signed(world, 3, "one", rollback_of=1)
    assert rules(*quietly[:2], wrongly) == [(2, "policy-rollback-is-said")]


def test_a_shadow_decides_beside_and_must_not_be_left_out(world, rules):
    tried = signed(world, 1, "tried", mode="shadow")
    beside = {
        "policy": world.document("tried"),
        "record": world.document("tried record"),
        "verdict": "deny",
    }
    assert rules(tried, world.submitted(), world.decided(shadow=beside)) == []
    assert rules(tried, world.submitted(), world.decided()) == [(2, "decision-under-shadow")]
    assert rules(world.submitted(), world.decided(shadow=beside)) == [(1, "decision-under-shadow")]
    over = signed(world, 2, "policy")
    assert rules(tried, over, world.submitted(), world.decided(shadow=beside)) == [
        (3, "decision-under-shadow")
    ]


def test_a_rejection_that_changed_the_policy(world, rules, ids, officer):
    data = {"bundle": SIGNED["bundle"], "reason_code": "tests"}
    for policy, wrong in (("policy", []), ("other", [(0, "rejection-keeps-policy")])):
        still = world.document(policy)
        event = world.event("policy.rejected", f"policy:{ids('pol', 2)}", **data, still=still)
        assert rules(officer(event)) == wrong


def test_rows_that_no_officer_recorded(world, rules, officer):
    own = world.referenced("own rows", table="prices", key="ovhcloud/l40s-1-gpu/EUR")
    assert rules(officer(own)) == []
    for actor in (own.actor, Actor("human", world.submitter, "token")):
        assert rules(replace(own, actor=actor)) == [(0, "reference-by-officer")]
    assert rules(officer(world.referenced())) == [(0, "reference-starts-shipped")]
    before = [each for each in world.prologue() if each.action != "reference.recorded"]
    assert rules(officer(own), before=before) == [(0, "reference-starts-shipped")]


def test_a_row_of_the_law_that_an_officer_recorded(world, rules, officer):
    for table in ("categories", "country_sets", "adequacy", "thresholds", "uses", "licences"):
        event = officer(world.referenced("own rows", table=table, key="a/b"))
        assert rules(event) == [(0, "reference-is-not-law")]


def test_a_row_counts_from_its_entry_on(world, rules, officer):
    own = officer(world.referenced("own rows", table="prices", key="a/b/EUR"))
    old, new = world.decided(), world.decided(reference=world.document("own rows"))
    assert rules(world.submitted(), old, own, new) == []
    assert rules(world.submitted(), own, old) == [(2, "decision-under-reference")]
    assert rules(world.submitted(), new, own) == [(1, "decision-under-reference")]
