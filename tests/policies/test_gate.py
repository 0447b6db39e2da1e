"""The gate's semantics: three-valued, fail-closed, monotone, reproducible."""

import copy
import itertools
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from audit.canonical import canonical, digest, parse
from policies.cases import CASE_SITE
from policies.decision import VERDICTS, Decision, GateError, parse_instant
from policies.evaluator import EvaluationError, PythonEvaluator, RustEvaluator
from policies.gate import ask, compile_rule, decide, replay
from policies.load import load_reference
from policies.policy import Policy
from policies.rule import Rule, RuleError

NOW = "2026-11-30T12:00:00Z"
PYTHON, RUST = PythonEvaluator(), RustEvaluator()
GOLDEN = Path(__file__).parent.parent / "golden" / "policies"
RANK = {verdict: rank for rank, verdict in enumerate(VERDICTS)}
SIX = {language: "text" for language in ("en", "fr", "de", "es", "pt", "pl")}
RELAXED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def rule(name, requires, *, effect="deny", when=None, family="scope", **more):
    document = {
        "format": "placet.rule/1", "id": name, "version": "1.0.0", "family": family,
        "stages": ["train", "deploy"], "effective": {"from": "2026-01-01T00:00:00Z", "until": None},
        "severity": "low", "effect": effect,
        "approvals": [{"role": "officer", "count": 1}] if effect == "require_approval" else [],
        "waivable": False,
        "legal_basis": [{"ref": "house policy", "from": "2026-01-01", "note": "a test"}],
        "title": SIX, "applies_when": when, "requires": requires, "messages": {"": SIX},
        "remediation": SIX,
    }  # fmt: skip
    return Rule({**document, **more})


def pack(*obligations, minutes=60):
    return {
        "format": "placet.pack/1", "id": "small", "version": "1.0.0", "title": SIX,
        "validity_minutes": minutes, "obligations": list(obligations),
    }  # fmt: skip


def at_most(gpus):
    return {"required": ["compute"], "properties": {"compute": {
        "required": ["gpus"], "properties": {"gpus": {"maximum": gpus}}}}}  # fmt: skip


def of_kind(kind):
    return {"required": ["job"], "properties": {"job": {
        "required": ["kind"], "properties": {"kind": {"const": kind}}}}}  # fmt: skip


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
    from policies.load import policy_of

    alone = policy_of([p for p in packs if p.document["id"] == "eu-baseline"])

    decision = decide(alone, reference, base("health"), evaluated_at=NOW, subject="job:j")

    assert decision.verdict == "deny"
    assert decision.obligations["hds"] == "missing"


class FailingChecker:
    def is_valid(self, instance):
        raise EvaluationError("the engine broke")

    def failures(self, instance):
        raise AssertionError("never asked")


class FailingEvaluator:
    name = "failing"

    def compile(self, schema):
        if "title" in schema or "$schema" in schema:  # the contract itself works
            return PYTHON.compile(schema)
        return FailingChecker()


@pytest.mark.parametrize(("effect", "verdict"), [("deny", "deny"), ("warn", "allow_with_warnings")])
def test_a_rule_that_cannot_be_evaluated_is_an_error(reference, base, effect, verdict):
    policy = Policy((pack(),), (rule("a", at_most(4), effect=effect),))

    decision = decide(
        policy, reference, base("public"), evaluated_at=NOW, subject="job:j",
        evaluator=FailingEvaluator(),
    )  # fmt: skip

    assert [f.outcome for f in decision.findings] == ["error"]
    assert decision.verdict == verdict


NOT_FACTS = [
    None, [], "facts", 7, {}, {"format": "placet.facts/1"}, {"stage": "train"},
    {"format": "placet.facts/2", "stage": "train"}, {"format": "placet.facts/1", "stage": "TRAIN"},
]  # fmt: skip


@pytest.mark.parametrize("facts", NOT_FACTS, ids=repr)
def test_what_is_not_facts_is_denied_with_contract_errors(judge, facts, evaluator):
    decision = judge(facts, evaluator=evaluator)

    assert decision.verdict == "deny"
    assert decision.contract_errors
    assert decision.results == ()


