"""`placet policy show`: list the rules, or print one as JSON."""

import argparse
from typing import Any

from policies.commands.grammar import command, line, packs_of, say
from policies.load import policy_of
from policies.rule import LANGUAGES, RuleError


def add(commands: Any) -> None:
    """Add `show` to the commands of `placet policy`."""
    examples = "placet policy show --language fr\nplacet policy show hds.certificate"
    parser = command(commands, "show", "list the rules, or show one", examples, _run)
    parser.add_argument("rule", nargs="?", help="id of one rule")
    parser.add_argument("--language", choices=LANGUAGES, default="en")


def _run(options: argparse.Namespace) -> int:
    policy = policy_of(packs_of(options))
    if options.rule is not None:
        rule = policy.rule(options.rule)
        if rule is None:
            raise RuleError(f"there is no rule `{options.rule}`: see `placet policy show`")
        say(dict(rule.document))
        return 0
    rows = [
        {
            "rule": r.id,
            "version": r.version,
            "effect": r.effect,
            "stages": list(r.stages),
            "title": r.document["title"][options.language],
        }
        for r in policy.rules
    ]
    if options.json:
        say(rows)
    else:
        for row in rows:
            line(f"{row['rule']:28} {row['effect']:17} {row['title']}")
    return 0
