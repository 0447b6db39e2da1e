"""Public reports of gates that opened by accident, replayed against ours.

Each names where it happened; the others of the same list stand beside what they are about:
misspelt paths and keywords, `$ref`, regular expressions in `test_lint`; confusables, big
integers, numbers for booleans, self-granted exemptions in `test_contract`; failing evaluation,
empty policies in `test_gate`; wildcards and expiry in `test_waiver`; engines in `test_evaluator`.
"""

import copy
import random
import time

import pytest

from policies.pointers import drop, put


def outcome(decision, rule):
    return next(r.outcome for r in decision.results if r.rule == rule)


@pytest.mark.parametrize("change", ["drop", "null"])
def test_a_missing_country_is_unknown_not_fine(judge, base, change):
    """open-policy-agent/opa#1877, Azure/azure-policy#576 and #118: undefined or null passes."""
    facts = base("public")
    if change == "drop":
        drop(facts, "/compute/region")
    else:
        put(facts, "/compute/region", None)

    decision = judge(facts)

    found = next(r for r in decision.results if r.rule == "residency.compute")
    assert (decision.verdict, found.outcome) == ("deny", "unknown")
    assert found.missing == ("/derived/compute/country", "/derived/compute/in_eea")


def test_a_count_over_nothing_does_not_pass(judge, base):
    """fugue/regula#159: the rule over missing elements never fires."""
    facts = base("public")
    drop(facts, "/datasets")

    assert outcome(judge(facts), "residency.datasets") == "unknown"
    assert outcome(judge(facts), "tagging.present") == "unknown"


def test_all_of_nothing_does_not_pass(judge, base):
    """hashicorp/terraform#34230, mondoohq/cnspec#248: `all` over an empty list is true."""
    facts = base("public")
    facts["datasets"] = []

    assert outcome(judge(facts), "tagging.present") == "violated"
    assert judge(facts).verdict == "deny"


@pytest.mark.parametrize("bad", [0, 1])
def test_one_good_element_does_not_excuse_another(judge, base, bad):
    """fugue/regula PR#8: the rule passes when one block is valid."""
    facts = base("public")
    facts["datasets"].append({**copy.deepcopy(facts["datasets"][0]), "id": "ds_02"})
    facts["datasets"][bad]["categories_declared"] = []

    decision = judge(facts)

    (found,) = [r for r in decision.results if r.rule == "tagging.present"]
    assert (decision.verdict, found.outcome) == ("deny", "violated")
    assert found.at == ((f"/datasets/{bad}/categories_declared", "minItems"),)


def test_absent_and_false_are_told_apart(judge, base):
    """cloud-custodian/cel-python#113: a missing field compares as false."""
    absent, false = base("public"), base("public")
    drop(absent, "/base_model/licence_allows_fine_tuning")
    put(false, "/base_model/licence_allows_fine_tuning", value=False)

    assert outcome(judge(absent), "licence.base-model") == "unknown"
    assert outcome(judge(false), "licence.base-model") == "violated"


def test_a_pseudonym_is_personal_data(judge, base):
    """GDPR Art. 4(5): a rule for personal data that forgets pseudonyms lets them through."""
    facts = base("public")
    facts["datasets"][0]["categories_declared"] = ["pseudonymised"]

    decision = judge(facts)

    assert decision.document["derived"]["data"]["personal"] is True
    assert outcome(decision, "gdpr.legal-basis") == "violated"


def test_what_does_not_apply_is_not_reported_as_passed(judge, base):
    """kyverno/kyverno#2303: a resource that does not match counts as pass."""
    decision = judge(base("public"))

    assert outcome(decision, "jurisdiction.us-exposed") == "not_applicable"
    assert outcome(decision, "residency.compute") == "pass"


def test_each_decision_is_a_function_of_its_arguments(judge, base, monkeypatch):
    """JSONbored/loopover#9135: an unrecorded draw breaks the replay."""
    before = judge(base("personal")).record
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(random, "random", lambda: 0.5)
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    monkeypatch.setenv("LANG", "tr_TR.UTF-8")

    assert judge(base("personal")).record == before


PLACES = (
    "own-site/site",
    "ovhcloud/GRA",
    "ovhcloud/WAW",
    "ovhcloud/BHS",
    "ovhcloud/UK1",
    "ovhcloud/SGP",
    "aws/eu-west-3",
    "aws/us-east-1",
    "hetzner/fsn1",
)
HARMLESS = {"public", "synthetic", "none", "anonymised", "pseudonymised", "personal"}
GRAVE = {"pd.financial", "art9.political", "health", "trade_secret"}
NEVER = {"health.fr.hds", "art10.criminal", "gov.sensitive"}


def test_a_table_of_small_worlds_holds_what_the_design_says(judge, base):
    """Every place and every kind of data, enumerated: such a table finds the holes in rules."""
    asked = set()
    for place in PLACES:
        provider, _, region = place.partition("/")
        for kind in HARMLESS | GRAVE | NEVER:
            facts = base("special")
            facts["compute"] |= {"provider": provider, "region": region, "service": "ai-training"}
            facts["datasets"][0]["categories_declared"] = [kind]
            facts["governance"] = {"processor_contract_reference": "DPA-1"}
            verdict = judge(facts).verdict
            assert verdict in ("deny", "require_approval")
            if verdict == "require_approval":
                asked.add((place, kind))

    kinds = {place: {kind for at, kind in asked if at == place} for place in PLACES}
    for place in ("own-site/site", "ovhcloud/GRA", "ovhcloud/WAW", "hetzner/fsn1"):
        assert kinds[place] == HARMLESS | GRAVE
    assert kinds["aws/eu-west-3"] == HARMLESS
    for place in ("ovhcloud/BHS", "ovhcloud/UK1", "ovhcloud/SGP", "aws/us-east-1"):
        assert kinds[place] == set()
