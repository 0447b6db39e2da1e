"""Answers of `placet cost` as lines for people; `policies.quote` has the documents."""

from collections.abc import Mapping
from typing import Any

from policies.quote import unverified

_TERMS = ("amortisation", "capital", "maintenance", "colocation", "staff", "electricity", "total")
_CHOICE = ("provider", "flavor", "gpus")
_OPTION_HEAD = [
    "", "PROVIDER", "FLAVOR", "GPUS", "RECOMPUTE", "FITS", "GIB PER GPU", "HOURS", "KWH", "EUR",
]  # fmt: skip
_LOAD_HEAD = [
    "GPU-HOURS A MONTH", "WRITE-OFF", "INTEREST", "SUPPORT", "RACK", "STAFF", "POWER",
    "OWN EUR", "RENTED EUR",
]  # fmt: skip


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _tenths(value: int, unit: int) -> str:
    """Write `value / unit` with one decimal, rounded up."""
    tenths = -(-value * 10 // unit)
    return f"{tenths // 10}.{tenths % 10}"


def _range(bracket: Mapping[str, int] | None, unit: int) -> str:
    if bracket is None:
        return "unknown"
    return f"{_tenths(bracket['fast'], unit)}-{_tenths(bracket['slow'], unit)}"


def _euros(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02}"


def estimate_lines(answer: Mapping[str, Any]) -> list[str]:
    """Write what a fine-tune needs and costs."""
    asked = answer["asked"]
    adapters = "" if asked["rank"] is None else f", rank {asked['rank']}"
    what = f"{asked['method']}{adapters}, {asked['precision']}, {asked['parameters']:,} parameters"
    lines = [
        f"{what}, {asked['tokens']:,} tokens in rows of up to {asked['row_tokens']:,}",
        f"training compute {answer['flop_1e15']:,}e15 FLOP (6 x parameters x tokens)",
    ]
    if answer["assumed"]:
        lines.append(f"assumed: {'; '.join(answer['assumed'])}")
    if answer["referral"]:
        return [*lines, answer["referral"]]
    best = answer["recommended"]
    rows = [_OPTION_HEAD, *(_option_cells(each, best) for each in answer["options"])]
    lines += ["", *_table(rows), ""]
    if best is None:
        lines.append("none is recommended: of no flavor is it known that it fits and what it costs")
    else:
        lines.append("* recommended: it fits and costs least at the slow end")
    lines.append("hours, kWh and euros: if all goes well - at worst; before tax, without storage")
    return [*lines, *answer["notes"], *_memory_lines(answer)]


def _option_cells(each: Mapping[str, Any], best: Mapping[str, Any] | None) -> list[str]:
    is_best = best is not None and all(each[name] == best[name] for name in _CHOICE)
    room, cost = "unknown", each["cost_cents"]
    if each["fits"] is not None:
        needed = _tenths(each["vram_needed_mib"], 1024)
        free = each["vram_available_mib"] * 10 // 1024  # rounded down: what is there
        room = f"{needed} of {free // 10}.{free % 10}"
    effort = ["-"] * 3  # of what does not fit
    if each["fits"] is not False:
        euros = "unknown" if cost is None else f"{_euros(cost['fast'])}-{_euros(cost['slow'])}"
        effort = [_range(each["minutes"], 60), _range(each["energy_wh"], 1000), euros]
    return [
        "*" if is_best else "",
        each["provider"],
        each["flavor"],
        str(each["gpus"]),
        "yes" if each["checkpointing"] else "no",
        {None: "unknown", True: "yes", False: "no"}[each["fits"]],
        room,
        *effort,
    ]


def _memory_lines(answer: Mapping[str, Any]) -> list[str]:
    best, every = answer["recommended"], answer["options"]
    if best is not None:
        every = [each for each in every if all(each[name] == best[name] for name in _CHOICE)]
    if len(every) != 1 or every[0]["memory_bytes"] is None:
        return []
    terms = ", ".join(
        f"{name} {_tenths(size, 1 << 30)}"
        for name, size in every[0]["memory_bytes"].items()
        if size
    )
    return [f"memory of one GPU of {every[0]['flavor']} in GiB: {terms}"]


def comparison_lines(answer: Mapping[str, Any]) -> list[str]:
    """Write both sides by load, the break-even, and what it hangs on."""
    rent, own, even = answer["rented"], answer["owned"], answer["break_even_gpu_hours"]
    price = _euros(-(-answer["price_micros_per_hour"] // 10_000))
    most = answer["capacity_gpu_hours"]
    months = answer["amortisation_months"]
    server = f"own server with {own['gpus']} {own['gpu']} over {months} months"
    speed = f"{answer['speed_permille'] // 1000}.{answer['speed_permille'] % 1000:03}"
    share = f"({even * 100 // most} % of what the server can do)" if even is not None else ""
    swings = [["BREAK-EVEN IF", "A FIFTH LOWER", "A FIFTH HIGHER"]]
    for each in answer["sensitivity"]:
        ends = (each["lower"], each["higher"])
        swings.append([each["input"], *("never" if end is None else f"{end:,}" for end in ends)])
    against = f"{rent['provider']}/{rent['flavor']} ({rent['gpu']}) at EUR {price} an hour"
    does = f"an own GPU does {speed} of it in an hour, the server at most {most:,} a month"
    return [
        f"{server}, against {against}",
        f"one GPU-hour is an hour of the rented flavor; {does}",
        "euros a month, before tax; the rented side without storage",
        "",
        *_table([_LOAD_HEAD, *(_load_cells(each) for each in answer["loads"])]),
        "",
        "owning never costs less: the server cannot do enough hours"
        if even is None
        else f"owning costs less from {even:,} GPU-hours a month {share}",
        "",
        *_table(swings),
        "",
        answer["referral"],
    ]


def _load_cells(load: Mapping[str, Any]) -> list[str]:
    own = load["own_cents"]
    if own is None:
        cells = ["-"] * (len(_TERMS) - 1) + ["beyond it"]
    else:
        cells = [_euros(own[name]) for name in _TERMS]
    return [f"{load['gpu_hours']:,}", *cells, _euros(load["rented_cents"])]


def unverified_lines(answer: Mapping[str, Any]) -> list[str]:
    """Name the rows used that nobody verified, by day."""
    found = unverified(answer)
    if not found:
        return []
    lines = ["", "nobody verified these rows; give your own with --prices or --set:"]
    for (day, table), keys in found.items():
        lines.append(f"  {day}  {table}: {', '.join(dict.fromkeys(keys))}")
    return lines
