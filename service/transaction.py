"""One transaction for a change and its record. Nobody else commits.

    with transactions.write() as tx:
        job.state = JobState.APPROVED
        tx.record(EventKind.APPROVAL_GIVEN, job, actor=actor, data={…})

`record` writes the entry at once, ties the rows to it and raises their versions; the triggers of
the migration refuse a governed row whose entry is not there. On a clean exit all of it commits, on
an exception none of it. A refusal that must leave a trace is a committed state, not a raise.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.keywrap import aes_key_unwrap, aes_key_wrap
from sqlalchemy import Engine, insert
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col, select

from audit import sealed as sealing
from audit.canonical import Digest, JsonValue, digest
from audit.event import Actor, Event, EventKind, to_bytes
from audit.merkle import leaf_hash
from service.clock import Clock, millis
from service.database import READ_ONLY
from service.ids import Prefix, new_id
from service.log_tables import AuditEntry, Document, SealedValue, SubjectKey
from service.problems import Unavailable
from service.tables import Governed

SYSTEM = Actor(kind="service", ref="placet", auth="internal")


class Transaction:
    """A database session and the entries of what it changes; made by `Transactions.write`."""

    def __init__(self, session: Session, *, origin: str, clock: Clock, seal_key: bytes) -> None:
        self.session = session
        self._origin = origin
        self._clock = clock
        self._seal_key = seal_key

    @property
    def seal_key(self) -> bytes:
        """The 32 bytes that wrap the keys of data subjects."""
        return self._seal_key

    def record(
        self,
        kind: EventKind,
        subject: Governed | str,
        *,
        actor: Actor,
        data: Mapping[str, JsonValue],
        also: Sequence[Governed] = (),
        outcome: str = "ok",
        private: Mapping[str, str] | None = None,
    ) -> str:
        """Write the entry of a change and tie the changed rows to it.

        Args:
            kind: what happened; a closed list.
            subject: the governed row that changed, or ``kind:id`` when no row did.
            actor: who did it; never taken from a request body.
            data: non-personal values as `audit.event` lists them for this kind.
            also: further rows that this entry records the change of, for instance a run of the job.
            outcome: ``ok``, ``denied`` or ``error``.
            private: personal values or free text. Only commitments enter the log; the values are
                encrypted beside it under the actor's own key and can be erased.

        Returns:
            The entry's id.
        """
        entry_id = new_id(Prefix.ENTRY)
        entity = subject if isinstance(subject, str) else subject.entity
        resource = entity if isinstance(subject, str) else f"{entity}@{subject.version + 1}"
        commitments = {
            field: self._seal(entry_id, field, value, subject=actor.ref)
            for field, value in (private or {}).items()
        }
        at = millis(self._clock())
        body = to_bytes(
            Event(
                id=entry_id,
                log=self._origin,
                at=at,
                actor=actor,
                action=kind,
                resource=resource,
                outcome=outcome,
                data=dict(data),
                sealed=commitments,
            )
        )
        self.session.execute(
            insert(AuditEntry).values(
                id=entry_id,
                entity=entity,
                kind=kind.value,
                at=at,
                body=body,
                leaf_hash=leaf_hash(body),
            )
        )
        for row in (*(() if isinstance(subject, str) else (subject,)), *also):
            row.entry_id = entry_id
            row.version += 1
            self.session.add(row)
        self.session.flush()
        return entry_id

    def keep(self, body: bytes, media_type: str = "application/json") -> Digest:
        """Store a document under its digest, once."""
        name = digest(body)
        self._insert_once(Document, digest=name, media_type=media_type, body=body)
        return name

    def _seal(self, entry_id: str, field: str, value: str, *, subject: str) -> str:
        key = self._subject_key(subject)
        commit_key = secrets.token_bytes(sealing.KEY_BYTES)
        self.session.add(
            SealedValue(
                entry_id=entry_id,
                field=field,
                subject_key=subject,
                sealed=sealing.seal(
                    key,
                    secrets.token_bytes(sealing.NONCE_BYTES),
                    entry_id=entry_id,
                    field=field,
                    commit_key=commit_key,
                    value=value.encode(),
                ),
            )
        )
        return sealing.commit(commit_key, entry_id, field, value.encode())

    def _subject_key(self, subject: str) -> bytes:
        row = self.session.get(SubjectKey, subject)
        if row is not None:
            return aes_key_unwrap(self._seal_key, row.wrapped)
        fresh = aes_key_wrap(self._seal_key, secrets.token_bytes(32))
        self._insert_once(SubjectKey, subject=subject, wrapped=fresh)
        # Another transaction may have been first; its key is the subject's.
        return aes_key_unwrap(self._seal_key, self.session.get_one(SubjectKey, subject).wrapped)

    def _insert_once(self, table: type[Document | SubjectKey], **values: object) -> None:
        """Insert a row unless its key is there, without touching pending changes of other rows."""
        is_postgresql = self.session.get_bind().dialect.name == "postgresql"
        statement = (postgresql if is_postgresql else sqlite).insert(table).values(**values)
        self.session.execute(statement.on_conflict_do_nothing())


@dataclass(frozen=True)
class Transactions:
    """Opens transactions on one database.

    Args:
        engine: where.
        origin: the audit log's name; every entry carries it.
        clock: what time it is.
        seal_key: 32 bytes that wrap the keys of personal values.
        max_pending: how many entries may wait for their index before nothing new is written, so
            that what is not yet fixed by a checkpoint stays small; None for no limit.
    """

    engine: Engine
    origin: str
    clock: Clock
    seal_key: bytes = field(repr=False)
    max_pending: int | None = None

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Open a writing transaction; commit on a clean exit, roll back on an exception.

        Raises:
            Unavailable: too many entries wait for their index.
        """
        with Session(self.engine, autoflush=False, expire_on_commit=False) as session:
            self._check_backlog(session)
            yield Transaction(session, origin=self.origin, clock=self.clock, seal_key=self.seal_key)
            session.commit()

    def _check_backlog(self, session: Session) -> None:
        if self.max_pending is None:
            return
        waiting = select(AuditEntry.seq).where(col(AuditEntry.idx).is_(None))
        if session.exec(waiting.offset(self.max_pending).limit(1)).first() is not None:
            raise Unavailable(
                f"more than {self.max_pending} entries wait for their place in the audit log, so"
                " nothing new is written; the operator sees why in the worker's log"
            )

    @contextmanager
    def snapshot(self) -> Iterator[Session]:
        """Open a reading session in which everything is as it was at one moment."""
        options: dict[str, Any] = dict(READ_ONLY)
        if self.engine.dialect.name == "postgresql":
            options["isolation_level"] = "REPEATABLE READ"  # SQLite's reads are snapshots anyway
        with Session(self.engine.execution_options(**options), autoflush=False) as session:
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Open a reading session; what it changes is never committed."""
        engine = self.engine.execution_options(**READ_ONLY)
        with Session(engine, autoflush=False) as session:
            yield session
