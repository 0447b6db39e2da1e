"""The matrix of rules by outcomes: complete for the shipped packs, and open about gaps."""

import dataclasses
import json

from policies.__main__ import main
from policies.coverage import coverage
from policies.evaluator import RustEvaluator


def test_the_shipped_packs_have_no_gap(capsys):
    assert main(["coverage", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["missing"] == 0
    assert {cell["outcome"] for cell in said["cells"]} == {
        "pass", "violated", "unknown", "not_applicable",
    }  # fmt: skip


def test_a_leaf_whose_case_is_taken_away_is_missing(packs, reference):
    pack = next(p for p in packs if p.document["id"] == "fr-hds")
    rule = next(r for r in pack.rules if r.id == "hds.activities")
    kept = tuple(c for c in pack.tests[rule.id] if c["name"] != "store-not-covered")
    cut = dataclasses.replace(pack, rules=(rule,), tests={rule.id: kept})

    cells = coverage([cut], reference, RustEvaluator())

    assert [(c.outcome, c.place) for c in cells if c.shown_by == "missing"] == [
        ("violated", "/derived/datasets/*/hds/missing_activities maximum")
    ]


def test_without_a_passing_case_nothing_is_generated(packs, reference):
    pack = next(p for p in packs if p.document["id"] == "fr-hds")
    rule = pack.rules[0]
    cut = dataclasses.replace(pack, rules=(rule,), tests={rule.id: ()})

    cells = coverage([cut], reference, RustEvaluator())

    assert {cell.shown_by for cell in cells} == {"missing"}
