"""Owning against renting: exact small cases, what the break-even hangs on, replaced rows."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.cost import CostError, compare, own_rows, own_server, set_value
from policies.load import load_reference
from policies.sizing import config_shape, number, said_in
from policies.workload import Shape

REFERENCE = load_reference()
SHIPPED = {row["id"]: row["value"] for row in REFERENCE.rows("hosting")}

# Round numbers: 36,000 euros over 36 months, two GPUs, 100 hours a month, 1 euro a kWh.
ROUND = {
    "server_price_cents": 3_600_000,
    "server_gpus": 2,
    "residual_permille": 0,
    "amortisation_months": 36,
    "capital_permille_per_year": 20,
    "maintenance_permille_per_year": 40,
    "power_watts": 3000,
    "idle_watts": 1000,
    "electricity_micros_per_kwh": 1_000_000,
    "pue_permille": 2000,
    "colocation_cents_per_month": 50_000,
    "staff_cents_per_year": 1_200_000,
    "staff_permille": 500,
    "hours_per_month": 100,
}


def test_an_own_server_by_hand():
    idle = own_server(ROUND, Fraction(0))
    busy = own_server(ROUND, Fraction(200))

    assert idle.amortisation == 100_000
    assert idle.capital == 3_000  # half the price, at 2 %
    assert idle.maintenance == 12_000
    assert idle.colocation == 50_000
    assert idle.staff == 50_000
    assert idle.electricity == 20_000  # 1 kW, 100 h, twice for the building
    assert idle.total == 235_000
    assert busy.electricity == 60_000  # 3 kW
    assert busy.total - idle.total == 40_000


def test_break_even_by_hand():
    # 235,000 cents whatever it does, 200 cents an hour of one GPU; rented at 20 euros.
    found = compare(ROUND, price_micros=20_000_000, speed=Fraction(1), gpu_hours=(100, 200, 201))

    assert found.capacity_hours == 200
    assert found.break_even_hours == 131  # 235,000 / (2,000 - 200) = 130.6
    assert [load.rented_cents for load in found.loads] == [200_000, 400_000, 402_000]
    assert [load.own and load.own.total for load in found.loads] == [255_000, 275_000, None]


def test_what_is_left_of_the_price_is_not_written_off_but_bears_interest():
    kept = own_server({**ROUND, "residual_permille": 500}, Fraction(0))

    assert kept.amortisation == 50_000
    assert kept.capital == 4_500


def test_owning_pays_at_the_very_last_hour_of_the_server():
    found = compare(ROUND, price_micros=13_750_000, speed=Fraction(1), gpu_hours=())

    assert found.break_even_hours == found.capacity_hours == 200


def test_a_faster_gpu_of_ones_own_does_more_rented_hours():
    found = compare(ROUND, price_micros=20_000_000, speed=Fraction(2), gpu_hours=(400,))

    assert found.capacity_hours == 400
    assert found.break_even_hours == 124  # 235,000 / (2,000 - 100) = 123.7
    assert found.loads[0].own.total == 275_000


@pytest.mark.parametrize("rent", [1_000_000, 2_000_000])
def test_owning_never_pays_where_power_alone_costs_the_rent(rent):
    assert (
        compare(ROUND, price_micros=rent, speed=Fraction(1), gpu_hours=()).break_even_hours is None
    )


def test_owning_never_pays_beyond_what_the_server_can_do():
    found = compare(ROUND, price_micros=13_000_000, speed=Fraction(1), gpu_hours=())

    assert found.break_even_hours is None  # 235,000 / 1,100 = 213.6 hours of 200
    rent = next(each for each in found.sensitivity if each.input == "rent")
    assert (rent.lower, rent.higher) == (None, 173)


def test_every_cost_that_rises_moves_the_break_even_up_and_a_higher_rent_down():
    found = compare(SHIPPED, price_micros=2_800_000, speed=Fraction(1), gpu_hours=())

    for each in found.sensitivity:
        lower, higher = each.lower or 10**9, each.higher or 10**9
        between = found.break_even_hours or 10**9
        assert lower > between > higher if each.input == "rent" else lower < between < higher


@settings(max_examples=100, deadline=None)
@given(
    st.fixed_dictionaries({name: st.integers(1, 10**9) for name in ROUND}),
    st.integers(1, 10**9),
    st.integers(0, 10**6),
)
def test_the_break_even_is_where_owning_starts_to_cost_less(values, rent, hours):
    hosting = {
        **values,
        "residual_permille": values["residual_permille"] % 1001,
        "pue_permille": 1000 + values["pue_permille"],
        "power_watts": values["idle_watts"] + values["power_watts"],
    }
    found = compare(hosting, price_micros=rent, speed=Fraction(1), gpu_hours=(hours,))
    (load,) = found.loads

    if load.own is not None:
        is_dearer = found.break_even_hours is None or hours < found.break_even_hours
        # Each side is rounded up by term, so within a few cents either may be ahead.
        gap = load.own.total - load.rented_cents
        assert gap > -6 if is_dearer else gap < 8


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("amortisation_months", 0, "at least 1"),
        ("server_gpus", 0, "at least 1"),
        ("hours_per_month", 0, "at least 1"),
        ("pue_permille", 999, "at least 1000"),
        ("power_watts", 999, "at least hosting.idle_watts"),
        ("residual_permille", 1001, "at most 1000"),
    ],
)
def test_values_that_make_no_sense_are_refused(name, value, message):
    with pytest.raises(CostError, match=message):
        compare({**ROUND, name: value}, price_micros=1, speed=Fraction(1), gpu_hours=())


@pytest.mark.parametrize(
    ("name", "value"),
    [("pue_permille", 1000), ("power_watts", 1000), ("residual_permille", 1000)],
)
def test_values_at_the_edge_are_taken(name, value):
    found = compare(
        {**ROUND, name: value}, price_micros=20_000_000, speed=Fraction(1), gpu_hours=(1,)
    )

    assert found.loads[0].own is not None


@pytest.mark.parametrize("name", sorted(ROUND))
def test_a_missing_row_is_named(name):
    hosting = {key: value for key, value in ROUND.items() if key != name}

    with pytest.raises(CostError, match=f"no row `{name}`"):
        compare(hosting, price_micros=1, speed=Fraction(1), gpu_hours=())


# --- replaced rows ----------------------------------------------------------------------------


def test_an_own_price_replaces_the_shipped_one_and_leaves_the_rest():
    (row,) = [r for r in REFERENCE.rows("prices") if r["flavor"] == "l4-1-gpu"]
    laid = own_rows(REFERENCE, "prices", [{**row, "price_micros_per_hour": 7}])

    prices = {r["flavor"]: r["price_micros_per_hour"] for r in laid.rows("prices")}
    assert prices["l4-1-gpu"] == 7
    assert len(prices) == len(REFERENCE.rows("prices"))
    assert laid.digest != REFERENCE.digest == load_reference().digest


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("none", {}),
        ("prices", {}),
        ("prices", {"provider": "ovhcloud", "flavor": "l4-1-gpu", "currency": "EUR"}),
        ("hosting", {"id": "power_watts", "value": -1}),
    ],
)
def test_a_row_that_the_schema_refuses_is_refused(table, row):
    with pytest.raises(CostError):
        own_rows(REFERENCE, table, [row])


def test_the_largest_number_can_be_set():
    laid = set_value(REFERENCE, f"hosting.power_watts={2**53 - 1}")

    assert 2**53 - 1 in {row["value"] for row in laid.rows("hosting")}


def test_one_number_can_be_set():
    laid = set_value(set_value(REFERENCE, "hosting.power_watts=9000"), "prices.l4-1-gpu=1")

    (power,) = [row for row in laid.rows("hosting") if row["id"] == "power_watts"]
    (price,) = [row for row in laid.rows("prices") if row["flavor"] == "l4-1-gpu"]
    assert (power["value"], power["confidence"]) == (9000, "declared")
    assert price["price_micros_per_hour"] == 1


@pytest.mark.parametrize(
    "assignment",
    [
        "", "=", "hosting", "hosting.power_watts", "hosting.power_watts=", "regions.GRA=1",
        "hosting.power_watts=-1", "hosting.power_watts=1.5", "hosting.power_watts=1e3",
        "hosting.power_watts=9007199254740992", "hosting.power_watts=" + "9" * 5000,
        "hosting.power_watts=٣", "hosting.nothing=1", "prices.b300=1",
    ],
)  # fmt: skip
def test_other_assignments_are_refused(assignment):
    with pytest.raises(CostError):
        set_value(REFERENCE, assignment)


# --- what is asked ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [("8B", 8 * 10**9), ("1.5b", 15 * 10**8), ("20M", 2 * 10**7), ("300k", 300_000), ("7", 7)],
)
def test_numbers_may_carry_a_power_of_1000(text, value):
    assert number(text, "n") == value


@pytest.mark.parametrize(
    "text",
    ["", "0", "-1", "1e9", "8 B", "8BB", "1.5", "0.0001k", "B", "nan", "9999T", "٣", "1,000",
     "1" * 99],
)  # fmt: skip
def test_other_numbers_are_refused(text):
    with pytest.raises(CostError, match="n: expected a whole number"):
        number(text, "n")


CONFIG = (
    b'{"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,'
    b' "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,'
    b' "tie_word_embeddings": false, "rms_norm_eps": 1e-05}'
)


def test_a_models_own_config_gives_its_shape():
    shape = config_shape(CONFIG, None)

    assert shape.parameters == pytest.approx(8_030_261_248, rel=0.001)
    assert config_shape(CONFIG, 8_030_261_248).parameters == 8_030_261_248
    assert config_shape(CONFIG.replace(b'"num_key_value_heads": 8,', b""), None).kv_heads == 32


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"{}", b"\xff", b"[" * 100_000, CONFIG.replace(b"4096", b"0"),
        CONFIG.replace(b"4096", b'"4096"'), CONFIG.replace(b"4096", b"true"),
        CONFIG.replace(b"4096", b"-4096"), CONFIG.replace(b"4096", b"4096.0"),
        CONFIG.replace(b"4096", b"9" * 400), CONFIG.replace(b"4096", b"9" * 5000),
    ],
)  # fmt: skip
def test_a_broken_config_is_refused(data):
    with pytest.raises(CostError, match="--config"):
        config_shape(data, None)


def test_a_config_with_fewer_parameters_than_its_dimensions_is_refused():
    with pytest.raises(CostError, match="gated feed-forward"):
        config_shape(CONFIG, 1000)


def test_facts_say_all_of_it():
    said = said_in(
        {
            "format": "placet.facts/1",
            "job": {"method": "qlora", "max_minutes": 60, "from_scratch": True},
            "training": {"tokens": 5, "rank": 8, "max_tokens": 64, "precision": "fp32",
                         "gradient_checkpointing": False},
            "compute": {"provider": "ovhcloud", "flavor": "l4-1-gpu", "gpus": 2},
            "cost": {"budget_cents": 9},
            "base_model": {
                "parameters": 60, "layers": 1, "hidden_size": 2, "intermediate_size": 3,
                "vocabulary_size": 5, "attention_heads": 2, "kv_heads": 1,
            },
        }
    )  # fmt: skip

    assert said.pop("shape").__class__ is Shape
    assert said == {
        "method": "qlora", "precision": "fp32", "rank": 8, "row_tokens": 64, "tokens": 5,
        "checkpointing": False, "provider": "ovhcloud", "flavor": "l4-1-gpu", "gpus": 2,
        "max_minutes": 60, "budget_cents": 9, "from_scratch": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    "document",
    [
        None, [], "x", 7,
        {"training": {"method": "dora"}}, {"training": {"precision": "fp8"}},
        {"training": {"rank": 0}}, {"training": {"rank": "16"}}, {"training": {"rank": True}},
        {"training": {"epochs": -1}}, {"training": {"max_tokens": 2**53}},
        {"training": {"gradient_checkpointing": "yes"}}, {"training": {"method": []}},
        {"compute": {"flavor": 7}}, {"compute": {"gpus": -1}}, {"max_minutes": 1.5},
    ],
)  # fmt: skip
def test_a_document_that_says_nonsense_is_refused(document):
    with pytest.raises(CostError, match="job"):
        said_in(document)


def test_a_document_that_says_nothing_is_fine():
    assert said_in({}) == {}
    assert said_in({"training": None, "compute": {"gpus": 0}}) == {"on_cpu": True}
