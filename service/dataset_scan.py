"""Reading a data set before it is registered: every object hashed as it is read, every row seen.

What a file is, is told by its first bytes, its first line and its name, unless the caller states
it; all objects of one version are written in one format. Rows of `chat-jsonl` are held to their
shape here, since the trainer learns from them; the other formats are read as
`service.detection.reading` says. Parquet has its index at its end, so it is copied to a temporary
file as it is hashed, and looked at there: `TMPDIR` needs room for the largest such object.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, BinaryIO

from service.detection.reading import Format, FormatError, feed, format_of
from service.detection.result import Detection
from service.detection.scanner import Scanner
from service.detection.values import language_of, parsed, said_by
from service.objects.protocol import CHUNK_BYTES, ObjectError, Objects, Stored
from service.places import Place, Places
from service.problems import Problem, field_problem
from trainer.contract import CHAT_ROWS, DatasetManifest, DatasetObject, Digest

MAX_OBJECTS = 10_000
MAX_PARQUET_BYTES = 4 << 30
"""Largest Parquet object, in bytes; a larger one is split."""
_MAX_ROW_BYTES = 1_048_576


@dataclass(frozen=True)
class DatasetScan:
    """What reading a data set showed."""

    uri: str
    manifest: DatasetManifest
    detection: Detection
    place: Place
    languages: tuple[str, ...]


class Hashed:
    """A stream that hashes what is read, so that the bytes looked at are the bytes recorded."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._hasher, self._size = stream, sha256(), 0

    @property
    def stored(self) -> Stored:
        """Digest and size of what was read so far."""
        return Stored(f"sha256:{self._hasher.hexdigest()}", self._size)

    def read(self, size: int, /) -> bytes:
        """Read at most `size` bytes."""
        return self._took(self._stream.read(size))

    def readline(self, limit: int, /) -> bytes:
        """Read a line, or as much of it as `limit` bytes are."""
        return self._took(self._stream.readline(limit))

    def _took(self, data: bytes) -> bytes:
        self._hasher.update(data)
        self._size += len(data)
        return data


def scan_dataset(
    objects: Objects,
    places: Places,
    *,
    uri: str,
    name: str,
    licence: str,
    rows_format: str | None = None,
    max_parquet_bytes: int = MAX_PARQUET_BYTES,
) -> DatasetScan:
    """Read every object under `uri` once: hash it, check its rows, look for personal data.

    Args:
        objects: where the caller's objects lie.
        places: finds where that is.
        uri: a folder or an object.
        name: the data set's.
        licence: SPDX id.
        rows_format: one of `trainer.contract.ROWS_FORMATS`; None tells it by the objects.
        max_parquet_bytes: largest Parquet object that is copied to be read.

    Raises:
        Unprocessable: no object, too many, of several formats, or a row that is not of the format;
            names object and row.
    """
    listed: list[DatasetObject] = []
    seen: list[Detection] = []
    languages: set[str] = set()
    written = ""
    try:
        members = list(objects.list(uri)) or [(uri, 0)]
        if len(members) > MAX_OBJECTS:
            raise field_problem("/uri", f"holds {len(members)} objects, at most {MAX_OBJECTS}")
        for member, _ in members:
            found = _told(objects, member, rows_format)
            written = _agreed(member, found, rows_format or written, is_stated=bool(rows_format))
            scanner = Scanner()
            item = _scanned(objects, member, written, scanner, max_parquet_bytes)
            listed.append(item)
            seen.append(scanner.result())
            languages |= scanner.languages
        place = places.of(objects.endpoint_of(uri))
    except ObjectError as error:
        raise field_problem("/uri", str(error)) from error
    try:
        manifest = DatasetManifest(
            name=name, licence=licence, rows_format=written, objects=tuple(listed)
        )
        manifest = DatasetManifest.from_bytes(manifest.to_bytes())
    except ValueError as error:
        raise field_problem("/uri", str(error)) from error
    return DatasetScan(
        uri=uri,
        manifest=manifest,
        detection=Detection.merged(seen),
        place=place,
        languages=tuple(sorted(languages)),
    )


