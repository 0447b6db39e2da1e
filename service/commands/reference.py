"""`placet reference list|record|withdraw`: the rows that decisions rest on, and our own rows."""

import argparse
import base64
import json
from pathlib import Path
from typing import Any

from service.commands.connection import connected
from service.commands.documents import read_document
from service.commands.errors import CommandError, Status
from service.commands.output import fields, line, machine, table

_TYPES = {
    ".pdf": "application/pdf",
    ".txt": "text/plain",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
}


def listed(arguments: argparse.Namespace) -> int:
    """List the tables, or the rows of one with their keys and origins."""
    path = "/v1/reference" + (f"/tables/{arguments.table}" if arguments.table else "")
    with connected(arguments) as client:
        found = client.get(path)
    if arguments.json:
        machine(found)
    elif arguments.table:
        table(
            ("key", "origin", "declared_by", "checked_on", "confidence"), map(_row, found["items"])
        )
    else:
        rows = [{"table": name, **counts} for name, counts in found["tables"].items()]
        table(("table", "shipped", "overlay", "hidden"), rows)
        line(f"in force: {found['reference']}")
    return Status.OK


def _row(item: dict[str, Any]) -> dict[str, Any]:
    row = item["row"] or {"confidence": "hidden"}
    names = ("declared_by", "checked_on", "confidence")
    return {"key": item["key"], "origin": item["origin"], **{n: row.get(n) for n in names}}


def record(arguments: argparse.Namespace) -> int:
    """Put a row in force, with the document that it rests on."""
    body: dict[str, Any] = {
        "table": arguments.table,
        "row": read_document(arguments.file),
        "reason": arguments.reason,
    }
    if arguments.document is not None:
        body["document"] = _attached(arguments.document)
    with connected(arguments) as client:
        return _told(arguments, client.post("/v1/reference/rows", body))


def withdraw(arguments: argparse.Namespace) -> int:
    """Take a row away: our own first, then the shipped one."""
    body = {"table": arguments.table, "key": arguments.key, "reason": arguments.reason}
    with connected(arguments) as client:
        return _told(arguments, client.post("/v1/reference/withdrawals", body))


def _attached(path: Path) -> dict[str, str]:
    kind = _TYPES.get(path.suffix.lower())
    if kind is None:
        raise CommandError(f"`{path}`: expected one of {', '.join(_TYPES)}", Status.USAGE)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read `{path}`: {error.strerror}", Status.USAGE) from error
    return {"media_type": kind, "content": base64.b64encode(content).decode()}


def _told(arguments: argparse.Namespace, done: dict[str, Any]) -> int:
    if arguments.json:
        machine(done)
        return Status.OK
    names = ("id", "act", "table", "key", "document_digest", "reference_digest")
    fields({name: done[name] for name in names})
    if done["row"] is not None:
        line(json.dumps(done["row"], ensure_ascii=False, sort_keys=True))
    return Status.OK
