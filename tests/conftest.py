"""The few fixtures that several rooms share: a clock, both databases, an installation.

A test that asks for `database_url`, or for `make_installation` which needs it, runs twice: on
SQLite and on PostgreSQL. To run on one only:

    @pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from postgres import Postgres, postgres

# What tests may learn from the caller's environment; any other setting would change their meaning.
_KEPT = {"PLACET_BASE_MODEL", "PLACET_GOLDEN", "PLACET_VECTORS"}


def pytest_configure() -> None:
    for name in [name for name in os.environ if name.startswith("PLACET_")]:
        if name not in _KEPT:
            del os.environ[name]


# Folders whose few tests take longest; begun last, they would keep one worker waiting for another.
_LONGEST = ("e2e", "faults", "deploy", "trainer")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the folders that take longest; within them the order stays random."""
    items.sort(key=lambda item: item.path.parent.name not in _LONGEST)


class FixedClock:
    """A clock that stands still until a test advances it."""

    def __init__(self, start: datetime) -> None:
        self.now = start

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **duration: float) -> None:
        """Move on: `clock.advance(hours=73)`."""
        self.now += timedelta(**duration)


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(datetime(2026, 11, 30, 12, 0, tzinfo=UTC))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One server for all tests of this process."""
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def real_base_model() -> Path:
    """Give the folder of the small real model; `make setup` makes it."""
    name = os.environ.get("PLACET_BASE_MODEL")
    if not name:
        if os.environ.get("CI"):
            pytest.fail("PLACET_BASE_MODEL is not set: CI must test the real model")
        pytest.skip("PLACET_BASE_MODEL is not set; `make setup` makes the folder it names")
    return Path(name)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the URL of an empty database, as `Settings.database_url` takes it."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'placet.db'}"
    server: Postgres = request.getfixturevalue("postgres_server")
    return server.create_database()


@pytest.fixture
def make_installation(database_url: str, tmp_path: Path) -> Iterator[Callable[..., object]]:
    """Give a function that builds a migrated installation from settings.

    Everything lies in the test's own folder and the site is declared to stand in France. Calling it
    again builds a second process of the same installation. A `clock` keyword replaces the clock.
    """
    from service.clock import system_clock
    from service.installation import Installation, build
    from service.schema import migrate
    from service.settings import Settings

    built: list[Installation] = []

    def make(*, clock: Callable[[], datetime] = system_clock, **settings: object) -> Installation:
        declared = {
            "data_dir": tmp_path / "data",
            "database_url": database_url,
            "site_country": "FR",
            "site_declared_on": "2026-11-30",
        }
        installation = build(Settings(**(declared | settings)), clock=clock)
        built.append(installation)
        migrate(installation.database)
        return installation

    yield make
    for installation in built:
        installation.database.dispose()
