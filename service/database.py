"""Opening the database: SQLite made durable and strict, PostgreSQL as it is."""

import sqlite3
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event

READ_ONLY = {"placet_read": True}


def open_engine(url: str) -> Engine:
    """Open the database at `url` (``sqlite:///…`` or ``postgresql+psycopg://…``).

    SQLite runs in WAL mode with ``synchronous=FULL``: after a checkpoint was published, a lost
    commit would be a rollback. Writing transactions begin IMMEDIATE, so that what was read stays
    true until the commit; reading ones (execution option `placet_read`) never wait for a writer.
    Errors leave the values of a statement out: they are names and texts, and errors are logged.
    """
    if url.startswith("sqlite"):
        engine = create_engine(
            url,
            connect_args={"timeout": 30, "check_same_thread": False},
            hide_parameters=True,
        )
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    return create_engine(
        url, pool_pre_ping=True, pool_size=10, max_overflow=20, hide_parameters=True
    )


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "secure_delete=ON",  # what is erased is overwritten
        "recursive_triggers=ON",  # else INSERT OR REPLACE slips past the no-delete triggers
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    reading = connection.get_execution_options().get("placet_read", False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
