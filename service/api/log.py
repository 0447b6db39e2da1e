"""The audit log: entries, proofs, checkpoints, the published files, and bundles."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse
from sqlmodel import col, select

from audit.tiles import TileError, parse_tile_path
from service import exports
from service.api.http import (
    After,
    Authenticated,
    CreationKey,
    Limit,
    StrictRoute,
    Wired,
    cursor,
    page,
)
from service.ledger import entry_json
from service.log_tables import AuditEntry, SignedCheckpoint
from service.objects.protocol import ObjectMissingError
from service.principals import Role
from service.problems import BadRequest, NotFound
from service.requests import ExportRequest
from service.tables import Export

router = APIRouter(route_class=StrictRoute)
published = APIRouter()
_READERS = (Role.AUDITOR, Role.OFFICER, Role.ADMIN)
_MAX_INDEX = 2**53 - 1
Index = Annotated[int, Path(ge=0, le=_MAX_INDEX, description="Index of an entry in the log.")]


@router.get("/audit/entries", tags=["audit"], summary="List entries")
def list_entries(
    wired: Wired,
    who: Authenticated,
    start: Annotated[int, Query(ge=0, le=_MAX_INDEX, alias="from", description="First index.")] = 0,
    limit: Limit = 50,
) -> dict[str, Any]:
    """List sequenced entries from an index on; `next` is the index to go on at, or null."""
    who.require(*_READERS)
    with wired.transactions.read() as session:
        rows = session.exec(
            select(AuditEntry)
            .where(col(AuditEntry.idx) >= start)
            .order_by(col(AuditEntry.idx))
            .limit(limit + 1)
        ).all()
    items = [entry_json(row) for row in rows[:limit]]
    return {"items": items, "next": rows[limit].idx if len(rows) > limit else None}


@router.get("/audit/entries/{index}", tags=["audit"], summary="Read an entry")
def read_entry(index: Index, wired: Wired, who: Authenticated) -> dict[str, Any]:
    """Read one entry."""
    who.require(*_READERS)
    with wired.transactions.read() as session:
        row = session.exec(select(AuditEntry).where(AuditEntry.idx == index)).first()
    if row is None:
        raise NotFound(f"no entry with index {index}")
    return entry_json(row)


@router.get(
    "/audit/entries/{index}/proof",
    tags=["audit"],
    summary="Prove an entry",
    response_class=PlainTextResponse,
)
def read_proof(index: Index, wired: Wired, who: Authenticated) -> PlainTextResponse:
    """Read the `.tlog-proof` of an entry under the newest checkpoint."""
    who.require(*_READERS)
    proof = wired.ledger.prove(index)
    if proof is None:
        raise NotFound(f"no checkpoint covers entry {index} yet; try again in a second")
    return PlainTextResponse(proof.decode())


@router.get("/checkpoints", tags=["audit"], summary="List checkpoints")
def list_checkpoints(
    request: Request,
    response: Response,
    wired: Wired,
    who: Authenticated,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List signed checkpoints, smallest first."""
    who.require(*_READERS)
    text = cursor(after) or "0"
    if not text.isdigit() or int(text) > _MAX_INDEX:
        raise BadRequest("`after` is no cursor; take it from `next` of the page before")
    with wired.transactions.read() as session:
        rows = session.exec(
            select(SignedCheckpoint)
            .where(col(SignedCheckpoint.size) > int(text))
            .order_by(col(SignedCheckpoint.size))
            .limit(limit + 1)
        )
        items = [
            {
                "size": row.size,
                "root": row.root.hex(),
                "note": row.note.decode(),
                "created_at": row.created_at,
            }
            for row in rows
        ]
    return page(request, items, limit=limit, key="size", response=response)


@router.get("/log/keys", tags=["audit"], summary="Read the log's keys")
def read_keys(wired: Wired) -> dict[str, Any]:
    """Read origin and verification keys. Compare them with what you got by another way."""
    return {"origin": wired.settings.origin, "vkeys": wired.ledger.vkeys}


@router.post("/exports", tags=["exports"], status_code=201, summary="Make a bundle")
def create_export(
    body: ExportRequest, wired: Wired, who: Authenticated, key: CreationKey
) -> JSONResponse:
    """Make a bundle for a recipient: the whole log, or an excerpt. It is an entry itself."""
    del key  # two bundles of the same log do no harm; both are recorded
    row = exports.export(
        wired.transactions,
        wired.ledger,
        who,
        recipient=body.recipient,
        folder=wired.exports_folder,
        clock=wired.clock,
        asked=body.selection,
    )
    return JSONResponse(_export_view(row), 201)


@router.get("/exports/{export_id}", tags=["exports"], summary="Read about a bundle")
def read_export(export_id: str, wired: Wired, who: Authenticated) -> dict[str, Any]:
    """Read what a bundle holds and who made it."""
    exports.find(wired.transactions, who, export_id, wired.exports_folder)
    with wired.transactions.read() as session:
        return _export_view(session.get_one(Export, export_id))


@router.get("/exports/{export_id}/bundle", tags=["exports"], summary="Download a bundle")
def download_export(export_id: str, wired: Wired, who: Authenticated) -> FileResponse:
    """Download the bundle; verify it with `placet verify` or the verifier inside it."""
    path = exports.find(wired.transactions, who, export_id, wired.exports_folder)
    return FileResponse(path, media_type="application/zip", filename=path.name)


@published.get("/log/{path:path}", include_in_schema=False)
def read_published(path: str, wired: Wired, who: Authenticated) -> Response:
    """Serve checkpoint and tiles as they are published, for mirrors (C2SP tlog-tiles)."""
    who.require(*_READERS)
    if path != "checkpoint":
        try:
            parse_tile_path(path)
        except TileError as error:
            raise NotFound(f"no such file in the log: {error}") from error
    try:
        body = wired.ledger.read(path)
    except ObjectMissingError as error:
        raise NotFound("no such tile in the published log") from error
    kind = "text/plain; charset=utf-8" if path == "checkpoint" else "application/octet-stream"
    return Response(body, media_type=kind)


def _export_view(row: Export) -> dict[str, Any]:
    return {
        "id": row.id,
        "version": row.version,
        "num_entries": row.num_entries,
        "num_shown": row.num_shown,
        "created_at": row.created_at,
        "created_by": row.created_by,
        "bundle": f"/v1/exports/{row.id}/bundle",
        "entry": row.entry_id,
    }
