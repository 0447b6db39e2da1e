"""Worlds: an installation with people and fakes, one for a test or one for a whole file."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from world import World, open_world


class OperatorLog:
    """Keeps what the service logs; a traceback is kept as its exception only."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []

    def __call__(self, _logger: object, _method: str, line: dict[str, object]) -> dict[str, object]:
        self.lines.append(line)
        raise structlog.DropEvent


@pytest.fixture(scope="session", autouse=True)
def _operator_log() -> OperatorLog:
    kept = OperatorLog()
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, kept])
    return kept


@pytest.fixture
def operator_log(_operator_log: OperatorLog) -> list[dict[str, object]]:
    """Give what the service logs during this test."""
    _operator_log.lines.clear()
    return _operator_log.lines


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
