"""Estimates as derived facts: time, energy, bills and the flavor to take; unknown stays unknown."""

import datetime as dt
import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.deriving import derive
from policies.estimate import (
    billed_seconds,
    cheapest,
    constants,
    cost_cents,
    energy_wh,
    estimate,
    fit,
    flavor_row,
    minutes,
    option,
    options,
    price_row,
)
from policies.evaluator import PythonEvaluator
from policies.facts import schema
from policies.load import load_reference
from policies.reference import Reference
from policies.workload import Workload

REFERENCE = load_reference()
ROWS = constants(REFERENCE)
MODELS = {row["id"]: row for row in REFERENCE.rows("models")}
LIMIT = 2**53 - 1
CHECKER = PythonEvaluator().compile(schema("derived"))


def facts(model="llama-3-8b", **changes):
    """A LoRA of an 8B model on 20M tokens; `changes` are `part__member=value`."""
    base = MODELS[model]
    found = {
        "format": "placet.facts/1",
        "stage": "train",
        "job": {"kind": "fine_tune", "method": "lora", "max_minutes": 600},
        "base_model": {
            name: base[name]
            for name in (
                "parameters", "layers", "hidden_size", "intermediate_size", "vocabulary_size",
                "attention_heads", "kv_heads",
            )
        },
        "training": {
            "tokens": 20_000_000, "rank": 16, "max_tokens": 4096, "precision": "bf16",
            "gradient_checkpointing": False,
        },
        "compute": {"provider": "ovhcloud", "flavor": "h100-1-gpu", "gpus": 1},
    }  # fmt: skip
    for name, value in changes.items():
        part, _, member = name.partition("__")
        if member:
            found[part][member] = value
        else:
            found[part] = value
    return found


def with_rows(**tables):
    return Reference({**REFERENCE.tables, **{k: tuple(v) for k, v in tables.items()}}, None)


# --- what is derived --------------------------------------------------------------------------


def test_a_lora_of_an_8b_model_on_one_h100():
    assert estimate(facts(), REFERENCE) == {
        "flop_1e15": 964,
        "minutes": 121,
        "energy_wh": 1671,
        "cost_cents": 565,
        "vram_needed_mib": 44412,
        "vram_available_mib": 75849,
        "vram_headroom_mib": 31437,
        "fits": True,
        "recommended_flavor": "h100-1-gpu",
    }


