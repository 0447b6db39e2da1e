"""From committed entries to a published, signed log (C2SP tlog-tiles).

*Sequencing* gives every committed entry the next index; it takes the rows that are there, since
identity order is not commit order and a high-water mark would lose rows. *Publishing* builds tiles
from the stored bytes, asks the signer guard, signs a checkpoint and writes it last. Every step can
be repeated: after a crash the same bytes come out, and a signed note is published, never replaced.

The guard is a file outside the database. It remembers the last signed tree, so that a database
restored from a backup cannot sign a second history for the same log.
"""

import base64
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, text
from sqlmodel import Session, col, select

from audit.event import EventKind
from audit.keys import Signer, VerifyKey
from audit.merkle import MerkleError, check_consistency, leaf_hash
from audit.note import Checkpoint, open_note, parse_checkpoint, sign_checkpoint
from audit.proof import write_proof
from audit.tiles import TileReader, build_tiles
from service.clock import Clock, seconds
from service.log_tables import AuditEntry, LogHead, SignedCheckpoint
from service.objects.protocol import ObjectMissingError, Objects
from service.transaction import SYSTEM, Transactions
from service.witnesses import WitnessAheadError, Witnesses

BATCH = 5_000
_SEQUENCER_LOCK = 0x706C6163  # one number for every sequencer of this database
_NEWEST = select(SignedCheckpoint).order_by(col(SignedCheckpoint.size).desc()).limit(1)


class RolledBackError(RuntimeError):
    """The database is older than what was signed; signing stops until an operator decides."""


class ClockError(RuntimeError):
    """The clock is before the last checkpoint's signed time; signing waits until it has passed."""


class ForkError(RuntimeError):
    """The tree to be signed contradicts one that was signed before; signing stops."""


