"""What a witness remembers, in one SQLite file that cannot be made to forget by a request.

A transaction holds the writer's lock from its first read to its commit, among threads and among
processes, so that of two requests one sees the other's outcome. Triggers refuse a smaller size,
another root for the same size, and a log that is deleted, whoever writes.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, text

from audit.note import Checkpoint
from service.database import READ_ONLY, open_engine

_TABLE = """
CREATE TABLE IF NOT EXISTS witnessed (
    origin TEXT NOT NULL PRIMARY KEY,
    origin_sha256 TEXT NOT NULL UNIQUE,
    size INTEGER NOT NULL CHECK (size >= 0),
    root BLOB NOT NULL CHECK (length(root) = 32),
    note BLOB NOT NULL,
    cosigned_at INTEGER NOT NULL CHECK (cosigned_at > 0)
) STRICT
"""
_TRIGGERS = (
    """
CREATE TRIGGER IF NOT EXISTS witnessed_never_goes_back BEFORE UPDATE ON witnessed
WHEN NEW.origin <> OLD.origin OR NEW.size < OLD.size
     OR (NEW.size = OLD.size AND NEW.root <> OLD.root)
BEGIN SELECT RAISE(ABORT, 'a witness never goes back'); END
""",
    """
CREATE TRIGGER IF NOT EXISTS witnessed_is_kept BEFORE DELETE ON witnessed
BEGIN SELECT RAISE(ABORT, 'a witness never forgets'); END
""",
)
_SAVE = text(
    "INSERT INTO witnessed (origin, origin_sha256, size, root, note, cosigned_at)"
    " VALUES (:origin, :origin_sha256, :size, :root, :note, :cosigned_at)"
    " ON CONFLICT (origin) DO UPDATE SET size = excluded.size, root = excluded.root,"
    " note = excluded.note, cosigned_at = excluded.cosigned_at"
)
_ALL = text("SELECT origin, size, root, cosigned_at FROM witnessed ORDER BY origin")


@dataclass(frozen=True)
class Remembered:
    """The newest checkpoint of one log; `cosigned_at` in POSIX seconds."""

    checkpoint: Checkpoint
    cosigned_at: int


@dataclass(frozen=True)
class Memory:
    """The memory within one transaction."""

    connection: Connection

    def last(self, origin: str) -> Checkpoint | None:
        """Return the checkpoint that was cosigned last for an origin."""
        row = self.connection.execute(
            text("SELECT size, root FROM witnessed WHERE origin = :origin"), {"origin": origin}
        ).one_or_none()
        return None if row is None else Checkpoint(origin, row.size, bytes(row.root))

    def keep(self, checkpoint: Checkpoint, note: bytes, *, cosigned_at: int) -> None:
        """Remember a checkpoint in place of the one before.

        Raises:
            sqlalchemy.exc.IntegrityError: it would take the witness back.
        """
        self.connection.execute(
            _SAVE,
            {
                "origin": checkpoint.origin,
                "origin_sha256": hashlib.sha256(checkpoint.origin.encode()).hexdigest(),
                "size": checkpoint.size,
                "root": checkpoint.root,
                "note": note,
                "cosigned_at": cosigned_at,
            },
        )


class Storage:
    """The file, made when it is missing.

    Args:
        path: where it lies; its folder exists.
    """

    def __init__(self, path: Path) -> None:
        self._engine = open_engine(f"sqlite:///{path}")
        with self._engine.begin() as connection:
            for statement in (_TABLE, *_TRIGGERS):
                connection.exec_driver_sql(statement)

    @contextmanager
    def exclusive(self) -> Iterator[Memory]:
        """Read and write as the only one; what was kept is on disk when this ends."""
        with self._engine.begin() as connection:
            yield Memory(connection)

    def note(self, origin_sha256: str) -> bytes | None:
        """Return the newest cosigned note of a log, by the hex SHA-256 of its origin."""
        with self._engine.connect().execution_options(**READ_ONLY) as connection:
            found = connection.execute(
                text("SELECT note FROM witnessed WHERE origin_sha256 = :hash"),
                {"hash": origin_sha256},
            ).scalar_one_or_none()
        return None if found is None else bytes(found)

    def everything(self) -> list[Remembered]:
        """Return what is remembered, by origin."""
        with self._engine.connect().execution_options(**READ_ONLY) as connection:
            rows = connection.execute(_ALL).all()
        return [
            Remembered(Checkpoint(row.origin, row.size, bytes(row.root)), row.cosigned_at)
            for row in rows
        ]

    def close(self) -> None:
        """Close the file."""
        self._engine.dispose()
