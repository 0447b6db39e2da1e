"""Keys of signed notes: how they are written, who signs with them, how a signature is checked.

A verifier key is one line of text that an auditor can receive on paper:

    example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k
    name           + key ID + base64(type byte || public key)

The key ID is the first 4 bytes of SHA-256(name || 0x0A || type || public key) in hexadecimal. Types
that we verify: 0x01 Ed25519, 0x04 Ed25519 cosignature of a witness, 0x06 ML-DSA-44 (FIPS 204)
cosignature of a witness or, under the log's own name, of the log. Types 0x02 (ECDSA) and 0x05
(RFC 6962) are read so that they can be named, and refused when they are asked to verify.

Base64 is RFC 4648 §4 with padding and zero trailing bits: one spelling for each byte string.
Ed25519 public keys of small order or with a non-canonical coordinate are refused, because for them
a signature can be made without any secret.

Source: c2sp.org/signed-note v1.0.0, c2sp.org/tlog-cosignature v1.0.1; RFC 8032 §5.1.
"""

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import Protocol, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey, MLDSA44PublicKey

ED25519 = 0x01
ECDSA = 0x02
ED25519_COSIGNATURE = 0x04
RFC6962 = 0x05
MLDSA44 = 0x06

_KEY_BYTES = {ED25519: 32, ED25519_COSIGNATURE: 32, MLDSA44: 1312}
SIGNATURE_BYTES = {ED25519: 64, ED25519_COSIGNATURE: 64, MLDSA44: 2420}

_FIELD_PRIME = 2**255 - 19
_ORDER_8_Y = int("05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826", 16)
_SMALL_ORDER_Y = frozenset({0, 1, _FIELD_PRIME - 1, _ORDER_8_Y, _FIELD_PRIME - _ORDER_8_Y})


class NoteError(ValueError):
    """A key, a signed note or a checkpoint is malformed or does not verify."""


def strict_base64(text: str) -> bytes:
    """Decode base64 that is spelt in its one canonical way.

    Raises:
        NoteError: another alphabet, missing padding, white space or non-zero trailing bits.
    """
    try:
        raw = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as cause:
        raise NoteError("not standard base64 with padding") from cause
    if encode_base64(raw) != text:
        raise NoteError("base64 has non-zero trailing bits: expected the canonical spelling")
    return raw


def encode_base64(raw: bytes) -> str:
    """Encode with the standard alphabet and padding."""
    return base64.b64encode(raw).decode("ascii")


def is_key_name(name: str) -> bool:
    """Say whether `name` may name a key: not empty, no white space, no control, no "+"."""
    return (
        name != ""
        and len(name.encode("utf-8", "surrogatepass")) <= 255
        and not any(char in "+\x7f" or char < "!" or char.isspace() for char in name)
        and not any("\ud800" <= char <= "\udfff" for char in name)
    )


def key_id(name: str, kind: int, public_key: bytes) -> bytes:
    """Return the 4 bytes that tell keys of one name apart.

    Source: c2sp.org/signed-note v1.0.0, "Signatures".
    """
    if kind == ECDSA:
        return hashlib.sha256(public_key).digest()[:4]
    if kind == RFC6962:
        public_key = hashlib.sha256(public_key).digest()
    return hashlib.sha256(name.encode() + b"\n" + bytes([kind]) + public_key).digest()[:4]


