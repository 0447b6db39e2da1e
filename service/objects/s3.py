"""Objects in S3, by boto3.

Two things differ between servers that call themselves S3, so `probe` measures both before use:

* `checksum_mode`: since boto3 1.36 a PUT carries a CRC trailer by default (`when_supported`), which
  some endpoints refuse and some store as part of the body. Then `when_required` is used. The digest
  that counts is ours in either mode: what was written is read back and hashed.
* `conditional_put`: whether `If-None-Match: *` is obeyed. A server that ignores it would let two
  writers both win, so `put_if_absent` is refused there.
"""

import contextlib
import io
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast
from urllib.parse import urlsplit

import boto3
from boto3.exceptions import S3UploadFailedError
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from service.objects.protocol import (
    ObjectError,
    ObjectExistsError,
    ObjectMismatchError,
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

ChecksumMode = Literal["when_supported", "when_required"]

_MISSING = {"NoSuchKey", "NoSuchBucket", "404", "NotFound"}
_DENIED = {"AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch"}
_CONFLICT = {"PreconditionFailed", "ConditionalRequestConflict", "412"}
_PROBE_KEY = ".placet-probe"


@dataclass(frozen=True)
class S3Account:
    """Where and as whom to speak S3.

    `endpoint` is a URL without a path; `buckets`, when given, are the only ones that may be used.
    """

    endpoint: str
    region: str
    access_key: str
    secret_key: str
    buckets: frozenset[str] | None = None

    def __repr__(self) -> str:
        """Leave the secret out of logs and tracebacks."""
        return f"S3Account({self.endpoint!r}, {self.region!r}, {self.access_key!r})"


@dataclass(frozen=True)
class Abilities:
    """What an endpoint turned out to do; see the module text."""

    checksum_mode: ChecksumMode = "when_supported"
    conditional_put: bool = True


class S3Objects:
    """`Objects` over one S3 endpoint.

    Args:
        account: Endpoint, credentials, permitted buckets.
        abilities: What `probe` found; the default is a modern, conforming server.
    """

    def __init__(self, account: S3Account, abilities: Abilities | None = None) -> None:
        parts = urlsplit(account.endpoint)
        if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path not in {"", "/"}:
            raise ObjectRefusedError(
                f"`{account.endpoint!r}` is not an S3 endpoint; expected `https://host[:port]`"
            )
        self._account = account
        self._endpoint = f"{parts.scheme}://{parts.netloc}"
        self._abilities = abilities or Abilities()
        self._client = _client(account, self._abilities.checksum_mode)

    def put(self, uri: str, data: bytes | Path) -> Stored:
        """See `Objects.put`; a large file goes up in parts of 8 MB."""
        bucket, key = self._locate(uri)
        source = Source.of(data)
        with _translated(uri), source.open() as stream:
            self._client.upload_fileobj(stream, bucket, key)
        return self._read_back(uri, source.stored)

    def put_if_absent(self, uri: str, data: bytes | Path) -> Stored:
        """See `Objects.put_if_absent`; one PUT, so at most 5 GB."""
        bucket, key = self._locate(uri)
        if not self._abilities.conditional_put:
            raise ObjectRefusedError(
                f"`{self._endpoint}` ignores `If-None-Match`, so `{uri}` cannot be written once"
                " only; use another S3 service for evidence"
            )
        source = Source.of(data)
        try:
            with _translated(uri), source.open() as stream:
                self._client.put_object(Bucket=bucket, Key=key, Body=stream, IfNoneMatch="*")
        except ObjectExistsError as error:
            try:
                present = self.measure(uri)
            except ObjectMissingError:  # another writer is at it and has not finished
                raise ObjectStoreError(f"`{uri}` is being written; try again") from error
            if present != source.stored:
                raise
            return source.stored
        return self._read_back(uri, source.stored)

    def get(self, uri: str, *, expected: str | None = None) -> bytes:
        """See `Objects.get`."""
        with self.open(uri) as stream:
            data = stream.read()
        check_expected(uri, Source.of(data).stored, expected)
        return data

    def open(self, uri: str) -> BinaryIO:
        """See `Objects.open`; the stream is the answer's body, read as it arrives."""
        bucket, key = self._locate(uri)
        with _translated(uri):
            body = self._client.get_object(Bucket=bucket, Key=key)["Body"]
        return cast("BinaryIO", io.BufferedReader(_Body(uri, body)))

    def measure(self, uri: str) -> Stored:
        """See `Objects.measure`."""
        with self.open(uri) as stream:
            return measured(stream.read)

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        """See `Objects.list`; one request per 1,000 objects."""
        bucket, key = self._locate(prefix.rstrip("/"), is_folder=True)
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=bucket, Prefix=f"{key}/" if key else ""
        )
        with _translated(prefix):
            for page in pages:
                for item in page.get("Contents", ()):
                    if not item["Key"].endswith("/"):  # a console's "folder" marker
                        yield f"s3://{bucket}/{item['Key']}", int(item["Size"])

    def delete(self, uri: str) -> None:
        """See `Objects.delete`."""
        bucket, key = self._locate(uri)
        with contextlib.suppress(ObjectMissingError), _translated(uri):
            self._client.delete_object(Bucket=bucket, Key=key)

    def endpoint_of(self, uri: str) -> str:
        """Return the endpoint's scheme and host; the country follows from it, not from a label."""
        self._locate(uri, is_folder=True)
        return self._endpoint

    def _read_back(self, uri: str, sent: Stored) -> Stored:
        check_read_back(uri, sent, self.measure(uri))
        return sent

    def _locate(self, uri: str, *, is_folder: bool = False) -> tuple[str, str]:
        """Split a URI into bucket and key; a folder may be a whole bucket."""
        if not uri.startswith("s3://") or any(character in uri for character in "?#%"):
            raise ObjectRefusedError(
                f"`{uri!r}` is not an `s3://bucket/key` URI without `?`, `#` and `%`"
            )
        bucket, slash, key = uri.removeprefix("s3://").partition("/")
        check_segments(uri, bucket)
        if slash or not is_folder:
            check_segments(uri, key)
        if self._account.buckets is not None and bucket not in self._account.buckets:
            raise ObjectRefusedError(
                f"bucket `{bucket}` is not among those permitted; add it to the settings if it"
                " should be"
            )
        return bucket, key


