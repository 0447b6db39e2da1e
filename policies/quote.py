"""Answers about cost as documents: what `placet cost` prints, and prints from.

`placet.cost-estimate/1`: what was asked and assumed, one member of `options` for each flavor, the
recommended one, and every row used with its source, its day and its confidence.
`placet.cost-comparison/1`: both sides month by month. Amounts are whole cents of the euro before
tax; a member that is null is not known.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from policies.cost import Comparison, CostError, compare
from policies.estimate import CURRENCY, Bracket, cheapest, constants, flavor_row, price_row
from policies.reference import Reference, Row
from policies.sizing import Asked, Offer, offer, referral, rows_for
from policies.workload import architecture_flop_1e15, memory

ESTIMATE_FORMAT = "placet.cost-estimate/1"
COMPARISON_FORMAT = "placet.cost-comparison/1"
BEYOND = "a job on more than {} GPUs, or training from scratch, needs a solutions architect"
_UNVERIFIED = "unverified"


def estimate_document(asked: Asked, reference: Reference, assumed: Sequence[str]) -> dict[str, Any]:
    """Answer what a fine-tune needs and costs on each flavor.

    Raises:
        CostError: an unknown provider or flavor, or a constant without a row.
    """
    try:
        reason = referral(asked, reference)
        rows = rows_for(asked, reference)
        offers = [] if reason else [offer(asked, reference, row) for row in rows]
        terms = {id(each): _memory(asked, each, reference) for each in offers}
    except KeyError as cause:
        raise CostError(f"table `estimates` has no row {cause}: add it with --prices") from cause
    best = cheapest(each.option for each in offers)
    recommended = next((each for each in offers if each.option is best), None)
    document = {
        "format": ESTIMATE_FORMAT,
        "asked": _asked(asked),
        "assumed": list(assumed),
        "referral": reason,
        "flop_1e15": architecture_flop_1e15(asked.shape.parameters, asked.tokens),
        "options": [{**_option(each), "memory_bytes": terms[id(each)]} for each in offers],
        "recommended": _name(recommended),
        "notes": [*_notes(asked, recommended), *_nowhere(offers, reference)],
        "rows": [],
    }
    used = [("flavors", "flavor", each.option.row) for each in offers]
    used += [("prices", "flavor", each.option.price) for each in offers if each.option.price]
    used += [("estimates", "id", row) for row in reference.rows("estimates") if offers]
    return {**document, "rows": _rows(used)}


def _asked(asked: Asked) -> dict[str, Any]:
    return {
        "parameters": asked.shape.parameters,
        "method": asked.method,
        "rank": None if asked.method == "full" else asked.rank,
        "precision": asked.precision,
        "row_tokens": asked.row_tokens,
        "tokens": asked.tokens,
        "checkpointing": asked.checkpointing,
        "gpus": asked.gpus,
        "max_minutes": asked.max_minutes,
        "budget_cents": asked.budget_cents,
    }


def _name(chosen: Offer | None) -> dict[str, Any] | None:
    if chosen is None:
        return None
    row = chosen.option.row
    return {"provider": row["provider"], "flavor": row["flavor"], "gpus": chosen.option.gpus}


def _option(each: Offer) -> dict[str, Any]:
    found = each.option
    return {
        "provider": found.row["provider"],
        "flavor": found.row["flavor"],
        "gpu": found.row["gpu"],
        "gpus": found.gpus,
        "checkpointing": each.checkpointing,
        "fits": None if found.fit is None else found.fit.headroom_mib >= 0,
        "vram_needed_mib": None if found.fit is None else found.fit.needed_mib,
        "vram_available_mib": None if found.fit is None else found.fit.available_mib,
        "sharded": None if found.fit is None else found.fit.is_sharded,
        "minutes": _bracket(found.minutes),
        "energy_wh": _bracket(found.energy_wh),
        "cost_cents": _bracket(found.cost_cents),
    }


def _bracket(value: Bracket | None) -> dict[str, int] | None:
    return None if value is None else asdict(value)


def _memory(asked: Asked, each: Offer, reference: Reference) -> dict[str, int] | None:
    found = each.option.fit
    if found is None:
        return None
    shards = each.option.gpus if found.is_sharded else 1
    work = asked.workload(checkpointing=each.checkpointing)
    return asdict(memory(work, constants(reference), shards=shards))


def _notes(asked: Asked, recommended: Offer | None) -> list[str]:
    if recommended is None or recommended.option.minutes is None:
        return []
    found = []
    slow = recommended.option.minutes.slow
    if asked.max_minutes is not None and slow > asked.max_minutes:
        found.append(
            f"at the slow end it takes {slow} minutes, max_minutes is {asked.max_minutes}:"
            " the job would be stopped"
        )
    cost = recommended.option.cost_cents
    if asked.budget_cents is not None and cost is not None and cost.slow > asked.budget_cents:
        found.append(
            f"at the slow end it costs {cost.slow} cents, the budget is {asked.budget_cents}"
        )
    return found


def _nowhere(offers: Sequence[Offer], reference: Reference) -> list[str]:
    fits = [each.option.fit for each in offers]
    if not fits or any(each is None or each.headroom_mib >= 0 for each in fits):
        return []
    most = constants(reference)["gpus_max"]
    if any(each.option.gpus < most for each in offers):
        return ["it fits none of them with so many GPUs and with what was said"]
    return [f"it fits none of them with {most} GPUs: more needs a solutions architect"]


def _rows(used: Iterable[tuple[str, str, Row]]) -> list[dict[str, Any]]:
    members = ("source", "checked_on", "confidence")
    return [
        {"table": table, "key": _key(row, name), **{member: row[member] for member in members}}
        for table, name, row in used
    ]


def _key(row: Row, name: str) -> str:
    return f"{row['provider']}/{row[name]}" if "provider" in row else str(row[name])


def unverified(document: Mapping[str, Any]) -> dict[tuple[str, str], list[str]]:
    """Return the keys of the rows used that nobody verified, by day and table."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in document["rows"]:
        if row["confidence"] == _UNVERIFIED:
            found.setdefault((row["checked_on"], row["table"]), []).append(row["key"])
    return dict(sorted(found.items()))