@dataclass(frozen=True)
class VerifyKey:
    """A public key under a name, as an auditor configures it."""

    name: str
    kind: int
    public_key: bytes

    @property
    def id(self) -> bytes:
        """The 4-byte key ID."""
        return key_id(self.name, self.kind, self.public_key)

    @property
    def vkey(self) -> str:
        """The one-line text form."""
        packed = encode_base64(bytes([self.kind]) + self.public_key)
        return f"{self.name}+{self.id.hex()}+{packed}"

    @classmethod
    def parse(cls, vkey: str) -> Self:
        """Read the one-line text form.

        Raises:
            NoteError: malformed, an ID that does not fit, an unknown type, or a weak key.
        """
        name, hex_id, packed = [*vkey.split("+", 2), "", ""][:3]
        raw = strict_base64(packed)
        if not is_key_name(name) or len(raw) < 2:
            raise NoteError("malformed vkey: expected name+8 hexadecimal digits+base64")
        key = cls(name, raw[0], raw[1:])
        if key.id.hex() != hex_id:
            raise NoteError("vkey has another key ID than its name and key give: check the text")
        if key.kind not in (*_KEY_BYTES, ECDSA, RFC6962):
            raise NoteError(f"vkey has the unknown type 0x{key.kind:02x}")
        if len(key.public_key) != _KEY_BYTES.get(key.kind, len(key.public_key)):
            raise NoteError(f"vkey of type 0x{key.kind:02x} has a key of a wrong length")
        if key.kind in (ED25519, ED25519_COSIGNATURE):
            _refuse_weak(key.public_key)
        return key

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Say whether `signature` (bare, without timestamp) is this key's over `message`.

        Raises:
            NoteError: this type cannot be checked here.
        """
        try:
            if self.kind in (ED25519, ED25519_COSIGNATURE):
                Ed25519PublicKey.from_public_bytes(self.public_key).verify(signature, message)
            elif self.kind == MLDSA44:
                MLDSA44PublicKey.from_public_bytes(self.public_key).verify(signature, message)
            else:
                raise NoteError(f"type 0x{self.kind:02x} is not supported: ask for an Ed25519 key")
        except InvalidSignature:
            return False
        except UnsupportedAlgorithm as cause:
            raise NoteError("ML-DSA is not available: install cryptography 48 or newer") from cause
        return True


class Signer(Protocol):
    """Something that signs bytes under a named key: a local seed, a KMS, a token."""

    @property
    def name(self) -> str:
        """The key name; for a log it equals the origin."""

    @property
    def vkey(self) -> str:
        """The verifier key text."""

    def sign(self, message: bytes) -> bytes:
        """Return the bare signature over exactly `message`."""


class Ed25519Signer:
    """An Ed25519 key held in memory; `kind` 0x04 makes it a witness's cosignature key."""

    def __init__(self, name: str, private_key: Ed25519PrivateKey, *, kind: int = ED25519) -> None:
        if not is_key_name(name):
            raise NoteError("a key name is not empty and has no white space and no `+`")
        if kind not in (ED25519, ED25519_COSIGNATURE):
            raise NoteError(f"type 0x{kind:02x} is not an Ed25519 type")
        self._private_key = private_key
        self.name = name
        self.key = VerifyKey(name, kind, private_key.public_key().public_bytes_raw())
        self.vkey = self.key.vkey

    @classmethod
    def from_seed(cls, name: str, seed: bytes, *, kind: int = ED25519) -> Self:
        """Make the signer of a 32-byte private seed (RFC 8032 §5.1.5)."""
        if len(seed) != 32:
            raise NoteError(f"an Ed25519 seed has 32 bytes, got {len(seed)}")
        return cls(name, Ed25519PrivateKey.from_private_bytes(seed), kind=kind)

    @classmethod
    def generate(cls, name: str, *, kind: int = ED25519) -> Self:
        """Make a signer with a new key from the operating system's random source."""
        return cls(name, Ed25519PrivateKey.generate(), kind=kind)

    @property
    def seed(self) -> bytes:
        """The 32-byte private seed, to be stored where only the log's operator reads."""
        return self._private_key.private_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature; equal input gives equal output."""
        return self._private_key.sign(message)


class MlDsa44Signer:
    """An ML-DSA-44 key held in memory: the second line of a checkpoint, safe after quantum."""

    def __init__(self, name: str, private_key: MLDSA44PrivateKey) -> None:
        if not is_key_name(name):
            raise NoteError("a key name is not empty and has no white space and no `+`")
        self._private_key = private_key
        self.name = name
        self.key = VerifyKey(name, MLDSA44, private_key.public_key().public_bytes_raw())
        self.vkey = self.key.vkey

    @classmethod
    def from_seed(cls, name: str, seed: bytes) -> Self:
        """Make the signer of a 32-byte private seed (FIPS 204, xi)."""
        if len(seed) != 32:
            raise NoteError(f"an ML-DSA-44 seed has 32 bytes, got {len(seed)}")
        return cls(name, MLDSA44PrivateKey.from_seed_bytes(seed))

    @classmethod
    def generate(cls, name: str) -> Self:
        """Make a signer with a new key from the operating system's random source."""
        return cls(name, MLDSA44PrivateKey.generate())

    @property
    def seed(self) -> bytes:
        """The 32-byte private seed, to be stored where only the log's operator reads."""
        return self._private_key.private_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return a 2,420-byte signature with empty context; two runs differ (hedged signing)."""
        return self._private_key.sign(message)


def _refuse_weak(public_key: bytes) -> None:
    y = int.from_bytes(public_key, "little") & (2**255 - 1)
    if y >= _FIELD_PRIME or y in _SMALL_ORDER_Y:
        raise NoteError("weak Ed25519 key: small order or non-canonical, anyone can sign for it")
