"""Reference data in force: what ships, what officers recorded over it, and every act on it."""

import base64
import binascii
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from sqlmodel import Session, col, select

from policies.overlay import TABLES, rows_of
from service import in_force, reference_rows
from service.api.http import (
    After,
    Authenticated,
    CreationKey,
    Limit,
    StrictRoute,
    Wired,
    cursor,
    once,
    page,
)
from service.archive import load
from service.clock import seconds
from service.force_tables import ReferenceRow
from service.log_tables import Document
from service.problems import NotFound, field_problem
from service.reference_rows import Attached

router = APIRouter(route_class=StrictRoute)

Table = Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,40}$")]
TableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Key = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}$")]
Reason = Annotated[str, StringConstraints(max_length=2000, strip_whitespace=True)]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class AttachedDocument(_Closed):
    """A document that a row rests on: the certificate itself, an attestation, a price list."""

    media_type: Literal["application/pdf", "text/plain", "image/png", "image/jpeg"]
    content: str = Field(
        min_length=4, max_length=16_777_216, description="Its bytes in base64 with padding."
    )


class ReferenceRowRequest(_Closed):
    """A row to put in force; the service adds who declares it and the document's digest."""

    table: Table = Field(description="A table of the reference data.", examples=["prices"])
    row: dict[str, Any] = Field(
        description="The row by the table's schema, with `source`, `checked_on` and `confidence`.",
        min_length=1,
        max_length=40,
    )
    document: AttachedDocument | None = Field(default=None)
    reason: Reason = Field(default="", description="Why; kept sealed beside the log.")


class WithdrawalRequest(_Closed):
    """A key under which nothing of the installation's own, or nothing shipped, is to hold."""

    table: Table = Field(examples=["prices"])
    key: Key = Field(examples=["ovhcloud/ai1-1-gpu/EUR"])
    reason: Reason = Field(default="", description="Why; kept sealed beside the log.")


@router.get("/reference", tags=["reference data"], summary="List the tables in force")
def list_tables(wired: Wired, who: Authenticated) -> dict[str, Any]:
    """List every table with how many of its rows ship and how many are the installation's own."""
    del who  # any authenticated caller may know what decides
    with wired.transactions.read() as session:
        reference = wired.gate.current(session).reference
        own = {(one.table, one.key): one.row for one in reference_rows.overlay(session)}
    tables = {}
    for table in sorted({*TABLES, *reference.tables}):
        recorded = sum(t == table and row is not None for (t, _), row in own.items())
        tables[table] = {
            "shipped": len(reference.rows(table)) - recorded,
            "overlay": recorded,
            "hidden": sum(t == table and row is None for (t, _), row in own.items()),
        }
    return {"reference": reference.digest, "tables": tables}


@router.get(
    "/reference/tables/{table}", tags=["reference data"], summary="List the rows of a table"
)
def list_rows(table: TableName, wired: Wired, who: Authenticated) -> dict[str, Any]:
    """List the rows of a table as they are in force, each with its key and its origin.

    `origin` is `shipped`, with the overlay folder, or `overlay` for what an officer recorded. A
    shipped row that an officer hid is listed with `row` null.
    """
    del who
    if table not in TABLES:
        raise NotFound(f"no table `{table}`; list them with GET /v1/reference")
    with wired.transactions.read() as session:
        reference = wired.gate.current(session).reference
        acts = reference_rows.latest_acts(session)
    own = {key: act for (t, key), act in acts.items() if t == table and act.act != "withdrawn"}
    items: list[dict[str, Any]] = [
        {"key": key, "origin": "overlay" if key in own else "shipped", "row": dict(row)}
        | ({"id": own[key].id} if key in own else {})
        for t, key, row in rows_of(reference)
        if t == table
    ]
    items += [
        {"key": key, "origin": "overlay", "row": None, "id": act.id}
        for key, act in sorted(own.items())
        if act.act == "hidden"
    ]
    return {"reference": reference.digest, "table": table, "items": items}