def test_time_energy_and_cost_by_hand():
    row = flavor_row(REFERENCE, "ovhcloud", "h100-1-gpu")
    work = Workload.of(facts())

    flop = 20_000_000 * (
        4 * (work.shape.body + work.shape.head)
        + 6 * 41_943_040
        + 7 * 32 * 4096 * 4096
    )  # fmt: skip
    slow = -(-flop * 1000 // (756 * 10**12 * 150 * 60)) + 20
    found = option(work, 20_000_000, REFERENCE, row, 1)

    assert found.minutes.slow == slow == 121
    assert found.energy_wh.slow == -(-121 * 350 * 1820 * 1300 // (60 * 10**6)) == 1671
    assert found.cost_cents.slow == -(-121 * 280 // 60) == 565
    assert found.minutes.fast < found.minutes.likely < found.minutes.slow


def test_derive_carries_it_and_the_schema_knows_it():
    derived = derive(facts(), REFERENCE, dt.datetime(2026, 12, 1, tzinfo=dt.UTC))

    assert derived["estimate"]["fits"] is True
    assert CHECKER.failures({"estimate": derived["estimate"]}) == []


@pytest.mark.parametrize("change", [{"stage": "deploy"}, {"job__kind": "notebook"}])
def test_only_a_fine_tune_at_stage_train_is_estimated(change):
    assert estimate(facts(**change), REFERENCE) == {}


COMPUTE, TIME, ROOM, MONEY = (
    {"flop_1e15"},
    {"minutes", "energy_wh", "recommended_flavor"},
    {"vram_needed_mib", "vram_available_mib", "vram_headroom_mib", "fits"},
    {"cost_cents"},
)


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ({"base_model__parameters": None}, MONEY),
        ({"base_model__kv_heads": None}, COMPUTE | MONEY),
        ({"base_model__intermediate_size": None}, COMPUTE | MONEY),
        ({"base_model": None}, MONEY),
        ({"training__tokens": None}, ROOM | MONEY),
        ({"training__rank": None}, COMPUTE | MONEY),
        ({"training__max_tokens": None}, COMPUTE | MONEY),
        ({"training__precision": None}, COMPUTE | MONEY),
        ({"training__gradient_checkpointing": None}, COMPUTE | MONEY),
        ({"training": None}, MONEY),
        ({"job__method": None}, COMPUTE | MONEY),
        ({"compute__gpus": None}, COMPUTE),
        ({"compute__gpus": 0}, COMPUTE | MONEY),
        ({"compute__gpus": 5}, COMPUTE | MONEY),
        ({"compute__flavor": None}, COMPUTE | {"recommended_flavor"}),
        ({"compute__flavor": "b300"}, COMPUTE | {"recommended_flavor"}),
        ({"compute__provider": "nowhere"}, COMPUTE),
        ({"compute__flavor": "ai1-1-cpu"}, COMPUTE | MONEY | {"recommended_flavor"}),
        ({"compute__flavor": "ai1-1-gpu"}, COMPUTE | ROOM | MONEY | {"recommended_flavor"}),
        ({"job__max_minutes": None}, COMPUTE | TIME | ROOM | MONEY),
        ({"compute": None}, COMPUTE),
    ],
)
def test_what_is_unknown_is_absent(change, left):
    assert set(estimate(facts(**change), REFERENCE)) == left


@pytest.mark.parametrize("row", sorted(ROWS))
def test_a_missing_constant_leaves_only_what_does_not_need_it(row):
    without = [each for each in REFERENCE.rows("estimates") if each["id"] != row]
    given = facts(compute__gpus=2, job__method="qlora", compute__flavor="h100-1-gpu")

    found = estimate(given, with_rows(estimates=without))

    assert set(found) >= COMPUTE | MONEY
    # Either it was needed, and nothing that rests on constants is left, or nothing changes but PUE.
    assert set(found) in (COMPUTE | MONEY, COMPUTE | MONEY | TIME | ROOM)


def test_a_model_that_does_not_fit_says_by_how_much():
    found = estimate(facts("llama-3-70b"), REFERENCE)

    assert found["fits"] is False
    assert found["vram_headroom_mib"] == found["vram_available_mib"] - found["vram_needed_mib"] < 0
    assert "recommended_flavor" not in found


def test_the_cost_is_capped_by_the_minutes_after_which_the_job_is_stopped():
    assert estimate(facts(job__max_minutes=60), REFERENCE)["cost_cents"] == 280
    assert estimate(facts(job__max_minutes=60), REFERENCE)["minutes"] == 121
    assert estimate(facts(job__max_minutes=10_000), REFERENCE)["cost_cents"] == 565
    unknown = facts(training__tokens=None, job__max_minutes=90)
    assert estimate(unknown, REFERENCE)["cost_cents"] == 420


def test_what_no_longer_fits_a_json_integer_is_absent():
    found = estimate(facts(training__tokens=LIMIT, base_model__parameters=LIMIT), REFERENCE)

    assert "flop_1e15" not in found
    assert all(abs(value) <= LIMIT for value in found.values() if isinstance(value, int))


@pytest.mark.parametrize(
    ("row", "absent"),
    [("utilisation_slow_permille", TIME - {"recommended_flavor"}), ("qlora_speed_permille", TIME)],
)
def test_a_rate_of_zero_is_no_rate(row, absent):
    rows = [{**r, "value": 0} if r["id"] == row else r for r in REFERENCE.rows("estimates")]
    found = estimate(facts(job__method="qlora"), with_rows(estimates=rows))

    assert absent.isdisjoint(found)
    assert found["cost_cents"] == 2800  # all its minutes


def test_a_reserve_of_more_than_all_leaves_nothing():
    rows = [
        {**r, "value": 1001} if r["id"] == "keep_free_permille" else r
        for r in REFERENCE.rows("estimates")
    ]
    found = estimate(facts(), with_rows(estimates=rows))

    assert (found["vram_available_mib"], found["fits"]) == (0, False)


def test_the_largest_json_integer_is_kept():
    six = facts(base_model__parameters=166_666_666_666_667, training__tokens=LIMIT - 19)
    assert estimate(six, REFERENCE)["flop_1e15"] == LIMIT

    more = facts(base_model__parameters=166_666_666_666_667, training__tokens=LIMIT - 18)
    assert "flop_1e15" not in estimate(more, REFERENCE)


# --- bills ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("price", "seconds", "billed"),
    [
        ({"billing_step_s": 60, "billing_minimum_s": 60}, 0, 60),
        ({"billing_step_s": 60}, 60, 60),
        ({"billing_step_s": 60}, 61, 120),
        ({"billing_step_s": 1}, 61, 61),
        ({"billing_step_s": 60, "billing_minimum_s": 3600}, 61, 3600),
        ({}, 61, 3600),
        ({}, 3601, 7200),
    ],
)
def test_time_is_billed_in_whole_steps(price, seconds, billed):
    assert billed_seconds(price, seconds) == billed