HOSTILE = [
    ("/compute/region", "GRA "), ("/compute/region", ""), ("/compute/region", "GRA\n"),
    ("/compute/provider", "OVHcloud"), ("/compute/provider", "ovhclоud"), ("/compute/provider", "ｏvhcloud"),
    ("/compute/provider", ["ovhcloud"]), ("/compute/provider", "ovh\u200bcloud"), ("/compute/gpus", True),
    ("/compute/gpus", "4"), ("/compute/gpus", -1), ("/compute/gpus", 1.0), ("/compute/gpus", float("nan")),
    ("/compute/gpus", float("inf")), ("/compute/gpus", 2**53), ("/cost/estimate_cents", 2**64 + 1),
    ("/cost/estimate_cents", -5), ("/job/from_scratch", 0), ("/job/from_scratch", "false"),
    ("/job/kind", "Fine_Tune"), ("/datasets/0/categories_declared", "public"),
    ("/datasets/0/categories_declared", ["hеalth"]), ("/datasets/0/categories_declared", ["Public"]),
    ("/datasets/0/categories_declared", [None]), ("/datasets/0/categories_declared", ["public", "public"]),
    ("/datasets/0/licence", 'x"y'), ("/datasets/0/id", "ds\\01"), ("/datasets/0/id", "\ud800"),
    ("/datasets/0/data_subject_countries", [False]), ("/datasets/0/data_subject_countries", ["fr"]),
    ("/purpose/prohibited_practices", ["art5.1.zz"]), ("/purpose/high_risk_areas", {}),
    ("/waiver", "wvr_01"), ("/derived", {"compute": {"in_eea": True}}), ("/compute/country", "FR"),
    ("/datasets/0/country", "FR"), ("/placet:skip", True), ("/storage/0/role", "other"), ("/storage", {}),
]  # fmt: skip


@pytest.mark.parametrize(("pointer", "value"), HOSTILE, ids=repr)
def test_hostile_facts_break_the_contract(judge, base, pointer, value, evaluator):
    from policies.pointers import put

    facts = base("public")
    put(facts, pointer, value)

    decision = judge(facts, evaluator=evaluator)

    assert decision.verdict == "deny"
    assert decision.contract_errors


def test_facts_too_large_or_too_deep_are_refused_as_unreadable(judge, base):
    large, deep = base("public"), base("public")
    large["job"]["id"] = "x" * 300_000
    for _ in range(62):
        deep["job"] = {"job": deep["job"]}

    for facts in (large, deep):
        decision = judge(facts)

        assert decision.contract_errors == (("", "document"),)
        assert decision.document["facts"] is None


def test_the_facts_are_not_changed_by_deciding(judge, base):
    facts = base("personal")
    before = canonical(facts)

    judge(facts)

    assert canonical(facts) == before


def test_tuples_are_read_as_lists(judge, base):
    facts = base("public")
    facts["datasets"] = tuple(facts["datasets"])

    assert judge(facts).record == judge(base("public")).record


@pytest.mark.parametrize("subject", ["job", "job:", "Job:1", "job:a b", "job:a\n", "job:a@x", ":a"])
def test_a_misspelt_subject_is_refused(judge, base, subject):
    with pytest.raises(GateError, match="subject"):
        judge(base("public"), subject=subject)


@pytest.mark.parametrize(
    "instant",
    ["2026-11-30", "2026-11-30T12:00:00", "2026-11-30T12:00:00+00:00", "20261130T120000Z",
     "2026-W49-1", "2026-11-30T12:00:00.000Z", "2026-02-30T12:00:00Z", "2026-11-30T12:00:00Z\n", None],
)  # fmt: skip
def test_another_spelling_of_the_instant_is_refused(judge, base, instant):
    with pytest.raises(GateError, match="instant"):
        judge(base("public"), evaluated_at=instant)


# --- dates ------------------------------------------------------------------------------------


def test_a_rule_holds_from_its_first_second_until_its_last(reference, base):
    dates = {"from": "2026-12-02T00:00:00Z", "until": "2027-01-01T00:00:00Z"}
    policy = Policy((pack(),), (rule("a", at_most(4)), rule("b", at_most(-1), effective=dates)))
    verdicts = {
        at: decide(policy, reference, base("public"), evaluated_at=at, subject="job:j").verdict
        for at in ("2026-12-01T23:59:59Z", "2026-12-02T00:00:00Z", "2026-12-31T23:59:59Z",
                   "2027-01-01T00:00:00Z")
    }  # fmt: skip

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


# --- monotone ---------------------------------------------------------------------------------

BASES = ("public", "personal", "special", "health", "claimed", "deploy", "serving")


def _pointers(node, at=""):
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield f"{at}/{key}"
        if isinstance(value, dict | list):
            yield from _pointers(value, f"{at}/{key}")


def _is_milder(after, before):
    """Milder verdict, or as mild and asking for fewer people."""
    if RANK[after.verdict] != RANK[before.verdict]:
        return RANK[after.verdict] < RANK[before.verdict]
    counts = {a.role: a.count for a in after.approvals}
    return any(counts.get(a.role, 0) < a.count for a in before.approvals)


