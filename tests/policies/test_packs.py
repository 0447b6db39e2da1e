"""The shipped rules: their own tests, and claims about all of them."""

import copy

import pytest

from policies.cases import run_cases, seen_by, uncovered
from policies.evaluator import RustEvaluator
from policies.gate import ask, compile_rule
from policies.lint import lint_rule
from policies.load import load_reference
from policies.pointers import get, join
from policies.rule import LANGUAGES


def test_every_case_of_every_rule_comes_out_as_it_says(packs, reference, evaluator):
    results = run_cases(packs, reference, evaluator)

    assert [r for r in results if not r.ok] == []
    assert len(results) >= 4 * sum(len(pack.rules) for pack in packs)


def test_every_rule_has_a_case_for_each_outcome(packs):
    assert uncovered(packs) == ()


def test_each_needed_fact_makes_its_rule_unknown(packs, reference):
    """Take the passing case of each rule and blank each fact it names, one at a time."""
    rust = RustEvaluator()
    for pack in packs:
        for rule in pack.rules:
            case = next(c for c in pack.tests[rule.id] if c["expect"] == "pass")
            compiled = compile_rule(rule, rust)
            for path in {*rule.applies_needs, *rule.requires_needs}:
                seen, _ = seen_by(case, pack.bases[case["given"]], reference, rust)
                at = join(tuple("0" if part == "*" else part for part in path))
                parent, _, last = at.rpartition("/")
                get(seen, parent)[last] = None

                finding = ask(compiled, seen)

                assert (finding.outcome, finding.missing) == ("unknown", (at,)), rule.id


def test_each_leaf_of_each_rule_is_violated_by_some_case(packs, reference):
    rust = RustEvaluator()
    silent = set()
    for pack in packs:
        for rule in pack.rules:
            failed = set()
            for case in pack.tests[rule.id]:
                if case["expect"] == "violated":
                    seen, _ = seen_by(case, pack.bases[case["given"]], reference, rust)
                    failed |= {p for p, _ in ask(compile_rule(rule, rust), seen).at}
            asked = {path for path in rule.requires_needs if _is_constrained(rule.requires, path)}
            hit = {tuple("*" if p.isdigit() else p for p in at[1:].split("/")) for at in failed}
            silent |= {(rule.id, join(path)) for path in asked - hit - _outer(asked, hit)}

    assert silent == set()


def _is_constrained(schema, path):
    for part in path:
        schema = (
            schema.get("items", schema.get("contains", {}))
            if part == "*"
            else schema.get("properties", {}).get(part, {})
        )
    return any(k not in ("required", "properties") for k in schema) and schema != {"minimum": 0}


def _outer(asked, hit):
    """A failing `contains` is reported at its list."""
    return {path for path in asked if "*" in path and path[: path.index("*")] in hit}


def test_a_rule_speaks_six_languages_that_differ(packs):
    for pack in packs:
        for rule in pack.rules:
            for texts in (rule.document["title"], rule.document["remediation"]):
                assert set(texts) == set(LANGUAGES)
                assert len(set(texts.values())) == len(LANGUAGES), rule.id


def test_every_deny_and_approval_rule_names_a_law_or_the_house(packs):
    for pack in packs:
        for rule in pack.rules:
            for basis in rule.document["legal_basis"]:
                assert all(basis[name] for name in ("ref", "note", "from")), rule.id


def test_every_family_of_an_obligation_has_a_rule(policy):
    families = {rule.family for rule in policy.rules}

    assert {o.family for o in policy.obligations} <= families


def test_every_tag_of_the_contract_is_a_row(reference):
    from policies.facts import schema

    item = schema("facts")["properties"]["datasets"]["items"]
    tags = set(item["properties"]["categories_declared"]["items"]["enum"])

    assert set(reference.categories) == tags
    for row in reference.rows("categories"):
        assert {row["same_as"], *row["implies"]} - {None} <= tags


def test_reference_rows_name_their_source_and_day():
    for table, rows in load_reference().tables.items():
        for row in rows:
            assert row["source"], table
            assert row["checked_on"] <= "2026-12-01", table


