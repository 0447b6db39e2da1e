"""The installation's keys, made on first use, in files that only the owner can read.

There are three: the log's signing key, the permit issuer's key, and the key that wraps the keys of
personal values.
"""

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


class KeyFileError(ValueError):
    """A key file cannot be used; the message says which and what to do."""


def ed25519_seed(path: Path) -> bytes:
    """Read the 32-byte seed of a PEM Ed25519 key, making the key first if there is none.

    Raises:
        KeyFileError: not an unencrypted Ed25519 PEM file, or readable by others.
    """
    key = load_pem_private_key(
        _own_file(path, lambda: _pem(Ed25519PrivateKey.generate())), password=None
    )
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"`{path}` holds no Ed25519 key; make one with `openssl genpkey`")
    return key.private_bytes_raw()


def wrapping_key(path: Path) -> bytes:
    """Read the 32-byte key-encryption key, making it first if there is none.

    Raises:
        KeyFileError: not 32 bytes, or readable by others.
    """
    key = _own_file(path, lambda: secrets.token_bytes(32))
    if len(key) != 32:
        raise KeyFileError(f"`{path}` must hold 32 bytes, has {len(key)}; restore it from backup")
    return key


def _pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _own_file(path: Path, make: Callable[[], bytes]) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    if not path.exists():
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(make())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(staged, path)  # the first of two processes wins, whole file or none
        except FileExistsError:
            pass
        finally:
            staged.unlink()
    if path.stat().st_mode & 0o077:
        raise KeyFileError(f"`{path}` can be read by others; run `chmod 600 {path}`")
    return path.read_bytes()
