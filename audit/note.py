r"""Signed notes, and the checkpoints of a log that are written as one.

A note is a text that ends in a newline, an empty line, and one or more signature lines:

    example.com/log\n                                   origin
    15\n                                                number of entries
    rKbDipCvhuX1GZ7g5BBe8sA6BbJ7ja/1nk427v383cs=\n      base64 of the root
    \n
    — example.com/log M9e0luh4jTG+UMBqOUo9/q+yAEvx1il…\n

A signature line is U+2014, a space, the key name, a space and base64(4-byte key ID || signature).
Text and signatures are parted at the *last* empty line. The note is UTF-8 without control
characters except the newline, and has at most 100 signature lines.

A note is accepted when at least one configured key signed it and no line of a configured key fails.
A line belongs to a key when the name *and* the key ID match; lines of other keys are ignored; the
second of two lines with equal name and ID is dropped.

What is signed, and the signature bytes after the key ID:

    0x01  the text; 64 bytes
    0x04  "cosignature/v1\ntime <t>\n" || text; u64 t || 64 bytes
    0x06  "subtree/v1\n\0" || u8 len || name || u64 t || u8 len || origin || u64 0 || u64 size ||
          root; u64 t || 2,420 bytes. The lines of a checkpoint after the third are not covered.

A checkpoint is origin, size (decimal, no leading zero), root, and optional extension lines that are
not empty. We write none and accept them. A tree of size 0 has the root SHA-256("").

The log's key signs two kinds of message, checkpoints and DSSE payloads (`audit.dsse`); one can
never be read as the other, since a note of ours begins with an origin, which has no space.

Source: c2sp.org/signed-note v1.0.0, tlog-checkpoint v1.0.0, tlog-cosignature v1.0.1 and its ML-DSA
text, commit 5ba5ee8 (2026-07-22).
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from audit.keys import (
    ED25519,
    ED25519_COSIGNATURE,
    MLDSA44,
    SIGNATURE_BYTES,
    Ed25519Signer,
    MlDsa44Signer,
    NoteError,
    Signer,
    VerifyKey,
    encode_base64,
    is_key_name,
    strict_base64,
)
from audit.merkle import EMPTY_ROOT, HASH_BYTES

__all__ = [
    "Checkpoint",
    "Ed25519Signer",
    "MlDsa44Signer",
    "NoteError",
    "OpenedNote",
    "Signer",
    "Verified",
    "VerifyKey",
    "cosign",
    "format_checkpoint",
    "open_note",
    "parse_checkpoint",
    "parse_size",
    "sign_checkpoint",
    "sign_note",
    "split_note",
]

MAX_SIGNATURES = 100
MAX_NOTE_BYTES = 1_048_576
_DASH = "\u2014 "


@dataclass(frozen=True)
class Checkpoint:
    """What a log commits to: this many entries, under this 32-byte root."""

    origin: str
    size: int
    root: bytes
    extension: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verified:
    """One line that verified; `timestamp` is in POSIX seconds, for types 0x04 and 0x06."""

    key: VerifyKey
    timestamp: int | None


@dataclass(frozen=True)
class OpenedNote:
    """The text of a note, and by which configured keys it was signed (at least one)."""

    text: str
    verified: tuple[Verified, ...]


@dataclass(frozen=True)
class SignatureLine:
    """One signature line as written: not checked."""

    name: str
    key_id: bytes
    signature: bytes


def split_note(note: bytes) -> tuple[str, list[SignatureLine]]:
    """Part a note into its text and its signature lines without checking any signature.

    Raises:
        NoteError: malformed, above 1 MiB, or more than 100 signature lines.
    """
    if len(note) > MAX_NOTE_BYTES:
        raise NoteError(f"note of {len(note)} bytes: expected at most {MAX_NOTE_BYTES}")
    try:
        text = note.decode("utf-8")
    except UnicodeDecodeError as cause:
        raise NoteError("note is not valid UTF-8") from cause
    if any(char < " " and char != "\n" for char in text):
        raise NoteError("note has a control character")
    middle = text.rfind("\n\n")
    if middle < 0 or middle + 2 >= len(text) or not text.endswith("\n"):
        raise NoteError("note has no signature lines after its last empty line")
    lines = text[middle + 2 : -1].split("\n")
    if len(lines) > MAX_SIGNATURES:
        raise NoteError(f"note has {len(lines)} signature lines: expected at most {MAX_SIGNATURES}")
    return text[: middle + 1], [_parse_line(line) for line in lines]


def open_note(note: bytes, keys: Iterable[VerifyKey]) -> OpenedNote:
    """Verify a note against the keys that the reader trusts.

    Raises:
        NoteError: malformed, no line of a trusted key, or a trusted key's line does not verify.
    """
    text, lines = split_note(note)
    known = {(key.name, key.id): key for key in keys}
    verified: dict[VerifyKey, Verified] = {}
    for line in lines:
        key = known.get((line.name, line.key_id))
        if key is not None and key not in verified:
            verified[key] = _verify_line(key, text, line.signature)
    if not verified:
        raise NoteError("no signature of a trusted key: check that the key is this log's")
    return OpenedNote(text, tuple(verified.values()))


def sign_note(text: str, signers: Sequence[Signer], *, timestamp: int | None = None) -> bytes:
    """Write the note of `text` (which ends in a newline) with a line of each signer, in order.

    Args:
        text: what is signed, without the empty line.
        signers: at least one.
        timestamp: POSIX seconds > 0, needed by types 0x04 and 0x06, not used by 0x01.

    Raises:
        NoteError: the text cannot be a note's, no signer, or the timestamp is missing.
    """
    if not signers or not text.endswith("\n"):
        raise NoteError("a note needs a text that ends in a newline, and a signer")
    note = (text + "\n" + "".join(cosign(text, signer, timestamp) for signer in signers)).encode()
    split_note(note)  # refuses what could not be read back
    return note


def cosign(text: str, signer: Signer, timestamp: int | None = None) -> str:
    """Make one signature line over `text`; raises as `sign_note` does."""
    key = VerifyKey.parse(signer.vkey)
    prefix = b""
    if key.kind != ED25519:
        if timestamp is None or not 0 < timestamp < 2**63:
            raise NoteError(f"type 0x{key.kind:02x} signs a time: give a timestamp above 0")
        prefix = struct.pack(">Q", timestamp)
    signature = signer.sign(_message(key, text, timestamp or 0))
    return f"{_DASH}{key.name} {encode_base64(key.id + prefix + signature)}\n"


def format_checkpoint(origin: str, size: int, root: bytes) -> str:
    """Write the text of a checkpoint.

    Raises:
        NoteError: the origin is not a key name, or size and root are impossible.
    """
    if not is_key_name(origin):
        raise NoteError("an origin is not empty and has no white space and no `+`")
    text = f"{origin}\n{size}\n{encode_base64(root)}\n"
    parse_checkpoint(text)
    return text


def sign_checkpoint(
    checkpoint: Checkpoint, signers: Sequence[Signer], *, timestamp: int | None = None
) -> bytes:
    """Write and sign a checkpoint note; raises as `format_checkpoint` and `sign_note` do."""
    text = format_checkpoint(checkpoint.origin, checkpoint.size, checkpoint.root)
    return sign_note(text, signers, timestamp=timestamp)


def parse_checkpoint(text: str) -> Checkpoint:
    """Read the text of a checkpoint; sign what was verified, parse after `open_note`.

    Raises:
        NoteError: fewer than three lines, an empty line, or size and root are malformed.
    """
    lines = text.split("\n")
    if len(lines) < 4 or lines[-1] != "" or "" in lines[:-1]:
        raise NoteError("malformed checkpoint: expected the lines origin, size and root")
    size, root = parse_size(lines[1]), strict_base64(lines[2])
    if len(root) != HASH_BYTES or (size == 0 and root != EMPTY_ROOT):
        raise NoteError("malformed checkpoint: the root does not fit the size")
    return Checkpoint(lines[0], size, root, tuple(lines[3:-1]))


def parse_size(text: str) -> int:
    """Read a decimal below 2^63 in its one spelling: ASCII digits, no sign, no leading zero.

    Raises:
        NoteError: any other spelling (`int` alone would take "1_0", " 7" and "٣").
    """
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or (text[0] == "0" != text):
        raise NoteError("malformed number: expected decimal digits without a leading zero")
    value = int(text)
    if value >= 2**63:
        raise NoteError("malformed number: expected less than 2^63")
    return value


def _parse_line(line: str) -> SignatureLine:
    name, _, encoded = line.removeprefix(_DASH).partition(" ")
    if not line.startswith(_DASH) or not is_key_name(name):
        raise NoteError("malformed signature line: expected a dash, a key name and base64")
    raw = strict_base64(encoded)
    if len(raw) < 5:
        raise NoteError("malformed signature line: the signature is too short")
    return SignatureLine(name, raw[:4], raw[4:])


def _verify_line(key: VerifyKey, text: str, signature: bytes) -> Verified:
    timestamp = None
    if key.kind in (ED25519_COSIGNATURE, MLDSA44):
        if len(signature) != 8 + SIGNATURE_BYTES[key.kind]:
            raise NoteError(f"the cosignature of `{key.name}` has a wrong length")
        (timestamp,) = struct.unpack(">Q", signature[:8])
        signature = signature[8:]
        if timestamp >= 2**63:
            raise NoteError(f"the cosignature of `{key.name}` has an impossible time")
    if not key.verify(signature, _message(key, text, timestamp or 0)):
        raise NoteError(f"the signature of `{key.name}` does not verify")
    return Verified(key, timestamp)


def _message(key: VerifyKey, text: str, timestamp: int) -> bytes:
    if key.kind == ED25519_COSIGNATURE:
        return f"cosignature/v1\ntime {timestamp}\n{text}".encode()
    if key.kind != MLDSA44:
        return text.encode()
    checkpoint = parse_checkpoint(text)
    name, origin = key.name.encode(), checkpoint.origin.encode()
    if len(origin) > 255:
        raise NoteError("the origin is longer than 255 bytes")
    return b"".join(
        (
            b"subtree/v1\n\0",
            bytes([len(name)]) + name,
            struct.pack(">Q", timestamp),
            bytes([len(origin)]) + origin,
            struct.pack(">QQ", 0, checkpoint.size),
            checkpoint.root,
        )
    )
