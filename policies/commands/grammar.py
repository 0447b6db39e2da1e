"""What the commands of `placet policy` share: how they are declared, refuse and print.

Exit codes: 0 fine, 1 something was found, 2 a file or an argument is refused.
None of these commands writes a file, so an interrupted one leaves nothing.
"""

import argparse
import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from policies.load import PACKS, REFERENCE, Pack, read_packs

Run = Callable[[argparse.Namespace], int]


def command(commands: Any, name: str, text: str, examples: str, run: Run) -> Any:
    """Add one command with `--packs`, `--reference` and `--json`; return its parser.

    `examples` is one command to a line. The handler turns a refusal into one line and exit 2.
    """
    lines = "".join(f"  {line}\n" for line in examples.splitlines())
    parser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=f"exit codes: 0 fine, 1 something was found, 2 refused\n\nexamples:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--packs", type=Path, action="append", help="folder of packs")
    parser.add_argument("--reference", type=Path, default=REFERENCE, help="folder of tables")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.set_defaults(handler=functools.partial(guarded, run), policy_command=name)
    return parser


def guarded(run: Run, options: argparse.Namespace) -> int:
    """Run a command; what it refuses is one line on standard error and exit 2."""
    try:
        return run(options)
    except (ValueError, OSError) as cause:
        sys.stderr.write(f"placet policy: {reason(cause)}\n")
        return 2


def reason(cause: Exception) -> str:
    """Say in one line why something is refused; of a file, which one and what is wrong with it."""
    if isinstance(cause, OSError) and cause.filename is not None:
        return f"`{cause.filename}`: {str(cause.strerror).lower()}"
    return str(cause)


def packs_of(options: argparse.Namespace) -> tuple[Pack, ...]:
    """Read the packs that the options name, else those that ship.

    Raises:
        RuleError: as `read_packs`.
    """
    return read_packs(options.packs or [PACKS])


def line(text: str) -> None:
    """Print one line."""
    sys.stdout.write(text + "\n")


def say(value: Any) -> None:
    """Print a value as JSON."""
    line(json.dumps(value, ensure_ascii=False, indent=1))
