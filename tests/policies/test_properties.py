"""Properties over many worlds: monotone, and the same bytes from both engines."""

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies.decision import VERDICTS, Decision
from policies.evaluator import PythonEvaluator, RustEvaluator
from policies.gate import replay
from policies.pointers import drop, get, put, split
from policies.policy import Policy
from policies.rule import Rule

PYTHON, RUST = PythonEvaluator(), RustEvaluator()
EFFECTS = ("deny", "require_approval", "warn")
RANK = {verdict: rank for rank, verdict in enumerate(VERDICTS)}
RELAXED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
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
TAGS = [
    "public",
    "none",
    "personal",
    "pd.financial",
    "art9.political",
    "health",
    "health.fr.hds",
    "gov.sensitive",
    "art10.criminal",
    "copyright.tdm_reserved",
    "secret.bank",
]


@st.composite
def worlds(draw):
    """Facts documents near the boundaries of every rule."""
    place = st.fixed_dictionaries(
        {
            "provider": st.sampled_from(PROVIDERS),
            "region": st.sampled_from(REGIONS),
            "service": st.sampled_from(["ai-training", "object-storage", "filesystem", None]),
        }
    )
    some = st.sampled_from
    tags = st.lists(some(TAGS), unique=True, max_size=3)
    dataset = st.builds(
        dict,
        place,
        id=st.just("ds_1"),
        categories_declared=tags | st.none(),
        categories_detected=tags | st.none(),
        licence=some(["MIT", "CC-BY-SA-4.0", "CC-BY-ND-4.0", "odd"]),
        legal_basis=some(["art6.1.e", None]),
        art9_basis=some(["art9.2.j", None]),
        dpia_reference=some(["D-1", None]),
        data_subject_countries=some([["FR"], ["DE"], [], None]),
    )
    storage = st.builds(dict, place, role=some(["output", "webhook", None]))
    boolean = some([True, False, None])
    return {
        "format": "placet.facts/1",
        "stage": draw(some(["train", "deploy"])),
        "job": {
            "id": "job_1",
            "kind": draw(some(["fine_tune", "notebook", None])),
            "max_minutes": draw(some([1, 600, None])),
            "from_scratch": draw(boolean),
        },
        "purpose": {
            "use_codes": [],
            "prohibited_practices": draw(some([[], ["art5.1.c"], None])),
            "high_risk_areas": draw(some([[], ["annex3.5.b"], None])),
        },
        "compute": {
            **draw(place),
            "gpus": draw(some([0, 4, 5, None])),
            "image": draw(some(["a:b", "sha256:" + "a" * 64, None])),
        },
        "datasets": draw(st.lists(dataset, max_size=2)),
        "storage": draw(st.lists(storage, max_size=2)),
        "base_model": {
            "licence": draw(some(["MIT", "gemma", "odd", None])),
            "training_flop_1e15": draw(some([0, 3, 10**9, None])),
            "licence_allows_fine_tuning": draw(boolean),
        },
        "training": {"flop_1e15": draw(some([0, 1, 10**8, None]))},
        "cost": {
            "estimate_cents": draw(some([0, 801, 1001, None])),
            "budget_cents": draw(some([0, 1000])),
        },
        "deploy": {
            **draw(place),
            "card_fields": draw(some([0, 9])),
            "card_missing": draw(some([0, 2])),
            "evaluation_present": draw(boolean),
            "art50_texts_present": draw(boolean),
            "oversight_contact_present": draw(boolean),
            "model_version": "mv_1",
        },
    }


@RELAXED
@given(facts=worlds(), data=st.data())
def test_forgetting_a_fact_of_any_world_never_makes_the_verdict_milder(judge, facts, data):
    pointer = data.draw(
        st.sampled_from([p for p in _pointers(facts) if not p.rpartition("/")[2].isdigit()])
    )
    before = judge(facts)
    poorer = copy.deepcopy(facts)
    drop(poorer, pointer)

    assert not _is_milder(judge(poorer), before)


@RELAXED
@given(facts=worlds(), limit=st.integers(0, 6), effect=st.sampled_from(EFFECTS))
def test_adding_a_rule_never_makes_the_verdict_milder(judge, policy, facts, limit, effect):
    model = policy.rule("scope.gpus").document
    requires = {"required": ["gpus"], "properties": {"gpus": {"maximum": limit}}}
    added = {
        **model,
        "id": "added",
        "effect": effect,
        "approvals": [{"role": "officer", "count": 1}] if effect == "require_approval" else [],
        "stages": ["train", "deploy"],
        "requires": {"required": ["compute"], "properties": {"compute": requires}},
    }
    more = Policy(policy.packs, (*policy.rules, Rule(added)))

    assert not _is_milder(judge(facts, policy=more), judge(facts))


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
def test_junk_is_denied_alike_by_both_engines(judge, base, junk, where):
    facts = junk if where == "" else base("public")
    if where:
        put(facts, where, junk)

    made = [judge(facts, evaluator=engine) for engine in (RUST, PYTHON)]

    assert made[0].record == made[1].record
    if junk is not None and made[0].contract_errors:
        assert made[0].verdict == "deny"
    assert Decision.from_record(made[0].record) == made[0]
