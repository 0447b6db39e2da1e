"""`placet serve`, `worker` and `migrate`: the processes of an installation."""

import argparse
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import uvicorn

from audit.policy import WitnessPolicyError
from policies.reference import ReferenceDataError
from policies.rule import RuleError
from service.app import create_app
from service.commands.errors import CommandError, Status
from service.commands.listening import listening
from service.commands.operating import NO_SCHEMA, make_private, plainly, read_settings
from service.commands.output import line, machine
from service.installation import Installation, build
from service.ledger import ForkError, RolledBackError
from service.logs import configure
from service.objects.protocol import ObjectError
from service.schema import is_current
from service.schema import migrate as apply_migrations
from service.settings import Settings
from service.worker import Worker

_DRAIN_S = 5


class _StoppedError(Exception):
    """SIGTERM arrived: end in order."""


def serve(arguments: argparse.Namespace) -> int:
    """Run the API, and the worker unless another process has it, until SIGINT or SIGTERM."""
    make_private()
    settings = read_settings(host=arguments.host, port=arguments.port)
    _log_to_stderr(settings)
    signal.signal(signal.SIGTERM, _stop)
    try:
        with installed(settings) as installation:
            if arguments.migrate:
                _bring_up_to_date(installation)
            elif not is_current(installation.database):
                raise CommandError(f"{NO_SCHEMA}, or start with --migrate")
            otherwise = "another --port or PLACET_PORT"
            with listening(settings.host, settings.port, otherwise=otherwise) as listener:
                config = uvicorn.Config(
                    create_app(installation),
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    timeout_graceful_shutdown=_DRAIN_S,
                )
                worker = None if arguments.no_worker else Worker(installation)
                if worker is not None:
                    worker.start()
                line(f"Placet answers at {settings.url} (documentation: {settings.url}/docs)")
                sys.stdout.flush()
                try:
                    uvicorn.Server(config).run(sockets=[listener])
                finally:
                    if worker is not None:
                        worker.stop()
    except _StoppedError:
        return Status.OK
    return Status.OK


def work(arguments: argparse.Namespace) -> int:
    """Run the worker alone until SIGINT or SIGTERM; runs and endpoints go on without it."""
    del arguments
    make_private()
    settings = read_settings()
    _log_to_stderr(settings)
    with installed(settings) as installation:
        if not is_current(installation.database):
            raise CommandError(NO_SCHEMA)
        worker = Worker(installation)
        try:
            signal.signal(signal.SIGTERM, _stop)
            worker.run()
        except (_StoppedError, KeyboardInterrupt) as end:
            worker.stop()
            if isinstance(end, KeyboardInterrupt):
                raise
    return Status.OK


def migrate(arguments: argparse.Namespace) -> int:
    """Bring the database to this release's schema; repeating it changes nothing."""
    make_private()
    with installed(read_settings()) as installation:
        was_current = is_current(installation.database)
        _bring_up_to_date(installation)
        vkeys = installation.ledger.vkeys
        origin = installation.settings.origin
    if arguments.json:
        machine({"changed": not was_current, "origin": origin, "vkeys": vkeys})
        return Status.OK
    line("the schema was current" if was_current else "the schema is current now")
    line(f"log {origin}; publish its verifier keys where auditors find them:")
    for vkey in vkeys:
        line(f"  {vkey}")
    return Status.OK


@contextmanager
def installed(settings: Settings) -> Iterator[Installation]:
    """Wire the installation for one process.

    Raises:
        CommandError: what is configured cannot be used; says what to mend.
    """
    try:
        with plainly():
            installation = build(settings)
            try:
                yield installation
            finally:
                installation.database.dispose()
    except (
        *(RuleError, ReferenceDataError, WitnessPolicyError),
        *(RolledBackError, ForkError),
    ) as error:
        raise CommandError(str(error)) from error
    except ObjectError as error:
        raise CommandError(f"object storage: {error}") from error


def _bring_up_to_date(installation: Installation) -> None:
    """Migrate the database and write the log's first entries, once."""
    apply_migrations(installation.database)
    installation.start()


def _log_to_stderr(settings: Settings) -> None:
    """Write operators' logs, and warnings of libraries, to standard error."""
    configure(settings.log_format)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)


def _stop(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise _StoppedError
