"""The operator's door: settings, database and keys of one installation, without the API."""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError

from policies.reference import ReferenceDataError
from policies.rule import RuleError
from service.commands.errors import CommandError, Status
from service.commands.rooms import foreign_rooms
from service.installation import Installation, build
from service.keys import KeyFileError
from service.ledger import ForkError, RolledBackError
from service.objects.protocol import ObjectError
from service.problems import Problem
from service.schema import is_current, migrate
from service.settings import Settings


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
def installed(
    arguments: argparse.Namespace, *, settings: Settings | None = None, needs_schema: bool = True
) -> Iterator[Installation]:
    """Wire the installation for one command and put what can go wrong into one line.

    Raises:
        CommandError: a room is not ours, a setting, key or rule is wrong, or the database is away.
    """
    del arguments  # every command passes it; settings come from the environment alone
    for room, wrong in foreign_rooms().items():
        raise CommandError(f"the package `{room}` {wrong}")
    try:
        installation = build(settings or read_settings())
        try:
            if needs_schema and not is_current(installation.database):
                raise CommandError("the database lacks this release's schema; run `placet migrate`")
            yield installation
        finally:
            installation.database.dispose()
    except Problem as error:
        status = Status.USAGE if error.status in {404, 422} else Status.REFUSED
        raise CommandError(error.detail, status) from error
    except (KeyFileError, RuleError, ReferenceDataError, RolledBackError, ForkError) as error:
        raise CommandError(str(error)) from error
    except ObjectError as error:
        raise CommandError(f"object storage: {error}") from error
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or type(error).__name__)
        raise CommandError(f"the database cannot be used: {reason}; see `placet doctor`") from error
    except OSError as error:
        where = f" `{error.filename}`" if error.filename else ""
        raise CommandError(f"cannot use{where}: {error.strerror or error}") from error


def bring_up_to_date(installation: Installation) -> None:
    """Migrate the database and write the log's first entry, once."""
    migrate(installation.database)
    installation.ledger.start(installation.transactions)


def umask_private() -> None:
    """Let files that this process makes be its owner's only."""
    os.umask(0o077)
