"""A database restored from a backup: refused, recovered from what was published, and told so."""

import shutil

import pytest
from sqlalchemy import text
from sqlmodel import select

from audit.event import EventKind
from audit.verify import verify
from service.installation import build
from service.ledger import ForkError, RolledBackError
from service.log_tables import AuditEntry
from service.principals import Role, create_principal
from service.reconciling import reconcile
from service.recovering import recover


def write(wired, count=1, name="Nora"):
    for number in range(count):
        with wired.transactions.write() as tx:
            create_principal(
                tx, name=f"{name} {number}", kind="human", roles=[Role.AUDITOR], teams=[]
            )


def published(wired):
    wired.ledger.sequence()
    wired.ledger.publish()


@pytest.fixture
def house(lone_world):
    """An installation on SQLite, whose database file can be copied and put back."""
    wired = lone_world.wired
    write(wired, 3)
    published(wired)
    return lone_world


def backed_up(house):
    with house.wired.database.connect() as connection:
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").all()
    source = house.wired.database.url.database
    kept = f"{source}.backup"
    shutil.copy(source, kept)
    return source, kept


def restored(house, source, kept):
    house.wired.database.dispose()
    for suffix in ("", "-wal", "-shm"):
        path = type(house.folder)(source + suffix)
        path.unlink(missing_ok=True)
    shutil.copy(kept, source)
    return build(house.wired.settings, clock=house.clock)


def texts(wired):
    with wired.database.connect() as connection:
        rows = connection.execute(
            text("SELECT body FROM audit_entry WHERE idx IS NOT NULL ORDER BY idx")
        )
        return [bytes(body) for (body,) in rows.all()]


@pytest.mark.parametrize("lost", [1, 7, 300])
def test_what_was_published_comes_back_byte_for_byte(house, lost):
    source, kept = backed_up(house)
    write(house.wired, lost, "Lost")
    published(house.wired)
    before, checkpoint = texts(house.wired), house.wired.ledger.latest()
    wired = restored(house, source, kept)
    with pytest.raises(RolledBackError, match="placet audit recover"):
        wired.ledger.start(wired.transactions)

    done = recover(wired.ledger, wired.transactions)

    assert done is not None
    assert (done.count, texts(wired)) == (lost, before)
    assert wired.ledger.latest().note == checkpoint.note
    wired.ledger.start(wired.transactions)
    write(wired)
    published(wired)
    assert wired.ledger.latest().size == len(before) + 2
    wired.database.dispose()


def test_the_log_says_what_was_put_back_and_verifies(house):
    source, kept = backed_up(house)
    write(house.wired, 2, "Lost")
    published(house.wired)
    size = house.wired.ledger.latest().size
    wired = restored(house, source, kept)
    house.wired = wired
    house.__post_init__()

    recover(wired.ledger, wired.transactions)
    published(wired)

    (told,) = [e for e in house.entries() if e.action == EventKind.LOG_RECOVERED]
    assert told.data == {"first": size - 2, "last": size - 1}
    made = house.post("/v1/exports", "vera", {"recipient": "auditor"})
    path = house.folder / "bundle.zip"
    path.write_bytes(house.ask("GET", made["bundle"], "vera").content)
    assert verify(path, wired.ledger.vkeys).exit_code == 0
    with wired.transactions.snapshot() as session:
        lost = {d.rule for d in reconcile(session).differences}
    assert lost == {"entry-needs-row"}


def test_an_entry_that_waits_in_the_backup_gets_the_index_that_it_had(house):
    write(house.wired, 2, "Waiting")
    source, kept = backed_up(house)
    published(house.wired)
    before = texts(house.wired)
    wired = restored(house, source, kept)

    done = recover(wired.ledger, wired.transactions)

    assert (done.count, texts(wired)) == (2, before)
    with wired.transactions.read() as session:
        waiting = session.exec(select(AuditEntry.kind).where(AuditEntry.idx.is_(None))).all()
        assert waiting == ["log.recovered"]
    wired.database.dispose()


def test_nothing_is_recovered_where_nothing_is_lost(house):
    before = house.counts()

    assert recover(house.wired.ledger, house.wired.transactions) is None
    assert house.counts() == before


def test_what_was_written_after_the_restoration_comes_after(house):
    source, kept = backed_up(house)
    write(house.wired, 2, "Lost")
    published(house.wired)
    wired = restored(house, source, kept)
    write(wired, 1, "Late")
    with pytest.raises(RolledBackError):
        wired.ledger.sequence()

    recover(wired.ledger, wired.transactions)
    published(wired)

    assert b"log.recovered" in texts(wired)[-1]
    wired.database.dispose()


class TestRefused:
    """What was published must be what was signed, and what is there must be its beginning."""

    @pytest.fixture
    def lost(self, house):
        source, kept = backed_up(house)
        write(house.wired, 2, "Lost")
        published(house.wired)
        wired = restored(house, source, kept)
        yield wired
        wired.database.dispose()

    def refused(self, wired, match):
        before = texts(wired)
        with pytest.raises(ForkError, match=match):
            recover(wired.ledger, wired.transactions)
        assert texts(wired) == before

    def files(self, wired, pattern):
        folder = type(wired.settings.home)(wired.ledger.prefix.removeprefix("file://"))
        return sorted(folder.glob(pattern))

    def test_a_bundle_that_is_gone(self, lost):
        for path in self.files(lost, "tile/entries/*"):
            shutil.rmtree(path)

        self.refused(lost, "cannot be read whole")

    def test_a_bundle_that_was_changed(self, lost):
        for path in self.files(lost, "tile/entries/000.p/*"):
            path.chmod(0o600)
            path.write_bytes(path.read_bytes().replace(b"principal", b"principai"))

        self.refused(lost, "not what was signed")

    def test_tiles_of_another_tree(self, lost):
        for path in self.files(lost, "tile/0/000.p/*"):
            path.chmod(0o600)
            path.write_bytes(bytes(len(path.read_bytes())))

        self.refused(lost, "another root")

    def test_a_checkpoint_of_somebody_else(self, lost):
        (path,) = self.files(lost, "checkpoint")
        path.chmod(0o600)
        path.write_bytes(path.read_bytes().replace(b"\n", b"\n\n", 1))

        self.refused(lost, "not this log")

    def test_a_database_with_another_past(self, lost, house):
        house.wired = lost
        house.tamper(
            "audit_entry",
            "UPDATE audit_entry SET body = CAST(replace(body, 'log.', 'lug.') AS BLOB)",
        )

        self.refused(lost, "two histories exist")
