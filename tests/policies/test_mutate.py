"""Mutants of every shipped rule are told apart; survivors have reasons or fail."""

import dataclasses
import json

import pytest

from policies.__main__ import main
from policies.evaluator import RustEvaluator
from policies.mutate import mutants, mutate, survivors
from policies.rule import RuleError


def test_every_mutant_of_the_shipped_packs_is_killed_or_explained(capsys):
    assert main(["mutate", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["mutants"] >= 1500
    assert said["unexplained"] == 0
    assert (said["cases"] + said["boundary"]) * 100 >= said["mutants"] * 95


def test_equal_packs_give_equal_reports(packs, reference):
    one = [pack for pack in packs if pack.document["id"] == "fr-hds"]
    rust = RustEvaluator()
    assert mutate(one, reference, rust) == mutate(one, reference, rust)


def test_no_mutant_is_the_rule_itself(packs):
    for pack in packs:
        for rule in pack.rules:
            assert all(changed != rule.document for _, changed in mutants(rule.document))


def test_a_rule_without_cases_lets_its_mutants_live(packs, reference):
    pack = next(p for p in packs if p.document["id"] == "fr-hds")
    rule = pack.rules[0]
    bare = dataclasses.replace(pack, rules=(rule,), tests={rule.id: ()})

    found = mutate([bare], reference, RustEvaluator())

    assert {m.killed_by for m in found if m.rule == rule.id} == {""}


def test_a_reason_is_read_and_an_empty_one_refused(packs):
    row = {"rule": "a.b", "mutant": "enum dropped", "reason": "the contract holds it"}
    pack = dataclasses.replace(packs[0], survivors={"mutants": [row]})
    assert survivors(pack) == {("a.b", "enum dropped"): "the contract holds it"}
    with pytest.raises(RuleError, match="write the reason"):
        survivors(dataclasses.replace(pack, survivors={"mutants": [{**row, "reason": " "}]}))
    with pytest.raises(RuleError, match="expected `mutants` alone"):
        survivors(dataclasses.replace(pack, survivors=[]))


def test_an_unknown_rule_is_refused(capsys):
    assert main(["mutate", "no.such"]) == 2
    assert "there is no rule `no.such`" in capsys.readouterr().err
