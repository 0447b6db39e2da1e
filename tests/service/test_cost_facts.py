"""What a job costs at most and how much it computes, as the service tells the gate."""

from types import SimpleNamespace

import pytest

from policies.load import load_reference
from policies.reference import Reference
from service.facts import cost_estimate_cents, training_flop_1e15

REFERENCE = load_reference()


def cost(provider="ovhcloud", flavor="h100-1-gpu", gpus=1, minutes=60, **options):
    return cost_estimate_cents(
        options.get("reference", REFERENCE),
        provider=provider,
        flavor=flavor,
        gpus=gpus,
        minutes=minutes,
        site_price=options.get("site_price"),
    )


@pytest.mark.parametrize(
    ("asked", "cents"),
    [
        ({}, 280),
        ({"gpus": 4}, 1120),
        ({"minutes": 1}, 5),
        ({"flavor": "ai1-1-cpu", "gpus": 0}, 4),
        ({"provider": "scaleway", "flavor": "H100-1-80G", "minutes": 5}, 287),
        ({"flavor": "b300"}, None),
        ({"provider": "scaleway"}, None),
    ],
)
def test_a_job_costs_at_most_its_minutes_as_the_provider_bills_them(asked, cents):
    assert cost(**asked) == cents


def test_the_own_site_costs_what_its_operator_says_or_a_row_for_the_flavor():
    at = {"provider": "own-site", "flavor": "cpu", "gpus": 0, "minutes": 90}
    row = {
        "provider": "own-site", "flavor": "l4", "currency": "EUR",
        "price_micros_per_hour": 1_000_000, "billing_step_s": 60, "source": "our books",
        "checked_on": "2026-12-01", "confidence": "declared",
    }  # fmt: skip
    own = Reference({**REFERENCE.tables, "prices": (*REFERENCE.rows("prices"), row)}, None)

    assert cost(**at) is None
    assert cost(**at, site_price=0) == 0
    assert cost(**at, site_price=50) == 75
    assert cost(**{**at, "flavor": "l4"}, site_price=50, reference=own) == 150
    assert cost(**at, site_price=50, reference=own) == 75


def test_the_site_price_is_for_the_own_site_only():
    assert cost(flavor="b300", site_price=50) is None


def test_a_price_in_dollars_is_no_price_in_euros():
    rows = [{**row, "currency": "USD"} for row in REFERENCE.rows("prices")]
    dollars = Reference({**REFERENCE.tables, "prices": tuple(rows)}, None)

    assert cost(reference=dollars) is None


def test_more_minutes_or_gpus_never_cost_less():
    costs = [cost(minutes=minutes) for minutes in range(1, 200)]
    assert costs == sorted(costs)
    costs = [cost(gpus=gpus) for gpus in range(5)]
    assert costs == sorted(costs)


def test_compute_is_bounded_by_bytes():
    base, dataset = SimpleNamespace(num_parameters=134_515_008), SimpleNamespace(size_bytes=10**6)

    assert training_flop_1e15(base, dataset, epochs=1) == 1
    assert training_flop_1e15(base, dataset, epochs=10) == 9  # 8.07, rounded up
