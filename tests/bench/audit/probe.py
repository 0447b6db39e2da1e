"""What the machine can do: hashing, and bringing bytes to the disk."""

import argparse
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rows import Row, spread


def measured(_arguments: argparse.Namespace) -> Iterator[Row]:
    """Measure SHA-256 of a node, and fdatasync of 4 KiB."""
    node, count = b"\x01" + bytes(64), 300_000
    start = time.perf_counter()
    for _ in range(count):
        hashlib.sha256(node).digest()
    yield Row("probe: SHA-256 of 65 bytes", per_s=count / (time.perf_counter() - start))
    yield spread("probe: fdatasync of 4 KiB", list(_syncs(200)))


def _syncs(count: int) -> Iterator[float]:
    with tempfile.TemporaryDirectory() as folder:
        descriptor = os.open(Path(folder) / "probe", os.O_RDWR | os.O_CREAT)
        try:
            for _ in range(count):
                os.write(descriptor, os.urandom(4096))
                start = time.perf_counter()
                os.fdatasync(descriptor)
                yield time.perf_counter() - start
        finally:
            os.close(descriptor)