@pytest.mark.parametrize("name", BASES)
def test_forgetting_any_one_fact_never_makes_the_verdict_milder(judge, base, name):
    from policies.pointers import get, split

    before = judge(base(name))
    for pointer in _pointers(base(name)):
        *_, last = split(pointer)
        if last.isdigit():
            continue  # an element of a list is not a fact: another list is another answer
        for forget in ("drop", "null"):
            facts = base(name)
            parent = get(facts, pointer.rpartition("/")[0])
            if forget == "drop":
                del parent[last]
            else:
                parent[last] = None

            assert not _is_milder(judge(facts), before), pointer


REGIONS = ["site", "GRA", "BHS", "UK1", "EU-WEST-LZ-ZRH", "nowhere", None]
PROVIDERS = ["own-site", "ovhcloud", "aws", "hetzner", "new-cloud", None]
TAGS = ["public", "none", "personal", "pd.financial", "art9.political", "health", "health.fr.hds",
        "gov.sensitive", "art10.criminal", "copyright.tdm_reserved", "secret.bank"]  # fmt: skip


@st.composite
def worlds(draw):
    """Facts documents near the boundaries of every rule."""
    place = st.fixed_dictionaries({
        "provider": st.sampled_from(PROVIDERS), "region": st.sampled_from(REGIONS),
        "service": st.sampled_from(["ai-training", "object-storage", "filesystem", None]),
    })  # fmt: skip
    some = st.sampled_from
    tags = st.lists(some(TAGS), unique=True, max_size=3)
    dataset = st.builds(
        dict, place, id=st.just("ds_1"), categories_declared=tags | st.none(),
        categories_detected=tags | st.none(), licence=some(["MIT", "CC-BY-SA-4.0", "CC-BY-ND-4.0", "odd"]),
        legal_basis=some(["art6.1.e", None]), art9_basis=some(["art9.2.j", None]),
        dpia_reference=some(["D-1", None]), data_subject_countries=some([["FR"], ["DE"], [], None]),
    )  # fmt: skip
    storage = st.builds(dict, place, role=some(["output", "webhook", None]))
    boolean = some([True, False, None])
    facts = {
        "format": "placet.facts/1", "stage": draw(some(["train", "deploy"])),
        "job": {"id": "job_1", "kind": draw(some(["fine_tune", "notebook", None])),
                "max_minutes": draw(some([1, 600, None])), "from_scratch": draw(boolean)},
        "purpose": {"use_codes": [], "prohibited_practices": draw(some([[], ["art5.1.c"], None])),
                    "high_risk_areas": draw(some([[], ["annex3.5.b"], None]))},
        "compute": {**draw(place), "gpus": draw(some([0, 4, 5, None])),
                    "image": draw(some(["a:b", "sha256:" + "a" * 64, None]))},
        "datasets": draw(st.lists(dataset, max_size=2)),
        "storage": draw(st.lists(storage, max_size=2)),
        "base_model": {"licence": draw(some(["MIT", "gemma", "odd", None])),
                       "training_flop_1e15": draw(some([0, 3, 10**9, None])),
                       "licence_allows_fine_tuning": draw(boolean)},
        "training": {"flop_1e15": draw(some([0, 1, 10**8, None]))},
        "cost": {"estimate_cents": draw(some([0, 801, 1001, None])), "budget_cents": draw(some([0, 1000]))},
        "deploy": {**draw(place), "card_fields": draw(some([0, 9])), "card_missing": draw(some([0, 2])),
                   "evaluation_present": draw(boolean), "art50_texts_present": draw(boolean),
                   "oversight_contact_present": draw(boolean), "model_version": "mv_1"},
    }  # fmt: skip
    return facts


@RELAXED
@given(facts=worlds(), data=st.data())
def test_forgetting_a_fact_of_any_world_never_makes_the_verdict_milder(judge, facts, data):
    from policies.pointers import drop

    pointer = data.draw(
        st.sampled_from([p for p in _pointers(facts) if not p.rpartition("/")[2].isdigit()])
    )
    before = judge(facts)
    poorer = copy.deepcopy(facts)
    drop(poorer, pointer)

    assert not _is_milder(judge(poorer), before)


@RELAXED
@given(facts=worlds(), limit=st.integers(0, 6), effect=st.sampled_from(WORLD["effect"]))
def test_adding_a_rule_never_makes_the_verdict_milder(judge, policy, facts, limit, effect):
    more = Policy(policy.packs, (*policy.rules, rule("added", at_most(limit), effect=effect)))

    assert not _is_milder(judge(facts, policy=more), judge(facts))


# --- reproducible -----------------------------------------------------------------------------


