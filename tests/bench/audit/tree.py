"""Tiles, proofs, verification and exports of one large log, all without a database."""

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rows import Row, spread

from audit.bundle import open_bundle
from audit.event import Actor, Event, EventKind, to_bytes
from audit.keys import Ed25519Signer, MlDsa44Signer, VerifyKey
from audit.merkle import check_consistency, leaf_hashes, root_from_inclusion
from audit.note import Checkpoint, open_note, sign_checkpoint
from audit.proof import parse_proof, write_proof
from audit.tiles import TileReader, build_tiles
from audit.verify import verify
from audit.writing import write_bundle

ORIGIN = "bench.example/log"
BATCH = 65_536
_PROOFS = 500


_DIGITS = b"0" * 26
_TEMPLATE = to_bytes(
    Event(
        id=f"evt_{_DIGITS.decode()}",
        log=ORIGIN,
        at="2026-12-01T12:00:00.000Z",
        actor=Actor(kind="service", ref="placet", auth="internal"),
        action=EventKind.REQUEST_REFUSED,
        resource="request:bench",
        outcome="denied",
        data={"problem": "forbidden", "route": "GET /v1/jobs"},
    )
)


def entries(first: int, count: int) -> list[bytes]:
    """Return entries of about 300 bytes, each another one, that keep the form of the log."""
    return [_TEMPLATE.replace(_DIGITS, b"%026d" % number) for number in range(first, first + count)]


def measured(arguments: argparse.Namespace) -> Iterator[Row]:
    """Measure everything about one log."""
    with tempfile.TemporaryDirectory(prefix="placet-bench-") as folder:
        root = Path(folder)
        yield from _built(root, arguments.leaves)
        read = _reader(root)
        yield from _proofs(read, arguments.leaves)
        yield from _export(root, arguments.leaves)
    yield from _pymerkle()


def _reader(root: Path):
    return lambda path: (root / path).read_bytes()


def _built(root: Path, leaves: int) -> Iterator[Row]:
    """Build all tiles in batches, as a publisher does, and write them without syncing."""
    done, hashing, writing = 0, 0.0, 0.0
    read = _reader(root)
    while done < leaves:
        batch = entries(done, min(BATCH, leaves - done))
        start = time.perf_counter()
        tiles = list(build_tiles(done, batch, read))
        hashing += time.perf_counter() - start
        start = time.perf_counter()
        for path, body in tiles:
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(body)
        writing += time.perf_counter() - start
        done += len(batch)
    yield Row("tiles built and hashed, in memory", per_s=leaves / hashing)
    yield Row("tiles built, hashed and written, not synced", per_s=leaves / (hashing + writing))


def _proofs(read, size: int) -> Iterator[Row]:
    """Measure proofs with a new reader for each, as the service makes them, and checking them."""
    rng = random.Random(1)
    root = TileReader(size, read).root()
    ed25519, mldsa = Ed25519Signer.generate(ORIGIN), MlDsa44Signer.generate(ORIGIN)
    note = sign_checkpoint(Checkpoint(ORIGIN, size, root), [ed25519, mldsa], timestamp=1)
    keys = [VerifyKey.parse(signer.vkey) for signer in (ed25519, mldsa)]
    taken, consistent, checked = [], [], []
    for _ in range(_PROOFS):
        index = rng.randrange(size)
        start = time.perf_counter()
        proof = TileReader(size, read).prove_inclusion(index)
        taken.append(time.perf_counter() - start)
        leaf = TileReader(size, read).leaf(index)
        text = write_proof(index, proof, note)
        start = time.perf_counter()
        parsed = parse_proof(text)
        opened = open_note(parsed.checkpoint, keys)
        if root_from_inclusion(parsed.index, size, leaf, parsed.hashes) != root or not opened:
            raise SystemExit("a proof does not hold")
        checked.append(time.perf_counter() - start)
        old = rng.randrange(1, size)
        start = time.perf_counter()
        path = TileReader(size, read).prove_consistency(old)
        consistent.append(time.perf_counter() - start)
        check_consistency(old, size, path, TileReader(size, read).range_hash(0, old), root)
    yield spread("inclusion proof from files", taken, more=f"{size:,} leaves")
    yield spread("consistency proof from files", consistent, more=f"{size:,} leaves")
    yield spread("check of a proof with both signatures", checked)


def _export(root: Path, size: int) -> Iterator[Row]:
    """Measure an export in a process of its own, for its memory, and its verification."""
    bundle = root / "export.zip"
    start = time.perf_counter()
    child = subprocess.run(
        [sys.executable, __file__, "export", str(root), str(size), str(bundle)],
        check=True,
        capture_output=True,
        text=True,
    )
    taken = time.perf_counter() - start
    inner, mib = child.stdout.split()
    what = f"export of {size:,} entries, {bundle.stat().st_size >> 20} MiB"
    yield Row(what, per_s=size / float(inner), more=f"{taken:.1f} s, {mib} MiB of memory")
    start = time.perf_counter()
    with open_bundle(bundle) as opened:
        for _, group in opened.entry_groups():
            leaf_hashes(group)
    hashed = time.perf_counter() - start
    yield Row("entries read and hashed from an export", per_s=size / hashed)
    key = (root / "vkey").read_text()
    start = time.perf_counter()
    report = verify(bundle, [key])
    taken = time.perf_counter() - start
    exit_code = int(report.exit_code)
    yield Row(
        "verification of an export, all levels",
        per_s=size / taken,
        more=f"{taken:.1f} s, exit {exit_code}",
    )


def _exporting(root: Path, size: int, out: Path) -> None:
    read = _reader(root)
    signer = Ed25519Signer.generate(ORIGIN)
    (root / "vkey").write_text(signer.vkey)
    note = sign_checkpoint(Checkpoint(ORIGIN, size, TileReader(size, read).root()), [signer])
    start = time.perf_counter()
    with out.open("wb") as file:
        write_bundle(
            file,
            checkpoint=note,
            tiles=read,
            objects={},
            signer=signer,
            verifier=b"# the verifier\n",
            manifest_fields={},
        )
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    sys.stdout.write(f"{time.perf_counter() - start:.3f} {mib}")


def _pymerkle() -> Iterator[Row]:
    with suppress(ImportError):
        from pymerkle import InmemoryTree, SqliteTree  # a peer, if it is there

        batch = entries(0, 100_000)
        memory = InmemoryTree(algorithm="sha256")
        start = time.perf_counter()
        for entry in batch:
            memory.append_entry(entry)
        yield Row("pymerkle, in memory: append", per_s=len(batch) / (time.perf_counter() - start))
        with tempfile.TemporaryDirectory() as folder:
            stored = SqliteTree(f"{folder}/tree.db", algorithm="sha256")
            stored.append_entries(batch[:50_000])
            rng, taken = random.Random(1), []
            for _ in range(100):
                index = rng.randrange(1, 50_000)
                start = time.perf_counter()
                stored.prove_inclusion(index)
                taken.append(time.perf_counter() - start)
        yield spread("pymerkle, SQLite, 50,000 leaves: inclusion proof", taken)


if __name__ == "__main__" and sys.argv[1:2] == ["export"]:
    _exporting(Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
