"""Let foreign tools read what we publish: Go's checksum database code opens, proves and checks.

    python tests/interop/run.py        needs Go 1.19 and golang.org/x/mod (Debian: golang-go,
                                       golang-golang-x-mod-dev)

Logs of several sizes are published by the product's own code and signed with Ed25519 and ML-DSA-44;
the foreign code knows the first only, and ignores the second, as it should. It must accept every
log, and refuse each of them after one change. `proofbundle` and `aics-tlog` join in where Python is
new enough for them and they are installed.
"""

import base64
import importlib.util
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from audit.keys import Ed25519Signer, MlDsa44Signer
from audit.note import Checkpoint, sign_checkpoint
from audit.proof import write_proof
from audit.tiles import TileReader, build_tiles, paths_of

ORIGIN = "interop.example/log"
SIZES = (1, 2, 3, 255, 256, 257, 700, 65_536, 70_000)
_HERE = Path(__file__).parent


def publish(folder: Path, size: int, signers: tuple[Ed25519Signer, MlDsa44Signer]) -> None:
    """Publish a log of so many entries, with proofs of ours beside it."""
    rng = random.Random(size)
    entries = [rng.randbytes(rng.randrange(0, 400)) for _ in range(size)]
    grown = max(1, size // 3)  # in two steps, so that partial tiles are read back

    def read(path: str) -> bytes:
        return (folder / path).read_bytes()

    for old, new in ((0, entries[:grown]), (grown, entries[grown:])):
        for path, body in build_tiles(old, new, read):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(body)
    reader = TileReader(size, read)
    note = sign_checkpoint(Checkpoint(ORIGIN, size, reader.root()), signers, timestamp=1)
    (folder / "checkpoint").write_bytes(note)
    (folder / "proofs").mkdir()
    for index in {0, size - 1, size // 2, *(rng.randrange(size) for _ in range(20))}:
        proof = write_proof(index, reader.prove_inclusion(index), note)
        (folder / "proofs" / f"{index}.tlog-proof").write_bytes(proof)
    lines = []
    for old in sorted({1, size, *(rng.randrange(1, size + 1) for _ in range(20))}):
        hashes = [reader.range_hash(0, old), *reader.prove_consistency(old)]
        lines.append(" ".join([str(old), *(base64.b64encode(h).decode() for h in hashes)]))
    (folder / "consistency.txt").write_text("\n".join(lines) + "\n")


def spoiled(folder: Path) -> Iterator[tuple[str, Path, bytes]]:
    """Yield (what, file, its bytes with one bit changed) for one file of each kind.

    Nothing is changed that the foreign code does not look at: partial tiles of older sizes, and the
    line of a key that it does not know.
    """
    size = int((folder / "checkpoint").read_text().split("\n")[1])
    for path in paths_of(size):
        data = bytearray((folder / path).read_bytes())
        data[-1] ^= 1
        yield path, folder / path, bytes(data)
    for what, line in (("checkpoint", 2), ("proofs", 2), ("consistency.txt", 0)):
        path = folder / what
        path = next(path.iterdir()) if path.is_dir() else path
        lines = path.read_bytes().split(b"\n")
        changed = bytearray(lines[line])
        changed[-5] ^= 1
        lines[line] = bytes(changed)
        yield what, path, b"\n".join(lines)


def compiled(folder: Path) -> Path:
    """Build the Go program; GOPATH mode, since Debian packages x/mod as source."""
    go = shutil.which("go")
    if go is None:
        raise SystemExit("there is no `go`: install golang-go and golang-golang-x-mod-dev")
    program = folder / "oracle"
    more = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": str(folder / "cache")}
    subprocess.run(
        [go, "build", "-o", program, _HERE / "oracle.go"], check=True, env={**os.environ, **more}
    )
    return program


def main() -> int:
    """Run everything; ends with 1 when a foreign tool disagrees."""
    write: Callable[[str], object] = sys.stdout.write
    failures = 0
    signers = (Ed25519Signer.generate(ORIGIN), MlDsa44Signer.generate(ORIGIN))
    with tempfile.TemporaryDirectory(prefix="placet-interop-") as name:
        root = Path(name)
        program = compiled(root)
        for size in SIZES:
            folder = root / str(size)
            folder.mkdir()
            publish(folder, size, signers)
            asked = [program, folder, signers[0].vkey]
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            write(f"go x/mod sumdb: {(done.stdout or done.stderr).strip()}\n")
            failures += done.returncode != 0
            for what, path, data in spoiled(folder) if size in {3, 700} else ():
                before = path.read_bytes()
                path.write_bytes(data)
                done = subprocess.run(asked, capture_output=True, text=True, check=False)
                path.write_bytes(before)
                if done.returncode == 0:
                    write(f"go x/mod sumdb ACCEPTS a changed {what} in a log of {size}\n")
                    failures += 1
                else:
                    write(f"go x/mod sumdb refuses a changed {what} in a log of {size}\n")
    for peer in ("proofbundle", "aics_tlog"):
        if importlib.util.find_spec(peer) is None:
            write(f"{peer}: not installed, not asked\n")
    write(f"{failures} disagreements\n")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