class _Body(io.RawIOBase):
    """An answer's body as a stream whose failures are ours; a cut connection is never an end."""

    def __init__(self, uri: str, body: Any) -> None:
        super().__init__()
        self._uri = uri
        self._body = body

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _translated(self._uri):
            data = self._body.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._body.close()
        super().close()


def probe(account: S3Account, bucket: str) -> Abilities:
    """Find out by four to eight small requests how the endpoint behaves; cost: below a second.

    Writes and removes one object `.placet-probe/<random>` in `bucket`.

    Raises:
        ObjectError: The endpoint stores nothing in either checksum mode.
    """
    try:
        return _probe(account, bucket, Abilities("when_supported"))
    except (ObjectStoreError, ObjectMismatchError):
        return _probe(account, bucket, Abilities("when_required"))


def _probe(account: S3Account, bucket: str, abilities: Abilities) -> Abilities:
    objects = S3Objects(account, abilities)
    uri = f"s3://{bucket}/{_PROBE_KEY}/{secrets.token_hex(8)}"
    try:
        objects.put(uri, b"first")
        try:
            objects.put_if_absent(uri, b"second")
        except ObjectExistsError:
            return abilities
        except ObjectError:  # refused with another error: it does not know the condition
            return replace(abilities, conditional_put=False)
        return replace(abilities, conditional_put=False)
    finally:
        with contextlib.suppress(ObjectError):
            objects.delete(uri)


def _client(account: S3Account, mode: ChecksumMode) -> Any:
    return boto3.session.Session().client(
        "s3",
        endpoint_url=account.endpoint,
        region_name=account.region,
        aws_access_key_id=account.access_key,
        aws_secret_access_key=account.secret_key,
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path"},
            request_checksum_calculation=mode,
            response_checksum_validation=mode,
            connect_timeout=5,
            read_timeout=60,
            retries={"mode": "standard", "max_attempts": 3},
        ),
    )


@contextlib.contextmanager
def _translated(uri: str) -> Iterator[None]:
    """Turn what boto3 raises into our errors, without its texts about signatures and hosts."""
    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", "unknown"))
        if code in _MISSING:
            raise ObjectMissingError(f"there is no object `{uri}`; check bucket and key") from error
        if code in _CONFLICT:
            raise ObjectExistsError(
                f"`{uri}` already holds other bytes; choose another name"
            ) from error
        if code in _DENIED:
            raise ObjectStoreError(
                f"the S3 service refuses access to `{uri}` ({code}); check the key pair and the"
                " bucket's policy"
            ) from error
        raise ObjectStoreError(
            f"the S3 service answered {code} for `{uri}`; try again, then look at its log"
        ) from error
    except (BotoCoreError, S3UploadFailedError, OSError) as error:
        raise ObjectStoreError(
            f"cannot reach the S3 service for `{uri}` ({type(error).__name__}); check the endpoint"
            " and the network"
        ) from error
