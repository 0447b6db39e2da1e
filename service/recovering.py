"""Recovery of a log whose database was restored from an older backup.

The published log holds the exact bytes of every entry under the last signed checkpoint, so entries
that the database lost are put back from there, each at its index, after everything was checked
against the signed root. What they recorded is not put back: business rows and documents of that
range are gone, `placet audit reconcile` lists them, and the entry `log.recovered` says so for ever.

Nothing is recovered when the database holds other entries than were published, since then two
histories exist: start a new log, whose first entry names this one's last checkpoint.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import text
from sqlmodel import Session, col, select

from audit.event import EventError, EventKind, from_bytes
from audit.keys import VerifyKey
from audit.merkle import leaf_hash, leaf_hashes
from audit.note import Checkpoint, NoteError, open_note, parse_checkpoint
from audit.tiles import (
    ENTRIES,
    TILE_WIDTH,
    TileError,
    TileReader,
    bundles_of,
    parse_entries,
    parse_hashes,
    tile_path,
)
from service.clock import seconds
from service.ledger import ForkError, Ledger
from service.log_tables import AuditEntry, LogHead, SignedCheckpoint
from service.objects.protocol import ObjectError
from service.transaction import SYSTEM, Transactions

_NO_BUNDLES = (
    "the published log cannot be read whole ({reason}); without it this log cannot go on: start a"
    " new one, whose first entry names the last checkpoint of this"
)


@dataclass(frozen=True)
class Recovered:
    """What was put back: entries `first` to `last`, and the new entry that says so."""

    first: int
    last: int
    entry_id: str

    @property
    def count(self) -> int:
        """Count the entries that were put back."""
        return self.last - self.first + 1


def recover(ledger: Ledger, transactions: Transactions) -> Recovered | None:
    """Put back what the database lost of what was signed; None when nothing is lost.

    Stop every worker and service of this database first. All of it commits together.

    Raises:
        ForkError: the database holds other entries than were published, or the published log is
            not what was signed.
    """
    with ledger.guard.exclusive():
        signed = _last_signed(ledger)
        with transactions.write() as tx:
            head = tx.session.exec(select(LogHead).where(LogHead.id == 1).with_for_update()).one()
            if signed is None or signed[0].size <= head.size:
                return None
            checkpoint, note = signed
            _check_tree(ledger, checkpoint)
            _check_beginning(ledger, tx.session, head.size)
            first = head.size
            for index, body in _published(ledger, checkpoint.size, first):
                _put_back(tx.session, index, body)
            head.size = checkpoint.size
            tx.session.add(
                SignedCheckpoint(
                    size=checkpoint.size,
                    root=checkpoint.root,
                    note=note,
                    created_at=seconds(ledger.clock()),
                )
            )
            entry_id = tx.record(
                EventKind.LOG_RECOVERED,
                f"log:{ledger.origin}",
                actor=SYSTEM,
                data={"first": first, "last": checkpoint.size - 1},
            )
    return Recovered(first, checkpoint.size - 1, entry_id)


def _last_signed(ledger: Ledger) -> tuple[Checkpoint, bytes] | None:
    """Return the last published checkpoint and its note, or None before the first."""
    try:
        note = ledger.read("checkpoint")
    except ObjectError:
        return None
    try:
        opened = open_note(note, map(VerifyKey.parse, ledger.vkeys))
    except NoteError as error:
        raise ForkError(f"the published checkpoint is not this log's: {error}") from error
    return parse_checkpoint(opened.text), note


def _check_tree(ledger: Ledger, checkpoint: Checkpoint) -> None:
    try:
        root = TileReader(checkpoint.size, ledger.read).root()
    except (ObjectError, TileError) as error:
        raise ForkError(_NO_BUNDLES.format(reason=error)) from error
    if root != checkpoint.root:
        raise ForkError(_NO_BUNDLES.format(reason="its tiles lead to another root"))


def _check_beginning(ledger: Ledger, session: Session, size: int) -> None:
    """Hold the entries that are there against the published leaf hashes."""
    for n, width in bundles_of(size):
        first = n * TILE_WIDTH
        stored = session.exec(
            select(AuditEntry.idx, AuditEntry.body)
            .where(col(AuditEntry.idx) >= first, col(AuditEntry.idx) < first + width)
            .order_by(col(AuditEntry.idx))
        ).all()
        leaves = _leaves(ledger, n, width)
        if [leaf_hash(body) for _, body in stored] != leaves:
            raise ForkError(
                f"the database holds other entries from {first} on than were published: two"
                " histories exist, and neither may go on under this name"
            )


def _leaves(ledger: Ledger, n: int, width: int) -> list[bytes]:
    """Read the leaf hashes of a tile; a partial one may be there only within a fuller one."""
    for kept in (width, *range(width + 1, TILE_WIDTH + 1)):
        try:
            return parse_hashes(ledger.read(tile_path(0, n, kept)), kept)[:width]
        except ObjectError:
            continue
    raise ForkError(_NO_BUNDLES.format(reason=f"tile {n} is not there"))


def _published(ledger: Ledger, size: int, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield (index, entry) from `start` on, each checked against its leaf hash."""
    for n, width in bundles_of(size):
        first = n * TILE_WIDTH
        if first + width <= start:
            continue
        try:
            entries = parse_entries(ledger.read(tile_path(ENTRIES, n, width)), width)
        except (ObjectError, TileError) as error:
            raise ForkError(_NO_BUNDLES.format(reason=error)) from error
        if leaf_hashes(entries) != _leaves(ledger, n, width):
            raise ForkError(_NO_BUNDLES.format(reason=f"entry bundle {n} is not what was signed"))
        yield from ((first + k, body) for k, body in enumerate(entries) if first + k >= start)


def _put_back(session: Session, index: int, body: bytes) -> None:
    """Give an entry its index again: the one that waits without, or a new row of its bytes."""
    try:
        event = from_bytes(body)
    except EventError as error:
        raise ForkError(f"published entry {index} is not readable: {error}") from error
    waiting = session.exec(select(AuditEntry).where(AuditEntry.id == event.id)).one_or_none()
    if waiting is not None:
        if waiting.body != body or waiting.idx is not None:
            raise ForkError(f"the database holds another entry {event.id} than was published")
        session.execute(
            text("UPDATE audit_entry SET idx = :idx WHERE id = :id"),
            {"idx": index, "id": event.id},
        )
        return
    session.add(
        AuditEntry(
            id=event.id,
            entity=event.resource.partition("@")[0],
            kind=event.action,
            at=event.at,
            body=body,
            leaf_hash=leaf_hash(body),
            idx=index,
        )
    )
    session.flush()
