"""Personal data beside the log: disclosing one value, erasing all of a person.

Entries name people by pseudonym and hold commitments only (`audit.sealed`). What is personal lies
beside them: names in `principal`, sealed values, and the key of each data subject. Erasing destroys
the key, the sealed values and the name in one transaction with an `erasure.executed` entry; every
hash, proof and signature still verifies, and the pseudonym still says that one person did what.

What was disclosed stays with whom it was given to: each disclosure is an entry with its recipient.

Source: GDPR Art. 17(1), 17(3); EDPB Guidelines 02/2025 (draft, April 2025).
"""

from dataclasses import dataclass

from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap
from sqlalchemy import Engine, delete
from sqlmodel import col, select

from audit.canonical import parse
from audit.disclosure import Disclosure
from audit.event import Actor, EventKind
from audit.sealed import SealedError, check_commitment, unseal
from service.clock import Clock, seconds
from service.log_tables import AuditEntry, SealedValue, SubjectKey
from service.principals import find_principal, revoke_token
from service.problems import Conflict, NotFound, field_problem
from service.tables import Principal, Token
from service.transaction import SYSTEM, Transaction

ERASED_NAME = ""
GROUNDS = {
    "art17-1-a": "no longer necessary for the purposes",
    "art17-1-b": "consent withdrawn, and no other legal ground",
    "art17-1-c": "objection, and no overriding grounds",
    "art17-1-d": "unlawfully processed",
    "art17-1-e": "a legal obligation to erase",
    "retention": "the period that the controller set has ended",
}
# What a row leaves behind in PostgreSQL until the table is written anew.
_TABLES = ("principal", "sealed_value", "subject_key")


@dataclass(frozen=True)
class Erased:
    """What an erasure destroyed."""

    subject: str
    entry_id: str
    keys: int
    values: int
    tokens: int


def erase(
    tx: Transaction, actor: Actor = SYSTEM, *, subject: str, ground: str, clock: Clock
) -> Erased:
    """Erase what is known of a person; they can no longer call. Not to be undone.

    `subject` is a principal's id, `ground` one of `GROUNDS`. Call `scrub` after the commit.

    Raises:
        NotFound: no such principal. Conflict: erased before. Unprocessable: another ground.
    """
    if ground not in GROUNDS:
        raise field_problem("/ground", f"expected one of {', '.join(GROUNDS)}, got {ground[:40]!r}")
    row = find_principal(tx.session, subject)
    has_key = tx.session.get(SubjectKey, subject) is not None
    if row.name == ERASED_NAME and not has_key:
        raise Conflict(f"`{subject}` was erased before; nothing is left to erase")
    sealed = tx.session.exec(select(SealedValue).where(SealedValue.subject_key == subject)).all()
    tokens = _revoke_all(tx, row, clock)
    row.name = ERASED_NAME
    row.disabled_at = row.disabled_at or seconds(clock())
    entry_id = tx.record(
        EventKind.ERASURE_EXECUTED,
        row,
        actor=actor,
        data={"ground": ground, "keys": int(has_key), "values": len(sealed)},
    )
    tx.session.execute(delete(SealedValue).where(col(SealedValue.subject_key) == subject))
    tx.session.execute(delete(SubjectKey).where(col(SubjectKey.subject) == subject))
    return Erased(subject, entry_id, int(has_key), len(sealed), tokens)


def _revoke_all(tx: Transaction, row: Principal, clock: Clock) -> int:
    """Revoke the tokens of a principal that still hold, each with its entry; count them."""
    wanted = select(Token.id).where(Token.principal_id == row.id, col(Token.revoked_at).is_(None))
    held = tx.session.exec(wanted).all()
    for token_id in held:
        revoke_token(tx, token_id=token_id, clock=clock)
    return len(held)


def scrub(engine: Engine) -> None:
    """Take the bytes of deleted rows out of the database's own files, after the commit.

    SQLite overwrites them when it deletes (`secure_delete`); its write-ahead log is emptied here.
    PostgreSQL writes the tables anew, which waits for whoever uses them; its write-ahead log and
    every backup keep the bytes for as long as you keep those.
    """
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if engine.dialect.name == "postgresql":
            for table in _TABLES:
                connection.exec_driver_sql(f"VACUUM (FULL) {table}")
        else:
            connection.exec_driver_sql("COMMIT")
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").all()


def disclose(
    tx: Transaction, actor: Actor = SYSTEM, *, entry_id: str, field: str, recipient: str
) -> Disclosure:
    """Give one sealed value to one recipient, as a document that the verifier checks.

    `recipient` is a code of yours, such as `auditor-2026-17`: no name, for it enters the log.

    Raises:
        NotFound: no such entry or field, or its value was erased.
        Conflict: what is stored does not open, or is not what the entry committed to.
    """
    entry = tx.session.exec(select(AuditEntry).where(AuditEntry.id == entry_id)).one_or_none()
    commitments = {} if entry is None else _commitments(entry.body)
    if field not in commitments:
        raise NotFound(f"no sealed field `{field}` in an entry `{entry_id}`")
    row = tx.session.get(SealedValue, (entry_id, field))
    if row is None:
        raise NotFound(f"`{field}` of `{entry_id}` was erased; what remains is its commitment")
    key = tx.session.get_one(SubjectKey, row.subject_key)
    try:
        commit_key, value = unseal(
            aes_key_unwrap(tx.seal_key, key.wrapped), row.sealed, entry_id=entry_id, field=field
        )
        check_commitment(commitments[field], commit_key, entry_id, field, value)
    except (SealedError, InvalidUnwrap) as error:
        raise Conflict(f"`{field}` of `{entry_id}` cannot be disclosed: {error}") from error
    tx.record(
        EventKind.VALUE_DISCLOSED,
        f"principal:{row.subject_key}",
        actor=actor,
        data={"entry": entry_id, "field": field, "recipient": recipient},
    )
    return Disclosure(entry_id, field, commit_key, value.decode())


def _commitments(body: bytes) -> dict[str, str]:
    document = parse(body)
    sealed = document.get("sealed") if isinstance(document, dict) else None
    return {str(k): str(v) for k, v in sealed.items()} if isinstance(sealed, dict) else {}
