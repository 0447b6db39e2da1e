"""What is not exactly a facts document is denied, whatever the rules say."""

import pytest

from audit.canonical import canonical
from policies.decision import GateError, parse_instant
from policies.pointers import put

NOW = "2026-11-30T12:00:00Z"

NOT_FACTS = [
    None,
    [],
    "facts",
    7,
    {},
    {"format": "placet.facts/1"},
    {"stage": "train"},
    {"format": "placet.facts/2", "stage": "train"},
    {"format": "placet.facts/1", "stage": "TRAIN"},
]


@pytest.mark.parametrize("facts", NOT_FACTS, ids=repr)
def test_what_is_not_facts_is_denied_with_contract_errors(judge, facts, evaluator):
    decision = judge(facts, evaluator=evaluator)

    assert decision.verdict == "deny"
    assert decision.contract_errors
    assert decision.results == ()


HOSTILE = [
    ("/compute/region", "GRA "),
    ("/compute/region", ""),
    ("/compute/region", "GRA\n"),
    ("/compute/provider", "OVHcloud"),
    ("/compute/provider", "ovhcl\u043eud"),
    ("/compute/provider", "\uff4fvhcloud"),
    ("/compute/provider", ["ovhcloud"]),
    ("/compute/provider", "ovh\u200bcloud"),
    ("/compute/gpus", True),
    ("/compute/gpus", "4"),
    ("/compute/gpus", -1),
    ("/compute/gpus", 1.0),
    ("/compute/gpus", float("nan")),
    ("/compute/gpus", float("inf")),
    ("/compute/gpus", 2**53),
    ("/cost/estimate_cents", 2**64 + 1),
    ("/cost/estimate_cents", -5),
    ("/job/from_scratch", 0),
    ("/job/from_scratch", "false"),
    ("/job/kind", "Fine_Tune"),
    ("/datasets/0/categories_declared", "public"),
    ("/datasets/0/categories_declared", ["h\u0435alth"]),
    ("/datasets/0/categories_declared", ["Public"]),
    ("/datasets/0/categories_declared", [None]),
    ("/datasets/0/categories_declared", ["public", "public"]),
    ("/datasets/0/licence", 'x"y'),
    ("/datasets/0/id", "ds\\01"),
    ("/datasets/0/id", "\ud800"),
    ("/datasets/0/data_subject_countries", [False]),
    ("/datasets/0/data_subject_countries", ["fr"]),
    ("/purpose/prohibited_practices", ["art5.1.zz"]),
    ("/purpose/high_risk_areas", {}),
    ("/waiver", "wvr_01"),
    ("/derived", {"compute": {"in_eea": True}}),
    ("/compute/country", "FR"),
    ("/datasets/0/country", "FR"),
    ("/placet:skip", True),
    ("/storage/0/role", "other"),
    ("/storage", {}),
]


@pytest.mark.parametrize(("pointer", "value"), HOSTILE, ids=repr)
def test_hostile_facts_break_the_contract(judge, base, pointer, value, evaluator):
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
    [
        "2026-11-30",
        "2026-11-30T12:00:00",
        "2026-11-30T12:00:00+00:00",
        "20261130T120000Z",
        "2026-W49-1",
        "2026-11-30T12:00:00.000Z",
        "2026-02-30T12:00:00Z",
        "2026-11-30T12:00:00Z\n",
        None,
    ],
)
def test_another_spelling_of_the_instant_is_refused(judge, base, instant):
    with pytest.raises(GateError, match="instant"):
        judge(base("public"), evaluated_at=instant)


def test_an_instant_reads_as_utc():
    assert parse_instant(NOW).isoformat() == "2026-11-30T12:00:00+00:00"
