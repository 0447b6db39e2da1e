"""The zip file of an export, in the one form that is accepted: the same members, the same bytes.

Any zip tool unpacks it. Ours reads only what ours writes, so that no byte of the file can change
unseen and no trick of the format (bombs, overlaps, duplicates, comments, hidden data) exists:

    for each member:  local header (30 bytes + name), then the data as it is (method 0, "stored")
    then the central directory, in the same order, and its end record (22 bytes)

All fields are fixed by name, size and CRC-32: version 2.0, no flags, 1980-01-01 00:00, no extra
field, no comment, mode 0644. Names are ASCII. Nothing precedes, follows or lies between the parts.
Data is not compressed because two zlib versions may compress the same bytes differently; compress
the whole file for transport. Limits: less than 4 GiB, at most 65,534 members (no zip64).

Source: PKWARE APPNOTE.TXT 6.3.10 §4.3 and §4.4.
"""

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from audit.canonical import Digest

MAX_BYTES = 2**32 - 1
MAX_MEMBERS = 65_534
CHUNK_BYTES = 1_048_576

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_VERSION = 20
_UNIX = 3 << 8
_DATE_1980 = 0x0021
_MODE = 0o100644 << 16


class ContainerError(ValueError):
    """The file is not a zip in our one form; the message says where it deviates."""


@dataclass(frozen=True)
class Member:
    """Where one member's data lies in the file, and its CRC-32."""

    name: str
    offset: int
    size: int
    crc: int


class ContainerWriter:
    """Writes members one after the other to a seekable file; `close` writes the directory."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._start = 0
        self._members: list[Member] = []

    def add(self, name: str, chunks: Iterable[bytes]) -> tuple[Digest, int]:
        """Append a member; return its digest and size in bytes.

        Raises:
            ContainerError: the file would have 4 GiB or too many members.
        """
        header_at = self._start
        data_at = header_at + _LOCAL.size + len(name.encode("ascii"))
        size, crc, sha256 = 0, 0, hashlib.sha256()
        self._out.seek(data_at)
        for chunk in chunks:
            self._out.write(chunk)
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
            sha256.update(chunk)
        if data_at + size > MAX_BYTES or len(self._members) >= MAX_MEMBERS:
            raise ContainerError("the export is too large: 4 GiB and 65,534 members at most")
        member = Member(name, data_at, size, crc)
        self._out.seek(header_at)
        self._out.write(_local_header(member))
        self._out.seek(data_at + size)
        self._start = data_at + size
        self._members.append(member)
        return Digest(f"sha256:{sha256.hexdigest()}"), size

    def close(self) -> None:
        """Write the central directory; the file is complete after it."""
        directory = _directory(self._members)
        if self._start + len(directory) > MAX_BYTES:
            raise ContainerError("the export is too large: 4 GiB at most")
        self._out.write(directory)
        self._out.flush()


def read_members(file: BinaryIO, limit_of: Callable[[str], int]) -> dict[str, Member]:
    """Read the table of members, in file order, and check every byte that is not member data.

    Args:
        file: a seekable binary file.
        limit_of: returns the largest size allowed for a name, or raises for an unknown name.

    Raises:
        ContainerError: any deviation from our form, a duplicate, or a member above its limit.
    """
    end = file.seek(0, 2)
    if end > MAX_BYTES:
        raise ContainerError("file of 4 GiB or more: not an export of ours")
    members: dict[str, Member] = {}
    position = 0
    while (header := _read_at(file, position, _LOCAL.size)).startswith(b"PK\x03\x04"):
        member = _member(file, position, header)
        if member.name in members:
            raise ContainerError(f"duplicate member {member.name!a}")
        if len(members) >= MAX_MEMBERS:
            raise ContainerError(f"more than {MAX_MEMBERS} members")
        if member.size > limit_of(member.name):
            raise ContainerError(f"member {member.name!a} is too large: {member.size} bytes")
        position = member.offset + member.size
        if position > end:
            raise ContainerError(f"file is cut short in member {member.name!a}")
        members[member.name] = member
    expected = _directory(list(members.values()))
    if _read_at(file, position, len(expected) + 1) != expected:
        raise ContainerError("the zip directory deviates, is cut short or has data after it")
    return members


def read_chunks(file: BinaryIO, member: Member) -> Iterator[bytes]:
    """Yield a member's data in chunks of at most 1 MiB, and check its CRC-32 at the end.

    Raises:
        ContainerError: the data does not have the stated CRC-32.
    """
    position, left, crc = member.offset, member.size, 0
    while left:
        chunk = _read_at(file, position, min(left, CHUNK_BYTES))
        if not chunk:
            raise ContainerError(f"file is cut short in member {member.name!a}")
        crc = zlib.crc32(chunk, crc)
        position, left = position + len(chunk), left - len(chunk)
        yield chunk
    if crc != member.crc:
        raise ContainerError(f"member {member.name!a} has another CRC-32 than its header")


def _read_at(file: BinaryIO, position: int, size: int) -> bytes:
    file.seek(position)
    return file.read(size)


def _member(file: BinaryIO, position: int, header: bytes) -> Member:
    if len(header) != _LOCAL.size:
        raise ContainerError("file is cut short in a member header")
    fields = _LOCAL.unpack(header)
    crc, size, name_length = fields[6], fields[7], fields[9]
    name_bytes = _read_at(file, position + _LOCAL.size, name_length)
    try:
        name = name_bytes.decode("ascii")
    except UnicodeDecodeError as cause:
        raise ContainerError("a member name is not ASCII") from cause
    member = Member(name, position + _LOCAL.size + name_length, size, crc)
    if _local_header(member) != header + name_bytes:
        raise ContainerError(f"the header of member {name!a} deviates from the one form")
    return member


def _local_header(member: Member) -> bytes:
    name = member.name.encode("ascii")
    sizes = (member.crc, member.size, member.size)
    return _LOCAL.pack(b"PK\x03\x04", _VERSION, 0, 0, 0, _DATE_1980, *sizes, len(name), 0) + name


def _directory(members: list[Member]) -> bytes:
    start = members[-1].offset + members[-1].size if members else 0
    records = b"".join(map(_central_record, members))
    count = len(members)
    return records + _END.pack(b"PK\x05\x06", 0, 0, count, count, len(records), start, 0)


def _central_record(member: Member) -> bytes:
    name = member.name.encode("ascii")
    header_at = member.offset - _LOCAL.size - len(name)
    made_by, sizes = _UNIX | _VERSION, (member.crc, member.size, member.size)
    fixed = (made_by, _VERSION, 0, 0, 0, _DATE_1980)
    tail = (len(name), 0, 0, 0, 0, _MODE, header_at)
    return _CENTRAL.pack(b"PK\x01\x02", *fixed, *sizes, *tail) + name