def test_no_price_claims_to_be_verified(reference):
    assert {row["confidence"] for row in reference.rows("prices")} == {"unverified"}


def test_prices_and_services_name_known_flavors_and_regions(reference):
    flavors = {(r["provider"], r["flavor"]) for r in reference.rows("flavors")}

    assert {(r["provider"], r["flavor"]) for r in reference.rows("prices")} <= flavors
    for row in (*reference.rows("endpoints"), *reference.rows("certificates")):
        for region in row.get("regions", [row.get("region")]):
            assert (row["provider"], region) in reference.regions


def test_twelve_providers_and_more_have_regions_and_services(reference):
    with_regions = {row["provider"] for row in reference.rows("regions")}
    with_services = {row["provider"] for row in reference.rows("services")}

    assert with_regions | with_services <= set(reference.providers) | {"own-site"}
    assert len(reference.rows("providers")) >= 13
    assert len(with_regions & with_services) >= 10


def test_no_certificate_is_attested_that_nobody_read(reference):
    for row in reference.rows("certificates"):
        assert (row["status"], row["valid_until"]) == ("claimed", None), row["source"]


def test_country_sets_nest(reference):
    import datetime as dt

    day = dt.date(2026, 11, 30)
    eu, eea = reference.members("eu", day), reference.members("eea", day)

    assert eea - eu == {"IS", "LI", "NO"}
    assert "CH" not in eea
    assert "GB" not in eea
    assert reference.members("hds_territory", day) <= eu
    assert reference.members("eu", dt.date(2019, 1, 1)) == frozenset()


def test_a_mutated_rule_fails_one_of_its_own_tests(packs, reference):
    """Flip each constant, bound and enum of each rule; the rule's own tests must notice."""
    rust = RustEvaluator()
    survivors, mutants = [], 0
    for pack in packs:
        for rule in pack.rules:
            for name, document in _mutants(rule.document):
                mutants += 1
                changed = type(rule)(document)
                results = [
                    run_one(changed, case, pack, reference, rust) for case in pack.tests[rule.id]
                ]
                if all(r.ok for r in results):
                    survivors.append((rule.id, name))

    assert mutants >= 100
    assert len(survivors) <= mutants * 5 // 100, survivors


def run_one(rule, case, pack, reference, evaluator):
    from policies.cases import run_case

    return run_case(rule, case, pack.bases[case["given"]], reference, evaluator)


def _mutants(document):
    for member in ("requires", "applies_when"):
        for path, leaf in _leaves(document[member] or {}, ()):
            ((keyword, value),) = leaf.items()
            for other in _others(keyword, value):
                name = f"{member}{path} {keyword} {other}"
                yield name, _with(document, member, path, keyword, other)
    if document["applies_when"] is not None:
        yield "always", {**document, "applies_when": None}
    stages = {"train": ["deploy"], "deploy": ["train"]}
    if len(document["stages"]) == 1:
        yield "stage", {**document, "stages": stages[document["stages"][0]]}


def _others(keyword, value):
    if keyword == "const":
        return [not value] if isinstance(value, bool) else []
    if keyword == "enum":
        return [value[1:]] if len(value) > 1 else []
    return [bound for bound in (value - 1, value + 1) if bound >= 0]


def _leaves(node, path):
    for key, value in node.items():
        if isinstance(value, dict) and key != "const":
            yield from _leaves(value, (*path, key))
        elif key in ("const", "maximum", "minimum", "enum", "maxItems"):
            yield path, {key: value}


def _with(document, member, path, keyword, value):
    changed = copy.deepcopy(dict(document))
    node = changed[member]
    for part in path:
        node = node[part]
    node[keyword] = value
    return changed


def test_shipped_rules_lint_one_by_one(packs):
    for pack in packs:
        for rule in pack.rules:
            lint_rule({**rule.document, "tests": list(pack.tests[rule.id])}, "shipped")


@pytest.mark.parametrize(
    "name", ["ai-act-deploy", "eu-baseline", "finance-dora", "fr-hds", "secnumcloud"]
)
def test_a_pack_alone_loads(name):
    from policies.load import PACKS, load_policy

    assert load_policy([PACKS / name]).rules
