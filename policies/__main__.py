"""`python -m policies` and the `placet policy` commands: lint, test, show, table.

Exit codes: 0 fine, 1 a rule's own test fails or an outcome has no test, 2 a file is refused.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from policies.cases import CASE_SITE, run_cases, uncovered
from policies.commands import bundle
from policies.decision import GateError
from policies.evaluator import default_evaluator
from policies.facts import FactsError, parse_facts
from policies.gate import decide
from policies.load import PACKS, REFERENCE, Pack, load_reference, policy_of, read_packs
from policies.reference import Reference, ReferenceDataError
from policies.render import explain
from policies.rule import LANGUAGES, RuleError

_REFUSED = (RuleError, ReferenceDataError, FactsError, GateError, OSError)


def add_commands(subparsers: Any) -> None:
    """Add `policy` with its commands to the subparsers of an argparse parser.

    The parsers' default `handler` is `handle_policy`: (arguments) -> exit status.
    """
    parser = subparsers.add_parser("policy", help="check, test and show the rules of the gate")
    _add(parser.add_subparsers(dest="policy_command", required=True))


def _add(commands: Any) -> None:
    for name, text in (
        ("lint", "check packs and reference data"),
        ("test", "run the rules' own tests"),
        ("show", "list the rules, or show one"),
        ("decide", "decide on a facts document, offline"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--packs", type=Path, action="append", help="folder of packs")
        command.add_argument("--reference", type=Path, default=REFERENCE, help="folder of tables")
        command.add_argument("--json", action="store_true", help="machine-readable output")
        command.set_defaults(handler=handle_policy, policy_command=name)
        if name == "show":
            command.add_argument("rule", nargs="?", help="id of one rule")
        if name == "decide":
            command.add_argument("facts", type=Path, help="facts document, JSON or YAML")
            command.add_argument("--at", required=True, help="instant, YYYY-MM-DDThh:mm:ssZ")
            command.add_argument("--subject", default="job:what-if", help="kind:id of the case")
            command.add_argument("--site-country", help="country of own-site, for a what-if")
        if name in ("show", "decide"):
            command.add_argument("--language", choices=LANGUAGES, default="en")
    bundle.add(commands)


def handle_policy(options: argparse.Namespace) -> int:
    """Run one parsed command and return the exit status."""
    commands = {"lint": _lint, "test": _test, "show": _show, "decide": _decide}
    try:
        packs = read_packs(options.packs or [PACKS])
        return commands[options.policy_command](options, packs)
    except _REFUSED as cause:
        sys.stderr.write(f"placet policy: {cause}\n")
        return 2


def _line(text: str) -> None:
    sys.stdout.write(text + "\n")


def _say(value: Any) -> None:
    _line(json.dumps(value, ensure_ascii=False, indent=1))


def _lint(options: argparse.Namespace, packs: Sequence[Pack]) -> int:
    policy, reference = policy_of(packs), load_reference(options.reference)
    counts = {name: len(rows) for name, rows in reference.tables.items()}
    if options.json:
        digests = {"policy": policy.digest, "reference": reference.digest}
        _say({**digests, "rules": len(policy.rules), "rows": counts})
    else:
        _line(f"policy     {policy.digest}  {len(policy.rules)} rules")
        _line(f"reference  {reference.digest}  {sum(counts.values())} rows")
    return 0


def _test(options: argparse.Namespace, packs: Sequence[Pack]) -> int:
    policy_of(packs)
    reference = load_reference(options.reference, site=CASE_SITE)
    results = run_cases(packs, reference, default_evaluator())
    bad = [result for result in results if not result.ok]
    gaps = uncovered(packs)
    if options.json:
        failed = [{"rule": r.rule, "case": r.case, "detail": r.detail} for r in bad]
        _say({"cases": len(results), "failed": failed, "uncovered": [list(g) for g in gaps]})
    else:
        for result in bad:
            _line(f"FAIL  {result.rule}  {result.case}: {result.detail}")
        for rule, outcome in gaps:
            _line(f"FAIL  {rule}: no test expects `{outcome}`")
        _line(f"{len(results)} cases, {len(bad) + len(gaps)} failures")
    return 1 if bad or gaps or not results else 0


def _show(options: argparse.Namespace, packs: Sequence[Pack]) -> int:
    policy = policy_of(packs)
    if options.rule is None:
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
            _say(rows)
        else:
            for row in rows:
                _line(f"{row['rule']:28} {row['effect']:17} {row['title']}")
        return 0
    rule = policy.rule(options.rule)
    if rule is None:
        raise RuleError(f"there is no rule `{options.rule}`: see `placet policy show`")
    _say(dict(rule.document))
    return 0


def _decide(options: argparse.Namespace, packs: Sequence[Pack]) -> int:
    policy, reference = policy_of(packs), _reference(options)
    syntax = "json" if options.facts.suffix == ".json" else "yaml"
    facts = parse_facts(options.facts.read_bytes(), syntax=syntax)
    made = decide(policy, reference, facts, evaluated_at=options.at, subject=options.subject)
    if options.json:
        _say(made.document)
        return 0
    asked = ", ".join(f"{a.count} {a.role}" for a in made.approvals)
    _line(made.verdict + (f" ({asked})" if asked else ""))
    for one in explain(made, policy, options.language):
        _line(f"\n{one['outcome']:10} {one['rule']}  [{one['effect']}]")
        _line(f"  {one['message']}\n  -> {one['remediation']}")
        for law in one["law"]:
            _line(f"  {law['ref']} ({law['since']})")
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m policies`."""
    parser = argparse.ArgumentParser(prog="python -m policies", description="The gate's rules.")
    _add(parser.add_subparsers(dest="policy_command", required=True))
    options = parser.parse_args(arguments)
    return int(options.handler(options))


if __name__ == "__main__":
    raise SystemExit(main())
