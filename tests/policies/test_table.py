"""Claims about every state of the decision table of the shipped rules."""

import json

import pytest

from policies.__main__ import main
from policies.evaluator import RustEvaluator
from policies.table import implied, states, unmentioned

NO_PERSON = {"none", "public", "synthetic", "anonymised", "copyright.licensed", "trade_secret"}
OUTSIDE = {"ovhcloud/UK1", "aws/us-east-1"}


@pytest.fixture(scope="module")
def found(policy, packs, reference):
    base = next(pack.bases["health"] for pack in packs if "health" in pack.bases)
    return list(states(policy, reference, base, RustEvaluator()))


@pytest.fixture(scope="module")
def let_through(found):
    return [state for state in found if state.verdict != "deny"]


def test_the_table_is_large_and_lets_some_states_through(found, let_through):
    assert len(found) > 5000
    assert {"personal", "pseudonymised", "pd.pseudonymised"} <= {s.data for s in let_through}
    assert {s.data for s in let_through} & {"health.fr.hds", "health.fr.snds"}


def test_no_state_let_through_has_personal_data_outside_the_eea(let_through):
    for state in let_through:
        if state.data not in NO_PERSON:
            assert not {state.compute, state.storage} & OUTSIDE


def test_no_french_health_data_without_a_valid_or_exempt_certificate(let_through):
    for state in let_through:
        if state.derived["data"].get("french_health") is not False:
            assert state.certificate in ("valid", "exempt")


def test_no_sensitive_government_data_without_qualification(let_through):
    for state in let_through:
        if state.derived["data"].get("gov_sensitive") is not False:
            assert state.certificate in ("valid", "exempt")


def test_what_a_deny_rule_does_not_know_is_never_let_through(policy, found):
    denying = {rule.id for rule in policy.rules if rule.effect == "deny"}
    for state in found:
        unknown = {r for r, outcome in state.outcomes.items() if outcome == "unknown"} & denying
        if unknown or "unknown" in (state.data, state.compute, state.storage, state.budget):
            assert state.verdict == "deny"


def test_nothing_over_budget_is_let_through(let_through):
    assert {state.budget for state in let_through} == {"within", "at"}


def test_implied_rules_and_unmentioned_tags_are_named(found):
    assert ("budget.limit", "budget.nearly-used") in implied(
        found, ["budget.limit", "budget.nearly-used"]
    )
    assert "personal" not in unmentioned(found)


def test_a_base_that_is_not_there_is_refused(capsys):
    assert main(["table", "--base", "nowhere"]) == 2
    assert "--base nowhere" in capsys.readouterr().err


def test_the_command_prints_the_states_as_json(capsys):
    assert main(["table", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert sum(said["verdicts"].values()) == len(said["states"])
