"""Past decisions with what they were made from: from a running service, or from an export.

Both give the same: exact bytes of records, policies and reference data, each read once per digest.
An export is not verified here, only opened: `placet verify` says whether to believe it.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audit.bundle import Bundle, open_bundle
from audit.canonical import digest
from audit.manifest import BundleError
from service.client import Client
from service.commands.errors import CommandError, Status

Load = Callable[[str], bytes]


@dataclass(frozen=True)
class Past:
    """One decision of the past.

    Args:
        name: how to find it again: a decision's id, or the index of an entry.
        subject: ``job:…`` or ``deployment:…``.
        record: exact bytes of its record.
        policy: digest of the policy that decided.
        reference: digest of the reference data.
        load: reads policy or reference data by digest.
    """

    name: str
    subject: str
    record: bytes
    policy: str
    reference: str
    load: Load


def of_service(client: Client, *, since: str | None) -> tuple[int, Iterator[Past]]:
    """Read every decision that the caller may see, oldest first; say how many there are.

    Raises:
        ClientError: a problem, or no answer.
        CommandError: the service gave other bytes than a digest says.
    """
    query = {} if since is None else {"since": since}
    rows = list(client.items("/v1/decisions", **query))
    return len(rows), _of_rows(client, rows)


def _of_rows(client: Client, rows: list[dict[str, Any]]) -> Iterator[Past]:
    known: dict[str, bytes] = {}
    for row in rows:
        path = f"/v1/decisions/{row['id']}"
        where = {row["policy_digest"]: "policy", row["reference_digest"]: "reference"}

        def load(name: str, path: str = path, where: dict[str, str] = where) -> bytes:
            if name not in known:
                known[name] = _same(client.get_bytes(f"{path}/{where[name]}"), name)
            return known[name]

        yield Past(
            name=row["id"],
            subject=row["subject"],
            record=_same(client.get_bytes(f"{path}/record"), row["record_digest"]),
            policy=row["policy_digest"],
            reference=row["reference_digest"],
            load=load,
        )


def _same(body: bytes, name: str) -> bytes:
    if digest(body) != name:
        raise CommandError(f"the service gave other bytes than `{name}` says")
    return body


@contextmanager
def of_export(path: Path, *, since: str | None) -> Iterator[tuple[int, Iterator[Past]]]:
    """Open an export and read its decisions, in the log's order; say how many there are.

    Raises:
        CommandError: no readable export, or a document is not in it.
    """
    try:
        with open_bundle(path) as bundle:
            entries, known = list(_decided(bundle, since)), dict[str, bytes]()
            yield len(entries), (_past(bundle, index, entry, known) for index, entry in entries)
    except BundleError as error:
        raise CommandError(f"`{path}`: {error}", Status.USAGE) from error
    except OSError as error:
        raise CommandError(f"cannot read `{path}`: {error.strerror}", Status.USAGE) from error


def _decided(bundle: Bundle, since: str | None) -> Iterator[tuple[int, dict[str, Any]]]:
    for first, group in bundle.entry_groups():
        for index, body in enumerate(group, first):
            if b'"gate.decided"' not in body:
                continue
            entry = json.loads(body)
            if entry["action"] == "gate.decided" and (since is None or entry["at"] >= since):
                yield index, entry


def _past(bundle: Bundle, index: int, entry: dict[str, Any], known: dict[str, bytes]) -> Past:
    def read(name: str) -> bytes:
        body = bundle.document(name)
        if body is None:
            raise CommandError(f"entry {index}: the document {name} is not in the export")
        return body

    def load(name: str) -> bytes:
        if name not in known:
            known[name] = read(name)
        return known[name]

    data = entry["data"]
    return Past(
        name=f"entry {index}",
        subject=str(entry["resource"]).partition("@")[0],
        record=read(data["record"]),
        policy=data["policy"],
        reference=data["reference"],
        load=load,
    )
