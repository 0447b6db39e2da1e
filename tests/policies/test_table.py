"""Claims about every world of the decision table of the shipped packs."""

import csv
import io
import json

import pytest

from policies.__main__ import main
from policies.facts import check
from policies.pointers import get
from policies.table import STAGES, axes, facts_of, size, survey, worlds

PERSONAL = {"personal", "pseudonymised", "identifiers", "special", "criminal", "french-health"}
OUTSIDE = {"canada", "united-states", "london", "unlisted"}


@pytest.fixture(scope="module")
def found(policy, reference):
    return [world for stage in STAGES for world in worlds(policy, reference, stage)]


@pytest.fixture(scope="module")
def let_through(found):
    return [world for world in found if world.verdict != "deny"]


def where(world):
    return world.values["compute" if world.stage == "train" else "serving"]


def test_the_table_is_large_and_both_stages_let_some_worlds_through(found, let_through):
    assert len(found) == size("train") + size("deploy") > 10_000
    for stage in STAGES:
        data = {world.values["data"] for world in let_through if world.stage == stage}
        assert {"synthetic", "personal", "pseudonymised", "french-health", "state"} <= data


def test_every_world_is_a_facts_document_within_the_contract(evaluator):
    for stage in STAGES:
        first = {name: values[0] for name, values in axes(stage).items()}
        for name, values in axes(stage).items():
            for value in values:
                errors = check(facts_of(stage, {**first, name: value}), evaluator).errors
                assert not errors, (stage, name, value)


def test_nothing_runs_outside_the_eea_or_in_a_place_that_nobody_knows(let_through):
    assert not [world for world in let_through if where(world) in OUTSIDE]


def test_nothing_is_logged_outside_the_eea_or_in_a_place_that_nobody_named(let_through):
    stores = {world.values.get("stores") for world in let_through}

    assert not stores & {"logs-in-canada", "logs-nowhere"}


def test_french_health_data_go_only_where_a_certificate_is_in_force(let_through):
    health = [world for world in let_through if world.values["data"] == "french-health"]

    assert {world.values["certificates"] for world in health} == {"in-force"}
    assert {where(world) for world in health} == {"france"}


def test_sensitive_data_of_the_state_go_only_where_a_qualification_is_in_force(let_through):
    state = [world for world in let_through if world.values["data"] == "state"]

    assert {world.values["certificates"] for world in state} == {"in-force"}


def test_training_on_personal_data_needs_its_papers(let_through):
    """A deployment rests on the papers of a dataset version that cannot change since training."""
    trained = [world for world in let_through if world.stage == "train"]

    for world in trained:
        if world.values["data"] in PERSONAL:
            assert world.values["papers"] == "complete", world.values


def test_data_that_nobody_tagged_or_scanned_go_nowhere(let_through):
    assert not {world.values["data"] for world in let_through} & {"untagged", "not-scanned"}


def test_health_data_that_were_found_and_not_declared_go_nowhere(let_through):
    undeclared = [world for world in let_through if world.values.get("detected") == "health"]

    assert {world.values["data"] for world in undeclared} <= {"french-health"}


def test_nothing_runs_over_budget(let_through):
    assert {world.values["budget"] for world in let_through if world.stage == "train"} == {"within"}


def test_nothing_is_deployed_for_a_prohibited_or_an_unsaid_use(let_through):
    uses = {world.values["use"] for world in let_through if world.stage == "deploy"}

    assert uses <= {"ordinary", "credit-scoring"}


def test_nothing_is_deployed_without_evaluation_notice_or_a_known_card(let_through):
    documents = {world.values["documents"] for world in let_through if world.stage == "deploy"}

    assert documents <= {"complete", "card-incomplete"}


def test_the_public_gets_no_unmarked_content(let_through):
    assert {w.values["public"] for w in let_through if w.stage == "deploy"} == {"closed-circle"}


def test_a_us_owner_is_never_let_through_with_restricted_data(let_through):
    for world in let_through:
        if where(world) == "us-owned-in-france":
            assert world.values["data"] not in {"special", "criminal", "french-health", "state"}


def test_no_world_is_allowed_without_an_officer(let_through):
    assert {world.verdict for world in let_through} == {"require_approval"}


def test_what_a_rule_that_denies_does_not_know_is_never_let_through(policy, found):
    closed = {rule.id for rule in policy.rules if rule.effect != "warn"}
    for world in found:
        if any(outcome == "unknown" and rule in closed for rule, outcome in world.findings):
            assert world.verdict == "deny", world.values


def test_the_survey_names_rules_that_these_worlds_do_not_reach(policy, reference, found):
    seen = survey(policy, reference, found)

    assert sum(seen.verdicts["train"].values()) == size("train")
    assert "scope.from-scratch" in seen.never_violated
    assert "high-risk.fria" in seen.never_asked  # from 2027-12-02 only
    assert ("hds.validity", "hds.certificate") in seen.implied
    assert seen.unmentioned == ("anonymised", "copyright.licensed", "none", "public", "synthetic")


def test_a_value_sets_what_it_says():
    first = {name: values[0] for name, values in axes("train").items()}

    assert get(facts_of("train", {**first, "compute": "canada"}), "/compute/region") == "BHS"
    assert get(facts_of("train", {**first, "compute": "own-site"}), "/compute/region") == "site"


def test_the_command_prints_json_csv_and_markdown(capsys):
    assert main(["table", "--stage", "train", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {world["verdict"] for world in said["worlds"]} == {"require_approval"}
    assert said["verdicts"]["train"]["deny"] > 5000

    assert main(["table", "--stage", "train", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == len(said["worlds"])

    assert main(["table", "--stage", "train"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"## train: {size('train')} worlds: ")
    assert "tags that no rule tells apart: anonymised" in out
