"""Read and write objects by URI: `file:///…` and `s3://bucket/…`.

Every write of a file is atomic (temporary file, fsync, rename). `put_if_absent` is a hard link on
files and `If-None-Match: *` on S3; because some S3-compatible stores ignore that header, it is
preceded by a HEAD, so that only two writers in the same instant on such a store can both win.
Digests are ours: whoever reads compares them, so S3's own checksums stay off unless required.

S3 takes its endpoint from `PLACET_S3_ENDPOINT` and its credentials from the usual AWS variables.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any, Protocol

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

ABSENT = {"404", "NoSuchKey", "NotFound"}
EXISTS = {"412", "PreconditionFailed", "409", "ConditionalRequestConflict"}


class StoreError(OSError):
    """An object store did not answer as it should; the message names the URI."""


class Store(Protocol):
    """Objects of one scheme, addressed by whole URIs.

    `open` and `get` raise `FileNotFoundError` for an absent object; everything raises
    `StoreError` (also an `OSError`) when the store fails.
    """

    def open(self, uri: str) -> "IO[bytes]":
        """Open an object for reading once, from its start."""
        ...

    def put(self, uri: str, data: bytes) -> None:
        """Write an object, replacing what is there."""
        ...

    def put_if_absent(self, uri: str, data: bytes) -> bool:
        """Write an object unless one is there; say whether it was written."""
        ...

    def list(self, uri: str) -> list[str]:
        """List relative paths of all objects under a prefix that is a directory, sorted."""
        ...

    def delete(self, uri: str) -> None:
        """Remove an object; an absent one is no error."""
        ...


class FileStore:
    """`file:///` on the local disk."""

    def open(self, uri: str) -> IO[bytes]:
        """Open a file for reading."""
        return path_of(uri).open("rb")

    def put(self, uri: str, data: bytes) -> None:
        """Write a file atomically, making its directories."""
        with self._staged(path_of(uri), data) as staged:
            staged.replace(path_of(uri))

    def put_if_absent(self, uri: str, data: bytes) -> bool:
        """Write a file unless it exists; a hard link is atomic where a rename would replace."""
        with self._staged(path_of(uri), data) as staged:
            try:
                os.link(staged, path_of(uri))
            except FileExistsError:
                return False
            return True

    def list(self, uri: str) -> list[str]:
        """List the files under a directory; symbolic links are refused.

        Raises:
            StoreError: when the directory holds a symbolic link.
        """
        root = path_of(uri)
        found = []
        for path in root.rglob("*"):
            if path.is_symlink():
                raise StoreError(f"expected plain files, got the link `{path}`; copy its target")
            if path.is_file() and not path.name.startswith(".staged-"):
                found.append(path.relative_to(root).as_posix())
        return sorted(found)

    def delete(self, uri: str) -> None:
        """Remove a file, and its directory when that is empty now."""
        path = path_of(uri)
        path.unlink(missing_ok=True)
        if path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()

    @contextmanager
    def _staged(self, path: Path, data: bytes) -> Iterator[Path]:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".staged-", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield Path(name)
        finally:
            Path(name).unlink(missing_ok=True)


class S3Store:
    """`s3://bucket/key` through boto3 (any S3-compatible endpoint)."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def open(self, uri: str) -> IO[bytes]:
        """Open an object as a stream."""
        bucket, key = _bucket_and_key(uri)
        with _translated(uri):
            body: IO[bytes] = self._client.get_object(Bucket=bucket, Key=key)["Body"]
        return body

    def put(self, uri: str, data: bytes) -> None:
        """Write an object in one request."""
        bucket, key = _bucket_and_key(uri)
        with _translated(uri):
            self._client.put_object(Bucket=bucket, Key=key, Body=data)

    def put_if_absent(self, uri: str, data: bytes) -> bool:
        """Write an object with `If-None-Match: *`, after asking whether it is there."""
        bucket, key = _bucket_and_key(uri)
        with _translated(uri):
            try:
                self._client.head_object(Bucket=bucket, Key=key)
            except ClientError as cause:
                if _code(cause) not in ABSENT:
                    raise
            else:
                return False
            try:
                self._client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
            except ClientError as cause:
                if _code(cause) not in EXISTS:
                    raise
                return False
        return True

    def list(self, uri: str) -> list[str]:
        """List the keys under `uri/`, relative to it."""
        bucket, key = _bucket_and_key(uri)
        prefix = key.rstrip("/") + "/"
        found = []
        with _translated(uri):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=bucket, Prefix=prefix):
                found += [item["Key"].removeprefix(prefix) for item in page.get("Contents", [])]
        return sorted(found)

    def delete(self, uri: str) -> None:
        """Remove an object."""
        bucket, key = _bucket_and_key(uri)
        with _translated(uri):
            self._client.delete_object(Bucket=bucket, Key=key)


def store_for(uri: str) -> Store:
    """Return the store of a URI's scheme.

    Raises:
        StoreError: for a scheme other than `file` and `s3`.
    """
    if uri.startswith("file:///"):
        return FileStore()
    if uri.startswith("s3://"):
        return S3Store(_client(os.environ.get("PLACET_S3_ENDPOINT")))
    raise StoreError(f"expected a file:/// or s3:// URI, got `{uri[:80]}`")


@cache
def _client(endpoint: str | None) -> Any:
    config = Config(
        connect_timeout=10,
        read_timeout=60,
        retries={"mode": "standard", "total_max_attempts": 5},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"} if endpoint else {},
    )
    return boto3.client("s3", endpoint_url=endpoint, config=config)


def get(uri: str, *, max_bytes: int) -> bytes:
    """Read a whole object.

    Raises:
        FileNotFoundError: when it is absent.
        StoreError: when it is larger than `max_bytes`, or the store fails.
    """
    with closing(store_for(uri).open(uri)) as stream, _translated(uri):
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise StoreError(f"expected at most {max_bytes} bytes at `{uri}`, got more")
    return data


def fetch(uri: str, path: Path) -> None:
    """Copy an object to a local file, making its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(store_for(uri).open(uri)) as stream, path.open("wb") as file, _translated(uri):
        shutil.copyfileobj(stream, file, 1 << 20)


def path_of(uri: str) -> Path:
    """Return the local path of a `file:///` URI.

    Raises:
        StoreError: for another scheme.
    """
    if not uri.startswith("file:///"):
        raise StoreError(f"expected a file:/// URI, got `{uri[:80]}`")
    return Path(uri.removeprefix("file://"))


def _bucket_and_key(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


def _code(cause: ClientError) -> str:
    return str(cause.response.get("Error", {}).get("Code", ""))


@contextmanager
def _translated(uri: str) -> Iterator[None]:
    try:
        yield
    except ClientError as cause:
        if _code(cause) in ABSENT:
            raise FileNotFoundError(f"expected an object at `{uri}`, got none") from cause
        raise StoreError(f"the object store refused `{uri}`: {_code(cause)}") from cause
    except BotoCoreError as cause:
        raise StoreError(f"the object store failed for `{uri}`: {cause}") from cause
