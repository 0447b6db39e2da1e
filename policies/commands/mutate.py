"""`placet policy mutate`: change the rules one thing at a time, and see what notices.

Exit 0 when every survivor is explained in its pack's `survivors.yaml` and 95 % are killed.
"""

import argparse
import sys
import time
from collections import Counter
from typing import Any

from policies.cases import CASE_SITE
from policies.commands.grammar import command, line, packs_of, say
from policies.commands.test import chosen
from policies.evaluator import default_evaluator
from policies.load import load_reference
from policies.mutate import Mutant, mutate, survivors

BAR_PERCENT = 95
_EXAMPLES = (
    "placet policy mutate\nplacet policy mutate hds.certificate\nplacet policy mutate --json"
)


def add(commands: Any) -> None:
    """Add `mutate` to the commands of `placet policy`."""
    text = "change the rules one thing at a time, and see which tests notice"
    parser = command(commands, "mutate", text, _EXAMPLES, _run)
    parser.add_argument("rules", nargs="*", metavar="RULE", help="ids of rules (default: all)")


def _run(options: argparse.Namespace) -> int:
    packs = packs_of(options)
    reference = load_reference(options.reference, site=CASE_SITE)
    began = time.monotonic()
    found = mutate(chosen(packs, options.rules), reference, default_evaluator(), progress=_progress)
    seconds = time.monotonic() - began
    _progress("")
    reasons = {key: why for pack in packs for key, why in survivors(pack).items()}
    left = [mutant for mutant in found if not mutant.killed_by]
    unexplained = [m for m in left if (m.rule, m.name) not in reasons]
    kinds = Counter(mutant.killed_by for mutant in found)
    killed = kinds["cases"] + kinds["boundary"]
    fine = bool(found) and not unexplained and killed * 100 >= BAR_PERCENT * len(found)
    if options.json:
        rows = [_row(m, reasons) for m in left]
        say({"mutants": len(found), "cases": kinds["cases"], "boundary": kinds["boundary"],
             "survivors": rows, "unexplained": len(unexplained)})  # fmt: skip
        return 0 if fine else 1
    for mutant in left:
        reason = reasons.get((mutant.rule, mutant.name), "unexplained")
        line(f"SURVIVED  {mutant.rule}  {mutant.name}: {reason}")
    share = killed * 1000 // max(len(found), 1)
    line(f"{len(found)} mutants, {killed} killed ({share // 10}.{share % 10} %):"
         f" {kinds['cases']} by the rules' tests, {kinds['boundary']} by generated documents;"
         f" {len(unexplained)} unexplained; {seconds:.1f} s")  # fmt: skip
    return 0 if fine else 1


def _row(mutant: Mutant, reasons: Any) -> dict[str, Any]:
    reason = reasons.get((mutant.rule, mutant.name))
    return {"rule": mutant.rule, "mutant": mutant.name, "reason": reason}


def _progress(rule: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{rule:60}\r")
