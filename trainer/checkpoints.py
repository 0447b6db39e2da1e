"""Checkpoints: adapter, optimizer and cursor as objects, committed by their manifest.

`<output>/checkpoints/step-00000020/` holds `adapter.safetensors`, `optimizer.safetensors`,
`state.json` (`trainer.progress`) and, written last and only if absent, `MANIFEST.json`:

    {"files":{"state.json":{"digest":"sha256:…","size_bytes":812},…},"format":"placet.checkpoint/1",
     "run_id":"run_…","spec_digest":"sha256:…","step":20}

A directory without a manifest does not exist. A checkpoint whose bytes are not what its manifest
says, or that belongs to another run or specification, is passed over for the next older one.
"""

from dataclasses import dataclass

from safetensors.torch import load, save
from torch import Tensor

from trainer.contract import Digest, canonical, digest, parse
from trainer.progress import Progress
from trainer.report import Artefact
from trainer.store import StoreError, get, store_for
from trainer.strict import ContractError, Reader, as_json

FORMAT = "placet.checkpoint/1"
MANIFEST = "MANIFEST.json"
FILES = ("adapter.safetensors", "optimizer.safetensors", "state.json")
MAX_BYTES = 64 << 30


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a run needs to go on: tensors by name, on the CPU, and the counters."""

    adapter: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    progress: Progress


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, output: str, *, run_id: str, spec_digest: Digest) -> None:
        self._root = f"{output}/checkpoints"
        self._run_id, self._spec_digest = run_id, spec_digest

    def write(self, checkpoint: Checkpoint, *, keep: int) -> str:
        """Write a checkpoint, then remove all but the newest `keep`; return its URI.

        Raises:
            OSError: when the store fails; the checkpoint then does not exist.
        """
        step = checkpoint.progress.step
        uri = f"{self._root}/step-{step:08d}"
        store = store_for(uri)
        bodies = {
            FILES[0]: save(checkpoint.adapter),
            FILES[1]: save(checkpoint.optimizer),
            FILES[2]: checkpoint.progress.to_bytes(),
        }
        store.delete(f"{uri}/{MANIFEST}")  # one that is here did not verify, or is as old as this
        for name, body in bodies.items():
            store.put(f"{uri}/{name}", body)
        files = {
            name: {"digest": digest(body), "size_bytes": len(body)} for name, body in bodies.items()
        }
        manifest = {
            "format": FORMAT,
            "run_id": self._run_id,
            "spec_digest": self._spec_digest,
            "step": step,
            "files": files,
        }
        # INVARIANT: the manifest is the commit, so it is written after all that it names.
        store.put_if_absent(f"{uri}/{MANIFEST}", canonical(as_json(manifest)))
        self._prune(keep)
        return uri

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint that verifies, or None."""
        for step in self._steps():
            checkpoint = self._read(step)
            if checkpoint is not None:
                return checkpoint
        return None

    def _steps(self) -> list[int]:
        names = [
            path.split("/")[0]
            for path in store_for(self._root).list(self._root)
            if path.endswith(f"/{MANIFEST}")
        ]
        return sorted((int(n.removeprefix("step-")) for n in names), reverse=True)

    def _read(self, step: int) -> Checkpoint | None:
        uri = f"{self._root}/step-{step:08d}"
        try:
            files = self._manifest(get(f"{uri}/{MANIFEST}", max_bytes=65_536), step)
            bodies = {}
            for name in FILES:
                bodies[name] = get(f"{uri}/{name}", max_bytes=files[name].size_bytes)
                if digest(bodies[name]) != files[name].digest:
                    return None
            return Checkpoint(
                adapter=load(bodies[FILES[0]]),
                optimizer=load(bodies[FILES[1]]),
                progress=Progress.from_bytes(bodies[FILES[2]]),
            )
        except (FileNotFoundError, StoreError, ContractError):
            return None

    def _manifest(self, data: bytes, step: int) -> dict[str, Artefact]:
        r = Reader(parse(data), "checkpoint")
        r.constant("format", FORMAT)
        r.constant("run_id", self._run_id)
        r.constant("spec_digest", self._spec_digest)
        r.integer("step", step, step)
        inner = r.inner("files")
        files = {}
        for name in FILES:
            f = inner.inner(name)
            files[name] = Artefact(
                digest=f.digest("digest"), size_bytes=f.integer("size_bytes", 0, MAX_BYTES)
            )
            f.close()
        inner.close()
        r.close()
        return files

    def _prune(self, keep: int) -> None:
        store = store_for(self._root)
        for step in self._steps()[keep:]:
            uri = f"{self._root}/step-{step:08d}"
            for name in (MANIFEST, *FILES):  # the manifest first: half a checkpoint is none
                store.delete(f"{uri}/{name}")
