"""Bringing a database to the schema of this release, and saying whether it is there."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

_SCRIPTS = Path(__file__).parent / "migrations"


def migrate(engine: Engine) -> None:
    """Apply every migration that is missing. Running it twice changes nothing."""
    with engine.begin() as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def is_current(engine: Engine) -> bool:
    """Say whether the database has the schema of this release."""
    with engine.connect() as connection:
        revision = MigrationContext.configure(connection).get_current_revision()
    return revision == ScriptDirectory.from_config(_config()).get_current_head()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    return config
