"""`placet policy lint`: check packs and reference data, and print their digests."""

import argparse
from typing import Any

from policies.commands.grammar import command, line, packs_of, say
from policies.load import load_reference, policy_of


def add(commands: Any) -> None:
    """Add `lint` to the commands of `placet policy`."""
    examples = "placet policy lint\nplacet policy lint --packs our-packs/ --json"
    command(commands, "lint", "check packs and reference data", examples, _run)


def _run(options: argparse.Namespace) -> int:
    policy, reference = policy_of(packs_of(options)), load_reference(options.reference)
    counts = {name: len(rows) for name, rows in reference.tables.items()}
    if options.json:
        digests = {"policy": policy.digest, "reference": reference.digest}
        say({**digests, "rules": len(policy.rules), "rows": counts})
    else:
        line(f"policy     {policy.digest}  {len(policy.rules)} rules")
        line(f"reference  {reference.digest}  {sum(counts.values())} rows")
    return 0