def test_cents_are_rounded_up_and_a_flavor_without_gpus_is_one_unit():
    price = {"price_micros_per_hour": 2_800_000, "billing_step_s": 60}

    assert cost_cents(price, units=1, minutes=60) == 280
    assert cost_cents(price, units=3, minutes=1) == 14
    assert cost_cents(price, units=1, minutes=1) == 5  # 4.67
    assert cost_cents(price, units=0, minutes=60) == 280
    assert cost_cents(price, units=1, minutes=6_000_000) == 28_000_000


def test_a_price_in_dollars_is_not_read_as_euros():
    (row,) = [row for row in REFERENCE.rows("prices") if row["flavor"] == "h100-1-gpu"]
    dollars = with_rows(prices=[{**row, "currency": "USD"}])

    assert price_row(dollars, "ovhcloud", "h100-1-gpu") is None
    assert "cost_cents" not in estimate(facts(), dollars)
    assert "recommended_flavor" not in estimate(facts(), dollars)


# --- which flavor -----------------------------------------------------------------------------


def test_the_recommended_flavor_fits_and_costs_least():
    work = replace(Workload.of(facts()), checkpointing=True)
    every = options(work, 20_000_000, REFERENCE, providers=("ovhcloud",), gpus=1)
    best = cheapest(every)

    rivals = [each for each in every if each.can_be_recommended]
    assert len(rivals) > 1
    assert best.cost_cents.slow == min(each.cost_cents.slow for each in rivals)
    assert best.fit.headroom_mib >= 0
    assert cheapest([]) is None


def test_a_copy_on_each_gpu_where_it_fits_else_divided():
    work = Workload.of(facts("llama-3-70b", training__gradient_checkpointing=True))
    h100 = flavor_row(REFERENCE, "own-site", "h100-sxm")

    found = [fit(work, h100, gpus, REFERENCE) for gpus in (1, 2, 3, 4)]

    assert [each.is_sharded for each in found] == [False, True, True, True]
    assert [each.headroom_mib >= 0 for each in found] == [False, False, True, True]
    small = Workload.of(facts("mistral-7b"))
    assert fit(small, h100, 4, REFERENCE) == fit(small, h100, 1, REFERENCE)


# --- published speeds -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "method", "checkpointing", "rows", "gpus", "speed", "end"),
    [
        # NeMo AutoModel 2026-06-12: 8B LoRA on one H100; the fast end
        ("llama-3-8b", "lora", False, 4096, 1, 12_473, "fast"),
        # Soup 2026-08: the same with plain libraries, 9,621 to 10,256; the likely middle
        ("llama-3-8b", "lora", False, 1024, 1, 9_621, "likely"),
        # torchtitan 2024-12: 8B, all weights, selective recomputation, per GPU of eight
        ("llama-3-8b", "full", True, 8192, 1, 5_762, None),
        # NeMo AutoModel: 70B LoRA on eight H100, per GPU; here four
        ("llama-3-70b", "lora", False, 4096, 4, 1_092, None),
    ],
)
def test_published_speeds_lie_in_the_bracket(model, method, checkpointing, rows, gpus, speed, end):
    given = facts(
        model,
        job__method=method,
        training__gradient_checkpointing=checkpointing,
        training__max_tokens=rows,
    )
    row = flavor_row(REFERENCE, "own-site", "h100-sxm")
    tokens = 10**10
    found = minutes(Workload.of(given), tokens, row, gpus, ROWS)
    speeds = {
        name: tokens / gpus / (getattr(found, name) * 60) for name in ("fast", "likely", "slow")
    }

    assert speeds["slow"] < speed < speeds["fast"] * 1.1
    if end is not None:
        assert speeds[end] == pytest.approx(speed, rel=0.07)


# --- properties -------------------------------------------------------------------------------

