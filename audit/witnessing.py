r"""What a witness answers to `add-checkpoint`: a decision without clock, storage or network.

    old 8\n                                  the size that the witness is said to have cosigned last
    kQ1…=\n                                  consistency proof from there, 63 hashes at most
    \n
    example.com/log\n15\nrKb…=\n\n— …\n       the log's signed checkpoint

Checks, in this order; the first that fails decides:

    the body is malformed                                                             400
    the origin is unknown                                                             404
    no line of a key trusted for the origin, or one that does not verify, or a line
    that is none (other base64 than the canonical spelling is a wrong signature)      403
    old is above the checkpoint's size                                                400
    old is not the size that was cosigned last (0 if none)              409, body "<size>\n"
    size 0 with another root than SHA-256("") · old 0 with a proof · the proof fails ·
    old is the size, with another root                                                422
    else                                                     200, body: the signature lines

The caller looks up what it remembers and stores what it is told to in *one* transaction, and
answers after that transaction has committed: of two requests that race, one must see the other's
outcome, or the witness would cosign a tree that it had gone past.

Source: c2sp.org/tlog-witness v1.0.0, "add-checkpoint". The text fixes no order; this is ours.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from audit.keys import NoteError, VerifyKey, encode_base64, strict_base64
from audit.merkle import (
    EMPTY_ROOT,
    HASH_BYTES,
    MAX_PROOF_HASHES,
    MerkleError,
    check_consistency,
)
from audit.note import (
    MAX_NOTE_BYTES,
    Checkpoint,
    open_note,
    parse_checkpoint,
    parse_size,
)

SIZE_TYPE = "text/x.tlog.size"
TEXT_TYPE = "text/plain; charset=utf-8"
MAX_REQUEST_BYTES = MAX_NOTE_BYTES + 64 * 64


@dataclass(frozen=True)
class AddCheckpoint:
    """A request as it was read; nothing in it is checked against anything."""

    old_size: int
    proof: tuple[bytes, ...]
    note: bytes
    text: str
    checkpoint: Checkpoint


@dataclass(frozen=True)
class Answer:
    """What to send, and with status 200 what to store first."""

    status: int
    body: bytes
    content_type: str = TEXT_TYPE
    store: Checkpoint | None = None


def write_request(old_size: int, proof: Sequence[bytes], note: bytes) -> bytes:
    """Write the body of an `add-checkpoint` request."""
    hashes = "".join(f"{encode_base64(item)}\n" for item in proof)
    return f"old {old_size}\n{hashes}\n".encode() + note


def parse_request(body: bytes) -> AddCheckpoint:
    """Read the body of an `add-checkpoint` request.

    Raises:
        NoteError: it is malformed.
    """
    if len(body) > MAX_REQUEST_BYTES:
        raise NoteError(f"request of {len(body)} bytes: expected at most {MAX_REQUEST_BYTES}")
    head, gap, note = body.partition(b"\n\n")
    try:
        first, *hashes = head.decode("ascii").split("\n")
    except UnicodeDecodeError as cause:
        raise NoteError("request has other octets than ASCII before its checkpoint") from cause
    if not gap or not first.startswith("old "):
        raise NoteError("expected `old <size>`, hashes, an empty line and a checkpoint")
    proof = tuple(map(strict_base64, hashes))
    if len(proof) > MAX_PROOF_HASHES or any(len(item) != HASH_BYTES for item in proof):
        raise NoteError(f"expected at most {MAX_PROOF_HASHES} hashes of {HASH_BYTES} bytes")
    text = _signed_text(note)
    return AddCheckpoint(parse_size(first[4:]), proof, note, text, _read_checkpoint(text))


def decide(
    body: bytes,
    *,
    remembered: Callable[[str], Checkpoint | None],
    trusted: Mapping[str, Sequence[VerifyKey]],
    cosign: Callable[[str], str],
) -> Answer:
    """Decide one request.

    Args:
        body: the request's body.
        remembered: gives the checkpoint that was cosigned last for an origin.
        trusted: the keys of each log that is witnessed, by origin.
        cosign: makes the witness's signature lines over a checkpoint's text.
    """
    try:
        request = parse_request(body)
    except NoteError as cause:
        return _refused(400, str(cause))
    origin = request.checkpoint.origin
    if origin not in trusted:
        return _refused(404, "this log is not witnessed here")
    try:
        open_note(request.note, [key for key in trusted[origin] if key.name == origin])
    except NoteError as cause:
        return _refused(403, str(cause))
    return _decide_signed(request, remembered(origin), cosign)


def _decide_signed(
    request: AddCheckpoint, last: Checkpoint | None, cosign: Callable[[str], str]
) -> Answer:
    now = request.checkpoint
    if request.old_size > now.size:
        return _refused(400, "the old size is above the checkpoint's")
    last_size = 0 if last is None else last.size
    if request.old_size != last_size:
        return Answer(409, f"{last_size}\n".encode(), SIZE_TYPE)
    try:
        _check_growth(request, EMPTY_ROOT if last is None else last.root)
    except MerkleError as cause:
        return _refused(422, str(cause))
    return Answer(200, cosign(request.text).encode(), store=now)


def _check_growth(request: AddCheckpoint, old_root: bytes) -> None:
    now = request.checkpoint
    if now.size == 0 and now.root != EMPTY_ROOT:
        raise MerkleError("the root of an empty log is SHA-256 of nothing")
    if request.old_size:
        check_consistency(request.old_size, now.size, request.proof, old_root, now.root)
    elif request.proof:
        raise MerkleError("a consistency proof from size 0 says nothing: send none")


def _signed_text(note: bytes) -> str:
    """Return what the lines of a note sign; a line that cannot be read signs nothing, later."""
    try:
        text = note.decode("utf-8")
    except UnicodeDecodeError as cause:
        raise NoteError("checkpoint is not valid UTF-8") from cause
    middle = text.rfind("\n\n")
    if middle < 0 or middle + 2 == len(text) or not text.endswith("\n"):
        raise NoteError("checkpoint has no signature lines after an empty line")
    return text[: middle + 1]


def _read_checkpoint(text: str) -> Checkpoint:
    """Parse a checkpoint, also an empty log's with an impossible root: that is refused later."""
    lines = text.split("\n")
    if lines[1:2] == ["0"] and len(lines) >= 4 and len(strict_base64(lines[2])) == HASH_BYTES:
        empty = [lines[0], "0", encode_base64(EMPTY_ROOT), *lines[3:]]
        origin = parse_checkpoint("\n".join(empty)).origin
        return Checkpoint(origin, 0, strict_base64(lines[2]), tuple(lines[3:-1]))
    return parse_checkpoint(text)


def _refused(status: int, reason: str) -> Answer:
    return Answer(status, f"{reason}\n".encode())
