"""One `Objects` over several, chosen by the URI's scheme."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from service.objects.protocol import ObjectRefusedError, Objects, Stored


class RoutedObjects:
    """`Objects` that passes each call to the store of the URI's scheme.

    Args:
        by_scheme: For example `{"file": FileObjects(…), "s3": S3Objects(…)}`.
    """

    def __init__(self, by_scheme: Mapping[str, Objects]) -> None:
        self._by_scheme = dict(by_scheme)

    def put(self, uri: str, data: bytes | Path) -> Stored:
        """See `Objects.put`."""
        return self._store(uri).put(uri, data)

    def put_if_absent(self, uri: str, data: bytes | Path) -> Stored:
        """See `Objects.put_if_absent`."""
        return self._store(uri).put_if_absent(uri, data)

    def get(self, uri: str, *, expected: str | None = None) -> bytes:
        """See `Objects.get`."""
        return self._store(uri).get(uri, expected=expected)

    def open(self, uri: str) -> BinaryIO:
        """See `Objects.open`."""
        return self._store(uri).open(uri)

    def measure(self, uri: str) -> Stored:
        """See `Objects.measure`."""
        return self._store(uri).measure(uri)

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        """See `Objects.list`."""
        return self._store(prefix).list(prefix)

    def delete(self, uri: str) -> None:
        """See `Objects.delete`."""
        self._store(uri).delete(uri)

    def endpoint_of(self, uri: str) -> str:
        """See `Objects.endpoint_of`."""
        return self._store(uri).endpoint_of(uri)

    def _store(self, uri: str) -> Objects:
        scheme = uri.partition("://")[0]
        store = self._by_scheme.get(scheme)
        if store is None:
            known = ", ".join(f"{name}://" for name in sorted(self._by_scheme)) or "none"
            raise ObjectRefusedError(
                f"no store is set up for `{uri!r}`; this installation knows {known}"
            )
        return store
