"""`placet witness`: a witness of its own, which shares no folder and no key with the service."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from service.clock import instant, seconds, system_clock
from service.commands.errors import CommandError, Status
from service.commands.listening import listening
from service.commands.operating import make_private, plainly
from service.commands.output import fields, line, machine, table
from service.logs import configure
from service.witness.app import create_app
from service.witness.cosigning import Witness, WitnessError
from service.witness.storage import Remembered

_DRAIN_S = 5


def serve(arguments: argparse.Namespace) -> int:
    """Answer logs until SIGINT or SIGTERM."""
    configure("json" if arguments.json else "text")
    with _opened(arguments) as witness:
        otherwise = "another --port"
        with listening(arguments.host, arguments.port, otherwise=otherwise) as listener:
            config = uvicorn.Config(
                create_app(witness),
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_DRAIN_S,
            )
            line(f"witness {witness.name} answers at http://{arguments.host}:{arguments.port}")
            sys.stdout.flush()
            uvicorn.Server(config).run(sockets=[listener])
    return Status.OK


def key(arguments: argparse.Namespace) -> int:
    """Show the keys that go into policies; make them first when there are none."""
    with _opened(arguments) as witness:
        if arguments.json:
            machine({"name": witness.name, "vkeys": witness.vkeys})
            return Status.OK
        line(f"witness {witness.name}; lines for a policy file, with your own names and URL:")
        for label, vkey in zip(("ed25519", "ml-dsa-44"), witness.vkeys, strict=True):
            line(f"witness {label} {vkey}")
    return Status.OK


def trust(arguments: argparse.Namespace) -> int:
    """Watch a log from now on, by its verifier key."""
    with _opened(arguments) as witness:
        is_new = witness.watch(arguments.vkey)
        origins = sorted(witness.watched())
    if arguments.json:
        machine({"changed": is_new, "origins": origins})
        return Status.OK
    line("trusted from now on" if is_new else "was trusted already")
    return Status.OK


def status(arguments: argparse.Namespace) -> int:
    """Show which logs are watched, and the newest checkpoint of each."""
    with _opened(arguments) as witness:
        last = {each.checkpoint.origin: each for each in witness.remembered()}
        origins = sorted({*last, *witness.watched()})
        trusted = {origin: len(found) for origin, found in witness.watched().items()}
        rows = [_row(origin, trusted.get(origin, 0), last.get(origin)) for origin in origins]
    if arguments.json:
        machine({"name": witness.name, "logs": rows})
        return Status.OK
    fields({"witness": witness.name})
    table(("origin", "keys", "size", "root", "cosigned_at"), rows)
    return Status.OK


def _row(origin: str, num_keys: int, last: Remembered | None) -> dict[str, object]:
    return {
        "origin": origin,
        "keys": num_keys,
        "size": None if last is None else last.checkpoint.size,
        "root": None if last is None else last.checkpoint.root.hex(),
        "cosigned_at": None if last is None else _spelt(last.cosigned_at),
    }


def _spelt(posix_seconds: int) -> str:
    epoch = instant("1970-01-01T00:00:00+00:00")
    return seconds(epoch.fromtimestamp(posix_seconds, epoch.tzinfo))


@contextmanager
def _opened(arguments: argparse.Namespace) -> Iterator[Witness]:
    """Open the witness's folder for one command.

    Raises:
        CommandError: it cannot be used; says what to do.
    """
    make_private()
    try:
        with plainly():
            witness = Witness(arguments.data, getattr(arguments, "name", None), system_clock)
            try:
                yield witness
            finally:
                witness.close()
    except WitnessError as error:
        raise CommandError(str(error), Status.USAGE) from error
