"""`placet policy table`: decide every combination of a few abstract facts, and count.

Exit 1 when not one state is decided. The claims about the shipped table stand in the tests.
"""

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from policies.cases import CASE_SITE
from policies.commands.grammar import command, line, packs_of, say
from policies.evaluator import default_evaluator
from policies.load import load_reference, policy_of
from policies.rule import RuleError
from policies.table import State, implied, states, unmentioned

_MEMBERS = ("data", "compute", "storage", "certificate", "budget", "verdict")
_EXAMPLES = "placet policy table\nplacet policy table --format csv > table.csv"


def add(commands: Any) -> None:
    """Add `table` to the commands of `placet policy`."""
    text = "decide every combination of a few abstract facts, and count"
    parser = command(commands, "table", text, _EXAMPLES, _run)
    parser.add_argument("--base", default="health", help="base document of a pack to vary")
    parser.add_argument("--format", choices=("markdown", "csv"), default="markdown")


def _run(options: argparse.Namespace) -> int:
    packs = packs_of(options)
    base = next((p.bases[options.base] for p in packs if options.base in p.bases), None)
    if base is None or base["stage"] != "train":
        raise RuleError(f"--base {options.base}: expected a base of stage train in `bases.yaml`")
    policy, reference = policy_of(packs), load_reference(options.reference, site=CASE_SITE)
    found = list(states(policy, reference, base, default_evaluator()))
    rules = [rule.id for rule in policy.rules if "train" in rule.stages]
    if options.json:
        say({"states": [{m: getattr(s, m) for m in _MEMBERS} for s in found],
             **_summary(found, rules)})  # fmt: skip
    elif options.format == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(_MEMBERS)
        writer.writerows([getattr(s, m) for m in _MEMBERS] for s in found)
    else:
        _markdown(found, _summary(found, rules))
    return 0 if found else 1


def _summary(found: Sequence[State], rules: Sequence[str]) -> dict[str, Any]:
    given = {rule: {state.outcomes.get(rule) for state in found} for rule in rules}
    return {
        "verdicts": dict(sorted(Counter(s.verdict for s in found).items())),
        "never_violated": [r for r in rules if "violated" not in given[r]],
        "never_applicable": [r for r in rules if given[r] <= {"not_applicable", None}],
        "unmentioned": unmentioned(found),
        "implied": [list(pair) for pair in implied(found, rules)],
    }


def _markdown(found: Sequence[State], summary: dict[str, Any]) -> None:
    line(f"{len(found)} states: " + ", ".join(f"{n} {v}" for v, n in summary["verdicts"].items()))
    for name in ("never_violated", "never_applicable", "unmentioned"):
        line(f"\n{name.replace('_', ' ')} here: {', '.join(summary[name]) or 'none'}")
    pairs = ", ".join(f"{a} by {b}" for a, b in summary["implied"])
    line(f"\nimplied here: {pairs or 'none'}\n\nnot denied:\n\n| {' | '.join(_MEMBERS)} |")
    line("|---" * len(_MEMBERS) + "|")
    for state in found:
        if state.verdict != "deny":
            line("| " + " | ".join(getattr(state, m) for m in _MEMBERS) + " |")