@RELAXED
@given(facts=worlds())
def test_both_engines_write_the_same_record_and_replay_it(judge, policy, reference, facts):
    record = judge(facts, evaluator=RUST).record

    assert judge(facts, evaluator=PYTHON).record == record
    for engine in (PYTHON, RUST):
        again = replay(record, policy.to_bytes(), reference.to_bytes(), evaluator=engine)
        assert again.identical
        assert again.differing == ()


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


@RELAXED
@given(junk=JUNK, where=st.sampled_from(["", "/job", "/compute", "/datasets", "/stage", "/cost"]))
def test_junk_is_denied_alike_by_both_engines_and_replays(
    judge, policy, reference, base, junk, where
):
    from policies.pointers import put

    facts = junk if where == "" else base("public")
    if where:
        put(facts, where, junk)

    made = [judge(facts, evaluator=engine) for engine in (RUST, PYTHON)]

    assert made[0].record == made[1].record
    if junk is not None and made[0].contract_errors:
        assert made[0].verdict == "deny"
    assert replay(made[0].record, policy.to_bytes(), reference.to_bytes()).identical


def test_the_record_is_the_canonical_form_of_its_document(judge, base):
    for name in BASES:
        decision = judge(base(name))

        assert decision.record == canonical(decision.document)
        assert parse(decision.record) == decision.document
        assert decision.digest == digest(decision.record)
        assert decision.facts_digest == digest(canonical(base(name)))


def test_a_record_reads_back(judge, base):
    made = judge(base("claimed"))

    assert Decision.from_record(made.record) == made


def test_a_changed_record_policy_or_reference_is_noticed(judge, policy, reference, base):
    record = judge(base("public")).record
    softer = canonical({**parse(record), "verdict": "allow"})
    derived = parse(record)
    derived["derived"]["compute"]["country"] = "CA"
    other = Policy(policy.packs, policy.rules[:-1])
    elsewhere = load_reference(site={**CASE_SITE, "country": "CA"})
    kept, rows = policy.to_bytes(), reference.to_bytes()

    assert replay(softer, kept, rows).differing == ("verdict",)
    assert not replay(canonical(derived), kept, rows).same_derived
    assert not replay(record, other.to_bytes(), rows).same_inputs
    moved = replay(record, kept, elsewhere.to_bytes())
    assert (moved.identical, moved.same_output, moved.same_derived) == (False, False, False)
    assert moved.verdict == "deny"


@pytest.mark.parametrize(
    "change",
    [{"format": "placet.decision/2"}, {"waivers": [{}]}, {"waivers": 1}, {"results": [1]}, {"derived": []},
     {"subject": None}, {"evaluated_at": "now"}],
)  # fmt: skip
def test_a_misshapen_record_is_refused(judge, policy, reference, base, change):
    document = {**judge(base("public")).document, **change}

    with pytest.raises(GateError):
        replay(canonical(document), policy.to_bytes(), reference.to_bytes())


@pytest.mark.parametrize("record", [b"", b"{}", b"[]", b'{"format":1.5}', b'{"a":1, "b":2}'])
def test_what_is_not_a_record_is_refused(record):
    with pytest.raises(GateError, match="decision record"):
        Decision.from_record(record)


def test_two_rules_of_one_name_are_refused():
    with pytest.raises(RuleError, match="twice"):
        Policy((pack(),), (rule("a", at_most(4)), rule("a", at_most(5))))


def test_a_rule_is_asked_alone_too(base, evaluator):
    asked = compile_rule(rule("a", at_most(4)), evaluator)

    assert ask(asked, base("public")).outcome == "pass"


@pytest.mark.parametrize("name", ["public", "claimed", "deploy"])
def test_the_golden_decisions_stay_as_they_are(judge, policy, reference, base, name):
    """A change here is a change of a stored format, of a shipped rule, or of reference data."""
    made = (
        json.dumps(judge(base(name)).document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    )
    path = GOLDEN / f"decision-{name}.json"
    if os.environ.get("PLACET_GOLDEN") == "1":
        path.write_text(made, "utf-8")

    assert path.read_text("utf-8") == made


def test_the_golden_history_replays_with_both_engines():
    """Records, policy and reference data as an older release wrote them."""
    folder = GOLDEN / "history-1"
    kept, rows = (folder / "policy.json").read_bytes(), (folder / "reference.json").read_bytes()
    records = sorted(folder.glob("record-*.json"))

    assert len(records) >= 3
    for path in records:
        for engine in (PYTHON, RUST):
            assert replay(path.read_bytes(), kept, rows, evaluator=engine).identical, path.name


def test_an_instant_reads_as_utc():
    assert parse_instant(NOW).isoformat() == "2026-11-30T12:00:00+00:00"
