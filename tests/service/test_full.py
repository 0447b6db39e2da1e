"""When the log cannot keep up, or the disk is full, nothing is written and everybody is told."""

import dataclasses

import pytest
from sqlalchemy import event, text

from audit.event import EventKind
from service.principals import Role, create_principal
from service.problems import Unavailable


def write(wired, count=1):
    for _ in range(count):
        with wired.transactions.write() as tx:
            create_principal(tx, name="Nora", kind="human", roles=[Role.AUDITOR], teams=[])


@pytest.fixture
def slow(make_world):
    """A world whose log may fall 100 entries behind, and has."""
    world = make_world(max_pending_entries=100)
    world.wired.ledger.sequence()
    unlimited = dataclasses.replace(world.wired.transactions, max_pending=None)
    write(dataclasses.replace(world.wired, transactions=unlimited), 101)
    return world


def test_a_log_that_is_behind_takes_nothing_new(slow):
    before = slow.counts()

    answer = slow.ask("POST", "/v1/datasets", "ada", slow.dataset_body())

    assert (answer.status, answer.slug) == (503, "unavailable")
    assert "more than 100 entries wait" in answer.problem["detail"]
    assert slow.counts() == before
    with pytest.raises(Unavailable):
        write(slow.wired)


def test_reading_goes_on_and_writing_comes_back(slow):
    assert slow.get("/v1/jobs")["items"] == []

    slow.wired.ledger.sequence()

    write(slow.wired)
    slow.register_dataset()


def test_a_refusal_that_cannot_be_recorded_is_not_given(slow):
    answer = slow.ask("POST", "/v1/exports", "ada", {"recipient": "auditor"})

    assert answer.status == 503
    assert EventKind.REQUEST_REFUSED not in {entry.action for entry in slow.entries()}


def test_a_full_disk_changes_nothing_and_is_said(lone_world):
    """SQLite itself refuses to grow, as it does on a disk without room."""
    world = lone_world
    world.wired.ledger.sequence()
    before = world.counts()
    with world.wired.database.connect() as connection:
        pages = connection.execute(text("PRAGMA page_count")).scalar_one()
    limited = []

    def limit(connection, _record=None):
        connection.execute(f"PRAGMA max_page_count={pages}")
        limited.append(connection)

    world.wired.database.dispose()
    event.listen(world.wired.database, "connect", limit)
    answers = [
        world.ask("POST", "/v1/datasets", "ada", world.dataset_body(name=f"set-{number}"))
        for number in range(60)
    ]
    event.remove(world.wired.database, "connect", limit)
    world.wired.database.dispose()

    statuses = [answer.status for answer in answers]
    assert set(statuses) == {201, 503}
    assert limited
    after = world.counts()
    made = statuses.count(201)
    assert after["dataset_version"] - before["dataset_version"] == made
    assert after["audit_entry"] - before["audit_entry"] == made
    world.register_dataset()
