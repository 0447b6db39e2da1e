"""Worlds: an installation with people and fakes, one for a test or one for a whole file."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from postgres import Postgres
from world import World, open_world

from service.database import open_engine
from service.schema import migrate


class OperatorLog:
    """Keeps what the service logs; a traceback is kept as its exception only."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []

    def __call__(self, _logger: object, _method: str, line: dict[str, object]) -> dict[str, object]:
        self.lines.append(line)
        raise structlog.DropEvent


@pytest.fixture(autouse=True)
def _operator_log() -> OperatorLog:
    # Set up for each test: one that runs the command line sets up logging itself.
    kept = OperatorLog()
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, kept])
    return kept


@pytest.fixture
def operator_log(_operator_log: OperatorLog) -> list[dict[str, object]]:
    """Give what the service logs during this test."""
    _operator_log.lines.clear()
    return _operator_log.lines


@pytest.fixture(scope="session")
def migrated_postgres(postgres_server: Postgres) -> str:
    """Name a PostgreSQL database with the schema; a copy is quicker than a migration."""
    url = postgres_server.create_database()
    engine = open_engine(url)
    migrate(engine)
    engine.dispose()
    return str(engine.url.database)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the URL of a database; the PostgreSQL one has its schema already."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'placet.db'}"
    server: Postgres = request.getfixturevalue("postgres_server")
    template: str = request.getfixturevalue("migrated_postgres")
    return server.create_database(template=template)


@pytest.fixture
def make_world(database_url: str, tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Give a function that opens the test's world, on both databases."""
    opened: list[World] = []

    def make(**settings: object) -> World:
        folder = tmp_path / f"world{len(opened)}"
        folder.mkdir()
        opened.append(open_world(folder, database_url, **settings))
        return opened[-1]

    yield make
    for world in opened:
        world.wired.database.dispose()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()


@pytest.fixture
def lone_world(tmp_path: Path) -> Iterator[World]:
    """Give a world of its own on SQLite, for what does not depend on the database."""
    world = open_world(tmp_path, f"sqlite:///{tmp_path / 'placet.db'}")
    yield world
    world.wired.database.dispose()


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Give one world on SQLite to all tests of a file; they must leave nothing behind."""
    folder = tmp_path_factory.mktemp("world")
    world = open_world(folder, f"sqlite:///{folder / 'placet.db'}")
    yield world
    world.wired.database.dispose()
