"""Personal data lies beside the log: one value can be disclosed, and all of a person erased."""

import json

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError
from sqlmodel import select
from world import NAMES

from audit.__main__ import main as audit_main
from audit.disclosure import Disclosure, DisclosureError
from audit.event import EventKind
from audit.verify import verify
from service.erasure import GROUNDS, disclose, erase, scrub
from service.log_tables import SealedValue, SubjectKey
from service.principals import (
    Role,
    change_principal,
    create_principal,
    disable_principal,
    issue_token,
)
from service.problems import Conflict, NotFound, Unprocessable
from service.tables import Principal, Token

REASON = "Hannelore Zwiebelfisch fell ill and asked for it"


@pytest.fixture
def refused(world):
    """Let Omar refuse a job, with a reason about a person."""
    job = world.submit()
    world.post(
        f"/v1/jobs/{job['id']}/approvals",
        "omar",
        {"outcome": "refused", "reason": REASON},
        seen=job["version"],
    )
    return world


def subject_of(world, name):
    with world.wired.transactions.read() as session:
        return session.exec(select(Principal.id).where(Principal.name == NAMES[name])).one()


def erased(world, subject, ground="art17-1-b"):
    with world.wired.transactions.write() as tx:
        done = erase(tx, subject=subject, ground=ground, clock=world.clock)
    scrub(world.wired.database)
    return done


def exported(world, name="bundle.zip"):
    made = world.post("/v1/exports", "vera", {"recipient": "auditor"})
    path = world.folder / name
    path.write_bytes(world.ask("GET", made["bundle"], "vera").content)
    return path


def read_and_check(document, entry):
    Disclosure.from_bytes(json.dumps(document).encode()).check(entry.id, entry.sealed)


def reason_entry(world):
    return next(e for e in world.entries() if e.action == EventKind.APPROVAL_REFUSED)


def test_an_erased_person_is_gone_and_the_log_still_verifies(refused):
    omar = subject_of(refused, "omar")

    done = erased(refused, omar)

    assert (done.keys, done.values, done.tokens) == (1, 1, 1)
    with refused.wired.transactions.read() as session:
        row = session.get_one(Principal, omar)
        assert (row.name, row.disabled_at is not None) == ("", True)
        assert session.get(SubjectKey, omar) is None
        assert session.exec(select(SealedValue)).all() == []
        tokens = session.exec(select(Token).where(Token.principal_id == omar)).all()
        assert all(token.revoked_at for token in tokens)
    entry = refused.entries()[-1]
    assert (entry.action, entry.resource) == (EventKind.ERASURE_EXECUTED, f"principal:{omar}@2")
    assert entry.data == {"ground": "art17-1-b", "keys": 1, "values": 1}
    assert refused.ask("GET", "/v1/jobs", "omar").status == 401
    assert verify(exported(refused), refused.wired.ledger.vkeys).exit_code == 0


def test_nothing_personal_is_left_in_files(refused):
    erased(refused, subject_of(refused, "omar"))
    exported(refused)

    for path in refused.folder.parent.rglob("*"):  # the database's own files included
        if path.is_file():
            held = path.read_bytes()
            assert NAMES["omar"].encode() not in held, path
            assert REASON.encode() not in held, path
            assert b"Zwiebelfisch" not in held, path