def comparison_document(
    reference: Reference,
    *,
    rented: tuple[str, str],
    owned: tuple[str, str],
    gpu_hours: Sequence[int],
) -> dict[str, Any]:
    """Answer from how many GPU-hours a month a server of one's own costs less than renting.

    Args:
        reference: The rows.
        rented: Provider and flavor paid by the hour.
        owned: Provider and flavor of the own server's GPUs, for their speed.
        gpu_hours: Hours of the rented flavor to show both sides for.

    Raises:
        CostError: a row or a price is missing.
    """
    rent, own = _flavor(reference, *rented), _flavor(reference, *owned)
    price = price_row(reference, *rented)
    if price is None or not price["price_micros_per_hour"]:
        raise CostError(
            f"no price in {CURRENCY} for `{rented[0]}/{rented[1]}`: give one with --prices"
        )
    hosting = {str(row["id"]): int(row["value"]) for row in reference.rows("hosting")}
    speed = Fraction(own["peak_bf16_gflops"], rent["peak_bf16_gflops"])
    found = compare(
        hosting,
        price_micros=price["price_micros_per_hour"],
        speed=speed,
        gpu_hours=gpu_hours,
    )
    used = [("hosting", "id", row) for row in reference.rows("hosting")]
    used += [("prices", "flavor", price), ("flavors", "flavor", rent), ("flavors", "flavor", own)]
    return {
        "format": COMPARISON_FORMAT,
        "rented": {"provider": rented[0], "flavor": rented[1], "gpu": rent["gpu"]},
        "price_micros_per_hour": price["price_micros_per_hour"],
        "owned": {"gpus": hosting["server_gpus"], "gpu": own["gpu"]},
        "speed_permille": int(speed * 1000),
        "amortisation_months": hosting["amortisation_months"],
        "referral": BEYOND.format(constants(reference).get("gpus_max", 0)),
        **_comparison(found),
        "rows": _rows(used),
    }


def _comparison(found: Comparison) -> dict[str, Any]:
    loads = []
    for load in found.loads:
        own = None if load.own is None else {**asdict(load.own), "total": load.own.total}
        loads.append(
            {"gpu_hours": load.gpu_hours, "own_cents": own, "rented_cents": load.rented_cents}
        )
    return {
        "capacity_gpu_hours": found.capacity_hours,
        "break_even_gpu_hours": found.break_even_hours,
        "loads": loads,
        "sensitivity": [asdict(each) for each in found.sensitivity],
    }


def _flavor(reference: Reference, provider: str, flavor: str) -> Row:
    rows = [row for row in reference.rows("flavors") if row.get("peak_bf16_gflops")]
    row = flavor_row(reference, provider, flavor)
    if row is None or row not in rows:
        known = ", ".join(f"{each['provider']}/{each['flavor']}" for each in rows)
        raise CostError(
            f"there is no flavor `{provider}/{flavor}` with a bf16 rate; known: {known}"
        )
    return row
