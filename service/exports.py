"""Bundles for auditors: every entry up to a checkpoint, and every document that entries name."""

from pathlib import Path

from sqlmodel import col, select

from audit.canonical import JsonValue, canonical
from audit.event import EventKind
from audit.selection import Selection
from audit.single import build as build_verifier
from audit.tokens import ClaimsError, claims_of
from audit.writing import write_bundle
from service.clock import Clock, seconds
from service.excerpts import Shown, selection_of, shown_by
from service.ids import Prefix, new_id
from service.ledger import ClockError, Ledger
from service.log_tables import Document, SignedCheckpoint
from service.principals import Caller, Role
from service.problems import NotFound, Unavailable
from service.requests import ExportSelection
from service.tables import Export, Run
from service.transaction import Transactions
from service.witnesses import QuorumError

_PERMIT = "application/jwt"


def export(
    transactions: Transactions,
    ledger: Ledger,
    caller: Caller,
    *,
    recipient: str,
    folder: Path,
    clock: Clock,
    asked: ExportSelection | None = None,
) -> Export:
    """Write a bundle of the whole log, or an excerpt, and record that it was handed out.

    The export is itself an entry, and a whole bundle holds it: the entry is written, sequenced and
    signed first. An excerpt shows what matches `asked` up to the entry of the export.

    Raises:
        Forbidden: neither auditor nor admin nor officer.
        Unprocessable: `asked` names what is not there.
        Unavailable: nothing can be signed now.
    """
    caller.require(Role.AUDITOR, Role.ADMIN, Role.OFFICER)
    before = _published(ledger)
    selection, shown = _chosen(transactions, asked, end=before.size)
    with transactions.write() as tx:
        row = Export(
            id=new_id(Prefix.EXPORT),
            entry_id="",
            created_at=seconds(clock()),
            created_by=caller.id,
            num_entries=before.size + 1,
            num_shown=None if shown is None else shown.entries,
        )
        data: dict[str, JsonValue] = {
            "first": 0,
            "last": before.size - 1,
            "checkpoint_size": before.size,
            "recipient_kind": recipient,
        }
        if selection is not None and shown is not None:
            data["selection"] = tx.keep(canonical(selection.to_document()))
            data["shown"] = shown.entries
        tx.record(EventKind.EVIDENCE_EXPORTED, row, actor=caller.actor, data=data)
    checkpoint = _published(ledger)
    folder.mkdir(parents=True, exist_ok=True)
    path = bundle_path(folder, row.id)
    staged = path.with_suffix(".part")
    with staged.open("wb") as out:
        write_bundle(
            out,
            checkpoint=checkpoint.note,
            tiles=ledger.read,
            objects=_documents(transactions, shown, now=clock().timestamp()),
            signer=ledger.signers[0],
            verifier=build_verifier(),
            manifest_fields={"export": row.id, "recipient_kind": recipient},
            hinted_keys=ledger.vkeys,
            selection=selection,
        )
    staged.replace(path)
    return row


def _chosen(
    transactions: Transactions, asked: ExportSelection | None, *, end: int
) -> tuple[Selection | None, Shown | None]:
    if asked is None:
        return None, None
    with transactions.read() as session:
        selection = selection_of(session, asked, end=end)
        return selection, shown_by(session, selection)


def _published(ledger: Ledger) -> SignedCheckpoint:
    """Publish what is there, and return the checkpoint over it."""
    ledger.sequence()
    try:
        ledger.publish()
    except (QuorumError, ClockError) as error:
        raise Unavailable(str(error)) from error
    checkpoint = ledger.latest()
    if checkpoint is None:
        raise Unavailable("the log has no checkpoint yet; try again in a few seconds")
    return checkpoint


def _documents(transactions: Transactions, shown: Shown | None, *, now: float) -> dict[str, bytes]:
    """Read every document that may be handed out; of an excerpt, those that its entries name.

    A permit is a bearer right until its run is over or it expired; until then the bundle lists it
    as missing.
    """
    with transactions.read() as session:
        used = set(session.exec(select(Run.permit_digest).where(col(Run.outcome).is_not(None))))
        return {
            item.digest: item.body
            for item in session.exec(select(Document))
            if (shown is None or item.digest in shown.documents)
            and (item.media_type != _PERMIT or item.digest in used or _is_expired(item.body, now))
        }


def _is_expired(permit: bytes, now: float) -> bool:
    try:
        expires = claims_of(permit).get("exp")
    except ClaimsError:  # altered in the database: nobody can say that it is spent
        return False
    return isinstance(expires, int) and expires <= now


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
