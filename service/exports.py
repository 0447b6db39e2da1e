"""Bundles for auditors: every entry up to a checkpoint, and every document that entries name."""

from pathlib import Path

from sqlmodel import select

from audit.bundle import write_bundle
from audit.event import EventKind
from audit.single import build as build_verifier
from service.clock import Clock, seconds
from service.ids import Prefix, new_id
from service.ledger import Ledger
from service.log_tables import Document
from service.principals import Caller, Role
from service.problems import NotFound, Unavailable
from service.tables import Export
from service.transaction import Transactions

_PRIVATE = "application/jwt"  # permits are bearer rights: entries name them by id only


def export(
    transactions: Transactions,
    ledger: Ledger,
    caller: Caller,
    *,
    recipient: str,
    folder: Path,
    clock: Clock,
) -> Export:
    """Write a bundle of the whole log and record that it was handed out.

    The export is itself an entry, and the bundle holds it: the entry is written, sequenced and
    signed first.

    Raises:
        Forbidden: neither auditor nor admin nor officer.
        Unavailable: nothing can be signed now.
    """
    caller.require(Role.AUDITOR, Role.ADMIN, Role.OFFICER)
    ledger.sequence()
    ledger.publish()
    before = ledger.latest()
    if before is None:
        raise Unavailable("the log has no checkpoint yet; try again in a few seconds")
    with transactions.write() as tx:
        row = Export(
            id=new_id(Prefix.EXPORT),
            entry_id="",
            created_at=seconds(clock()),
            created_by=caller.id,
            num_entries=before.size + 1,
        )
        tx.record(
            EventKind.EVIDENCE_EXPORTED,
            row,
            actor=caller.actor,
            data={
                "first": 0,
                "last": before.size - 1,
                "checkpoint_size": before.size,
                "recipient_kind": recipient,
            },
        )
    ledger.sequence()
    ledger.publish()
    checkpoint = ledger.latest()
    if checkpoint is None:
        raise Unavailable("the log has no checkpoint yet; try again in a few seconds")
    with transactions.read() as session:
        documents = {
            item.digest: item.body
            for item in session.exec(select(Document).where(Document.media_type != _PRIVATE))
        }
    folder.mkdir(parents=True, exist_ok=True)
    path = bundle_path(folder, row.id)
    staged = path.with_suffix(".part")
    with staged.open("wb") as out:
        write_bundle(
            out,
            checkpoint=checkpoint.note,
            tiles=ledger.read,
            objects=documents,
            signer=ledger.signers[0],
            verifier=build_verifier(),
            manifest_fields={"export": row.id, "recipient_kind": recipient},
            hinted_keys=ledger.vkeys,
        )
    staged.replace(path)
    return row


def bundle_path(folder: Path, export_id: str) -> Path:
    """Say where a bundle lies."""
    return folder / f"{export_id}.zip"


def find(transactions: Transactions, caller: Caller, export_id: str, folder: Path) -> Path:
    """Return the file of a bundle.

    Raises:
        Forbidden: the caller may not read exports.
        NotFound: no such bundle.
    """
    caller.require(Role.AUDITOR, Role.ADMIN, Role.OFFICER)
    with transactions.read() as session:
        row = session.get(Export, export_id)
    path = bundle_path(folder, export_id)
    if row is None or not path.exists():
        raise NotFound(f"no bundle `{export_id}`; make one with `placet export`")
    return path
