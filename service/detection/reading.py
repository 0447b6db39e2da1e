"""Reading data sets row by row, in bounded memory, for the detectors.

======== ==================================================== ======================================
format   what a row is                                        read as
======== ==================================================== ======================================
jsonl    a line, one JSON value of any depth                  UTF-8; a line of at most 16 MiB
csv      a record; its cells under the names in the first     UTF-8, else Windows-1252; separated by
         record, which is looked at, too                      the most frequent of `, ; tab |`
parquet  a row of all columns, nested ones included           needs a stream that can seek
text     a line; long ones in pieces of 64 KiB                UTF-8, else Windows-1252
======== ==================================================== ======================================

Compressed, encrypted and UTF-16 files are refused: what cannot be read cannot be looked at. A piece
of a long line ends between two words; where there is none, the next piece repeats its last 128
bytes, so that a value on the edge is found, possibly twice.
"""

import csv
import re
from collections.abc import Iterator
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import pyarrow as pa
from pyarrow import parquet

from service.detection.result import Detection
from service.detection.scanner import Scanner
from service.detection.values import language_of, parsed, said, said_by

MAX_LINE_BYTES = 1 << 24
PIECE_BYTES = 1 << 16
_OVERLAP_BYTES = 128
_BATCH_ROWS = 256
_MAX_BATCH_BYTES = 1 << 30
_WORDS = re.compile(rb"[A-Za-z\x80-\xff]{2}[ \t](?=[A-Za-z\x80-\xff]{2})")
_VALUE = re.compile(r"[0-9]{3}|@")  # a first record with such cells holds no names
_SEPARATORS = (",", ";", "\t", "|")
_BOM = b"\xef\xbb\xbf"
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstandard",
    b"7z\xbc\xaf": "7-Zip",
    b"PARE": "encrypted Parquet",
}


