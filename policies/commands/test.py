"""`placet policy test`: run the rules' own tests. No test at all is a failure."""

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any

from policies.cases import CASE_SITE, run_cases, uncovered
from policies.commands.grammar import command, line, packs_of, say
from policies.evaluator import default_evaluator
from policies.load import Pack, load_reference, policy_of
from policies.rule import RuleError


def add(commands: Any) -> None:
    """Add `test` to the commands of `placet policy`."""
    examples = "placet policy test\nplacet policy test hds.certificate hds.validity --json"
    parser = command(commands, "test", "run the rules' own tests", examples, _run)
    parser.add_argument("rules", nargs="*", metavar="RULE", help="ids of rules (default: all)")


def chosen(packs: Sequence[Pack], rules: Sequence[str]) -> tuple[Pack, ...]:
    """Keep the rules that are named, or all when none is.

    Raises:
        RuleError: a name is no rule's.
    """
    if not rules:
        return tuple(packs)
    strange = sorted(set(rules) - {rule.id for pack in packs for rule in pack.rules})
    if strange:
        raise RuleError(f"there is no rule `{strange[0]}`: see `placet policy show`")
    return tuple(
        dataclasses.replace(pack, rules=tuple(r for r in pack.rules if r.id in rules))
        for pack in packs
    )


def _run(options: argparse.Namespace) -> int:
    packs = packs_of(options)
    policy_of(packs)
    packs = chosen(packs, options.rules)
    reference = load_reference(options.reference, site=CASE_SITE)
    results = run_cases(packs, reference, default_evaluator())
    bad = [result for result in results if not result.ok]
    gaps = uncovered(packs)
    if options.json:
        failed = [{"rule": r.rule, "case": r.case, "detail": r.detail} for r in bad]
        say({"cases": len(results), "failed": failed, "uncovered": [list(g) for g in gaps]})
    else:
        for result in bad:
            line(f"FAIL  {result.rule}  {result.case}: {result.detail}")
        for rule, outcome in gaps:
            line(f"FAIL  {rule}: no test expects `{outcome}`")
        line(f"{len(results)} cases, {len(bad) + len(gaps)} failures")
    return 1 if bad or gaps or not results else 0
