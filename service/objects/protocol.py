"""What an object store promises, and the errors it may raise.

An object is bytes under a URI. Digests are ours: every write is read back and hashed, because some
S3 servers accept a body that contradicts its own checksum header. Writes are atomic: a reader sees
the old bytes, the new bytes or nothing.

URIs are accepted in one spelling only, so that two texts never name one object::

    file:///srv/placet/objects/sha256-9f86…        absolute, as `Path.as_uri` spells it
    s3://placet-evidence/tile/0/000                bucket, then the key (no `%`, `?`, `#`)

No segment may be empty, `.` or `..`. The errors::

    ObjectError                 something is wrong with one object; the message says what to do
    ├── ObjectRefusedError      the URI is not one this store may touch
    ├── ObjectMissingError      there is no such object
    ├── ObjectExistsError       `put_if_absent` met other bytes
    ├── ObjectMismatchError     the bytes are not the ones that were expected or sent
    └── ObjectStoreError        the store failed or cannot be reached
"""

import hashlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, Self

CHUNK_BYTES = 1 << 20


class ObjectError(Exception):
    """Raised for any failed operation on an object; the message names the URI and the way out."""


class ObjectRefusedError(ObjectError):
    """Raised for a URI of another scheme, outside the root or not in canonical spelling."""


class ObjectMissingError(ObjectError):
    """Raised when there is no object under the URI."""


class ObjectExistsError(ObjectError):
    """Raised by `put_if_absent` when the URI already holds other bytes."""


class ObjectMismatchError(ObjectError):
    """Raised when the bytes that were read do not have the expected digest."""


class ObjectStoreError(ObjectError):
    """Raised when the store cannot be reached or answers with a failure; trying again is safe."""


@dataclass(frozen=True)
class Stored:
    """What lies under a URI, as measured by reading it: `sha256:<hex>` and the size in bytes."""

    digest: str
    size_bytes: int


class Objects(Protocol):
    """A store of objects. Every method raises `ObjectError` and nothing else."""

    def put(self, uri: str, data: bytes | Path) -> Stored:
        """Write the bytes (or the file's) under `uri`, replacing what is there; read them back.

        One writer per URI at a time, else one of them may read back the other's bytes.

        Raises:
            ObjectMismatchError: What the store gives back is not what was sent.
        """
        ...

    def put_if_absent(self, uri: str, data: bytes | Path) -> Stored:
        """Write the bytes unless `uri` holds others; of several writers exactly one content wins.

        The same bytes again are a success, so that a retry after a lost answer is safe.

        Raises:
            ObjectExistsError: `uri` holds other bytes.
        """
        ...

    def get(self, uri: str, *, expected: str | None = None) -> bytes:
        """Read a whole object into memory and check its digest if one is expected."""
        ...

    def open(self, uri: str) -> BinaryIO:
        """Open an object for reading from its start; the caller closes it."""
        ...

    def measure(self, uri: str) -> Stored:
        """Hash an object by streaming it, in constant memory."""
        ...

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield `(uri, size in bytes)` of every object in the folder `prefix`, by code point."""
        ...

    def delete(self, uri: str) -> None:
        """Remove an object; one that is not there counts as removed."""
        ...

    def endpoint_of(self, uri: str) -> str:
        """Say which endpoint serves `uri`, for example `https://s3.gra.io.cloud.ovh.net`."""
        ...


@dataclass(frozen=True)
class Source:
    """The bytes of one write: from memory or from a file that must not change meanwhile."""

    data: bytes | Path
    stored: Stored

    @classmethod
    def of(cls, data: bytes | Path) -> Self:
        """Measure the bytes that are about to be written.

        Raises:
            ObjectStoreError: The file cannot be read.
        """
        if isinstance(data, bytes):
            return cls(data, Stored(_name(hashlib.sha256(data).hexdigest()), len(data)))
        try:
            with data.open("rb") as stream:
                return cls(data, measured(stream.read))
        except OSError as error:
            raise ObjectStoreError(
                f"cannot read the file `{data}` to store it: {error.strerror}; check its path"
            ) from error

    def open(self) -> BinaryIO:
        """Open the bytes as a stream."""
        return io.BytesIO(self.data) if isinstance(self.data, bytes) else self.data.open("rb")


def _name(hexdigest: str) -> str:
    return f"sha256:{hexdigest}"


def measured(read: Callable[[int], bytes]) -> Stored:
    """Hash what `read(size)` yields until it yields nothing."""
    hasher = hashlib.sha256()
    size = 0
    while chunk := read(CHUNK_BYTES):
        hasher.update(chunk)
        size += len(chunk)
    return Stored(_name(hasher.hexdigest()), size)


def check_expected(uri: str, got: Stored, expected: str | None) -> None:
    """Compare a measured object with the digest that was recorded for it.

    Raises:
        ObjectMismatchError: They differ.
    """
    if expected is not None and got.digest != expected:
        raise ObjectMismatchError(
            f"`{uri}` has digest {got.digest}, expected {expected}; the object was changed after it"
            " was recorded: restore it or register it anew"
        )


def check_read_back(uri: str, sent: Stored, got: Stored) -> None:
    """Compare what was sent with what the store gives back.

    Raises:
        ObjectMismatchError: They differ.
    """
    if sent != got:
        raise ObjectMismatchError(
            f"`{uri}` reads back as {got.digest} ({got.size_bytes} bytes), sent {sent.digest}"
            f" ({sent.size_bytes} bytes); check the store's disk and the proxy before it, then put"
            " it again"
        )


def check_segments(uri: str, path: str) -> None:
    """Refuse a path that is not a plain sequence of names.

    Raises:
        ObjectRefusedError: A segment is empty, `.` or `..`, or a character cannot be printed.
    """
    if any(segment in {"", ".", ".."} for segment in path.split("/")):
        raise ObjectRefusedError(
            f"`{uri!r}` has an empty, `.` or `..` segment; give the object's plain path"
        )
    if not path.isprintable() or "\\" in path:
        raise ObjectRefusedError(
            f"`{uri!r}` holds a control character or a backslash; rename the object"
        )
