r"""The `.tlog-proof` file: one entry's place in a log, complete with the checkpoint it rests on.

    c2sp.org/tlog-proof@v1\n
    extra <base64>\n            optional, not authenticated; we read it and never write it
    index <decimal>\n
    <base64 hash>\n             … leaf's sibling first, root's child last; none for a tree of one
    \n
    <checkpoint note with all its signature lines>

Whoever holds the entry's bytes, this file and the log's key can check, offline and without the rest
of the log, that the entry is in it. The entry itself is not in the file.

Source: c2sp.org/tlog-proof (untagged, commit 5ba5ee8, 2026-07-22).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from audit.keys import NoteError, VerifyKey, encode_base64, strict_base64
from audit.merkle import HASH_BYTES, MAX_PROOF_HASHES, MerkleError, check_inclusion, leaf_hash
from audit.note import Checkpoint, open_note, parse_checkpoint, parse_size

HEADER = "c2sp.org/tlog-proof@v1"
MAX_PROOF_BYTES = 1_114_112


class ProofError(ValueError):
    """A proof file is malformed or does not hold."""


@dataclass(frozen=True)
class Proof:
    """What a proof file says: not checked until `check_proof` accepted it."""

    index: int
    hashes: tuple[bytes, ...]
    checkpoint: bytes
    extra: bytes | None = None


def write_proof(index: int, hashes: Sequence[bytes], checkpoint: bytes) -> bytes:
    """Write a proof file from an inclusion proof and a checkpoint note.

    Raises:
        ProofError: a part would not be read back.
    """
    lines = [HEADER, f"index {index}", *map(encode_base64, hashes)]
    data = "\n".join(lines).encode() + b"\n\n" + checkpoint
    parse_proof(data)  # refuses what could not be read back
    return data


def parse_proof(data: bytes) -> Proof:
    """Read a proof file without checking what it claims.

    Raises:
        ProofError: malformed.
    """
    if len(data) > MAX_PROOF_BYTES:
        raise ProofError(f"proof of {len(data)} bytes: expected at most {MAX_PROOF_BYTES}")
    head, separator, checkpoint = data.partition(b"\n\n")  # no header line is ever empty
    try:
        lines = head.decode("ascii").split("\n")
        if not separator or lines.pop(0) != HEADER:
            raise ProofError(f"not a proof file: expected the first line `{HEADER}`")
        extra = None
        if lines and lines[0].startswith("extra "):
            extra = strict_base64(lines.pop(0).removeprefix("extra "))
        if not lines or not lines[0].startswith("index "):
            raise ProofError("malformed proof file: expected a line `index <decimal>`")
        index = parse_size(lines.pop(0).removeprefix("index "))
        hashes = tuple(map(strict_base64, lines))
    except (UnicodeDecodeError, NoteError) as cause:
        raise ProofError(f"malformed proof file: {cause}") from cause
    if len(hashes) > MAX_PROOF_HASHES or any(len(item) != HASH_BYTES for item in hashes):
        raise ProofError("malformed proof file: expected at most 63 hashes of 32 bytes")
    return Proof(index, hashes, checkpoint, extra)


def check_proof(data: bytes, entry: bytes, origin: str, keys: Iterable[VerifyKey]) -> Checkpoint:
    """Check that `entry` is in the log `origin`, whose keys the reader trusts.

    Steps: (1) hash the entry that the reader holds, (2) open the checkpoint with the log's keys and
    compare the origin, (3) check the path from the entry to the signed root. Cosignatures of
    witnesses are checked when their keys are given, but the quorum is the caller's to decide.

    Returns:
        The checkpoint that contains the entry.

    Raises:
        ProofError: any step fails.
    """
    proof = parse_proof(data)
    trusted = tuple(keys)
    leaf = leaf_hash(entry)  # (1)
    try:
        opened = open_note(proof.checkpoint, trusted)  # (2)
        checkpoint = parse_checkpoint(opened.text)
        if checkpoint.origin != origin:
            raise ProofError(f"checkpoint of another log: expected origin {origin!a}")
        check_inclusion(proof.index, checkpoint.size, leaf, proof.hashes, checkpoint.root)  # (3)
    except (NoteError, MerkleError) as cause:
        raise ProofError(f"proof does not hold: {cause}") from cause
    return checkpoint
