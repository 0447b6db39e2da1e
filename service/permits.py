"""Permits: the signed right to run exact bytes once.

A permit is a JSON Web Token signed with Ed25519 (RFC 8037), short-lived, bound to one run and to
the digests of everything it may touch; the trainer checks it before it reads data. An example,
decoded (claims: `trainer.contract.PermitClaims`)::

    {"alg":"EdDSA","kid":"x3Zk…","typ":"placet-permit+jwt"}
    {"aud":"placet-trainer","base_model":"sha256:…","dataset":"sha256:…","decision":"sha256:…",
     "document":"sha256:…","exp":1796040600,"iat":1796038800,"iss":"placet","job":"job_01kb…",
     "jti":"prm_01kb…","max_minutes":60,"nbf":1796038800,"output":"s3://ward/runs/run_01kb…",
     "spec":"sha256:…","sub":"run_01kb…"}

`kid` is the key's thumbprint (RFC 7638, September 2015), so it never has to be configured.
"""

import base64
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from trainer.contract import ContractError, PermitClaims, canonical

PERMIT_TYPE = "placet-permit+jwt"


class PermitError(ValueError):
    """Raised for a key that cannot sign, claims not to be signed, or a token that is not ours."""


class Issuer:
    """Signs permits with one Ed25519 key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.kid = thumbprint(key.public_key())

    @classmethod
    def from_pem(cls, path: Path) -> Self:
        """Load the private key (PKCS #8 PEM, not encrypted) from a file only its owner can read.

        Raises:
            PermitError: No such file, others may read it, or it holds no Ed25519 private key.
        """
        try:
            mode = path.stat().st_mode
            data = path.read_bytes()
        except OSError as error:
            raise PermitError(
                f"cannot read the permit key `{path}`: {error.strerror}; create one with"
                " `create_key`"
            ) from error
        if mode & 0o077:
            raise PermitError(
                f"the permit key `{path}` is readable by others (mode {mode & 0o777:o}), expected"
                " 600; run `chmod 600` on it"
            )
        try:
            key = load_pem_private_key(data, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise PermitError(
                f"`{path}` holds no unencrypted private key in PEM; restore it from the backup"
            ) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise PermitError(f"`{path}` holds another kind of key, expected Ed25519")
        return cls(key)

    def issue(self, claims: PermitClaims | Mapping[str, object]) -> str:
        """Sign the claims; the same claims give the same token (Ed25519 is deterministic).

        Raises:
            PermitError: A claim is missing, unknown or out of range, or the lifetime is not
                positive (expected iat <= nbf < exp).
        """
        members = claims.to_claims() if isinstance(claims, PermitClaims) else claims
        try:
            checked = PermitClaims.from_claims(members)
        except ContractError as error:
            raise PermitError(f"cannot issue this permit: {error}") from error
        if not checked.iat <= checked.nbf < checked.exp:
            raise PermitError(
                f"expected iat <= nbf < exp, got {checked.iat}, {checked.nbf}, {checked.exp}; give"
                " the permit a positive lifetime"
            )
        return jwt.PyJWS().encode(
            canonical(checked.to_claims()),
            self._key,
            algorithm="EdDSA",
            headers={"typ": PERMIT_TYPE, "kid": self.kid},
        )

    def public_pem(self) -> bytes:
        """Return the public key (SubjectPublicKeyInfo PEM) that goes to the trainer."""
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def create_key(path: Path) -> Issuer:
    """Create the permit key with mode 0600 if there is none, and load it.

    Of several processes that start at once, one creates the key and all load the same.

    Raises:
        PermitError: The folder cannot be written, or what lies there cannot be used.
    """
    pem = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(pem)
                stream.flush()
                os.fsync(stream.fileno())
            path.hardlink_to(temporary)
        except FileExistsError:
            return Issuer.from_pem(path)
        finally:
            temporary.unlink()
    except OSError as error:
        raise PermitError(
            f"cannot create the permit key `{path}`: {error.strerror}; check its folder"
        ) from error
    return Issuer.from_pem(path)


def thumbprint(key: Ed25519PublicKey) -> str:
    """Return the RFC 7638 thumbprint of a public key: SHA-256 of its JWK, base64url."""
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    jwk = {"crv": "Ed25519", "kty": "OKP", "x": _base64url(raw)}
    text = json.dumps(jwk, separators=(",", ":"), sort_keys=True)
    return _base64url(hashlib.sha256(text.encode()).digest())


def verify(token: str, public_pem: bytes, *, at: int) -> PermitClaims:
    """Check signature, type and validity of a permit of ours at `at` (seconds since 1970).

    The trainer has its own, stricter check; this one serves the console and tests.

    Raises:
        PermitError: It is not ours, is malformed, or is not valid at that time.
    """
    try:
        key = load_pem_public_key(public_pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise PermitError("expected a public key in PEM, got other bytes") from error
    if not isinstance(key, Ed25519PublicKey):
        raise PermitError("expected an Ed25519 public key, got another kind")
    try:
        decoded = jwt.PyJWS().decode_complete(token, key, algorithms=["EdDSA"])
        claims = PermitClaims.from_claims(json.loads(decoded["payload"]))
    except (jwt.InvalidTokenError, ValueError) as error:
        raise PermitError(f"not a permit of this issuer: {error}") from error
    if decoded["header"].get("typ") != PERMIT_TYPE:
        raise PermitError(f"expected a token of type {PERMIT_TYPE}, got another")
    if not claims.nbf <= at < claims.exp:
        raise PermitError(f"the permit is valid from {claims.nbf} to {claims.exp}, not at {at}")
    return claims


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
