"""Sequencing and publishing: contiguous, complete, repeatable, and never two histories."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlmodel import select

from audit.event import EventKind
from audit.keys import VerifyKey
from audit.merkle import leaf_hash, root
from audit.note import open_note, parse_checkpoint
from audit.proof import check_proof
from service.ledger import ClockError, ForkError, RolledBackError
from service.log_tables import AuditEntry, LogHead
from service.transaction import SYSTEM

WRITERS = 8
EACH = 12


class Crash(Exception):  # noqa: N818 — it stands for the end of the process
    pass


@pytest.fixture
def wired(world):
    return world.wired


@pytest.fixture
def ledger(wired):
    return wired.ledger


def write(wired, count=1):
    for _ in range(count):
        with wired.transactions.write() as tx:
            record(tx)


def record(tx):
    return tx.record(
        EventKind.REQUEST_REFUSED,
        "request:req_1",
        actor=SYSTEM,
        data={"problem": "test", "route": "/x"},
    )


def indexes(wired):
    with wired.transactions.read() as session:
        return list(session.exec(select(AuditEntry.idx).order_by(AuditEntry.seq)))


def opened(ledger, note):
    keys = [VerifyKey.parse(vkey) for vkey in ledger.vkeys]
    return parse_checkpoint(open_note(note, keys).text)


def bodies(wired):
    with wired.transactions.read() as session:
        rows = select(AuditEntry.body).where(AuditEntry.idx >= 0).order_by(AuditEntry.idx)
        return list(session.exec(rows))


def test_eight_writers_with_rollbacks_get_contiguous_indexes(wired, ledger):
    errors, written = [], []
    done = threading.Event()

    def work(number):
        try:
            for turn in range(EACH):
                try:
                    with wired.transactions.write() as tx:
                        entry = record(tx)
                        if (number + turn) % 3 == 0:
                            raise Crash
                    written.append(entry)
                except Crash:
                    pass
        except Exception as error:
            errors.append(error)

    def sequence():
        while not done.is_set():
            ledger.sequence()

    writers = [threading.Thread(target=work, args=(number,)) for number in range(WRITERS)]
    sequencers = [threading.Thread(target=sequence) for _ in range(2)]
    for thread in (*writers, *sequencers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in sequencers:
        thread.join()
    ledger.sequence()

    assert not errors
    with wired.transactions.read() as session:
        rows = session.exec(select(AuditEntry.id, AuditEntry.idx).order_by(AuditEntry.idx)).all()
        assert session.get_one(LogHead, 1).size == len(rows)
    assert [row.idx for row in rows] == list(range(len(rows)))
    assert set(written) <= {row.id for row in rows}
    assert len(written) == WRITERS * EACH * 2 // 3


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_an_entry_that_commits_late_is_not_lost(wired, ledger):
    with wired.transactions.write() as slow:
        late = record(slow)
        write(wired)  # a later row number, committed earlier
        ledger.sequence()
        before = len(bodies(wired))

    ledger.sequence()

    with wired.transactions.read() as session:
        row = session.exec(select(AuditEntry).where(AuditEntry.id == late)).one()
        seqs = session.exec(select(AuditEntry.seq).order_by(AuditEntry.idx)).all()
    assert row.idx == before
    assert seqs != sorted(seqs)


def test_an_uncommitted_entry_gets_no_index(wired, ledger):
    ledger.sequence()
    size = len(bodies(wired))

    def fail():
        with wired.transactions.write() as tx:
            record(tx)
            raise Crash

    with pytest.raises(Crash):
        fail()
    ledger.sequence()

    assert len(bodies(wired)) == size


def test_the_checkpoint_covers_what_the_database_holds_and_verifies(wired, ledger):
    write(wired, 5)
    ledger.sequence()

    size = ledger.publish()

    checkpoint = opened(ledger, ledger.read("checkpoint"))
    stored = bodies(wired)
    assert checkpoint.origin == wired.settings.origin
    assert checkpoint.size == size == len(stored)
    assert checkpoint.root == root([leaf_hash(body) for body in stored])
    assert ledger.latest().note == ledger.read("checkpoint")


def test_both_algorithms_sign(ledger):
    ledger.sequence()
    ledger.publish()
    note = ledger.read("checkpoint")

    for vkey in ledger.vkeys:
        assert len(open_note(note, [VerifyKey.parse(vkey)]).verified) == 1
    assert len(ledger.vkeys) == 2


def test_every_entry_is_proved_and_no_other(wired, ledger):
    write(wired, 3)
    ledger.sequence()
    size = ledger.publish()
    keys = [VerifyKey.parse(ledger.vkeys[0])]

    for index, body in enumerate(bodies(wired)):
        assert check_proof(ledger.prove(index), body, ledger.origin, keys).size == size
    with pytest.raises(ValueError, match="proof|root|hash|entry"):
        check_proof(ledger.prove(0), bodies(wired)[1], ledger.origin, keys)
    assert ledger.prove(size) is None


def test_publishing_with_nothing_new_signs_nothing(ledger):
    ledger.sequence()
    ledger.publish()
    note = ledger.read("checkpoint")

    assert ledger.publish() is None
    assert ledger.read("checkpoint") == note


def test_a_log_grows_over_many_checkpoints_and_each_extends_the_last(wired, ledger):
    notes = []
    for _ in range(4):
        write(wired, 3)
        ledger.sequence()
        ledger.publish()
        notes.append(opened(ledger, ledger.read("checkpoint")))

    stored = bodies(wired)
    for note in notes:
        assert note.root == root([leaf_hash(body) for body in stored[: note.size]])
    assert [note.size for note in notes] == sorted({note.size for note in notes})


class Failing:
    """Objects or a guard that ends the process at one call."""

    def __init__(self, inner, call, at):
        self._inner = inner
        self._call = call
        self._left = at

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if name != self._call:
            return found

        def count(*args, **options):
            if self._left == 0:
                self._left = -1
                raise Crash
            self._left -= 1
            return found(*args, **options)

        return count


@pytest.mark.parametrize(
    ("part", "call", "at"),
    [
        ("objects", "put_if_absent", 0),  # before the first tile
        ("objects", "put_if_absent", 1),  # between tiles
        ("guard", "write", 0),  # tiles are out, no intent
        ("guard", "write", 1),  # intent and signature, the signature not remembered
        ("objects", "put", 0),  # signed and remembered, not published
    ],
)
def test_a_publisher_that_dies_is_followed_by_the_same_tree(world, wired, ledger, part, call, at):
    write(wired, 3)
    ledger.sequence()
    dying = replace(ledger, **{part: Failing(getattr(ledger, part), call, at)})
    with pytest.raises(Crash):
        dying.publish()
    signed_size, signed_root, signed_note = ledger.guard.read()
    world.clock.advance(seconds=5)

    ledger.publish()

    stored = bodies(wired)
    note = ledger.latest().note
    assert opened(ledger, note).root == root([leaf_hash(body) for body in stored])
    if signed_note:
        assert note == signed_note
    if signed_root:
        assert (signed_size, signed_root) == (len(stored), opened(ledger, note).root.hex())


def test_a_published_checkpoint_reaches_the_objects_after_a_crash_in_between(world, wired, ledger):
    write(wired)
    ledger.sequence()
    with pytest.raises(Crash):
        replace(ledger, objects=Failing(ledger.objects, "put", 0)).publish()

    ledger.publish()

    assert ledger.read("checkpoint") == ledger.latest().note


def test_a_restored_older_database_signs_nothing(world, wired, ledger):
    write(wired, 3)
    ledger.sequence()
    ledger.publish()
    guard, note = ledger.guard.read(), ledger.read("checkpoint")
    world.tamper("checkpoint", "DELETE FROM checkpoint")
    world.tamper(
        "audit_entry", "DELETE FROM audit_entry WHERE idx = (SELECT max(idx) FROM audit_entry)"
    )
    world.change("UPDATE log_head SET size = size - 1")

    with pytest.raises(RolledBackError, match="restored from an older state"):
        ledger.publish()
    with pytest.raises(RolledBackError):
        ledger.start(wired.transactions)
    assert ledger.guard.read() == guard
    assert ledger.read("checkpoint") == note


def test_a_fork_of_the_same_size_is_not_signed(world, wired, ledger):
    write(wired, 3)
    ledger.sequence()
    ledger.publish()
    size, _, note = ledger.guard.read()
    ledger.guard.write(size, "00" * 32, note)
    world.tamper("checkpoint", "DELETE FROM checkpoint")

    with pytest.raises(ForkError, match="nothing is signed"):
        ledger.publish()


def test_changed_bytes_of_a_waiting_entry_get_no_index(world, wired, ledger):
    ledger.sequence()
    write(wired)
    world.tamper("audit_entry", "UPDATE audit_entry SET body = :new WHERE idx IS NULL", new=b"{}")

    with pytest.raises(ForkError, match="changed"):
        ledger.sequence()


def test_changed_bytes_of_a_sequenced_entry_are_not_published(world, wired, ledger):
    ledger.sequence()
    ledger.publish()
    write(wired)
    ledger.sequence()
    published = ledger.read("checkpoint")
    world.tamper(
        "audit_entry",
        "UPDATE audit_entry SET body = :new WHERE idx = (SELECT max(idx) FROM audit_entry)",
        new=b"{}",
    )

    with pytest.raises(ForkError):
        ledger.publish()
    assert ledger.read("checkpoint") == published


def test_a_missing_entry_is_not_papered_over(world, wired, ledger):
    ledger.sequence()
    ledger.publish()
    write(wired, 3)
    ledger.sequence()
    world.tamper(
        "audit_entry", "DELETE FROM audit_entry WHERE idx = (SELECT max(idx) - 1 FROM audit_entry)"
    )

    with pytest.raises(ForkError):
        ledger.publish()


def test_publishers_at_the_same_time_publish_one_growing_log(wired, ledger):
    errors, stop = [], threading.Event()

    def publish():
        try:
            while not stop.is_set():
                ledger.sequence()
                ledger.publish()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=publish) for _ in range(3)]
    for thread in threads:
        thread.start()
    write(wired, 25)
    stop.set()
    for thread in threads:
        thread.join()
    ledger.sequence()
    ledger.publish()

    assert not errors
    stored = bodies(wired)
    last = opened(ledger, ledger.read("checkpoint"))
    assert (last.size, last.root) == (len(stored), root([leaf_hash(body) for body in stored]))
    with wired.database.connect() as connection:
        rows = connection.execute(
            text("SELECT size, note FROM checkpoint ORDER BY created_at, size")
        )
        for size, note in rows:
            signed = opened(ledger, bytes(note))
            assert signed.root == root([leaf_hash(body) for body in stored[:size]])


def test_the_first_entry_names_the_key_and_is_written_once(world, wired, ledger):
    ledger.start(wired.transactions)
    ledger.start(wired.transactions)

    started = [entry for entry in world.entries() if entry.action == EventKind.LOG_STARTED]
    assert len(started) == 1
    assert started[0].data == {"vkey": ledger.vkeys[0]}
    assert world.entries()[0] == started[0]


def test_a_clock_that_was_set_back_signs_nothing_until_it_is_right(world, wired, ledger):
    write(wired)
    ledger.sequence()
    ledger.publish()
    note = ledger.read("checkpoint")
    write(wired)
    ledger.sequence()
    back = replace(ledger, clock=lambda: world.clock() - timedelta(seconds=1))

    with pytest.raises(ClockError, match="set the clock right"):
        back.publish()

    assert ledger.read("checkpoint") == note
    assert ledger.publish() is not None
