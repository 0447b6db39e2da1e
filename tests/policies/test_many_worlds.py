"""What holds in every world, over thousands of them. The seed is fixed: a failure comes again.

CASES=10000 in the environment asks for more worlds than the default, as a release should.
"""

import copy
import json
import os
import random
from collections import Counter

import pytest
from worlds import BASES, INSTANTS, forgettable, wild, world

from audit.canonical import canonical, parse
from policies import judging
from policies.decision import VERDICTS, Decision, GateError
from policies.evaluator import PythonEvaluator, RustEvaluator
from policies.gate import decide, replay
from policies.pointers import drop, get, missing, put
from policies.policy import Policy
from policies.rule import Rule
from policies.waiver import Waiver

CASES = int(os.environ.get("CASES", "400"))
SUBJECT = "job:job_01@1"
PYTHON, RUST = PythonEvaluator(), RustEvaluator()
RANK = {verdict: rank for rank, verdict in enumerate(VERDICTS)}


def is_milder(after, before):
    """Milder verdict, or as mild and asking for fewer people."""
    if RANK[after.verdict] != RANK[before.verdict]:
        return RANK[after.verdict] < RANK[before.verdict]
    counts = {a.role: a.count for a in after.approvals}
    return any(counts.get(a.role, 0) < a.count for a in before.approvals)


@pytest.fixture(scope="module")
def policies(policy):
    """The shipped policy, and parts of it that allow more.

    Each part keeps the families that deny where places, data or compute are not known at all:
    what others derive rests on them, so the packs oblige everybody to ask them.
    """
    rng = random.Random(1)
    packs = tuple({**pack, "obligations": []} for pack in policy.packs)
    guards = {"gpai", "residency", "supply-chain", "tagging"}
    assert guards <= {o.family for o in policy.obligations if o.data == "any"}
    others = sorted({rule.family for rule in policy.rules} - guards)
    small = [
        Policy(packs, tuple(r for r in policy.rules if r.family in {*guards, *kept}))
        for kept in (rng.sample(others, n) for n in (0, 0, 1, 2, 2, 3, 5))
    ]
    return [policy, *small]


@pytest.fixture
def ask(policies, reference):
    def asked(facts, which=0, **options):
        return decide(
            options.pop("policy", policies[which]),
            reference,
            facts,
            evaluated_at=options.pop("at", INSTANTS[0]),
            subject=SUBJECT,
            evaluator=options.pop("engine", RUST),
            **options,
        )

    return asked


def test_forgetting_a_fact_never_makes_a_verdict_milder(ask, policies):
    rng, seen = random.Random(2), Counter()
    for _ in range(2 * CASES):
        facts, which, at = world(rng), rng.randrange(len(policies)), rng.choice(INSTANTS)
        before = ask(facts, which, at=at)
        poorer = copy.deepcopy(facts)
        pointer = rng.choice([p for p in forgettable(facts) if p != "/format"])
        if rng.random() < 0.5:
            drop(poorer, pointer)
        else:
            put(poorer, pointer, None)
        after = ask(poorer, which, at=at)
        seen[before.verdict] += 1

        if not before.contract_errors:
            assert not is_milder(after, before), (pointer, facts)

    assert set(seen) == set(VERDICTS)


