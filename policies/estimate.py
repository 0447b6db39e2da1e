"""Estimates as derived facts: compute, time, energy, cost and memory of a fine-tune by flavor.

    estimate(facts, reference) -> {"flop_1e15": 964, "minutes": 121, "energy_wh": 1671,
      "cost_cents": 565, "vram_needed_mib": 44412, "vram_available_mib": 75849,
      "vram_headroom_mib": 31437, "fits": true, "recommended_flavor": "h100-1-gpu"}

Each member is absent while something it rests on is unknown: a size of the model, a flavor without
a row, a missing constant. All are upper bounds: the gate sees the slow end of the range. Time is

    executed FLOP / (GPUs · dense peak · utilisation · scaling · 0.78 for qlora) + start

with utilisation, scaling and start as rows of `estimates`; energy is power of the GPUs, times the
share of the host, times PUE; cost is the price per hour times the time as the provider bills it.
Memory is one GPU's; `policies.workload` has its terms. An estimate rests on rows whatever their
confidence, since it permits nothing by itself; `placet cost estimate` says which are unverified.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policies.reference import Reference, Row
from policies.workload import MAX_INTEGER, Workload, architecture_flop_1e15, memory, up

CURRENCY = "EUR"
_GFLOP = 10**9
_MICROS_PER_CENT = 10_000
_SECONDS_PER_HOUR = 3_600
_NO_STEP = 3_600  # a price row that does not say how time is billed: by the started hour
_BRACKET = ("fast", "likely", "slow")


@dataclass(frozen=True, slots=True)
class Bracket:
    """The same quantity if all goes well, as published runs went, and at worst."""

    fast: int
    likely: int
    slow: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Memory of one GPU in MiB, and whether the model must be divided over the GPUs."""

    needed_mib: int
    available_mib: int
    is_sharded: bool

    @property
    def headroom_mib(self) -> int:
        """Return what is left; negative when it does not fit."""
        return self.available_mib - self.needed_mib


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One flavor with a number of GPUs; a member is None while it cannot be computed."""

    row: Row
    gpus: int
    fit: Fit | None
    minutes: Bracket | None
    energy_wh: Bracket | None
    cost_cents: Bracket | None
    price: Row | None

    @property
    def can_be_recommended(self) -> bool:
        """Say whether it is known to fit and what it takes and costs at most."""
        return (
            self.fit is not None
            and self.fit.headroom_mib >= 0
            and self.minutes is not None
            and self.cost_cents is not None
        )


@functools.lru_cache(maxsize=8)
def constants(reference: Reference) -> Mapping[str, int]:
    """Return the values of table `estimates` by id."""
    return {str(row["id"]): int(row["value"]) for row in reference.rows("estimates")}


def flavor_row(reference: Reference, provider: str, flavor: str) -> Row | None:
    """Return the row of a flavor by exact provider and name."""
    return _flavors(reference).get((provider, flavor))


@functools.lru_cache(maxsize=8)
def _flavors(reference: Reference) -> Mapping[tuple[str, str], Row]:
    return {(str(row["provider"]), str(row["flavor"])): row for row in reference.rows("flavors")}


def price_row(reference: Reference, provider: str, flavor: str) -> Row | None:
    """Return the price of a flavor in euros; a price in another currency is none."""
    return _prices(reference).get((provider, flavor))


@functools.lru_cache(maxsize=8)
def _prices(reference: Reference) -> Mapping[tuple[str, str], Row]:
    return {
        (str(row["provider"]), str(row["flavor"])): row
        for row in reference.rows("prices")
        if row["currency"] == CURRENCY
    }


def billed_seconds(price: Row, seconds: int) -> int:
    """Return the time that a provider bills: whole steps, and not less than the minimum."""
    step = int(price.get("billing_step_s", _NO_STEP))
    return max(up(seconds, step) * step, int(price.get("billing_minimum_s", 0)))


def cost_cents(price: Row, *, units: int, minutes: int) -> int:
    """Return what `units` of a flavor cost for so many minutes, in cents, rounded up.

    A flavor without GPUs is one unit.
    """
    micros = int(price["price_micros_per_hour"]) * max(units, 1)
    billed = billed_seconds(price, minutes * 60)
    return up(micros * billed, _SECONDS_PER_HOUR * _MICROS_PER_CENT)


@functools.lru_cache(maxsize=1024)
def _needed_mib(work: Workload, reference: Reference, shards: int) -> int:
    return memory(work, constants(reference), shards=shards).total_mib


def fit(work: Workload, row: Row, gpus: int, reference: Reference) -> Fit | None:
    """Say what one of `gpus` GPUs holds: a copy each where that fits, else divided over them.

    None for a flavor without GPU memory and for more GPUs than the rows speak of.

    Raises:
        KeyError: table `estimates` lacks a row.
    """
    rows = constants(reference)
    mib = int(row.get("vram_mib", row["vram_gib"] * 1024))
    if mib == 0 or not 1 <= gpus <= rows["gpus_max"]:
        return None
    available = max(0, mib * (1000 - rows["keep_free_permille"]) // 1000)
    whole = _needed_mib(work, reference, 1)
    if whole <= available or gpus == 1:
        return Fit(needed_mib=whole, available_mib=available, is_sharded=False)
    divided = _needed_mib(work, reference, gpus)
    needed = min(whole, divided)
    return Fit(needed_mib=needed, available_mib=available, is_sharded=divided < whole)


def minutes(
    work: Workload, tokens: int, row: Row, gpus: int, rows: Mapping[str, int]
) -> Bracket | None:
    """Return how long the flavor takes, in started minutes; None when its rate is not known."""
    peak = row.get(f"peak_{work.precision}_gflops")
    link = row.get("interconnect")
    if peak is None or not 1 <= gpus <= rows["gpus_max"] or (gpus > 1 and link in (None, "none")):
        return None
    flop = work.executed_flop(tokens) * 1000**3
    quantised = rows["qlora_speed_permille"] if work.method == "qlora" else 1000
    found = []
    for name in _BRACKET:
        scaling = 1000 if gpus == 1 else rows[f"scaling_{link}_{name}_permille"]
        rate = gpus * peak * _GFLOP * rows[f"utilisation_{name}_permille"] * scaling * quantised
        if rate == 0:
            return None
        found.append(up(flop, rate * 60) + rows[f"start_{name}_minutes"])
    return Bracket(*found)


def energy_wh(duration: int, row: Row, gpus: int, rows: Mapping[str, int]) -> int | None:
    """Return the energy of so many minutes: GPUs at full power, their host, the building."""
    if row.get("tdp_w") is None:
        return None
    pue = rows.get(f"pue_permille.{row['provider']}", rows["pue_permille"])
    return up(duration * gpus * int(row["tdp_w"]) * rows["host_permille"] * pue, 60 * 1000 * 1000)


def option(work: Workload, tokens: int, reference: Reference, row: Row, gpus: int) -> Option:
    """Estimate a fine-tune on one flavor.

    Raises:
        KeyError: table `estimates` lacks a row.
    """
    rows = constants(reference)
    took = minutes(work, tokens, row, gpus, rows)
    price = price_row(reference, str(row["provider"]), str(row["flavor"]))
    cost = energy = None
    if took is not None:
        spent = [energy_wh(getattr(took, name), row, gpus, rows) for name in _BRACKET]
        known = [each for each in spent if each is not None]
        energy = Bracket(*known) if len(known) == len(_BRACKET) else None
        if price is not None:
            cost = Bracket(
                *(cost_cents(price, units=gpus, minutes=getattr(took, name)) for name in _BRACKET)
            )
    return Option(
        row=row,
        gpus=gpus,
        fit=fit(work, row, gpus, reference),
        minutes=took,
        energy_wh=energy,
        cost_cents=cost,
        price=price,
    )


def options(
    work: Workload, tokens: int, reference: Reference, *, providers: Sequence[str], gpus: int
) -> list[Option]:
    """Estimate a fine-tune on every flavor of some providers, in the order of the rows."""
    return [
        option(work, tokens, reference, row, gpus)
        for row in reference.rows("flavors")
        if row["provider"] in providers
    ]


def cheapest(found: Iterable[Option]) -> Option | None:
    """Return the option that fits and costs least at worst; among equals the faster one."""

    def order(each: Option) -> tuple[int, int, int, str]:
        cost = each.cost_cents.slow if each.cost_cents else MAX_INTEGER
        took = each.minutes.slow if each.minutes else MAX_INTEGER
        return (cost, took, each.gpus, str(each.row["flavor"]))

    return min((each for each in found if each.can_be_recommended), key=order, default=None)


def estimate(facts: Mapping[str, Any], reference: Reference) -> dict[str, Any]:
    """Derive the estimate of a fine-tune at stage `train`; {} at any other stage or kind.

    `cost_cents` is for the slow end, but for no more than the minutes after which the job is
    stopped; where the time is not known it is for those minutes.
    """
    job, compute = facts.get("job") or {}, facts.get("compute") or {}
    if facts.get("stage") != "train" or job.get("kind") != "fine_tune":
        return {}
    tokens = (facts.get("training") or {}).get("tokens")
    provider, flavor = str(compute.get("provider")), str(compute.get("flavor"))
    gpus, work = compute.get("gpus"), Workload.of(facts)
    price = price_row(reference, provider, flavor)
    found = _compute(facts, tokens)
    if work is not None and gpus:
        try:
            found |= _on_flavor(work, tokens, reference, (provider, flavor), gpus)
        except KeyError:  # a constant has no row: nothing that rests on it is known
            found = _compute(facts, tokens)
    limits = [m for m in (found.get("minutes"), job.get("max_minutes")) if m is not None]
    if limits and price is not None and gpus is not None:
        found["cost_cents"] = cost_cents(price, units=gpus, minutes=min(limits))
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, str) or abs(value) <= MAX_INTEGER
    }


@functools.lru_cache(maxsize=256)
def _on_flavor(
    work: Workload, tokens: int | None, reference: Reference, at: tuple[str, str], gpus: int
) -> Mapping[str, Any]:
    """Cached, because a decision, its preview and its replay ask the same of the same rows."""
    provider, flavor = at
    row = flavor_row(reference, provider, flavor)
    found = {} if row is None else _memory_facts(fit(work, row, gpus, reference))
    if row is not None and tokens:
        here = option(work, tokens, reference, row, gpus)
        if here.minutes is not None:
            found["minutes"] = here.minutes.slow
        if here.energy_wh is not None:
            found["energy_wh"] = here.energy_wh.slow
    if tokens:
        best = cheapest(options(work, tokens, reference, providers=(provider,), gpus=gpus))
        if best is not None:
            found["recommended_flavor"] = str(best.row["flavor"])
    return found


def _compute(facts: Mapping[str, Any], tokens: int | None) -> dict[str, Any]:
    parameters = (facts.get("base_model") or {}).get("parameters")
    if not parameters or not tokens:
        return {}
    return {"flop_1e15": architecture_flop_1e15(parameters, tokens)}


def _memory_facts(found: Fit | None) -> dict[str, Any]:
    if found is None:
        return {}
    return {
        "vram_needed_mib": found.needed_mib,
        "vram_available_mib": found.available_mib,
        "vram_headroom_mib": found.headroom_mib,
        "fits": found.headroom_mib >= 0,
    }