@router.get("/reference/rows", tags=["reference data"], summary="List what was recorded")
def list_acts(
    request: Request,
    response: Response,
    wired: Wired,
    who: Authenticated,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List every act on the reference data, oldest first, with what was in force from then on."""
    del who
    with wired.transactions.read() as session:
        rows = session.exec(
            select(ReferenceRow)
            .where(col(ReferenceRow.id) > cursor(after))
            .order_by(ReferenceRow.id)
            .limit(limit + 1)
        )
        items = [_view(session, row) for row in rows]
    return page(request, items, limit=limit, key="id", response=response)


@router.post(
    "/reference/rows", tags=["reference data"], status_code=201, summary="Record a row of our own"
)
def record_row(
    body: ReferenceRowRequest, wired: Wired, who: Authenticated, key: CreationKey
) -> JSONResponse:
    """Put a row in force from this commit on: officers only. It replaces the row of its key.

    Decisions that were made stay as they are; a job that was approved before is decided again.
    """
    attached = None if body.document is None else _attached(body.document)
    with wired.transactions.write() as tx:
        in_force.hold(tx.session, alone=True)

        def work() -> tuple[int, dict[str, Any]]:
            row = reference_rows.record(
                tx,
                who,
                table=body.table,
                members=dict(body.row),
                attached=attached,
                reason=body.reason,
                clock=wired.clock,
            )
            return 201, _view(tx.session, row)

        return once(
            tx,
            who,
            key=key,
            route="POST /v1/reference/rows",
            request=body,
            now=seconds(wired.clock()),
            work=work,
        )


@router.post(
    "/reference/withdrawals", tags=["reference data"], status_code=201, summary="Withdraw a row"
)
def withdraw_row(
    body: WithdrawalRequest, wired: Wired, who: Authenticated, key: CreationKey
) -> JSONResponse:
    """Take away what is in force under a key: officers only.

    The installation's own row goes first, and a shipped row of that key shows again; where there is
    only a shipped row, that one is hidden.
    """
    with wired.transactions.write() as tx:
        in_force.hold(tx.session, alone=True)

        def work() -> tuple[int, dict[str, Any]]:
            row = reference_rows.withdraw(
                tx, who, table=body.table, key=body.key, reason=body.reason, clock=wired.clock
            )
            return 201, _view(tx.session, row)

        return once(
            tx,
            who,
            key=key,
            route="POST /v1/reference/withdrawals",
            request=body,
            now=seconds(wired.clock()),
            work=work,
        )


@router.get("/reference/rows/{row_id}", tags=["reference data"], summary="Read what was recorded")
def read_act(row_id: str, wired: Wired, who: Authenticated) -> dict[str, Any]:
    """Read one act on the reference data."""
    del who
    with wired.transactions.read() as session:
        return _view(session, _found(session, row_id))


@router.get(
    "/reference/rows/{row_id}/document",
    tags=["reference data"],
    summary="Read the document of a row",
)
def read_document(row_id: str, wired: Wired, who: Authenticated) -> Response:
    """Read the bytes that were kept with a row, checked against their digest."""
    del who
    with wired.transactions.read() as session:
        row = _found(session, row_id)
        if row.document_digest is None:
            raise NotFound(f"`{row_id}` has no document")
        body = load(session, row.document_digest)
        kind = session.get_one(Document, row.document_digest).media_type
    return Response(body, media_type=kind, headers={"Content-Disposition": "attachment"})


def _found(session: Session, row_id: str) -> ReferenceRow:
    row = session.get(ReferenceRow, row_id)
    if row is None:
        raise NotFound(f"no act `{row_id}` on the reference data")
    return row


def _view(session: Session, row: ReferenceRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "act": row.act,
        "table": row.table_name,
        "key": row.row_key,
        "row": reference_rows.row_of(session, row),
        "row_digest": row.row_digest,
        "document_digest": row.document_digest,
        "reference_digest": row.reference_digest,
        "declared_by": row.created_by,
        "created_at": row.created_at,
    }


def _attached(document: AttachedDocument) -> Attached:
    try:
        body = base64.b64decode(document.content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise field_problem("/document/content", "is no base64; encode the file's bytes") from error
    return Attached(body, document.media_type)