sizes = st.one_of(st.none(), st.integers(0, LIMIT), st.sampled_from([1, 32, 4096, 10**9]))
anything = st.fixed_dictionaries(
    {
        "stage": st.just("train"),
        "job": st.fixed_dictionaries(
            {
                "kind": st.just("fine_tune"),
                "method": st.sampled_from([None, "lora", "qlora", "full"]),
                "max_minutes": sizes,
            }
        ),
        "base_model": st.fixed_dictionaries(dict.fromkeys(facts()["base_model"], sizes)),
        "training": st.fixed_dictionaries(
            {
                "tokens": sizes, "rank": sizes, "max_tokens": sizes,
                "precision": st.sampled_from([None, "bf16", "fp32"]),
                "gradient_checkpointing": st.sampled_from([None, True, False]),
            }
        ),
        "compute": st.fixed_dictionaries(
            {
                "provider": st.sampled_from([None, "ovhcloud", "own-site", "scaleway"]),
                "flavor": st.sampled_from(
                    [None, "x", *(row["flavor"] for row in REFERENCE.rows("flavors"))]
                ),
                "gpus": st.one_of(st.none(), st.integers(0, 8), st.just(LIMIT)),
            }
        ),
    }
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(anything)
def test_any_facts_have_an_estimate_that_the_schema_allows(given_facts):
    found = estimate(given_facts, REFERENCE)

    assert CHECKER.failures({"estimate": found}) == []
    assert found.get("fits", True) is (found.get("vram_headroom_mib", 0) >= 0)


@settings(max_examples=200, deadline=None)
@given(anything, st.sampled_from(["job", "base_model", "training", "compute"]), st.data())
def test_a_fact_less_never_makes_it_fit_nor_cost_less(given_facts, part, data):
    name = data.draw(st.sampled_from(sorted(given_facts[part])))
    less = {**given_facts, part: {k: v for k, v in given_facts[part].items() if k != name}}
    full, poorer = estimate(given_facts, REFERENCE), estimate(less, REFERENCE)

    assert set(poorer) <= set(full)
    assert poorer.get("fits") in {None, full.get("fits")}
    if "cost_cents" in poorer:
        assert poorer["cost_cents"] >= full["cost_cents"]


real = st.builds(
    lambda model, method, rank, rows, way, tokens: (
        Workload.of(
            facts(
                model, job__method=method, training__rank=rank, training__max_tokens=rows,
                training__gradient_checkpointing=way,
            )
        ),
        tokens,
    ),
    st.sampled_from(sorted(MODELS)), st.sampled_from(["lora", "qlora", "full"]),
    st.integers(1, 256), st.integers(16, 131_072), st.booleans(), st.integers(1, 10**12),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(real, st.integers(1, 10**9))
def test_more_tokens_are_never_faster_nor_cheaper(one, more):
    work, tokens = one
    for before, after in zip(
        options(work, tokens, REFERENCE, providers=("ovhcloud",), gpus=1),
        options(work, tokens + more, REFERENCE, providers=("ovhcloud",), gpus=1),
        strict=True,
    ):
        for name in ("fast", "likely", "slow"):
            for member in ("minutes", "energy_wh", "cost_cents"):
                low, high = getattr(before, member), getattr(after, member)
                assert (low is None) == (high is None)
                assert low is None or getattr(low, name) <= getattr(high, name)


@settings(max_examples=60, deadline=None)
@given(real)
def test_more_gpus_never_need_more_memory_each(one):
    work, _ = one
    for row in REFERENCE.rows("flavors"):
        needs = [fit(work, row, gpus, REFERENCE) for gpus in (1, 2, 3, 4)]
        for fewer, more in itertools.pairwise(needs):
            assert (fewer is None) == (more is None)
            assert fewer is None or more.needed_mib <= fewer.needed_mib


@settings(max_examples=60, deadline=None)
@given(real, st.sampled_from([1, 2, 3, 4]))
def test_the_bracket_is_ordered(one, gpus):
    work, tokens = one
    for each in options(work, tokens, REFERENCE, providers=("own-site", "scaleway"), gpus=gpus):
        for bracket in (each.minutes, each.energy_wh, each.cost_cents):
            assert bracket is None or bracket.fast <= bracket.likely <= bracket.slow


def test_energy_is_unknown_without_a_rated_power():
    row = {**flavor_row(REFERENCE, "ovhcloud", "h100-1-gpu"), "tdp_w": None}

    assert energy_wh(10, row, 1, ROWS) is None
