"""`placet policy decide`: decide on a facts document, offline. The verdict is printed: exit 0."""

import argparse
from pathlib import Path
from typing import Any

from policies.commands.grammar import command, line, packs_of, say
from policies.facts import parse_facts
from policies.gate import decide
from policies.letter import letter
from policies.load import load_reference, policy_of
from policies.reference import Reference
from policies.render import explain
from policies.rule import LANGUAGES


def add(commands: Any) -> None:
    """Add `decide` to the commands of `placet policy`."""
    examples = (
        "placet policy decide facts.yaml --at 2026-11-30T12:00:00Z --site-country FR\n"
        "placet policy decide facts.yaml --at 2026-11-30T12:00:00Z --letter --language fr"
    )
    text = "decide on a facts document, offline"
    parser = command(commands, "decide", text, examples, _run)
    parser.add_argument("facts", type=Path, help="facts document, JSON or YAML")
    parser.add_argument("--at", required=True, help="instant, YYYY-MM-DDThh:mm:ssZ")
    parser.add_argument("--subject", default="job:what-if", help="kind:id of the case")
    parser.add_argument("--site-country", help="country of own-site, for a what-if")
    parser.add_argument("--letter", action="store_true", help="write it as an officer would")
    parser.add_argument("--language", choices=LANGUAGES, default="en")


def _run(options: argparse.Namespace) -> int:
    policy, reference = policy_of(packs_of(options)), _reference(options)
    syntax = "json" if options.facts.suffix == ".json" else "yaml"
    facts = parse_facts(options.facts.read_bytes(), syntax=syntax)
    made = decide(policy, reference, facts, evaluated_at=options.at, subject=options.subject)
    if options.json:
        say(made.document)
        return 0
    if options.letter:
        line(letter(made, policy, reference, options.language).rstrip("\n"))
        return 0
    asked = ", ".join(f"{a.count} {a.role}" for a in made.approvals)
    line(made.verdict + (f" ({asked})" if asked else ""))
    for one in explain(made, policy, options.language, reference):
        line(f"\n{one['outcome']:10} {one['rule']}  [{one['effect']}]")
        line(f"  {one['message']}\n  -> {one['remediation']}")
        for law in one["law"]:
            line(f"  {law['ref']} ({law['since']})")
    return 0


def _reference(options: argparse.Namespace) -> Reference:
    if options.site_country is None:
        return load_reference(options.reference)
    site = {
        "country": options.site_country,
        "declared_by": "what-if",
        "checked_on": options.at[:10],
    }
    return load_reference(options.reference, site=site)
