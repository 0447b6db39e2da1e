"""Findings in words: in six languages, with the value, the law and the remedy."""

import pytest

from policies.decision import Decision
from policies.gate import decide
from policies.policy import Policy
from policies.render import explain, fill_in, text_of
from policies.rule import LANGUAGES

CANADA = {"provider": "ovhcloud", "service": "ai-training", "region": "BHS"}


def test_a_finding_names_rule_value_law_and_remedy(judge, policy, base):
    facts = base("public")
    facts["compute"] |= CANADA

    first, *rest = explain(judge(facts), policy, "en")

    assert first["rule"] == "residency.compute"
    assert first["pointer"] == "/derived/compute/in_eea"
    assert first["value"] == "false"
    assert first["message"] == "The compute region BHS of ovhcloud is in Canada, outside the EEA."
    assert first["remediation"].startswith("Choose a region")
    assert first["law"][0]["ref"] == "GDPR Art. 44"
    assert first["severity"] == "critical"
    assert [one["rule"] for one in rest] == ["approval.officer"]


def test_each_place_of_a_list_is_a_finding_of_its_own(judge, policy, base):
    facts = base("public")
    for index in (1, 3):
        facts["storage"][index] |= CANADA

    found = [e for e in explain(judge(facts), policy, "en") if e["rule"] == "residency.storage"]

    assert [e["pointer"] for e in found] == [f"/derived/storage/{i}/in_eea" for i in (1, 3)]
    assert "checkpoints" in found[0]["message"]
    assert "log store" in found[1]["message"]


def test_a_message_is_chosen_by_the_place_of_failure(judge, policy, base):
    facts = base("public")
    facts["storage"] = facts["storage"][1:]

    found = next(e for e in explain(judge(facts), policy, "en") if e["rule"] == "residency.storage")

    assert found["message"] == "The job does not say where its output goes."


def test_an_unknown_fact_names_its_pointer_and_place(judge, policy, base):
    facts = base("public")
    facts["compute"] |= {**CANADA, "region": "GRA99"}

    found = next(e for e in explain(judge(facts), policy, "en") if e["rule"] == "residency.compute")

    assert found["outcome"] == "unknown"
    assert found["pointer"] == "/derived/compute/country"
    assert found["value"] == "ovhcloud / ai-training / GRA99"
    assert "country (compute)" in found["message"]


def test_an_unknown_place_of_serving_reads_from_the_deployment(judge, policy, base):
    facts = base("deploy")
    facts["deploy"]["region"] = "nowhere"

    found = next(e for e in explain(judge(facts), policy, "en") if e["rule"] == "residency.serving")

    assert found["value"] == "own-site / local-process / nowhere"


def test_an_unknown_place_that_is_not_there_at_all_has_no_value(judge, policy, base):
    facts = base("public")
    facts["compute"] = None

    found = {e["rule"]: e for e in explain(judge(facts), policy, "en")}

    assert found["residency.compute"]["value"] is None
    assert found["scope.gpus"]["value"] is None


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_finding_is_explained_in_every_language(judge, policy, base, language):
    worlds = [
        base(n) for n in ("public", "personal", "special", "health", "claimed", "deploy", "serving")
    ]
    broken = {"format": "placet.facts/1", "stage": "train"}
    for facts in [*worlds, broken, {**broken, "stage": "?"}, None]:
        decision = judge(facts)
        found = explain(decision, policy, language)

        assert {e["rule"] for e in found} >= {f.rule for f in decision.findings}
        for one in found:
            assert all(one[name] for name in ("title", "message", "remediation"))
            assert "{" not in one["message"] + one["remediation"] + one["title"]


def test_an_unknown_language_is_english(judge, policy, base):
    decision = judge(base("public"))

    assert explain(decision, policy, "xx") == explain(decision, policy, "en")


def test_a_stored_record_explains_the_same(judge, policy, base):
    decision = judge(base("claimed"))

    assert explain(Decision.from_record(decision.record), policy) == explain(decision, policy)


