"""How a command is declared: name, help, examples, the handler that is imported when chosen.

Standard library only, so that `placet --help` and `placet verify` work on the base install.
"""

import argparse
from pathlib import Path
from typing import TypeAlias

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 — no public name


def command(
    subparsers: Subparsers, name: str, text: str, *, handler: str, examples: str, extra: str
) -> argparse.ArgumentParser:
    """Add one command and return its parser.

    Args:
        subparsers: where.
        name: the command.
        text: what it does, in one line.
        handler: `module:function` below `service.commands`.
        examples: lines of a shell.
        extra: the optional dependencies that the handler needs.
    """
    parser = subparsers.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog="examples:\n" + "\n".join(f"  {each}" for each in examples.strip().splitlines()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON for machines"
    )
    parser.set_defaults(handler=handler, extra=extra)
    return parser


def remote(
    subparsers: Subparsers, name: str, text: str, *, handler: str, examples: str
) -> argparse.ArgumentParser:
    """Add a command that talks to a running service."""
    parser = command(subparsers, name, text, handler=handler, examples=examples, extra="client")
    group = parser.add_argument_group("connection")
    group.add_argument("--url", help="address of the service (default: PLACET_URL)")
    group.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file with your token (default: the variable PLACET_TOKEN)",
    )
    return parser


def group_of(subparsers: Subparsers, name: str, text: str) -> Subparsers:
    """Add a command that only holds further ones."""
    parser = subparsers.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    return parser.add_subparsers(required=True, metavar="COMMAND", title="commands")


def held_by(parser: argparse.ArgumentParser) -> Subparsers:
    """Return where the commands below a command are added.

    Raises:
        LookupError: it has none.
    """
    for action in parser._actions:  # noqa: SLF001 — argparse gives no other way back to them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 — as above
            return action
    raise LookupError(f"`{parser.prog}` holds no commands")
