r"""Sealed fields: a commitment in the log fixes a personal value that is kept beside it, erasable.

In the entry stands

    C = HMAC-SHA256(key = r, "placet/commit/v1\n" || entry id || "\n" || field || "\n" || value)

in base64, with r = 32 random bytes used once. Beside the log lies

    nonce (12 bytes) || AES-256-GCM(key, nonce, r || value, aad = entry id || "\n" || field)

under the data subject's own key. To disclose one field to one auditor, give (r, value). To erase,
destroy the key and the sealed bytes: all hashes, proofs and signatures still verify, and without r
the commitment says nothing about the value. r always has 32 bytes, so HMAC keys are unambiguous.

This file has no random source: r and the nonce are the caller's, from the operating system, and a
nonce is never used twice under one key.

Source: RFC 2104, FIPS 198-1; NIST SP 800-38D; EDPB Guidelines 02/2025 (draft, April 2025) name
commitments and keyed hashes as ways to keep personal data off an immutable record.
"""

import hashlib
import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from audit.keys import NoteError, encode_base64, strict_base64

KEY_BYTES = 32
NONCE_BYTES = 12


class SealedError(ValueError):
    """A sealed field is malformed, was changed, or the key is another one."""


def commit(key: bytes, entry_id: str, field: str, value: bytes) -> str:
    """Return the base64 commitment to `value` of one field of one entry under the 32-byte `key`.

    Raises:
        SealedError: the key does not have 32 bytes, or the id or the field name holds a newline.
    """
    _check_key(key)
    message = b"placet/commit/v1\n" + _place(entry_id, field) + b"\n" + value
    return encode_base64(hmac.new(key, message, hashlib.sha256).digest())


def check_commitment(commitment: str, key: bytes, entry_id: str, field: str, value: bytes) -> None:
    """Check that a disclosed (key, value) is what the entry committed to.

    Raises:
        SealedError: it is not, or a part is malformed.
    """
    try:
        stated = strict_base64(commitment)
    except NoteError as cause:
        raise SealedError(f"malformed commitment: {cause}") from cause
    if not hmac.compare_digest(stated, strict_base64(commit(key, entry_id, field, value))):
        raise SealedError(f"the disclosed value of `{field}` is not the one committed to")


def seal(
    key: bytes, nonce: bytes, *, entry_id: str, field: str, commit_key: bytes, value: bytes
) -> bytes:
    """Encrypt (commit key, value) under the data subject's 32-byte key.

    Args:
        key: AES-256 key of the data subject.
        nonce: 12 bytes, never used before under `key`.
        entry_id: the entry that holds the commitment.
        field: the sealed field's name.
        commit_key: the 32 bytes given to `commit`.
        value: the personal value.

    Raises:
        SealedError: a key or nonce has a wrong length, or the id or name holds a newline.
    """
    _check_key(key)
    _check_key(commit_key)
    if len(nonce) != NONCE_BYTES:
        raise SealedError(f"a nonce has {NONCE_BYTES} bytes, got {len(nonce)}")
    return nonce + AESGCM(key).encrypt(nonce, commit_key + value, _place(entry_id, field))


def unseal(key: bytes, sealed: bytes, *, entry_id: str, field: str) -> tuple[bytes, bytes]:
    """Decrypt to (commit key, value); verify them with `check_commitment` against the entry.

    Raises:
        SealedError: another key, another entry or field, or the bytes were changed.
    """
    _check_key(key)
    nonce, ciphertext = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    if len(ciphertext) < KEY_BYTES + 16:
        raise SealedError("sealed bytes are cut short")
    try:
        plain = AESGCM(key).decrypt(nonce, ciphertext, _place(entry_id, field))
    except InvalidTag as cause:
        raise SealedError("sealed bytes do not open: wrong key, entry or field") from cause
    return plain[:KEY_BYTES], plain[KEY_BYTES:]


def _check_key(key: bytes) -> None:
    if len(key) != KEY_BYTES:
        raise SealedError(f"a key has {KEY_BYTES} bytes, got {len(key)}")


def _place(entry_id: str, field: str) -> bytes:
    if "\n" in entry_id or "\n" in field:
        raise SealedError("an entry id or a field name holds a newline")
    return f"{entry_id}\n{field}".encode()
