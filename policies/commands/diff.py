"""`placet policy diff`: what changed between two policies, and whether versions say so."""

import argparse
from pathlib import Path
from typing import Any

from policies.bundle import policy_at
from policies.commands.grammar import command, line, say
from policies.diff import Change, compare_policies, compare_references
from policies.load import load_reference


def add(commands: Any) -> None:
    """Add `diff` to the commands of `placet policy`."""
    examples = (
        "placet policy diff bundle-6.json bundle-7.json\n"
        "placet policy diff packs-in-force/ packs/ --json\n"
        "placet policy diff old/ new/ --reference-before old-tables/ --reference-after new-tables/"
    )
    parser = command(
        commands,
        "diff",
        "list what two policies do not have in common; 1 when logic changed under the same version",
        examples,
        _run,
    )
    kinds = "a folder of packs, a bundle, or a policy document"
    parser.add_argument("before", type=Path, help=kinds)
    parser.add_argument("after", type=Path, help=kinds)
    parser.add_argument("--reference-before", type=Path, help="folder of tables to compare")
    parser.add_argument("--reference-after", type=Path, help="folder of tables to compare it with")


def _run(options: argparse.Namespace) -> int:
    tables = (options.reference_before, options.reference_after)
    if (tables[0] is None) != (tables[1] is None):
        raise ValueError("give both --reference-before and --reference-after, or neither")
    before, after = policy_at([options.before]), policy_at([options.after])
    changes = compare_policies(before, after)
    if tables[0] is not None:
        changes += compare_references(load_reference(tables[0]), load_reference(tables[1]))
    wrong = [change for change in changes if change.is_unversioned]
    if options.json:
        say(
            {
                "before": before.digest,
                "after": after.digest,
                "changes": [change.to_document() for change in changes],
                "unversioned": len(wrong),
            }
        )
    else:
        for change in changes:
            line(_text(change))
        line(f"{len(changes)} differences, {len(wrong)} of them logic without a new version")
    return 1 if wrong else 0


def _text(change: Change) -> str:
    signs = {"added": "+", "removed": "-", "changed": "~"}
    before, after = change.versions
    version = f"  {before} -> {after}" if before and after and before != after else ""
    members = f"  {', '.join(change.members)}" if change.members else ""
    wrong = "  LOGIC CHANGED, VERSION DID NOT" if change.is_unversioned else ""
    return f"{signs[change.how]} {change.what:10} {change.name}{version}{members}{wrong}"