def _told(objects: Objects, member: str, stated: str | None) -> str:
    """Tell how the rows of an object are written; what is compressed is refused."""
    with objects.open(member) as stream:
        head = stream.readline(_MAX_ROW_BYTES + 1)
    form = None if stated is None else Format.JSONL if stated == CHAT_ROWS else Format(stated)
    try:
        found = format_of(member, head[:8], form)
    except FormatError as error:
        raise _problem(member, error) from error
    if found is not Format.JSONL:
        return str(found)
    return stated or (CHAT_ROWS if _is_chat(head) else str(found))


def _is_chat(line: bytes) -> bool:
    try:
        row = parsed(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and "messages" in row


def _agreed(member: str, found: str, known: str, *, is_stated: bool) -> str:
    """Return the one format of all objects; `known` is empty before the first is told.

    Raises:
        Unprocessable: this object is in another one than was stated, or than those before it.
    """
    if not known or found == known:
        return found
    if is_stated:
        raise field_problem("/format", f"is `{known}`, and `{member}` is `{found}`")
    raise field_problem(
        "/uri",
        f"`{member}` is `{found}`, and others are `{known}`: one version has one format;"
        " state it with `format`, or register them apart",
    )


def _scanned(
    objects: Objects, member: str, rows_format: str, scanner: Scanner, max_parquet_bytes: int
) -> DatasetObject:
    """Read one object to its end, row by row, and hash what was read."""
    before = objects.measure(member)
    if rows_format == Format.PARQUET and before.size_bytes > max_parquet_bytes:
        raise field_problem(
            "/uri", f"`{member}` has over {max_parquet_bytes} bytes; split it into several objects"
        )
    with objects.open(member) as stream:
        hashed = Hashed(stream)
        try:
            if rows_format == CHAT_ROWS:
                _feed_chats(hashed, member, scanner)
            elif rows_format == Format.PARQUET:
                with _copied(hashed, max_parquet_bytes) as copy:
                    feed(copy, scanner, Format.PARQUET)
            else:
                feed(hashed, scanner, Format(rows_format))
        except FormatError as error:
            raise _problem(member, error) from error
    if hashed.stored != before:
        raise field_problem("/uri", f"`{member}` changed while it was read; try again")
    if not scanner.num_examined:
        raise field_problem("/uri", f"`{member}` holds no rows; remove it or fill it")
    return DatasetObject(
        uri=member,
        digest=Digest(before.digest),
        size_bytes=before.size_bytes,
        rows=scanner.num_rows,
    )


@contextmanager
def _copied(stream: Hashed, max_bytes: int) -> Iterator[BinaryIO]:
    """Copy a stream to a temporary file without a name, and no more than was measured."""
    with tempfile.TemporaryFile(prefix="placet-dataset-") as copy:
        while chunk := stream.read(CHUNK_BYTES):
            copy.write(chunk)
            if stream.stored.size_bytes > max_bytes:
                raise FormatError("grew while it was read; try again")
        copy.seek(0)
        yield copy


def _feed_chats(stream: Hashed, name: str, scanner: Scanner) -> None:
    """Look for personal data in every row: in all its members, not in its messages alone."""
    for number, (line, row) in enumerate(_chat_rows(stream, name), 1):
        scanner.feed(number, said_by(line, row), size_bytes=len(line), language=language_of(row))


def _chat_rows(stream: Hashed, name: str) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield each line with its row; refuse the first line that is no chat row."""
    number = 0
    while line := stream.readline(_MAX_ROW_BYTES + 1):
        number += 1
        if len(line) > _MAX_ROW_BYTES:
            raise _row_problem(name, number, f"is longer than {_MAX_ROW_BYTES} bytes")
        try:
            row = parsed(line)
            for message in row["messages"]:
                _text(message["content"])
            roles = [message["role"] for message in row["messages"]]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise _row_problem(
                name, number, 'expected {"id","group","language","messages":[{"role","content"}]}'
            ) from None
        if "assistant" not in roles:
            raise _row_problem(name, number, "has no `assistant` message to learn from")
        yield line, row


def _text(content: object) -> str:
    if not isinstance(content, str):
        raise TypeError
    return content


def _row_problem(name: str, number: int, detail: str) -> Problem:
    return field_problem("/uri", f"`{name}` line {number}: {detail}")


def _problem(member: str, error: FormatError) -> Problem:
    return field_problem("/uri", f"`{member}` {error}")
