"""`placet policy coverage`: which outcomes of which rules the tests show; exit 1 at a gap."""

import argparse
from collections import Counter
from typing import Any

from policies.cases import CASE_SITE
from policies.commands.grammar import command, line, packs_of, say
from policies.coverage import coverage
from policies.evaluator import default_evaluator
from policies.load import load_reference

_OUTCOMES = ("pass", "violated", "unknown", "not_applicable")


def add(commands: Any) -> None:
    """Add `coverage` to the commands of `placet policy`."""
    examples = "placet policy coverage\nplacet policy coverage --packs our-packs/ --json"
    command(commands, "coverage", "show the matrix of rules by outcomes", examples, _run)


def _run(options: argparse.Namespace) -> int:
    reference = load_reference(options.reference, site=CASE_SITE)
    cells = coverage(packs_of(options), reference, default_evaluator())
    gaps = [cell for cell in cells if cell.shown_by == "missing"]
    if options.json:
        names = ("rule", "outcome", "place", "shown_by")
        rows = [{name: getattr(cell, name) for name in names} for cell in cells]
        say({"cells": rows, "missing": len(gaps)})
        return 1 if gaps else 0
    total = Counter((cell.rule, cell.outcome) for cell in cells)
    shown = Counter((cell.rule, cell.outcome) for cell in cells if cell.shown_by != "missing")
    line(f"{'':30} " + " ".join(f"{outcome:>14}" for outcome in _OUTCOMES))
    for rule in dict.fromkeys(cell.rule for cell in cells):
        parts = (f"{shown[rule, o]}/{total[rule, o]}" for o in _OUTCOMES)
        line(f"{rule:30} " + " ".join(f"{part:>14}" for part in parts))
    for cell in gaps:
        line(f"MISSING  {cell.rule}: {cell.outcome} {cell.place}".rstrip())
    kinds = Counter(cell.shown_by for cell in cells)
    line(f"{len(cells)} cells: " + ", ".join(f"{kinds[k]} {k}" for k in sorted(kinds)))
    return 1 if gaps else 0
