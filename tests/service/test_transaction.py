"""A change and its entry commit together or not at all; the database itself refuses the rest."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm.exc import StaleDataError

from audit.event import EventError, EventKind
from service.ids import Prefix, new_id
from service.principals import Role, create_principal
from service.tables import GOVERNED, Principal
from service.transaction import SYSTEM

REFUSED = DatabaseError  # IntegrityError on both, but SQLite's ABORT of a trigger varies by version


@pytest.fixture
def wired(world):
    return world.wired


def new_principal(tx, name="Nora Newcomer"):
    return create_principal(tx, name=name, kind="human", roles=[Role.AUDITOR], teams=[])


def unrecorded(entry_id):
    return Principal(
        id=new_id(Prefix.PRINCIPAL),
        entry_id=entry_id,
        kind="human",
        name="Ghost",
        roles=["admin"],
        teams=[],
    )


def test_change_and_entry_commit_together(world, wired):
    before = world.counts()

    with wired.transactions.write() as tx:
        row = new_principal(tx)

    after = world.counts()
    assert after["principal"] == before["principal"] + 1
    assert after["audit_entry"] == before["audit_entry"] + 1
    assert world.entries()[-1].id == row.entry_id
    assert world.entries()[-1].resource == f"principal:{row.id}@1"


def test_an_exception_rolls_back_change_and_entry(world, wired):
    before = world.counts()

    def change_and_fail():
        with wired.transactions.write() as tx:
            new_principal(tx)
            tx.keep(b"{}")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        change_and_fail()

    assert world.counts() == before


def test_a_savepoint_rolls_back_change_and_entry_and_keeps_the_rest(world, wired):
    before = world.counts()

    with wired.transactions.write() as tx:
        kept = new_principal(tx, "Kept")
        inner = tx.session.begin_nested()
        dropped = new_principal(tx, "Dropped")
        dropped_entry = dropped.entry_id
        inner.rollback()

    assert world.counts()["principal"] == before["principal"] + 1
    assert world.counts()["audit_entry"] == before["audit_entry"] + 1
    ids = [entry.id for entry in world.entries()]
    assert kept.entry_id in ids
    assert dropped_entry not in ids


def test_a_new_row_without_an_entry_is_refused(world, wired):
    before = world.counts()

    def insert():
        with wired.transactions.write() as tx:
            tx.session.add(unrecorded(new_id(Prefix.ENTRY)))

    with pytest.raises(REFUSED):
        insert()

    assert world.counts() == before


def test_a_new_row_with_the_entry_of_another_row_is_refused(world, wired):
    before = world.counts()

    def insert():
        with wired.transactions.write() as tx:
            other = new_principal(tx)
            tx.session.add(unrecorded(other.entry_id))

    with pytest.raises(REFUSED):
        insert()

    assert world.counts() == before


def test_a_changed_row_without_an_entry_is_refused(world, wired):
    def promote():
        with wired.transactions.write() as tx:
            row = tx.session.get_one(Principal, world.ids["eve"])
            row.roles = ["admin"]
            tx.session.add(row)

    with pytest.raises(REFUSED):
        promote()

    with wired.transactions.read() as session:
        assert session.get_one(Principal, world.ids["eve"]).roles == ["submitter"]


def test_raw_sql_cannot_change_a_row_on_the_entry_that_it_already_carries(world):
    with pytest.raises(REFUSED):
        world.change("UPDATE principal SET name = 'Nobody' WHERE id = :id", id=world.ids["eve"])


def test_raw_sql_cannot_change_a_row_on_an_entry_that_is_in_the_log(world, wired):
    with wired.transactions.write() as tx:
        row = tx.session.get_one(Principal, world.ids["eve"])
        first = row.entry_id
        tx.record(
            EventKind.PRINCIPAL_CREATED, row, actor=SYSTEM, data={"roles": ["admin"], "teams": []}
        )
    wired.ledger.sequence()

    with pytest.raises(REFUSED):
        world.change(
            "UPDATE principal SET name = 'x', entry_id = :entry WHERE id = :id",
            id=world.ids["eve"],
            entry=first,
        )


def test_deleting_is_refused_by_every_table(world, wired):
    world.active_deployment()
    world.request_waiver(world.submit(budget_cents=0))
    wired.ledger.sequence()
    wired.ledger.publish()
    world.post("/v1/exports", "vera", {"recipient": "auditor"})
    before = world.counts()

    for table in (
        *(row.__tablename__ for row in GOVERNED),
        "audit_entry",
        "checkpoint",
        "document",
    ):
        with pytest.raises(REFUSED, match="refused"):
            world.change(f'DELETE FROM "{table}"')
        if wired.database.dialect.name == "postgresql":
            with pytest.raises(REFUSED, match="refused"):
                world.change(f'TRUNCATE "{table}" CASCADE')

    assert world.counts() == before


@pytest.mark.parametrize(
    "change",
    [
        "body = :new",
        "leaf_hash = :new",
        "kind = 'job.cancelled'",
        "entity = 'principal:x'",
        "at = '2020-01-01T00:00:00.000Z'",
        "id = 'evt_x'",
        "seq = 4711",
        "idx = 5, body = :new",
        "idx = NULL",
    ],
)
def test_an_entry_cannot_be_changed(world, change):
    before = world.entries()

    values = {"new": b"x"} if ":new" in change else {}
    with pytest.raises(REFUSED, match="changes only once"):
        world.change(f"UPDATE audit_entry SET {change} WHERE seq = 3", **values)

    assert world.entries() == before


def test_an_index_is_given_once(world, wired):
    wired.ledger.sequence()

    with pytest.raises(REFUSED, match="changes only once"):
        world.change("UPDATE audit_entry SET idx = 999 WHERE seq = 3")


@pytest.mark.parametrize("table", ["document", "checkpoint"])
def test_documents_and_checkpoints_cannot_be_changed(world, wired, table):
    with wired.transactions.write() as tx:
        tx.keep(b"{}")
    wired.ledger.sequence()
    wired.ledger.publish()
    column = "body" if table == "document" else "note"

    with pytest.raises(REFUSED, match="refused"):
        world.change(f"UPDATE {table} SET {column} = :new", new=b"x")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("table", "key"), [("principal", "id"), ("audit_entry", "seq"), ("document", "digest")]
)
def test_insert_or_replace_is_refused(world, wired, table, key):
    with wired.transactions.write() as tx:
        tx.keep(b"{}")

    with pytest.raises(REFUSED, match="refused"):
        world.change(
            f"INSERT OR REPLACE INTO {table} SELECT * FROM {table} WHERE {key} IS NOT NULL"
        )


def test_a_stale_writer_loses(world, wired):
    with wired.transactions.read() as session:
        stale = session.get_one(Principal, world.ids["eve"])
        session.expunge(stale)
    with wired.transactions.write() as tx:
        row = tx.session.get_one(Principal, world.ids["eve"])
        tx.record(EventKind.PRINCIPAL_CREATED, row, actor=SYSTEM, data={"roles": [], "teams": []})

    def write_stale():
        with wired.transactions.write() as tx:
            tx.session.add(stale)
            stale.name = "stale"
            tx.record(
                EventKind.PRINCIPAL_CREATED, stale, actor=SYSTEM, data={"roles": [], "teams": []}
            )

    with pytest.raises(StaleDataError):
        write_stale()


def test_an_entry_with_a_sentence_in_it_is_refused_and_nothing_changes(world, wired):
    before = world.counts()

    def record():
        with wired.transactions.write() as tx:
            tx.record(
                EventKind.REQUEST_REFUSED,
                "request:req_1",
                actor=SYSTEM,
                data={"problem": "my name is Ada Quillfeather", "route": "/x"},
            )

    with pytest.raises(EventError):
        record()

    assert world.counts() == before


def test_a_private_value_is_sealed_and_only_its_commitment_is_logged(world, wired):
    secret = "because Ada Quillfeather is ill"
    with wired.transactions.write() as tx:
        row = tx.session.get_one(Principal, world.ids["eve"])
        tx.record(
            EventKind.PRINCIPAL_CREATED,
            row,
            actor=SYSTEM,
            data={"roles": [], "teams": []},
            private={"reason": secret},
        )

    assert list(world.entries()[-1].sealed) == ["reason"]
    with wired.database.connect() as connection:
        for table in ("audit_entry", "sealed_value", "subject_key"):
            for found in connection.execute(text(f"SELECT * FROM {table}")):
                assert secret.encode() not in repr(tuple(found)).encode()


def test_a_document_is_kept_once_under_its_digest(world, wired):
    with wired.transactions.write() as tx:
        first = tx.keep(b'{"a":1}')
    before = world.counts()
    with wired.transactions.write() as tx:
        assert tx.keep(b'{"a":1}') == first

    assert world.counts() == before
