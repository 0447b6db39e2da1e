"""Objects as plain files below one or more roots: the embedded default.

A write goes to a temporary file beside its target, is flushed to the disk, read back, and only then
renamed (`put`) or linked (`put_if_absent`: `link` fails when the name exists, so of several writers
one wins). The directory is flushed too, so that a power cut keeps the name. Temporary files start
with `.placet-` and are never listed.
"""

import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Self
from urllib.parse import unquote, urlsplit

from service.objects.protocol import (
    CHUNK_BYTES,
    ObjectError,
    ObjectExistsError,
    ObjectMissingError,
    ObjectRefusedError,
    ObjectStoreError,
    Source,
    Stored,
    check_expected,
    check_read_back,
    check_segments,
    measured,
)

TEMPORARY_PREFIX = ".placet-"


class FileObjects:
    """`Objects` over directories of this machine.

    Args:
        roots: Existing directories; nothing outside them is read or written, symbolic links
            included.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        if not roots:
            raise ObjectRefusedError("no root directory was given; name at least one")
        for root in roots:
            if not root.is_dir():
                raise ObjectRefusedError(f"`{root}` is not a directory; create it first")
        self._roots = tuple(root.resolve() for root in roots)

    def put(self, uri: str, data: bytes | Path) -> Stored:
        """See `Objects.put`."""
        path = self._path(uri)
        with _Temporary(uri, path, data) as temporary:
            temporary.path.replace(path)
            temporary.commit()
        return temporary.stored

    def put_if_absent(self, uri: str, data: bytes | Path) -> Stored:
        """See `Objects.put_if_absent`."""
        path = self._path(uri)
        with _Temporary(uri, path, data) as temporary:
            try:
                os.link(temporary.path, path)
            except FileExistsError:
                if self.measure(uri) != temporary.stored:
                    raise ObjectExistsError(
                        f"`{uri}` already holds other bytes; choose another name"
                    ) from None
            temporary.commit()
        return temporary.stored

    def get(self, uri: str, *, expected: str | None = None) -> bytes:
        """See `Objects.get`."""
        with self.open(uri) as stream:
            try:
                data = stream.read()
            except OSError as error:
                raise _translated(uri, error) from error
        check_expected(uri, Source.of(data).stored, expected)
        return data

    def open(self, uri: str) -> BinaryIO:
        """See `Objects.open`."""
        path = self._path(uri)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            stream = os.fdopen(descriptor, "rb")
        except OSError as error:
            raise _translated(uri, error) from error
        return stream

    def measure(self, uri: str) -> Stored:
        """See `Objects.measure`."""
        with self.open(uri) as stream:
            try:
                return measured(stream.read)
            except OSError as error:
                raise _translated(uri, error) from error

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        """See `Objects.list`."""
        folder = self._path(prefix.rstrip("/"), is_folder=True)
        found = []

        def refuse(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                raise _translated(prefix, error) from error

        for directory, _, names in os.walk(folder, onerror=refuse):
            for name in names:
                path = Path(directory, name)
                if name.startswith(TEMPORARY_PREFIX) or path.is_symlink():
                    continue
                try:
                    found.append((path.as_uri(), path.stat().st_size))
                except FileNotFoundError:  # removed since the directory was read
                    continue
        yield from sorted(found, key=lambda entry: unquote(entry[0]))

    def delete(self, uri: str) -> None:
        """See `Objects.delete`."""
        path = self._path(uri)
        try:
            path.unlink()
            _sync_directory(path.parent)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise _translated(uri, error) from error

    def endpoint_of(self, uri: str) -> str:
        """Return the root that holds `uri`, as a `file://` URI: this machine."""
        path = self._path(uri, is_folder=True)
        return next(root for root in self._roots if path.is_relative_to(root)).as_uri()

    def _path(self, uri: str, *, is_folder: bool = False) -> Path:
        """Turn a URI into a path that stays inside a root even after symbolic links."""
        parts = urlsplit(uri)
        if parts.scheme != "file" or parts.netloc or parts.query or parts.fragment:
            raise ObjectRefusedError(
                f"`{uri!r}` is not a `file:///…` URI; this store holds files of this machine only"
            )
        text = unquote(parts.path, errors="surrogateescape")
        check_segments(uri, text.removeprefix("/"))
        path = Path(text)
        if path.as_uri() != uri:
            raise ObjectRefusedError(
                f"`{uri!r}` is not spelt canonically, expected {path.as_uri()!r}"
            )
        if path.name.startswith(TEMPORARY_PREFIX):
            raise ObjectRefusedError(
                f"`{uri!r}` has the name of a temporary file; choose one that does not start with"
                f" `{TEMPORARY_PREFIX}`"
            )
        try:
            resolved = path.parent.resolve() / path.name
        except (OSError, RuntimeError) as error:
            raise ObjectRefusedError(f"`{uri!r}` has no resolvable folder: {error}") from error
        is_root = resolved in self._roots
        if not any(resolved.is_relative_to(root) for root in self._roots) or (
            is_root and not is_folder
        ):
            roots = ", ".join(str(root) for root in self._roots)
            raise ObjectRefusedError(f"`{uri!r}` lies outside the permitted folders ({roots})")
        return resolved


class _Temporary:
    """A flushed and verified temporary file beside `target`, removed unless it was renamed."""

    def __init__(self, uri: str, target: Path, data: bytes | Path) -> None:
        self._uri = uri
        self._target = target
        self._source = Source.of(data)
        self.stored = self._source.stored
        self.path = target.with_name(f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}")
        self._unsynced: list[Path] = []

    def __enter__(self) -> Self:
        try:
            self._unsynced = [self._target.parent]
            self._unsynced += [path.parent for path in self._target.parents if not path.exists()]
            self._target.parent.mkdir(parents=True, exist_ok=True)
            with self._source.open() as source, self.path.open("xb") as stream:
                while chunk := source.read(CHUNK_BYTES):
                    stream.write(chunk)
                stream.flush()
                os.fsync(stream.fileno())
            with self.path.open("rb") as stream:
                check_read_back(self._uri, self.stored, measured(stream.read))
        except (FileExistsError, NotADirectoryError) as error:
            raise ObjectRefusedError(
                f"`{self._uri}` lies below another object; choose a name that is not inside one"
            ) from error
        except OSError as error:
            self._discard()
            raise _translated(self._uri, error) from error
        except ObjectError:
            self._discard()
            raise
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._discard()
        if isinstance(error, OSError):
            raise _translated(self._uri, error) from error

    def commit(self) -> None:
        """Flush the directories, so that the new name and new folders outlive a power cut."""
        for folder in self._unsynced:
            _sync_directory(folder)

    def _discard(self) -> None:
        self.path.unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _translated(uri: str, error: OSError) -> ObjectError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ObjectMissingError(f"there is no object `{uri}`; check the URI")
    if isinstance(error, IsADirectoryError):
        return ObjectRefusedError(f"`{uri}` is a folder, expected an object; name a file in it")
    return ObjectStoreError(
        f"cannot use `{uri}`: {error.strerror or error}; check permissions and free space"
    )