def test_adding_a_rule_never_makes_a_verdict_milder(ask, policies):
    rng = random.Random(3)
    model = policies[0].rule("scope.gpus").document
    for number in range(CASES // 50):
        which = rng.randrange(len(policies))
        effect = rng.choice(("deny", "require_approval", "warn"))
        other = rng.choice(policies[0].rules).document
        added = {
            **model,
            "id": f"added-{number}",
            "effect": effect,
            "approvals": [{"role": "officer", "count": 3}] if effect == "require_approval" else [],
            "stages": ["train", "deploy"],
            "applies_when": rng.choice((None, other["applies_when"], other["requires"])),
            "requires": other["requires"],
        }
        more = Policy(policies[which].packs, (*policies[which].rules, Rule(added)))
        for _ in range(50):
            facts, at = world(rng), rng.choice(INSTANTS)
            before = ask(facts, which, at=at)

            if before.results:  # no rules at all deny, too
                assert not is_milder(ask(facts, policy=more, at=at), before), facts


def waivers_for(rng, decision):
    """Waivers for what is wrong, and for other rules, versions, subjects and days."""
    wrong = [f for f in decision.results if f.outcome == "violated"] or decision.results
    return tuple(
        Waiver(
            id=f"wvr_{number}",
            rule=(found := rng.choice(wrong if rng.random() < 0.8 else decision.results)).rule,
            rule_version=found.version if rng.random() < 0.9 else "9.9.9",
            subject=SUBJECT if rng.random() < 0.9 else "job:job_02@1",
            category="waiver",
            reason_digest="sha256:" + "b" * 64,
            requester="prn_a",
            approvers=("prn_b", "prn_c"),
            not_before=rng.choice(("2026-11-01T00:00:00Z", "2026-11-30T12:00:00Z")),
            expires_at=rng.choice(("2026-11-30T12:00:01Z", "2027-01-01T00:00:00Z")),
            revoked_at=rng.choice((None, None, "2026-11-30T12:00:00Z")),
        )
        for number in range(rng.choice((1, 2, 4)))
    )


def test_withdrawing_a_waiver_never_makes_a_verdict_milder(ask, policies):
    rng, num_waived = random.Random(4), 0
    everything = Policy(
        policies[0].packs, tuple(Rule({**r.document, "waivable": True}) for r in policies[0].rules)
    )
    for _ in range(2 * CASES):
        facts, policy = world(rng), rng.choice((everything, everything, policies[0]))
        bare = ask(facts, policy=policy)
        if not bare.results:
            continue
        waivers = waivers_for(rng, bare)
        kept = list(waivers)
        kept.pop(rng.randrange(len(kept)))
        waived = ask(facts, policy=policy, waivers=waivers)
        num_waived += any(f.outcome == "waived" for f in waived.results)

        assert not is_milder(ask(facts, policy=policy, waivers=kept), waived), facts
        assert not is_milder(bare, waived), facts
        for before, after in zip(bare.results, waived.results, strict=True):
            assert after.outcome == before.outcome or (
                (before.outcome, after.outcome) == ("violated", "waived")
                and policy.rule(before.rule).waivable
            )

    assert num_waived > CASES // 20


def test_what_is_unknown_is_never_a_pass(ask, policies):
    rng, num_unknown = random.Random(5), 0
    for _ in range(CASES):
        facts, which = world(rng), rng.randrange(len(policies))
        decision = ask(facts, which)
        document = decision.document
        seen = {**(document["facts"] or {}), "derived": document["derived"]}
        for finding in decision.results:
            rule = policies[which].rule(finding.rule)
            applies = {p for path in rule.applies_needs for p in missing(seen, path)}
            requires = {p for path in rule.requires_needs for p in missing(seen, path)}
            num_unknown += finding.outcome == "unknown"
            if applies:
                assert (finding.outcome, set(finding.missing)) == ("unknown", applies)
            elif finding.outcome in ("pass", "violated"):
                assert not requires
            elif finding.outcome == "unknown":
                assert set(finding.missing) == requires
                assert requires
            if finding.outcome in ("unknown", "error"):
                wanted = "allow_with_warnings" if rule.effect == "warn" else "deny"
                assert RANK[decision.verdict] >= RANK[wanted]

    assert num_unknown > CASES // 4


def test_both_engines_write_the_same_bytes_about_any_document(ask, policies, reference):
    """Cold and warm: what is remembered must not show."""
    rng, seen, places = random.Random(6), Counter(), set()
    inputs = policies[0].to_bytes(), reference.to_bytes()
    for number in range(CASES):
        facts, at = (wild if number % 2 else world)(rng), rng.choice(INSTANTS)
        before = copy.deepcopy(facts)
        made = ask(facts, at=at)
        if number % 8 == 0:
            judging._bench.cache_clear()

        assert ask(facts, at=at).record == made.record
        assert ask(facts, at=at, engine=PYTHON).record == made.record
        assert repr(facts) == repr(before)
        assert canonical(parse(made.record)) == made.record
        assert Decision.from_record(made.record) == made
        assert replay(made.record, *inputs, evaluator=RUST).identical
        assert not made.contract_errors or made.verdict == "deny"
        seen[bool(made.contract_errors)] += 1
        places |= set(made.contract_errors)

    assert min(seen.values()) > CASES // 4
    assert len(places) > min(CASES // 20, 200)


QUESTIONS = ("now", "", "2026-11-30", "2026-11-30T12:00:00+00:00", "2026-02-30T00:00:00Z")
QUESTIONS += ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "\uff12026-11-30T12:00:00Z")


@pytest.mark.parametrize("at", QUESTIONS)
def test_a_malformed_instant_is_refused_whatever_the_facts(ask, at):
    rng = random.Random(7)
    for _ in range(20):
        with pytest.raises(GateError):
            ask(wild(rng), at=at)


@pytest.mark.parametrize("at", ["1900-01-01T00:00:00Z", "8999-12-31T23:59:59Z"])
def test_any_other_instant_is_judged(ask, at):
    for facts in BASES:
        assert ask(facts, at=at).record == ask(facts, at=at, engine=PYTHON).record


def test_every_single_fact_of_every_base_may_be_forgotten(ask, policies):
    for facts in BASES:
        for pointer in forgettable(facts):
            if pointer == "/format":
                continue
            poorer = copy.deepcopy(facts)
            drop(poorer, pointer)
            for which in range(len(policies)):
                assert not is_milder(ask(poorer, which), ask(facts, which)), pointer


def test_equal_looking_facts_of_other_types_are_other_facts(ask):
    """True is not 1 and "1" is not 1, whoever was asked about the other before."""
    base = next(f for f in BASES if f["stage"] == "train")
    values = (1, True, "1", 1.0, [1], None, 0, False)
    once = {}
    for turn in range(3):
        for value in values if turn % 2 else reversed(values):
            facts = copy.deepcopy(base)
            put(facts, "/compute/gpus", value)
            facts["job"]["from_scratch"] = value
            record = ask(facts).record
            assert once.setdefault(repr(value), record) == record

    assert len(set(once.values())) == len(values)
    assert get(json.loads(once["1"]), "/facts/compute/gpus") == 1
