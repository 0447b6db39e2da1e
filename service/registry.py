"""Registering what a job may use: dataset versions and base models, as bytes with digests.

Reading and hashing happen first, outside any transaction (data sets: `service.dataset_scan`); then
one short transaction writes the row and its entry. Where an object lies is looked up from the
endpoint that serves it, never taken from a label.
"""

import json
import struct
from dataclasses import dataclass
from typing import Any, BinaryIO

from audit.event import EventKind
from service import model_shape
from service.clock import Clock, seconds
from service.dataset_scan import DatasetScan, Hashed
from service.ids import Prefix, new_id
from service.objects.protocol import CHUNK_BYTES, ObjectError, Objects
from service.places import Place, Places
from service.principals import Caller, Role
from service.problems import field_problem
from service.tables import BaseModel, DatasetVersion
from service.transaction import Transaction
from trainer.contract import (
    CHAT_ROWS,
    ContractError,
    Digest,
    FileEntry,
    FilesManifest,
)

_MAX_HEADER_BYTES = 100_000_000
_MAX_PARAMETERS = 10**15
# What reading a header of somebody else's making may raise.
_NO_HEADER = (struct.error, ValueError, TypeError, KeyError, AttributeError, RecursionError)


@dataclass(frozen=True)
class BaseModelScan:
    """What reading a base model's folder showed."""

    uri: str
    files: FilesManifest
    num_parameters: int
    shape: dict[str, int]
    place: Place


def register_dataset(
    tx: Transaction,
    caller: Caller,
    *,
    scan: DatasetScan,
    team: str,
    categories: list[str],
    declared: dict[str, Any],
    clock: Clock,
) -> DatasetVersion:
    """Record a dataset version for a team.

    Raises:
        Forbidden: not a submitter, or not of this team.
    """
    caller.require(Role.SUBMITTER)
    caller.require_team(team)
    row = DatasetVersion(
        id=new_id(Prefix.DATASET),
        entry_id="",
        created_at=seconds(clock()),
        created_by=caller.id,
        team=team,
        name=scan.manifest.name,
        uri=scan.uri,
        manifest_digest=tx.keep(scan.manifest.to_bytes()),
        num_objects=len(scan.manifest.objects),
        num_rows=sum(item.rows for item in scan.manifest.objects),
        size_bytes=sum(item.size_bytes for item in scan.manifest.objects),
        provider=scan.place.provider,
        service=scan.place.service,
        region=scan.place.region,
        country=scan.place.country,
        categories_declared=sorted(set(categories)),
        categories_detected=list(scan.detection.categories),
        detection=scan.detection.to_document(),
        declared={**declared, **_found(scan)},
    )
    tx.record(
        EventKind.DATASET_REGISTERED,
        row,
        actor=caller.actor,
        data={
            "manifest": row.manifest_digest,
            "categories_declared": list(row.categories_declared),
            "categories_detected": list(row.categories_detected),
            "country": row.country,
            "num_objects": row.num_objects,
            "size_bytes": row.size_bytes,
        },
    )
    return row


def _found(scan: DatasetScan) -> dict[str, Any]:
    manifest = scan.manifest
    return {
        "licence": manifest.licence,
        "languages": list(scan.languages),
        "format": manifest.rows_format,
    }


def rows_format_of(row: DatasetVersion) -> str:
    """Say how its rows are written; versions from before there was a choice are chats."""
    return str(row.declared.get("format") or CHAT_ROWS)


def scan_base_model(objects: Objects, places: Places, *, uri: str) -> BaseModelScan:
    """Hash every file of a base model and count its parameters from the safetensors headers.

    Raises:
        Unprocessable: no files, or no readable safetensors file among them.
    """
    try:
        files = []
        num_parameters = 0
        shape: dict[str, int] = {}
        root = uri.rstrip("/") + "/"
        for member, _ in objects.list(uri):
            stored = objects.measure(member)
            files.append(
                FileEntry(
                    path=member.removeprefix(root),
                    digest=Digest(stored.digest),
                    size_bytes=stored.size_bytes,
                )
            )
            if member == root + model_shape.CONFIG and stored.size_bytes <= model_shape.MAX_BYTES:
                shape = model_shape.read(objects.get(member))
            if member.endswith(".safetensors"):
                with objects.open(member) as stream:
                    hashed = Hashed(stream)
                    num_parameters += count_parameters(hashed, member)
                    while hashed.read(CHUNK_BYTES):
                        continue
                if hashed.stored != stored:
                    raise field_problem("/uri", f"`{member}` changed while it was read; try again")
        if not num_parameters:
            raise field_problem(
                "/uri", f"no `*.safetensors` file under `{uri}`; Placet reads no pickles"
            )
        manifest = FilesManifest(files=tuple(sorted(files, key=lambda item: item.path)))
        manifest = FilesManifest.from_bytes(manifest.to_bytes())
        place = places.of(objects.endpoint_of(uri))
    except (ObjectError, ContractError) as error:
        raise field_problem("/uri", str(error)) from error
    return BaseModelScan(
        uri=uri, files=manifest, num_parameters=num_parameters, shape=shape, place=place
    )


def register_base_model(
    tx: Transaction,
    caller: Caller,
    *,
    scan: BaseModelScan,
    name: str,
    declared: dict[str, Any],
    clock: Clock,
) -> BaseModel:
    """Record a base model.

    Raises:
        Forbidden: neither submitter nor admin.
    """
    caller.require(Role.SUBMITTER, Role.ADMIN)
    row = BaseModel(
        id=new_id(Prefix.BASE_MODEL),
        entry_id="",
        created_at=seconds(clock()),
        created_by=caller.id,
        name=name,
        uri=scan.uri,
        files_digest=tx.keep(scan.files.to_bytes()),
        num_parameters=scan.num_parameters,
        declared={**declared, "shape": scan.shape},
    )
    tx.record(
        EventKind.BASE_MODEL_REGISTERED,
        row,
        actor=caller.actor,
        data={"files": row.files_digest, "licence": str(declared["licence"])},
    )
    return row


def count_parameters(stream: BinaryIO | Hashed, name: str) -> int:
    """Count the elements of a safetensors file from its header (8-byte length, then JSON).

    Raises:
        Unprocessable: the header cannot be read.
    """
    try:
        (length,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(min(length, _MAX_HEADER_BYTES)))
        shapes = [item["shape"] for key, item in header.items() if key != "__metadata__"]
        total = sum(_product(shape) for shape in shapes)
    except _NO_HEADER as error:
        raise field_problem("/uri", f"`{name}` is no safetensors file ({error})") from error
    if total > _MAX_PARAMETERS:
        raise field_problem("/uri", f"`{name}` declares more than {_MAX_PARAMETERS} parameters")
    return total


def _product(shape: list[object]) -> int:
    total = 1
    for size in shape:
        if type(size) is not int or size < 0:
            raise ValueError(f"expected a shape of whole numbers, got {size!r:.40}")
        total *= size
    return total
