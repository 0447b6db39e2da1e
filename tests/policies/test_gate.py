"""The gate's semantics: three-valued, fail-closed, dated."""

import datetime as dt
import itertools

import pytest

from policies.decision import VERDICTS, parse_instant
from policies.evaluator import EvaluationError, PythonEvaluator
from policies.gate import ask, compile_rule, decide
from policies.load import policy_of
from policies.policy import Policy
from policies.rule import Rule, RuleError

NOW = "2026-11-30T12:00:00Z"
SIX = dict.fromkeys(("en", "fr", "de", "es", "pt", "pl"), "text")


def rule(name, requires, *, effect="deny", when=None, family="scope", **more):
    document = {
        "format": "placet.rule/1",
        "id": name,
        "version": "1.0.0",
        "family": family,
        "stages": ["train", "deploy"],
        "effective": {"from": "2026-01-01T00:00:00Z", "until": None},
        "severity": "low",
        "effect": effect,
        "approvals": [{"role": "officer", "count": 1}] if effect == "require_approval" else [],
        "waivable": False,
        "legal_basis": [{"ref": "house policy", "from": "2026-01-01", "note": "a test"}],
        "title": SIX,
        "applies_when": when,
        "requires": requires,
        "messages": {"": SIX},
        "remediation": SIX,
    }
    return Rule({**document, **more})


def pack(*obligations, minutes=60):
    return {
        "format": "placet.pack/1",
        "id": "small",
        "version": "1.0.0",
        "title": SIX,
        "validity_minutes": minutes,
        "obligations": list(obligations),
    }


def at_most(gpus):
    return {
        "required": ["compute"],
        "properties": {
            "compute": {"required": ["gpus"], "properties": {"gpus": {"maximum": gpus}}}
        },
    }


def of_kind(kind):
    return {
        "required": ["job"],
        "properties": {"job": {"required": ["kind"], "properties": {"kind": {"const": kind}}}},
    }


# --- small worlds, exhaustively ---------------------------------------------------------------

WORLD = {
    "effect": ("deny", "require_approval", "warn"),
    "applies": ("none", "yes", "no", "unknown"),
    "holds": ("yes", "no", "unknown"),
}


@pytest.mark.parametrize(
    ("effect", "applies", "holds"), list(itertools.product(*WORLD.values())), ids=str
)
def test_one_rule_in_every_small_world(reference, evaluator, effect, applies, holds):
    facts = {"format": "placet.facts/1", "stage": "train", "job": {}, "compute": {}}
    facts["compute"]["gpus"] = {"yes": 1, "no": 9, "unknown": None}[holds]
    facts["job"]["kind"] = {"yes": "fine_tune", "no": "notebook"}.get(applies)
    when = None if applies == "none" else of_kind("fine_tune")
    expected = "not_applicable"
    if applies == "unknown" or (applies in ("none", "yes") and holds == "unknown"):
        expected = "unknown"
    elif applies in ("none", "yes"):
        expected = "pass" if holds == "yes" else "violated"
    verdict = {
        "pass": "allow",
        "not_applicable": "allow",
        "unknown": "allow_with_warnings" if effect == "warn" else "deny",
        "violated": "allow_with_warnings" if effect == "warn" else effect,
    }[expected]
    policy = Policy((pack(),), (rule("a", at_most(4), effect=effect, when=when),))

    decision = decide(
        policy, reference, facts, evaluated_at=NOW, subject="job:j", evaluator=evaluator
    )

    assert [r.outcome for r in decision.results] == [expected]
    assert decision.verdict == verdict
    assert bool(decision.approvals) is (verdict == "require_approval")


@pytest.mark.parametrize("worst", range(4))
def test_the_worst_outcome_decides_in_any_order(reference, base, worst):
    effects = ["warn", "require_approval", "deny"][:worst]
    rules = [
        rule("z", at_most(4)),
        *(rule(e.replace("_", "-"), at_most(-1), effect=e) for e in effects),
    ]
    for order in itertools.permutations(rules):
        decision = decide(
            Policy((pack(),), order), reference, base("public"), evaluated_at=NOW, subject="job:j"
        )

        assert decision.verdict == VERDICTS[worst]


# --- fail closed ------------------------------------------------------------------------------


def test_an_empty_policy_denies(reference, base):
    decision = decide(Policy((), ()), reference, base("public"), evaluated_at=NOW, subject="job:j")

    assert (decision.verdict, decision.results) == ("deny", ())


def test_a_policy_without_rules_for_the_stage_denies(reference, base):
    policy = Policy((pack(),), (rule("a", at_most(4), stages=["deploy"]),))

    decision = decide(policy, reference, base("public"), evaluated_at=NOW, subject="job:j")

    assert decision.verdict == "deny"


@pytest.mark.parametrize(
    ("obligation", "state"),
    [
        ({"family": "hds", "stages": ["train"], "data": "any"}, "missing"),
        ({"family": "hds", "stages": ["deploy"], "data": "any"}, None),
        ({"family": "hds", "stages": ["train"], "data": "health"}, None),
        ({"family": "scope", "stages": ["train"], "data": "any"}, "asked"),
    ],
)
def test_an_unasked_family_denies(reference, base, obligation, state):
    policy = Policy((pack(obligation),), (rule("a", at_most(4)),))

    decision = decide(policy, reference, base("public"), evaluated_at=NOW, subject="job:j")

    assert decision.obligations.get(obligation["family"]) == state
    assert decision.verdict == ("deny" if state == "missing" else "allow")


def test_an_obligation_for_data_of_unknown_class_binds(reference, base):
    facts = base("public")
    facts["datasets"][0]["categories_declared"] = None
    policy = Policy(
        (pack({"family": "hds", "stages": ["train"], "data": "health"}),), (rule("a", at_most(4)),)
    )

    decision = decide(policy, reference, facts, evaluated_at=NOW, subject="job:j")

    assert (decision.verdict, decision.obligations) == ("deny", {"hds": "unknown"})


