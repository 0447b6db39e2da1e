"""What two policies do not have in common; logic needs a new version, words do not."""

import copy
import json

import pytest

from policies.__main__ import main
from policies.bundle import build
from policies.diff import LOGIC, compare_policies, compare_references
from policies.load import PACKS, REFERENCE
from policies.policy import Policy
from policies.reference import Reference


def changed(policy, rule_id, **members):
    """Return the policy with members of one rule replaced."""
    rules = []
    for rule in policy.rules:
        document = copy.deepcopy(dict(rule.document))
        rules.append(type(rule)({**document, **members} if rule.id == rule_id else document))
    return Policy(policy.packs, tuple(rules))


OTHER = {
    "applies_when": {"required": ["stage"]},
    "approvals": [{"role": "officer", "count": 9}],
    "effect": "warn",
    "effective": {"from": "2020-01-01T00:00:00Z", "until": None},
    "family": "other",
    "requires": {"required": ["stage"]},
    "stages": ["deploy"],
    "waivable": True,
}


def test_a_policy_does_not_differ_from_itself(policy):
    assert compare_policies(policy, policy) == ()


@pytest.mark.parametrize("member", LOGIC)
def test_logic_under_the_same_version_is_told(policy, member):
    (change,) = compare_policies(policy, changed(policy, "scope.gpus", **{member: OTHER[member]}))

    assert (change.name, change.members, change.is_unversioned) == ("scope.gpus", (member,), True)


def test_logic_under_a_new_version_is_a_change_like_any_other(policy):
    after = changed(policy, "scope.gpus", effect="warn", version="9.0.0")

    (change,) = compare_policies(policy, after)

    assert change.versions[1] == "9.0.0"
    assert not change.is_unversioned


def test_words_need_no_new_version(policy):
    title = dict.fromkeys(("en", "fr", "de", "es", "pt", "pl"), "x")

    (change,) = compare_policies(policy, changed(policy, "scope.gpus", title=title))

    assert (change.members, change.is_unversioned) == (("title",), False)


def test_rules_packs_and_obligations_that_come_and_go_are_listed(policy):
    less = Policy(
        tuple(p for p in policy.packs if p["id"] != "fr-hds"),
        tuple(r for r in policy.rules if not r.id.startswith("hds.")),
    )

    gone = compare_policies(policy, less)
    come = compare_policies(less, policy)

    assert {c.how for c in gone} == {"removed"}
    assert {c.how for c in come} == {"added"}
    assert ("pack", "fr-hds") in {(c.what, c.name) for c in gone}
    assert len([c for c in gone if c.what == "rule"]) == len(policy.rules) - len(less.rules)
    # eu-baseline asks for the same families, so the obligation itself stays.
    assert not [c for c in gone if c.what == "obligation"]


def test_an_obligation_that_goes_is_told_and_needs_a_new_version(policy):
    packs = copy.deepcopy(policy.packs)
    baseline = next(p for p in packs if p["id"] == "eu-baseline")
    baseline["obligations"] = [o for o in baseline["obligations"] if o["family"] != "budget"]

    found = compare_policies(policy, Policy(packs, policy.rules))

    assert [(c.what, c.how) for c in found] == [("pack", "changed"), ("obligation", "removed")]
    assert found[0].is_unversioned


def test_rows_are_compared_by_table_and_key(reference):
    prices = [dict(row) for row in reference.rows("prices")]
    prices[0]["price_micros_per_hour"] += 1
    after = Reference({**reference.tables, "prices": tuple(prices[:-1])}, reference.site)

    found = compare_references(reference, after)

    assert {(c.what, c.how) for c in found} == {("prices", "changed"), ("prices", "removed")}
    assert next(c for c in found if c.how == "changed").members == ("price_micros_per_hour",)


def test_the_command_reads_folders_bundles_and_documents(policy, tmp_path, capsys):
    bundle, document = tmp_path / "bundle.json", tmp_path / "policy.json"
    made = build(PACKS, number=1, created="2026-12-01T00:00:00Z", effective="2026-12-01")
    bundle.write_bytes(made.to_bytes())
    document.write_bytes(changed(policy, "scope.gpus", effect="warn").to_bytes())

    assert main(["diff", str(PACKS), str(bundle)]) == 0
    assert capsys.readouterr().out.startswith("0 differences")
    assert main(["diff", str(bundle), str(document)]) == 1
    assert "~ rule       scope.gpus  effect  LOGIC CHANGED" in capsys.readouterr().out
    assert main(["diff", str(PACKS), str(document), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["unversioned"] == 1


def test_the_command_compares_tables_only_as_a_pair(tmp_path, capsys):
    tables = ["--reference-before", str(REFERENCE)]

    assert main(["diff", str(PACKS), str(PACKS), *tables]) == 2
    assert "give both" in capsys.readouterr().err
    assert main(["diff", str(PACKS), str(PACKS), *tables, "--reference-after", str(REFERENCE)]) == 0


def test_what_is_no_policy_is_refused_in_one_line(tmp_path, capsys):
    odd = tmp_path / "odd.json"
    odd.write_text("{}")

    assert main(["diff", str(PACKS), str(odd)]) == 2
    assert main(["diff", str(PACKS), str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.count("\n") == 2
