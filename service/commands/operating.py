"""The operator's door: settings and database of one installation, without the API."""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError

from service import keys
from service.clock import system_clock
from service.commands.errors import CommandError, Status
from service.commands.rooms import foreign_rooms
from service.database import open_engine
from service.keys import KeyFileError
from service.problems import Problem
from service.schema import is_current
from service.settings import Settings
from service.transaction import Transactions

NO_SCHEMA = "the database lacks this release's schema; run `placet migrate`"


def read_settings(**overrides: Any) -> Settings:
    """Read the settings from the environment.

    Raises:
        CommandError: a setting is wrong; names its variable.
    """
    try:
        return Settings(**{name: value for name, value in overrides.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        said = first["msg"].removeprefix("Value error, ")
        variable = f"PLACET_{name}: " if name else ""
        raise CommandError(f"{variable}{said}", Status.USAGE) from error


@contextmanager
def plainly() -> Iterator[None]:
    """Put what an operator can mend into one line.

    Raises:
        CommandError: a room is not ours, a value or a key is wrong, the database cannot be used.
    """
    for room, wrong in foreign_rooms().items():
        raise CommandError(f"the package `{room}` {wrong}")
    try:
        yield
    except Problem as error:
        status = Status.USAGE if error.status in {404, 422} else Status.REFUSED
        raise CommandError(error.detail, status) from error
    except KeyFileError as error:
        raise CommandError(str(error)) from error
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or type(error).__name__)
        raise CommandError(f"the database cannot be used: {reason}; see `placet doctor`") from error
    except OSError as error:
        where = f" `{error.filename}`" if error.filename else ""
        raise CommandError(f"cannot use{where}: {error.strerror or error}") from error


@contextmanager
def stored(arguments: argparse.Namespace) -> Iterator[Transactions]:
    """Open the installation's database for one command.

    Raises:
        CommandError: as `plainly`, or the schema is another release's.
    """
    del arguments  # every command passes it; settings come from the environment alone
    make_private()
    with plainly():
        settings = read_settings()
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        database = open_engine(settings.database)
        try:
            if not is_current(database):
                raise CommandError(NO_SCHEMA)
            yield Transactions(
                engine=database,
                origin=settings.origin,
                clock=system_clock,
                seal_key=keys.wrapping_key(settings.key_file("seal")),
            )
        finally:
            database.dispose()


def make_private() -> None:
    """Let files that this process makes be its owner's only."""
    os.umask(0o077)
