"""One witness: its folder, its keys, the logs that it watches, and what it answers.

    <folder>/name            its key name, for ever
    <folder>/witness.pem     its Ed25519 key, readable by its owner only
    <folder>/logs            verifier keys of the logs it watches, one a line; # for comments
    <folder>/witness.db      what it remembers

The ML-DSA-44 key comes from the Ed25519 secret by a one-way step: one file to guard.
"""

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from audit.keys import (
    ED25519,
    ED25519_COSIGNATURE,
    MLDSA44,
    Ed25519Signer,
    MlDsa44Signer,
    NoteError,
    Signer,
    VerifyKey,
    encode_base64,
    is_key_name,
)
from audit.note import cosign, split_note
from audit.witnessing import Answer, decide, parse_request
from service import keys
from service.clock import Clock
from service.witness.storage import Remembered, Storage

MAX_LOGS_BYTES = 1_048_576


class WitnessError(ValueError):
    """The witness's folder cannot be used as asked; the message says what to do."""


class Witness:
    """A witness at work.

    Args:
        folder: its own; made when it is missing.
        name: its key name; None takes the one in the folder.
        clock: what time it is.

    Raises:
        WitnessError: no name is known, or another one than asked for. KeyFileError: the key.
    """

    def __init__(self, folder: Path, name: str | None, clock: Clock) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._clock = clock
        self.name = _kept_name(folder / "name", name)
        seed = keys.ed25519_seed(folder / "witness.pem")
        quantum = sha256(b"placet/witness/ml-dsa-44/v1\n" + seed).digest()
        self.signers: tuple[Signer, ...] = (
            Ed25519Signer.from_seed(self.name, seed, kind=ED25519_COSIGNATURE),
            MlDsa44Signer.from_seed(self.name, quantum),
        )
        self._storage = Storage(folder / "witness.db")

    @property
    def vkeys(self) -> list[str]:
        """The keys that policies list."""
        return [signer.vkey for signer in self.signers]

    def add_checkpoint(self, body: bytes) -> Answer:
        """Answer one request; with status 200 the new checkpoint is on disk when this returns."""
        now = int(self._clock().timestamp())
        trusted = self.watched()

        def cosigned(text: str) -> str:
            return "".join(cosign(text, signer, now) for signer in self.signers)

        # INVARIANT: what was compared stays true until what replaces it is committed, and no
        # signature leaves before that. Else a slower request would take the witness back.
        with self._storage.exclusive() as memory:
            answer = decide(body, remembered=memory.last, trusted=trusted, cosign=cosigned)
            if answer.store is not None:
                own = parse_request(body).note
                note = _only_of(trusted[answer.store.origin], own) + answer.body
                memory.keep(answer.store, note, cosigned_at=now)
        return answer

    def note(self, origin_sha256: str) -> bytes | None:
        """Return the newest note that was cosigned for a log, with our lines, or None."""
        return self._storage.note(origin_sha256)

    def remembered(self) -> list[Remembered]:
        """Return the newest checkpoint of every log."""
        return self._storage.everything()

    def watched(self) -> Mapping[str, Sequence[VerifyKey]]:
        """Read which keys are trusted for which log; a change counts from the next request.

        Raises:
            WitnessError: a line is no verifier key of a log.
        """
        path = self._folder / "logs"
        found: dict[str, list[VerifyKey]] = {}
        for line in _lines(path):
            key = _log_key(line)
            found.setdefault(key.name, []).append(key)
        return found

    def watch(self, vkey: str) -> bool:
        """Trust a log's key from now on; return whether it is new here.

        Raises:
            WitnessError: it is no verifier key of a log, or has this witness's name.
        """
        key = _log_key(vkey.strip())
        if key.name == self.name:
            raise WitnessError("a log has another name than its witness")
        if any(key in known for known in self.watched().values()):
            return False
        with (self._folder / "logs").open("a", encoding="utf-8") as file:
            file.write(f"{key.vkey}\n")
            file.flush()
            os.fsync(file.fileno())
        return True

    def close(self) -> None:
        """Close what is open."""
        self._storage.close()


def _only_of(trusted: Sequence[VerifyKey], note: bytes) -> bytes:
    """Return the note with the lines of trusted keys only: others could crowd ours out."""
    text, lines = split_note(note)
    known = {(key.name, key.id) for key in trusted}
    first = {(line.name, line.key_id): line for line in reversed(lines)}
    kept = "".join(
        f"\u2014 {line.name} {encode_base64(line.key_id + line.signature)}\n"
        for named, line in first.items()
        if named in known
    )
    return f"{text}\n{kept}".encode()


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    with path.open("rb") as file:
        raw = file.read(MAX_LOGS_BYTES)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as cause:
        raise WitnessError(f"`{path}` is not valid UTF-8: expected one vkey a line") from cause
    lines = (line.strip() for line in text.split("\n"))
    return [line for line in lines if line and not line.startswith("#")]


def _log_key(vkey: str) -> VerifyKey:
    try:
        key = VerifyKey.parse(vkey)
    except NoteError as cause:
        raise WitnessError(f"not a verifier key of a log: {cause}") from cause
    if key.kind not in (ED25519, MLDSA44):
        raise WitnessError(f"type 0x{key.kind:02x}: expected a log's key, 0x01 or 0x06")
    return key


def _kept_name(path: Path, asked: str | None) -> str:
    """Return the witness's name, and keep it when it is new: signatures carry it for ever."""
    kept = path.read_text(encoding="utf-8").strip() if path.exists() else None
    if asked is not None and not is_key_name(asked):
        raise WitnessError("a name is not empty and has no white space and no `+`")
    if kept is not None and asked not in (None, kept):
        raise WitnessError(f"this folder's witness is named {kept!a}; give another one a folder")
    name = kept or asked
    if name is None:
        raise WitnessError("this witness has no name yet: give --name witness.example.org")
    if kept is None:
        path.write_text(f"{name}\n", encoding="utf-8")
    return name