def test_no_row_of_any_table_says_who_it_was(refused):
    erased(refused, subject_of(refused, "omar"))

    with refused.wired.database.connect() as connection:
        dialect = refused.wired.database.dialect.name
        names = (
            "SELECT name FROM sqlite_master WHERE type = 'table'"
            if dialect == "sqlite"
            else "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        )
        for (table,) in connection.execute(text(names)).all():
            for row in connection.execute(text(f'SELECT * FROM "{table}"')).all():
                assert NAMES["omar"] not in repr(row), table
                assert "Zwiebelfisch" not in repr(row), table


def test_the_others_keep_what_is_theirs(refused):
    vera = subject_of(refused, "vera")

    done = erased(refused, vera)

    assert (done.keys, done.values) == (0, 0)
    entry = reason_entry(refused)
    with refused.wired.transactions.write() as tx:
        assert disclose(tx, entry_id=entry.id, field="reason", recipient="a-1").value == REASON


def test_who_was_erased_cannot_be_erased_or_called_again(refused):
    omar = subject_of(refused, "omar")
    erased(refused, omar)

    with pytest.raises(Conflict, match="was erased before"):
        erased(refused, omar)
    with refused.wired.transactions.write() as tx, pytest.raises(Conflict, match="is disabled"):
        issue_token(tx, principal_id=omar, clock=refused.clock, days=1)


@pytest.mark.parametrize(
    ("subject", "ground", "error"),
    [("prn_nobody", "art17-1-a", NotFound), (None, "because", Unprocessable)],
)
def test_a_wrong_request_to_erase_changes_nothing(refused, subject, ground, error):
    before = refused.counts()

    with pytest.raises(error):
        erased(refused, subject or subject_of(refused, "omar"), ground)

    assert refused.counts() == before
    assert all(word in str(GROUNDS) for word in ("consent", "objection"))


@pytest.mark.parametrize("table", ["sealed_value", "subject_key"])
@pytest.mark.parametrize("statement", ["DELETE FROM {}", "UPDATE {} SET {}"])
def test_the_database_refuses_to_lose_what_is_sealed_without_an_entry(refused, table, statement):
    column = {"sealed_value": "sealed = 'x'", "subject_key": "subject = 'x'"}[table]
    if "UPDATE" in statement and refused.wired.database.dialect.name == "postgresql":
        column = column.replace("sealed = 'x'", "sealed = 'x'::bytea")

    with pytest.raises(DatabaseError), refused.wired.database.begin() as connection:
        connection.execute(text(statement.format(table, column)))


def test_a_key_may_be_wrapped_anew(refused):
    with refused.wired.database.begin() as connection:
        connection.execute(text("UPDATE subject_key SET wrapped = wrapped"))


def test_a_disclosed_value_is_held_against_its_entry(refused, capsys):
    entry = reason_entry(refused)
    with refused.wired.transactions.write() as tx:
        given = disclose(tx, entry_id=entry.id, field="reason", recipient="auditor-17")
    bundle, file = exported(refused), refused.folder / "reason.json"
    arguments = ["verify", str(bundle), "--vkey", refused.wired.ledger.vkeys[0]]

    file.write_bytes(given.to_bytes())
    assert audit_main([*arguments, "--disclosed", str(file)]) == 0
    assert "L10 disclosures  pass" in capsys.readouterr().out
    file.write_bytes(given.to_bytes().replace(b"fell ill", b"was well"))
    assert audit_main([*arguments, "--disclosed", str(file)]) == 1
    file.write_bytes(given.to_bytes().replace(entry.id.encode(), b"evt_" + b"0" * 26))
    assert audit_main([*arguments, "--disclosed", str(file)]) == 3
    file.write_bytes(b"{}")
    assert audit_main([*arguments, "--disclosed", str(file)]) == 2
    assert refused.kinds()[-2] == "value.disclosed"
    assert given.value == REASON


def test_a_disclosure_reads_back_and_refuses_what_it_is_not(refused):
    entry = reason_entry(refused)
    with refused.wired.transactions.write() as tx:
        given = disclose(tx, entry_id=entry.id, field="reason", recipient="auditor-17")

    assert Disclosure.from_bytes(given.to_bytes()) == given
    document = json.loads(given.to_bytes())
    for change in ({"more": 1}, {"key": "AA"}, {"key": "é"}, {"value": 1}, {"format": "x"}):
        with pytest.raises(DisclosureError):
            read_and_check(document | change, entry)
    with pytest.raises(DisclosureError, match="no sealed field"):
        given.check(entry.id, {})


def test_what_was_erased_is_disclosed_to_nobody(refused):
    entry = reason_entry(refused)
    erased(refused, subject_of(refused, "omar"))

    with (
        refused.wired.transactions.write() as tx,
        pytest.raises(NotFound, match="was erased; what remains is its commitment"),
    ):
        disclose(tx, entry_id=entry.id, field="reason", recipient="auditor-17")
    for wrong in ((entry.id, "nothing"), ("evt_" + "0" * 26, "reason")):
        with refused.wired.transactions.write() as tx, pytest.raises(NotFound):
            disclose(tx, entry_id=wrong[0], field=wrong[1], recipient="auditor-17")


def test_roles_change_and_end_with_entries(world):
    with world.wired.transactions.write() as tx:
        row = create_principal(tx, name="Nora", kind="human", roles=[Role.AUDITOR], teams=[])
        change_principal(tx, principal_id=row.id, roles=[Role.OFFICER], teams=["care"])
        disable_principal(tx, principal_id=row.id, clock=world.clock)
        disable_principal(tx, principal_id=row.id, clock=world.clock)
        with pytest.raises(Conflict):
            change_principal(tx, principal_id=row.id, roles=[Role.OFFICER], teams=[])
        with pytest.raises(Unprocessable):
            change_principal(tx, principal_id=row.id, roles=[], teams=[])

    assert world.kinds()[-3:] == ["principal.created", "principal.changed", "principal.disabled"]
    assert verify(exported(world), world.wired.ledger.vkeys).exit_code == 0
