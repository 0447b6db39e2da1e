"""What-if: history under another policy, and nothing but what would change."""

import json

import pytest

from audit.canonical import canonical
from policies.decision import GateError
from policies.policy import Policy
from policies.rule import Rule
from policies.waiver import Waiver
from policies.what_if import compare, summary

BASES = ("public", "personal", "special", "health", "claimed", "deploy", "serving")


def changed(policy, rule_id, **members):
    """Return the policy with members of one rule replaced."""
    rules = [
        Rule({**rule.document, **members}) if rule.id == rule_id else rule for rule in policy.rules
    ]
    return Policy(policy.packs, tuple(rules))


def without(policy, *rule_ids):
    return Policy(policy.packs, tuple(r for r in policy.rules if r.id not in rule_ids))


@pytest.fixture
def history(judge, base):
    return [judge(base(name), subject=f"job:job_{name}").record for name in BASES]


@pytest.fixture
def replayed(history, reference):
    def run(candidate, records=None):
        given = history if records is None else records
        return list(compare(given, candidate, {reference.digest: reference}))

    return run


def test_the_policy_that_decided_changes_nothing(policy, replayed):
    found = summary(replayed(policy))

    assert found["decisions"] == len(BASES)
    assert (found["changed"], found["rules"], found["list"]) == (0, [], [])
    assert found["teams"][0]["decisions"] >= 1


def test_a_stricter_rule_is_named_with_every_decision_it_stops(policy, replayed):
    candidate = changed(policy, "approval.officer", effect="deny", approvals=[])

    changes = replayed(candidate)
    found = summary(changes)

    assert found["to_deny"] > 0
    assert found["milder"] == found["from_deny"] == 0
    assert {one["after"] for one in found["verdicts"]} == {"deny"}
    assert sum(team["to_deny"] for team in found["teams"]) == found["to_deny"]
    assert all(one.crosses_deny == "to_deny" for one in changes if one.before != one.after)


def test_a_missing_rule_is_seen_as_not_asked(policy, replayed, judge, base):
    facts = base("public")
    facts["cost"] = {"estimate_cents": 2000, "budget_cents": 1000}
    record = judge(facts).record

    changes = replayed(without(policy, "budget.limit"), [record])
    found = summary(changes)

    assert (changes[0].before, changes[0].direction) == ("deny", "milder")
    assert found["from_deny"] == 1
    (rule,) = [one for one in found["rules"] if one["rule"] == "budget.limit"]
    assert rule["outcomes"] == [{"before": "violated", "after": "not_asked", "count": 1}]
    assert rule["verdicts"] == 1
    assert found["list"][0]["rules"][0]["rule"] == "budget.limit"


def test_an_empty_candidate_denies_everything(policy, replayed):
    changes = replayed(Policy(policy.packs, ()))

    assert {one.after for one in changes} == {"deny"}


def test_outcomes_that_change_without_a_verdict_are_told_apart(policy, replayed, judge, base):
    facts = base("public")
    facts["compute"]["gpus"] = 8
    facts["compute"]["region"] = "BHS"
    record = judge(facts).record
    found = summary(replayed(without(policy, "scope.gpus"), [record]))

    (rule,) = found["rules"]
    assert (rule["decisions"], rule["verdicts"], found["changed"]) == (1, 0, 0)


def test_a_new_version_of_a_rule_ends_its_waivers(policy, replayed, judge, base):
    facts = base("public")
    facts["cost"] = {"estimate_cents": 2000, "budget_cents": 1000}
    rule = next(r for r in policy.rules if r.id == "budget.limit")
    if not rule.waivable:
        pytest.fail("choose a rule that can be waived")
    waiver = Waiver(
        id="wvr_1",
        rule=rule.id,
        rule_version=rule.version,
        subject="job:job_01@1",
        category="waiver",
        reason_digest="sha256:" + "a" * 64,
        requester="prn_a",
        approvers=("prn_b", "prn_c"),
        not_before="2026-11-30T00:00:00Z",
        expires_at="2026-12-07T00:00:00Z",
    )
    decision = judge(facts, waivers=[waiver])
    assert {r.outcome for r in decision.results if r.rule == rule.id} == {"waived"}

    same = replayed(policy, [decision.record])
    newer = replayed(changed(policy, rule.id, version="9.0.0"), [decision.record])

    assert same[0].direction == "same"
    assert newer[0].after == "deny"
    assert [(r.before, r.after) for r in newer[0].rules if r.rule == rule.id] == [
        ("waived", "violated")
    ]


def test_it_is_lazy_and_refuses_what_is_no_history(policy, history, reference):
    endless = (record for record in [history[0], b"not a record"])
    changes = compare(endless, policy, {reference.digest: reference})
    assert next(changes).direction == "same"
    with pytest.raises(GateError, match="decision record"):
        next(changes)
    with pytest.raises(GateError, match="lacks the reference data"):
        next(compare(history, policy, {}))
    for change in (
        {"waivers": [{}]},
        {"results": [1]},
        {"results": None},
        {"verdict": "permit"},
        {"verdict": None},
        {"evaluated_at": "now"},
        {"subject": 7},
        {"format": "placet.decision/2"},
    ):
        broken = canonical({**json.loads(history[0]), **change})
        with pytest.raises(GateError):
            next(compare([broken], policy, {reference.digest: reference}))


def test_facts_that_could_not_be_read_stay_denied(policy, replayed, judge):
    record = judge("no facts at all").record

    (change,) = replayed(policy, [record])

    assert (change.team, change.before, change.after) == ("-", "deny", "deny")
