"""`placet policy table`: decide every combination of a few abstract facts, and show what comes out.

The rows that are not denied are what an officer reads: is there one that should not be? The claims
about the shipped packs stand in the tests.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from policies.commands.grammar import command, line, packs_of, say
from policies.load import load_reference, policy_of
from policies.table import STAGES, Survey, World, axes, size, survey, worlds

_EVERY = 500


def add(commands: Any) -> None:
    """Add `table` to the commands of `placet policy`."""
    parser = command(
        commands,
        "table",
        "decide every combination of a few abstract facts, and list what is not denied",
        "placet policy table\n"
        "placet policy table --stage deploy --all --format csv > table.csv\n"
        "placet policy table --json",
        _run,
    )
    parser.add_argument("--stage", choices=STAGES, action="append", help="only this stage")
    parser.add_argument("--all", action="store_true", help="list what is denied, too")
    parser.add_argument("--format", choices=("markdown", "csv"), default="markdown")


def _run(options: argparse.Namespace) -> int:
    policy, reference = policy_of(packs_of(options)), load_reference(options.reference)
    stages = options.stage or list(STAGES)
    found = [
        world
        for stage in stages
        for world in _progress(worlds(policy, reference, stage), stage, size(stage))
    ]
    seen = survey(policy, reference, found)
    shown = [world for world in found if options.all or world.verdict != "deny"]
    if options.json:
        say({**_summary(seen), "worlds": [_document(world) for world in shown]})
    elif options.format == "csv":
        _csv(shown, stages)
    else:
        _markdown(shown, stages, seen)
    return 0


def _progress(found: Iterator[World], stage: str, total: int) -> Iterator[World]:
    """Pass worlds on, and say on a terminal how far it got."""
    is_watched = sys.stderr.isatty()
    for number, world in enumerate(found, 1):
        if is_watched and (number % _EVERY == 0 or number == total):
            end = "\n" if number == total else ""
            sys.stderr.write(f"\r{stage}: {number} of {total}{end}")
            sys.stderr.flush()
        yield world


def _document(world: World) -> dict[str, Any]:
    return {
        "stage": world.stage,
        **world.values,
        "verdict": world.verdict,
        "rules": list(world.deciding),
    }


def _summary(seen: Survey) -> dict[str, Any]:
    return {
        "verdicts": {stage: dict(counts) for stage, counts in seen.verdicts.items()},
        "never_violated": list(seen.never_violated),
        "never_asked": list(seen.never_asked),
        "implied": [list(pair) for pair in seen.implied],
        "unmentioned": list(seen.unmentioned),
    }


def _csv(shown: Sequence[World], stages: Sequence[str]) -> None:
    names = list(dict.fromkeys(name for stage in stages for name in axes(stage)))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["stage", *names, "verdict", "rules"])
    for world in shown:
        values = [world.values.get(name, "") for name in names]
        writer.writerow([world.stage, *values, world.verdict, " ".join(world.deciding)])


def _markdown(shown: Sequence[World], stages: Sequence[str], seen: Survey) -> None:
    for stage in stages:
        counts = ", ".join(f"{n} {v}" for v, n in seen.verdicts[stage].items() if n)
        line(f"## {stage}: {size(stage)} worlds: {counts}\n")
        names = list(axes(stage))
        line(f"| {' | '.join([*names, 'verdict', 'rules'])} |")
        line("|---" * (len(names) + 2) + "|")
        for world in shown:
            if world.stage == stage:
                values = [world.values[name] for name in names]
                cells = [*values, world.verdict, ", ".join(world.deciding)]
                line(f"| {' | '.join(cells)} |")
        line("")
    pairs = ", ".join(f"{one} by {other}" for one, other in seen.implied)
    line(f"never violated here: {', '.join(seen.never_violated) or 'none'}\n")
    line(f"not asked here: {', '.join(seen.never_asked) or 'none'}\n")
    line(f"implied here: {pairs or 'none'}\n")
    line(f"tags that no rule tells apart: {', '.join(seen.unmentioned) or 'none'}")
