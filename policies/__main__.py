"""`python -m policies` and the `placet policy` commands; each stands in `policies.commands`.

Exit codes: 0 fine, 1 something was found (a failing test, a gap, a hole), 2 a file is refused,
130 interrupted.
"""

import argparse
from collections.abc import Sequence
from typing import Any

from policies.commands import (
    bundle,
    coverage,
    decide,
    diff,
    lint,
    mutate,
    show,
    sources,
    table,
    test,
)

_COMMANDS = (lint, test, show, decide, coverage, mutate, sources, table, diff, bundle)


def add_commands(subparsers: Any) -> None:
    """Add `policy` with its commands to the subparsers of an argparse parser.

    The parsers' default `handler` is a function: (arguments) -> exit status.
    """
    parser = subparsers.add_parser("policy", help="check, test and show the rules of the gate")
    _add(parser.add_subparsers(dest="policy_command", required=True))


def _add(commands: Any) -> None:
    for each in _COMMANDS:
        each.add(commands)


def handle_policy(options: argparse.Namespace) -> int:
    """Run one parsed command and return the exit status."""
    return int(options.handler(options))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m policies`."""
    parser = argparse.ArgumentParser(prog="python -m policies", description="The gate's rules.")
    _add(parser.add_subparsers(dest="policy_command", required=True))
    options = parser.parse_args(arguments)
    try:
        return handle_policy(options)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