@dataclass(frozen=True)
class Guard:
    """The signer guard in one file, written whole or not at all.

    {"note": "<base64 of the signed checkpoint, or empty: intent>", "root": "<hex>", "size": 7}
    """

    path: Path

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other publishers out, threads and processes alike; a dead one holds nothing."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def read(self) -> tuple[int, str, bytes]:
        """Return size, root in hex and the signed note (empty while only intended)."""
        if not self.path.exists():
            return 0, "", b""
        state = json.loads(self.path.read_bytes())
        return int(state["size"]), str(state["root"]), base64.b64decode(state["note"])

    def write(self, size: int, root: str, note: bytes) -> None:
        """Replace the state durably: temporary file, fsync, rename, fsync of the folder."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        staged = self.path.with_suffix(".new")
        state = {"note": base64.b64encode(note).decode(), "root": root, "size": size}
        with staged.open("wb") as file:
            file.write(json.dumps(state, sort_keys=True).encode())
            file.flush()
            os.fsync(file.fileno())
        staged.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@dataclass(frozen=True)
class Ledger:
    """The log of one installation.

    Args:
        engine: the database.
        objects: where tiles go.
        prefix: URI under which the log is published; an auditor mirrors it by copying.
        origin: the log's name.
        signers: who signs checkpoints, Ed25519 first.
        guard: the state outside the database.
        clock: what time it is.
        witnesses: who cosigns before a checkpoint is published; None asks nobody.
    """

    engine: Engine
    objects: Objects
    prefix: str
    origin: str
    signers: Sequence[Signer] = field(repr=False)
    guard: Guard
    clock: Clock
    witnesses: Witnesses | None = None

    @property
    def vkeys(self) -> list[str]:
        """The keys that an auditor verifies with."""
        return [signer.vkey for signer in self.signers]

    def start(self, transactions: Transactions) -> None:
        """Write the log's first entry if there is none, and refuse a rolled-back database.

        Raises:
            RolledBackError: the guard has signed more entries than the database holds.
        """
        with self.guard.exclusive(), transactions.write() as tx:
            self._check_not_rolled_back(tx.session.get_one(LogHead, 1).size)
            first = tx.session.exec(select(AuditEntry.id).limit(1)).first()
            if first is None:
                tx.record(
                    EventKind.LOG_STARTED,
                    f"log:{self.origin}",
                    actor=SYSTEM,
                    data={"vkey": self.signers[0].vkey},
                )

    def sequence(self) -> int:
        """Give the next indexes to committed entries; return how many got one.

        At most one sequencer works at a time: PostgreSQL by an advisory lock, SQLite because
        writing transactions exclude each other. Indexes of concurrent transactions have no
        meaning beyond this: what committed before another began has the smaller one.
        """
        done = 0
        while count := self._sequence_batch():
            done += count
        return done

    def publish(self) -> int | None:
        """Build tiles, sign and publish a checkpoint if there is something new.

        Returns:
            The new size, or None when nothing is new.

        Raises:
            RolledBackError: more was signed before than the database holds, by the guard or by a
                witness.
            ForkError: what was signed is no beginning of this tree, or an entry changed.
            QuorumError: too few witnesses cosigned; the next call goes on from here.
            ClockError: the clock is before the time of the last checkpoint.
        """
        # INVARIANT: sizes are signed in order; a second publisher would set the guard back.
        with self.guard.exclusive():
            return self._publish()

    def _publish(self) -> int | None:
        with Session(self.engine) as session:
            size = session.get_one(LogHead, 1).size
            last = session.exec(_NEWEST).one_or_none()
            published = 0 if last is None else last.size
            self._check_not_rolled_back(size)
            if published == size:
                return None
            rows = session.exec(
                select(AuditEntry.body, AuditEntry.leaf_hash)
                .where(col(AuditEntry.idx) >= published, col(AuditEntry.idx) < size)
                .order_by(col(AuditEntry.idx))
            ).all()
        if len(rows) != size - published:
            raise ForkError(f"the database has {len(rows)} of entries {published} to {size - 1}")
        if any(leaf_hash(body) != stored_hash for body, stored_hash in rows):
            raise ForkError(f"the stored bytes of an entry from {published} to {size - 1} changed")
        entries = [body for body, _ in rows]
        tiles = dict(build_tiles(published, entries, self.read))
        reader = TileReader(size, lambda path: tiles.get(path) or self.read(path))
        root = reader.root()
        self._check_extends(reader, size, root)
        for path, body in tiles.items():
            self.objects.put_if_absent(f"{self.prefix}/{path}", body)
        note = self._cosigned(last, reader, size, root)
        self.objects.put(f"{self.prefix}/checkpoint", note)
        # Last, since a size that is in this table is not published again.
        with Session(self.engine) as session:
            session.add(
                SignedCheckpoint(size=size, root=root, note=note, created_at=seconds(self.clock()))
            )
            session.commit()
        return size

    def read(self, path: str) -> bytes:
        """Read a published tile, bundle or the checkpoint."""
        return self.objects.get(f"{self.prefix}/{path}")

    def latest(self) -> SignedCheckpoint | None:
        """Return the newest checkpoint, or None before the first."""
        with Session(self.engine) as session:
            return session.exec(_NEWEST).one_or_none()

    def prove(self, index: int) -> bytes | None:
        """Return an entry's `.tlog-proof` under the newest checkpoint, or None if not under it."""
        checkpoint = self.latest()
        if checkpoint is None or index >= checkpoint.size:
            return None
        hashes = TileReader(checkpoint.size, self.read).prove_inclusion(index)
        return write_proof(index, hashes, checkpoint.note)

    def _sequence_batch(self) -> int:
        with Session(self.engine) as session:
            if self.engine.dialect.name == "postgresql":
                # Wait rather than leave: an export needs its own entry to have its index now.
                session.execute(
                    text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _SEQUENCER_LOCK}
                )
            head = session.exec(select(LogHead).where(LogHead.id == 1).with_for_update()).one()
            # A restored database gives no indexes anew: they would be another history's.
            self._check_not_rolled_back(head.size)
            pending = session.exec(
                select(AuditEntry.seq, AuditEntry.body, AuditEntry.leaf_hash)
                .where(col(AuditEntry.idx).is_(None))
                .order_by(col(AuditEntry.seq))
                .limit(BATCH)
            ).all()
            for seq, body, stored_hash in pending:
                if leaf_hash(body) != stored_hash:
                    raise ForkError(f"the stored bytes of entry row {seq} changed")
            if pending:
                self._give_indexes(session, [seq for seq, _, _ in pending if seq], head.size)
            head.size += len(pending)
            session.commit()
            return len(pending)

    def _give_indexes(self, session: Session, seqs: Sequence[int], first: int) -> None:
        """Give rows their indexes, in one statement where the database has one for it."""
        if self.engine.dialect.name == "postgresql":
            session.execute(
                text(
                    "UPDATE audit_entry SET idx = :first + given.place - 1"
                    " FROM unnest(CAST(:seqs AS bigint[])) WITH ORDINALITY AS given(seq, place)"
                    " WHERE audit_entry.seq = given.seq"
                ),
                {"first": first, "seqs": list(seqs)},
            )
            return
        session.connection().execute(
            text("UPDATE audit_entry SET idx = :idx WHERE seq = :seq"),
            [{"idx": idx, "seq": seq} for idx, seq in enumerate(seqs, first)],
        )

    def _check_not_rolled_back(self, size: int) -> None:
        signed, _, _ = self._last_signed()
        if signed > size:
            raise RolledBackError(
                f"a checkpoint over {signed} entries was signed, the database holds {size}:"
                " it was restored from an older state. Nothing is signed until"
                " `placet audit recover` puts the missing entries back from the published log at"
                f" {self.prefix}"
            )

    def _check_extends(self, reader: TileReader, size: int, root: bytes) -> None:
        """Refuse a tree that grew out of an older state, past the size that was signed."""
        signed, signed_root, _ = self._last_signed()
        if not 0 < signed < size:
            return
        try:
            proof = reader.prove_consistency(signed)
            check_consistency(signed, size, proof, bytes.fromhex(signed_root), root)
        except MerkleError as error:
            raise ForkError(f"the signed {signed} entries are not in this log: {error}") from error

    def _last_signed(self) -> tuple[int, str, bytes]:
        """Ask the guard; where its file was lost, the published log still remembers."""
        if self.guard.path.exists():
            return self.guard.read()
        try:
            note = self.read("checkpoint")
        except ObjectMissingError:
            return 0, "", b""
        seen = parse_checkpoint(open_note(note, map(VerifyKey.parse, self.vkeys)).text)
        return seen.size, seen.root.hex(), note

    def _cosigned(
        self, last: SignedCheckpoint | None, reader: TileReader, size: int, root: bytes
    ) -> bytes:
        """Sign, and have it cosigned; the guard keeps our own lines, witnesses' may differ."""
        if self.witnesses is None:
            return self._sign(size, root)
        signed, _, known = self._last_signed()
        if last is not None and (not known or last.size > signed):
            # A recovered log has its newest checkpoint back before the guard knows of it.
            signed, known = max(signed, last.size), last.note
        try:
            if known:
                self.witnesses.settle(known, signed=signed)
            return self.witnesses.cosigned(self._sign(size, root), reader.prove_consistency)
        except WitnessAheadError as error:
            raise RolledBackError(str(error)) from error

    def _sign(self, size: int, root: bytes) -> bytes:
        signed, signed_root, note = self._last_signed()
        if signed == size and signed_root != root.hex():
            raise ForkError(f"another tree of {size} entries was signed before; nothing is signed")
        if signed == size and note:
            return note
        keys = [VerifyKey.parse(vkey) for vkey in self.vkeys]
        timestamp = int(self.clock().timestamp())
        _check_clock(note, keys, timestamp)
        self.guard.write(size, root.hex(), b"")
        note = sign_checkpoint(
            Checkpoint(self.origin, size, root), self.signers, timestamp=timestamp
        )
        opened = parse_checkpoint(open_note(note, keys).text)
        if (opened.size, opened.root) != (size, root):
            raise ForkError("the signature does not say what was to be signed")
        self.guard.write(size, root.hex(), note)
        return note


def _check_clock(note: bytes, keys: Sequence[VerifyKey], timestamp: int) -> None:
    """Refuse to sign a time before the last one: a restored machine, or a clock set back."""
    if not note:
        return
    signed = [line.timestamp for line in open_note(note, keys).verified if line.timestamp]
    if signed and timestamp < max(signed):
        last = datetime.fromtimestamp(max(signed), UTC).isoformat()
        now = datetime.fromtimestamp(timestamp, UTC).isoformat()
        raise ClockError(
            f"the last checkpoint was signed at {last} and the clock says {now}: nothing is signed"
            " before that time has passed; set the clock right"
        )


def entry_json(row: Any) -> dict[str, Any]:
    """Render a sequenced entry: its index, leaf hash and the exact text of the leaf."""
    return {
        "index": row.idx,
        "leaf_hash": row.leaf_hash.hex(),
        "entry": json.loads(row.body),
    }