def test_an_unconditional_miss_is_not_hidden_by_a_conditional_one(reference, base):
    facts = base("public")
    facts["datasets"] = None
    both = [{"family": "hds", "stages": ["train"], "data": data} for data in ("any", "health")]
    policy = Policy((pack(*both),), (rule("a", at_most(4)),))

    decision = decide(policy, reference, facts, evaluated_at=NOW, subject="job:j")

    assert decision.obligations == {"hds": "missing"}


def test_french_health_data_without_the_hds_pack_denies(packs, reference, base):
    alone = policy_of([p for p in packs if p.document["id"] == "eu-baseline"])

    decision = decide(alone, reference, base("health"), evaluated_at=NOW, subject="job:j")

    assert decision.verdict == "deny"
    assert decision.obligations["hds"] == "missing"


class FailingChecker:
    def is_valid(self, _instance):
        raise EvaluationError("the engine broke")

    def failures(self, _instance):
        raise AssertionError("never asked")


class FailingEvaluator:
    name = "failing"

    def compile(self, schema):
        if "title" in schema or "$schema" in schema:  # the contract itself works
            return PythonEvaluator().compile(schema)
        return FailingChecker()


@pytest.mark.parametrize(("effect", "verdict"), [("deny", "deny"), ("warn", "allow_with_warnings")])
def test_a_rule_that_cannot_be_evaluated_is_an_error(reference, base, effect, verdict):
    policy = Policy((pack(),), (rule("a", at_most(4), effect=effect),))

    decision = decide(
        policy,
        reference,
        base("public"),
        evaluated_at=NOW,
        subject="job:j",
        evaluator=FailingEvaluator(),
    )

    assert [f.outcome for f in decision.findings] == ["error"]
    assert decision.verdict == verdict


# --- dates ------------------------------------------------------------------------------------


def test_a_rule_holds_from_its_first_second_until_its_last(reference, base):
    dates = {"from": "2026-12-02T00:00:00Z", "until": "2027-01-01T00:00:00Z"}
    policy = Policy((pack(),), (rule("a", at_most(4)), rule("b", at_most(-1), effective=dates)))
    verdicts = {
        at: decide(policy, reference, base("public"), evaluated_at=at, subject="job:j").verdict
        for at in (
            "2026-12-01T23:59:59Z",
            "2026-12-02T00:00:00Z",
            "2026-12-31T23:59:59Z",
            "2027-01-01T00:00:00Z",
        )
    }

    assert list(verdicts.values()) == ["allow", "deny", "deny", "allow"]


def test_a_decision_ends_when_the_rules_change(reference, base):
    dates = {"from": "2026-11-30T12:30:00Z", "until": None}
    later = Policy((pack(),), (rule("a", at_most(4)), rule("b", at_most(-1), effective=dates)))
    plain = Policy((pack(),), (rule("a", at_most(4)),))

    ends = [
        decide(p, reference, base("public"), evaluated_at=NOW, subject="job:j").valid_until
        for p in (later, plain)
    ]

    assert ends == ["2026-11-30T12:30:00Z", "2026-11-30T13:00:00Z"]


# --- approvals --------------------------------------------------------------------------------


def test_approvals_unite_by_the_highest_count_of_each_role(reference, base):
    def asking(name, *approvals):
        wanted = [{"role": r, "count": c} for r, c in approvals]
        return rule(name, at_most(-1), effect="require_approval", approvals=wanted)

    rules = (asking("a", ("officer", 1)), asking("b", ("officer", 2), ("architect", 1)))

    decision = decide(
        Policy((pack(),), rules), reference, base("public"), evaluated_at=NOW, subject="job:j"
    )

    assert [(a.role, a.count) for a in decision.approvals] == [("architect", 1), ("officer", 2)]


def test_two_rules_of_one_name_are_refused():
    with pytest.raises(RuleError, match="twice"):
        Policy((pack(),), (rule("a", at_most(4)), rule("a", at_most(5))))


def test_a_rule_is_asked_alone_too(base, evaluator):
    asked = compile_rule(rule("a", at_most(4)), evaluator)

    assert ask(asked, base("public")).outcome == "pass"


def test_a_derived_number_that_no_record_can_hold_is_unknown(reference, base):
    facts = {**base("public"), "cost": {"estimate_cents": 2**53 - 1, "budget_cents": 1}}
    needs = {"required": ["used_permille"], "properties": {"used_permille": {"minimum": 0}}}
    within = {"required": ["budget"], "properties": {"budget": needs}}
    policy = Policy(
        (pack(),), (rule("a", {"required": ["derived"], "properties": {"derived": within}}),)
    )

    decision = decide(policy, reference, facts, evaluated_at=NOW, subject="job:j")

    assert [f.missing for f in decision.results] == [("/derived/budget/used_permille",)]
    assert decision.verdict == "deny"
    assert decision.document["derived"]["budget"]["headroom_cents"] == 2 - 2**53


@pytest.mark.parametrize("minutes", [60, 90, 1440, 10_080, 10_081])
@pytest.mark.parametrize("now", ["2026-12-31T23:59:59Z", "2028-02-28T00:00:00Z", NOW])
def test_a_decision_is_valid_to_the_second(reference, base, now, minutes):
    policy = Policy((pack(minutes=minutes),), (rule("a", at_most(4)),))

    decision = decide(policy, reference, base("public"), evaluated_at=now, subject="job:j")

    length = parse_instant(decision.valid_until) - parse_instant(now)
    assert length == dt.timedelta(minutes=minutes)
