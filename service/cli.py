"""The command `placet`. Each room has its own door; here they are one command.

Only the standard library is imported until a command is chosen: the base install holds
`cryptography` and nothing more, and there `placet verify` works; every other command says which
extra it needs. Errors are one line that says what to do. Exit statuses: 0 done, 1 refused or
failed, 2 usage or bad input, 130 interrupted. `verify` has its own. So has `check`, where 1 and 2
are verdicts: what keeps it from one is 64 (usage, bad input) or 69 (no answer, not allowed).
"""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

from service.commands import operations, policy, policy_acts, team
from service.commands.errors import CommandError, Status
from service.commands.grammar import Subparsers, held_by

_CHECK_STATUS: Mapping[int, int] = {Status.USAGE: 64, Status.REFUSED: 69}  # as sysexits.h
_ROOMS = frozenset({"audit", "policies", "model_cards", "trainer", "service"})
_REPLAY_HELP = "make every decision again from its own inputs (L8); needs placet[policies]"
_EPILOG = """\
the main flow:
  placet dataset register …      placet submit job.yaml        placet approve job_…
  placet watch job_…             placet deploy deployment.yaml placet ask dep_… "…"
  placet export --recipient auditor --out evidence.zip
  placet verify evidence.zip --vkey KEY --replay

Start with `placet demo`: it shows all of this on one machine. Every command has examples in --help.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    chosen = next((each for each in given if not each.startswith("-")), "")
    exits: Mapping[int, int] = _CHECK_STATUS if chosen == "check" else {}
    try:
        arguments = _parsed(given, chosen, exits)
        arguments.json = arguments.json_first or getattr(arguments, "json", False)
        status = _run(arguments)
        sys.stdout.flush()
    except CommandError as error:
        return _ended(str(error), exits.get(error.status, error.status))
    except KeyboardInterrupt:
        return Status.INTERRUPTED
    except BrokenPipeError:
        # The reader left, as `head` does. Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.get(Status.REFUSED, Status.REFUSED)
    except Exception as error:
        # A composition root: our bug becomes one line; PLACET_DEBUG shows where.
        if os.environ.get("PLACET_DEBUG"):
            raise
        said = " ".join(f"{type(error).__name__}: {error}".split())
        told = f"our bug ({said}); set PLACET_DEBUG=1 and report what it shows"
        return _ended(told, exits.get(Status.REFUSED, Status.REFUSED))
    return status


def _parsed(given: list[str], chosen: str, exits: Mapping[int, int]) -> argparse.Namespace:
    """Read the command line; argparse itself ends with 2 when it cannot."""
    try:
        return _parser(chosen).parse_args(given)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0
        raise SystemExit(exits.get(status, status)) from None


def _ended(message: str, status: int) -> int:
    sys.stderr.write(f"placet: {message}\n")
    return status


def _parser(chosen: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="placet",
        description="Governance for teams that fine-tune language models: gate, approvals,"
        " evidence, signed log.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--json", dest="json_first", action="store_true", help="print JSON for machines"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    team.add_commands(commands)
    _mount(commands, "verify", "check an exported audit log offline", chosen)
    _mount(commands, "policy", "check, test and show the rules of the gate", chosen)
    _mount(commands, "cost", "estimate a fine-tune; compare owning with renting", chosen)
    operations.add_commands(commands)
    return parser


def _mount(commands: Subparsers, name: str, text: str, chosen: str) -> None:
    """Mount a room's own commands, which means importing it; by its name only when not chosen."""
    if chosen != name:
        commands.add_parser(name, help=text)
        return
    place = {"verify": "audit.__main__", "policy": "policies.__main__"}
    module = place.get(name, f"policies.commands.{name}")
    door = _imported(module, extra=module.partition(".")[0])
    parser = door.add_commands(commands)
    if name == "verify":
        parser.add_argument("--replay", action="store_true", help=_REPLAY_HELP)
        parser.set_defaults(handler="verifying:verify", extra="")
    elif name == "policy":
        inner = held_by(commands.choices[name])
        policy.add_commands(inner)
        policy_acts.add_commands(inner)


def _run(arguments: argparse.Namespace) -> int:
    handler: str | Callable[[argparse.Namespace], int] = arguments.handler
    if isinstance(handler, str):
        module, _, function = handler.partition(":")
        handler = getattr(_imported(f"service.commands.{module}", extra=arguments.extra), function)
    return int(handler(arguments))  # type: ignore[operator]  # `getattr` gave a function


def _imported(module: str, *, extra: str) -> ModuleType:
    """Import a module of ours.

    Raises:
        CommandError: something it needs is not installed; names the extra that brings it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in _ROOMS:
            raise
        raise CommandError(
            f"install placet[{extra}] (`{missing}` is missing)", Status.USAGE
        ) from error


if __name__ == "__main__":
    raise SystemExit(main())
