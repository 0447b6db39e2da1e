"""Read a dataset and a base model, and refuse any byte that is not the permitted one.

An object is hashed as a whole before one of its rows is parsed; a base-model directory is hashed
before one of its files is loaded. A directory on the local disk is loaded in place: who may write
to it between the hash and the load could change it, so mount it read-only.
"""

import hashlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from trainer.contract import (
    CHAT_ROWS,
    ContractError,
    DatasetManifest,
    DatasetObject,
    Digest,
    FileEntry,
    FilesManifest,
    digest,
)
from trainer.refusal import Reason, RefusedError
from trainer.store import fetch, get, path_of, store_for
from trainer.strict import Reader, parse

CHUNK_BYTES = 1 << 20
MAX_ROW_BYTES = 1_048_576
ROLES = ("system", "user", "assistant")
Poll = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Row:
    """One conversation, with the group that the split keeps together."""

    id: str
    group: str
    language: str
    messages: tuple[Message, ...]


def read_dataset(uri: str, expected: Digest, poll: Poll) -> tuple[DatasetManifest, list[Row]]:
    """Read the manifest and all rows of a dataset, in the manifest's order.

    Args:
        uri: Where the manifest lies.
        expected: Digest of its bytes.
        poll: Called between objects and rows; may raise to stop.

    Raises:
        RefusedError: when a digest, a size, a count or a row is not as declared.
    """
    try:
        data = get(uri, max_bytes=8_388_608)
    except OSError as cause:
        raise RefusedError(
            Reason.DATASET_UNREADABLE,
            f"cannot read the manifest: {cause}; check its URI and access",
        ) from cause
    if digest(data) != expected:
        raise RefusedError(
            Reason.DATASET_CHANGED,
            f"expected the manifest {expected}, got {digest(data)}; register a new dataset version",
        )
    try:
        manifest = DatasetManifest.from_bytes(data)
    except ContractError as cause:
        raise RefusedError(Reason.DATASET_CHANGED, f"{cause}; register it again") from cause
    if manifest.rows_format != CHAT_ROWS:
        raise RefusedError(
            Reason.DATASET_ROW,
            f"expected rows of `{CHAT_ROWS}`, got `{manifest.rows_format}`; write them as"
            f" `{CHAT_ROWS}` and register that",
        )
    rows: list[Row] = []
    for item in manifest.objects:
        poll()
        rows += _rows(item, _object_bytes(item), poll)
    if len({row.id for row in rows}) != len(rows):
        raise RefusedError(
            Reason.DATASET_ROW, "expected each row id once, got one twice; rename it"
        )
    return manifest, rows


def _object_bytes(item: DatasetObject) -> bytes:
    try:
        data = get(item.uri, max_bytes=item.size_bytes)
    except OSError as cause:
        raise RefusedError(
            Reason.DATASET_CHANGED, f"cannot read `{item.uri}` as declared: {cause}; restore it"
        ) from cause
    if len(data) != item.size_bytes or digest(data) != item.digest:
        raise RefusedError(
            Reason.DATASET_CHANGED,
            f"`{item.uri}` is not the registered object (expected {item.digest}, got "
            f"{digest(data)}); restore it or register a new dataset version",
        )
    return data


def _rows(item: DatasetObject, data: bytes, poll: Poll) -> list[Row]:
    rows = []
    for number, line in enumerate(data.splitlines(), 1):
        poll()
        where = f"{item.uri} line {number}"
        try:
            rows.append(_row(line))
        except ContractError as cause:
            raise RefusedError(Reason.DATASET_ROW, f"{where}: {cause}; correct the row") from cause
    if len(rows) != item.rows:
        raise RefusedError(
            Reason.DATASET_ROW,
            f"expected {item.rows} rows in `{item.uri}`, got {len(rows)}; register it again",
        )
    return rows


def _row(line: bytes) -> Row:
    r = Reader(parse(line, max_bytes=MAX_ROW_BYTES), "row")
    messages = []
    for item in r.items("messages", fewest=2, most=200):
        m = Reader(item, "row.messages")
        messages.append(Message(role=m.choice("role", ROLES), content=m.prose("content")))
        m.close()
    if any(m.role == "system" for m in messages[1:]):
        raise ContractError("expected a system message in the first place only, got a later one")
    if messages[-1].role != "assistant":
        raise ContractError("expected the last message to be the assistant's, got another role")
    row = Row(
        id=r.text("id"),
        group=r.text("group"),
        language=r.text("language", longest=35),
        messages=tuple(messages),
    )
    r.close()
    return row


def inspect_directory(uri: str, poll: Poll) -> FilesManifest:
    """Hash every file under a directory; cost: one pass over all its bytes.

    Raises:
        FileNotFoundError: when there is no file.
        StoreError: when a file is a symbolic link, or the store fails.
    """
    store = store_for(uri)
    files = []
    for path in store.list(uri):
        hasher, size = hashlib.sha256(), 0
        with closing(store.open(f"{uri}/{path}")) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                poll()
                hasher.update(chunk)
                size += len(chunk)
        files.append(
            FileEntry(path=path, digest=Digest(f"sha256:{hasher.hexdigest()}"), size_bytes=size)
        )
    if not files:
        raise FileNotFoundError(f"expected files under `{uri}`, got none")
    return FilesManifest(files=tuple(files))


def open_base_model(uri: str, expected: Digest, scratch: Path, poll: Poll) -> Path:
    """Return a local directory whose files are the permitted base model.

    `s3://` is copied under `scratch` first and hashed there, so that what is loaded was hashed.

    Raises:
        RefusedError: when the files cannot be read or are not the permitted ones.
    """
    try:
        if uri.startswith("s3://"):
            local = scratch / "base"
            for path in store_for(uri).list(uri):
                poll()
                fetch(f"{uri}/{path}", local / path)
        else:
            local = path_of(uri)
        manifest = inspect_directory(local.resolve().as_uri(), poll)
    except OSError as cause:
        raise RefusedError(
            Reason.BASE_MODEL_UNREADABLE, f"cannot read the base model: {cause}; check its URI"
        ) from cause
    if digest(manifest.to_bytes()) != expected:
        raise RefusedError(
            Reason.BASE_MODEL_CHANGED,
            f"expected the base model {expected}, got {digest(manifest.to_bytes())}; "
            "restore its files or register a new base model",
        )
    return local