class Format(StrEnum):
    """How the rows of a file are written."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    TEXT = "text"


_SUFFIXES = {
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".json": Format.JSONL,
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".parquet": Format.PARQUET,
}


class FormatError(ValueError):
    """Raised for a file that cannot be read as rows; the message says where and what to do."""


class Lines(Protocol):
    """A stream that is read line by line."""

    def readline(self, limit: int, /) -> bytes:
        """Return the next line, or as much of it as `limit` bytes are."""
        ...


def inspect_file(
    path: Path, *, as_format: Format | None = None, permille: int = 1000, seed: int = 0
) -> Detection:
    """Look at a file's rows; its format is told by its first bytes, then by its name.

    Raises:
        FormatError: it is compressed, or not in the format.
        OSError: it cannot be opened.
    """
    scanner = Scanner(permille=permille, seed=seed)
    with path.open("rb") as stream:
        chosen = format_of(path.name, stream.peek(8)[:8], as_format)
        feed(stream, scanner, chosen)
    return scanner.result()


def format_of(name: str, head: bytes, stated: Format | None = None) -> Format:
    """Tell the format of a file from its first bytes and its name, unless it is stated.

    Raises:
        FormatError: it is compressed, encrypted or UTF-16.
    """
    for magic, packed in _PACKED.items():
        if head.startswith(magic):
            raise FormatError(f"is {packed}; unpack it first, what cannot be read is not checked")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FormatError("is UTF-16; write it again as UTF-8")
    if head.startswith(b"PAR1"):
        return Format.PARQUET
    if stated is not None:
        return stated
    suffix = Path(name).suffix.lower()
    found = _SUFFIXES.get(suffix)
    if found is not None:
        return found
    return Format.JSONL if head.removeprefix(_BOM).lstrip().startswith(b"{") else Format.TEXT


def feed(stream: Lines, scanner: Scanner, chosen: Format) -> None:
    """Give every row of a stream to a scanner; Parquet needs one that can seek.

    Raises:
        FormatError: a row cannot be read; names its number.
    """
    match chosen:
        case Format.JSONL:
            _feed_jsonl(stream, scanner)
        case Format.CSV:
            _feed_csv(stream, scanner)
        case Format.PARQUET:
            _feed_parquet(cast("BinaryIO", stream), scanner)
        case Format.TEXT:
            _feed_text(stream, scanner)


def _feed_jsonl(stream: Lines, scanner: Scanner) -> None:
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        _check_length(line, number)
        if not scanner.draws(number) or not line.strip():
            scanner.skip()
            continue
        try:
            row = parsed(line.removeprefix(_BOM) if number == 1 else line)
        except (ValueError, RecursionError):
            raise FormatError(
                f"line {number}: expected one JSON value in UTF-8; for other text state `text`"
            ) from None
        scanner.feed(number, said_by(line, row), size_bytes=len(line), language=language_of(row))


def _check_length(line: bytes, number: int) -> None:
    if len(line) > MAX_LINE_BYTES:
        raise FormatError(f"line {number}: is longer than {MAX_LINE_BYTES} bytes; split it")


def _check_text(line: bytes, number: int) -> None:
    if b"\0" in line:
        raise FormatError(f"line {number}: holds NUL bytes, so it is no text")


def _decoded(line: bytes) -> tuple[str, bool]:
    """Return text, and whether it was UTF-8; else it is read as Windows-1252, never dropped."""
    try:
        return line.decode("utf-8"), True
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":  # a piece of a line may end in a character
            return line[: error.start].decode("utf-8"), True
        return line.decode("cp1252", "replace"), False


class _CsvLines:
    """Lines of a CSV file as text, and how many bytes they were."""

    def __init__(self, stream: Lines) -> None:
        self._stream, self.size, self.is_utf8, self._number = stream, 0, True, 0

    def __iter__(self) -> Iterator[str]:
        while line := self._stream.readline(MAX_LINE_BYTES + 1):
            self._number += 1
            _check_length(line, self._number)
            _check_text(line, self._number)
            self.size += len(line)
            text, is_utf8 = _decoded(line.removeprefix(_BOM) if self._number == 1 else line)
            self.is_utf8 = self.is_utf8 and is_utf8
            yield text

    def taken(self) -> tuple[int, bool]:
        """Return size and encoding of the lines since the last call."""
        found = self.size, self.is_utf8
        self.size, self.is_utf8 = 0, True
        return found


def _feed_csv(stream: Lines, scanner: Scanner) -> None:
    lines = _CsvLines(stream)
    source = iter(lines)
    first = next(source, None)
    if first is None:
        return
    separator = max(_SEPARATORS, key=first.count)
    csv.field_size_limit(MAX_LINE_BYTES)

    number = 0
    names: list[str] = []
    try:
        for cells in csv.reader(chain([first], source), delimiter=separator):
            number += 1
            size, is_utf8 = lines.taken()
            if scanner.draws(number):
                text = "\n".join(map(_under, names, cells)) if names else "\n".join(cells)
                text = "\n".join((text, *cells[len(names) :])) if names else text
                scanner.feed(
                    number,
                    text,
                    size_bytes=size,
                    language=language_of(dict(zip(names, cells, strict=False))),
                    is_utf8=is_utf8,
                )
            else:
                scanner.skip()
            if number == 1 and not any(map(_VALUE.search, cells)):
                names = [cell.replace("_", " ") for cell in cells]
    except csv.Error as error:
        raise FormatError(f"record {number + 1}: is no CSV ({error})") from error


def _under(name: str, cell: str) -> str:
    return f"{name}: {cell}"


def _feed_text(stream: Lines, scanner: Scanner) -> None:
    number, carried, continues, is_fresh = 1, b"", False, False
    while chunk := stream.readline(PIECE_BYTES):
        line, fresh = carried + chunk, len(chunk)
        _check_text(chunk, number)
        ends = chunk.endswith(b"\n")
        cut = len(line) if ends else _cut(line)
        if scanner.draws(number):
            text, is_utf8 = _decoded(line[:cut])
            scanner.feed(
                number, text, size_bytes=fresh, is_utf8=is_utf8 or continues, continues=continues
            )
        elif not continues:
            scanner.skip()
        carried, is_fresh = line[cut:], cut < len(line)
        if not ends and cut == len(line) and len(chunk) == PIECE_BYTES:
            carried = _overlap(line)
        continues = not ends
        number += ends
    if carried and is_fresh and scanner.draws(number):
        scanner.feed(number, _decoded(carried)[0], size_bytes=0, continues=True)


def _cut(line: bytes) -> int:
    """Return where a piece may end: between two words near its end, else at its end."""
    if len(line) < PIECE_BYTES:
        return len(line)
    places = [found.end() for found in _WORDS.finditer(line, len(line) - 4096)]
    return places[-1] if places else len(line)


def _overlap(line: bytes) -> bytes:
    kept = line[-_OVERLAP_BYTES:]
    return kept.lstrip(bytes(range(0x80, 0xC0)))  # not from the middle of a character


def _feed_parquet(stream: BinaryIO, scanner: Scanner) -> None:
    number = 0
    try:
        for row in _parquet_rows(
            parquet.ParquetFile(stream, pre_buffer=False, buffer_size=1 << 20)
        ):
            number += 1
            if scanner.draws(number):
                text = said(row)
                size = len(text.encode("utf-8", "replace"))
                _check_size(size, number)
                scanner.feed(number, text, size_bytes=size, language=language_of(row))
            else:
                scanner.skip()
    except FormatError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise FormatError(
            f"row {number + 1}: is no readable Parquet ({type(error).__name__})"
        ) from error


def _check_size(size: int, number: int) -> None:
    if size > MAX_LINE_BYTES:
        raise FormatError(f"row {number}: is longer than {MAX_LINE_BYTES} bytes; split it")


def _parquet_rows(source: parquet.ParquetFile) -> Iterator[Any]:
    """Yield rows; the fewer at once, the larger a value may be that many rows share.

    A dictionary holds a value once for all rows of a group, so a small file may say very much.
    """
    for group in range(source.num_row_groups):
        stored = source.metadata.row_group(group)
        largest = max(
            (stored.column(i).total_uncompressed_size for i in range(stored.num_columns)), default=0
        )
        at_once = max(1, min(_BATCH_ROWS, _MAX_BATCH_BYTES // max(1, largest)))
        for batch in source.iter_batches(batch_size=at_once, row_groups=[group]):
            yield from batch.to_pylist()