def test_a_broken_contract_shows_no_value(judge, policy, base):
    facts = base("public")
    facts["compute"]["region"] = "<script>"

    (found,) = explain(judge(facts), policy, "en")

    assert (found["rule"], found["pointer"], found["value"]) == (
        "facts.contract",
        "/compute/region",
        None,
    )
    assert "<script>" not in str(found)


def test_a_missing_pack_is_explained(packs, reference, base):
    from policies.load import policy_of

    alone = policy_of([p for p in packs if p.document["id"] == "eu-baseline"])
    decision = decide(
        alone, reference, base("health"), evaluated_at="2026-11-30T12:00:00Z", subject="job:j"
    )

    found = next(e for e in explain(decision, alone, "en") if e["rule"] == "policy.obligation")

    assert "hds" in found["message"]


def test_an_empty_policy_is_explained(reference, base):
    empty = Policy((), ())
    decision = decide(
        empty, reference, base("public"), evaluated_at="2026-11-30T12:00:00Z", subject="job:j"
    )

    assert [e["rule"] for e in explain(decision, empty)] == ["policy.empty"]


def test_a_rule_that_the_policy_no_longer_has_is_left_out(judge, base):
    assert explain(judge(base("public")), Policy((), ())) == []


def test_the_gravest_finding_comes_first(judge, policy, base):
    facts = base("public")
    facts["cost"] = {"estimate_cents": 900, "budget_cents": 1000}
    facts["compute"] |= CANADA
    facts["job"]["from_scratch"] = None

    found = explain(judge(facts), policy)

    assert [(e["rule"], e["outcome"]) for e in found] == [
        ("residency.compute", "violated"),
        ("scope.from-scratch", "unknown"),
        ("approval.officer", "violated"),
        ("budget.nearly-used", "violated"),
    ]


def test_an_engine_error_is_explained(reference, base):
    from policies.evaluator import PythonEvaluator

    class Broken:
        def is_valid(self, _instance):
            raise TypeError

        def failures(self, _instance):
            return []

    class Breaking:
        name = "breaking"

        def compile(self, schema):
            return PythonEvaluator().compile(schema) if "title" in schema else Broken()

    from policies.load import PACKS, load_policy

    policy = load_policy([PACKS / "fr-hds"])
    decision = decide(
        policy,
        reference,
        base("health"),
        evaluated_at="2026-11-30T12:00:00Z",
        subject="job:j",
        evaluator=Breaking(),
    )

    found = explain(decision, policy, "de")

    assert {e["outcome"] for e in found} == {"error"}
    assert "Tor bleibt zu" in found[0]["message"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "?"),
        (True, "true"),
        (False, "false"),
        (3, "3"),
        ([], "[]"),
        (["a", 1], "a, 1"),
        ({"a": 1}, "{…}"),
        ("x" * 300, "x" * 199 + "…"),
    ],
)
def test_values_are_written_for_reading(value, text):
    assert text_of(value) == text


def test_the_renderer_only_looks_pointers_up():
    seen = {"a": {"b": "{/c} {0} %s"}, "c": "never"}

    assert (
        fill_in("{/a/b} {/x} {a} {/a/b.upper}", "", seen) == "{/c} {0} %s unknown {a} {/a/b.upper}"
    )


@pytest.mark.parametrize(
    ("language", "name", "text"),
    [
        ("fr", "ovhcloud", "le service d'ovhcloud, et qu'ovhcloud"),
        ("fr", "Élan", "le service d'Élan, et qu'Élan"),
        ("fr", "hetzner", "le service de hetzner, et que hetzner"),
        ("es", "ovhcloud", "le service de ovhcloud, et que ovhcloud"),
    ],
)
def test_french_drops_a_vowel_before_another(language, name, text):
    seen = {"job": {"id": name}}

    assert fill_in("le service de {/job/id}, et que {/job/id}", "", seen, (language, None)) == text
