"""What a run would do and cost, without a GPU and without loading the model: what an approver sees.

`placet.plan/1`, one JSON object:

    {"format":"placet.plan/1","spec_digest":"sha256:…","ledger":{"rows":360,…},"num_steps":18,
     "tokens":72000,"targets":30000,"flop":{"architecture":"58000000000000","executed":"35…"},
     "memory_bytes":{"weights":538060032,"adapter":78151680,…,"total":4100000000},
     "device":"cpu","device_memory_bytes":null,"fits":null,"estimated_minutes":6,
     "estimated_kwh":null,"notes":["…"]}

Dataset and base model are verified as for training. Memory follows the terms of a decoder with
gated feed-forward layers, adapters in the base's type and no recomputation: weights; 16 bytes for
each adapter parameter (fp32 weight, gradient and two moments); for each token and layer
(4 f + 8.5 h) values kept for the backward pass; logits of at most 1024 rows; libraries and 5 % on
top. Time is executed FLOP over a sustained rate that is an assumption of this table, not a
measurement, so minutes are rounded up and good to a factor of two.
"""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from trainer.contract import JobSpec, digest
from trainer.intake import open_base_model, read_dataset
from trainer.meter import Size, architecture_flop, executed_flop
from trainer.model_files import load_tokenizer
from trainer.prepare import planned_work, prepare
from trainer.refusal import Reason, RefusedError
from trainer.strict import JsonValue, as_json, decimal_text

FORMAT = "placet.plan/1"
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Device:
    """Sustained rate (FLOP/s, bf16 but on `cpu`), memory (bytes) and board power (W), or None."""

    flop_per_s: float
    memory_bytes: int | None
    watts: int | None


# Sustained = 0.38 of the maker's dense bf16 peak: what published LoRA runs on one H100 reach.
# `cpu` is two AVX2 cores in fp32.
DEVICES = {
    "cpu": Device(1.2e11, None, None),
    "l4": Device(0.38 * 121e12, 24 * GIB, 72),
    "l40s": Device(0.38 * 362e12, 48 * GIB, 350),
    "a100": Device(0.38 * 312e12, 80 * GIB, 400),
    "h100": Device(0.38 * 989e12, 80 * GIB, 700),
    "h200": Device(0.38 * 989e12, 141 * GIB, 700),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """Dimensions of a decoder: parameters, layers, hidden and feed-forward width, vocabulary."""

    size: Size
    layers: int
    hidden: int
    feed_forward: int
    vocabulary: int


def plan(spec_bytes: bytes, *, device: str, scratch: Path, poll: Callable[[], None]) -> JsonValue:
    """Return the plan of a specification.

    Args:
        spec_bytes: The specification.
        device: A key of `DEVICES`.
        scratch: Where a base model from S3 is copied to.
        poll: Called in every loop; may raise.

    Raises:
        RefusedError: for whatever would refuse the run before its first update.
    """
    spec = JobSpec.from_bytes(spec_bytes)
    base_dir = open_base_model(spec.base_model_uri, spec.base_model_digest, scratch, poll)
    _, rows = read_dataset(spec.dataset_manifest_uri, spec.dataset_digest, poll)
    prepared = prepare(spec, rows, load_tokenizer(base_dir), poll)
    tokens, targets = planned_work(prepared, spec)
    shape = read_shape(base_dir, rank=spec.adapter.rank)
    executed = executed_flop(
        shape.size,
        tokens=tokens,
        targets=targets,
        tokens_evaluated=2 * prepared.ledger["tokens_eval"],
        targets_evaluated=2 * prepared.ledger["targets_eval"],
    )
    pack_tokens = max(pack.num_tokens for pack in prepared.train)
    memory = memory_terms(shape, precision=spec.precision, pack_tokens=pack_tokens)
    target = DEVICES[device]
    seconds = executed / target.flop_per_s
    kwh = None if target.watts is None else decimal_text(seconds * target.watts / 3.6e6, 6)
    fits = None if target.memory_bytes is None else memory["total"] <= target.memory_bytes * 0.93
    return as_json(
        {
            "format": FORMAT,
            "spec_digest": digest(spec_bytes),
            "ledger": prepared.ledger,
            "num_steps": prepared.num_steps,
            "tokens": tokens,
            "targets": targets,
            "num_parameters": shape.size.total,
            "num_adapter_parameters": shape.size.adapter,
            "flop": {
                "architecture": str(architecture_flop(shape.size, tokens=tokens)),
                "executed": str(executed),
            },
            "memory_bytes": memory,
            "device": device,
            "device_memory_bytes": target.memory_bytes,
            "fits": fits,
            "estimated_minutes": int(seconds // 60) + 1,
            "estimated_kwh": kwh,
            "notes": notes(spec, device=device, minutes=int(seconds // 60) + 1),
        }
    )


def notes(spec: JobSpec, *, device: str, minutes: int) -> list[str]:
    """Return sentences that an approver should read."""
    found = []
    if minutes > spec.max_minutes:
        found.append(
            f"about {minutes} minutes are estimated, limits.max_minutes is {spec.max_minutes}: "
            "the run would be stopped"
        )
    if device == "cpu" and spec.precision == "bf16" and not has_native_bf16():
        found.append(
            "this processor has no bf16 instructions: fp32 would be about five times faster"
        )
    return found


def has_native_bf16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Say whether the processor multiplies bf16 in hardware; no where that cannot be read."""
    try:
        words = set(cpuinfo.read_text(encoding="utf-8").split())
    except OSError:
        return False
    return bool(words & {"avx512_bf16", "amx_bf16", "bf16"})


def memory_terms(shape: Shape, *, precision: str, pack_tokens: int) -> dict[str, int]:
    """Return bytes by term for one pack of `pack_tokens` tokens at a time."""
    width = 2 if precision == "bf16" else 4
    terms = {
        "weights": width * shape.size.total,
        "adapter": 16 * shape.size.adapter,
        "activations": round(
            width * pack_tokens * shape.layers * (4 * shape.feed_forward + 8.5 * shape.hidden)
        ),
        "head": 10 * min(pack_tokens, 1024) * shape.vocabulary,
        "libraries": 2 * GIB,
    }
    terms["total"] = round(sum(terms.values()) * 1.05)
    return terms


def read_shape(directory: Path, *, rank: int) -> Shape:
    """Read a model's dimensions from its config and its safetensors headers; loads no weight.

    Raises:
        RefusedError: when the directory is not a safetensors model we know how to read.
    """
    try:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        shapes: dict[str, list[int]] = {}
        for path in sorted(directory.glob("*.safetensors")):
            shapes |= _tensor_shapes(path)
        layers, hidden = int(config["num_hidden_layers"]), int(config["hidden_size"])
        feed_forward, vocabulary = int(config["intermediate_size"]), int(config["vocab_size"])
        outer = ("lm_head.weight", "embed_tokens.weight")
        linear = [s for name, s in shapes.items() if len(s) == 2 and not name.endswith(outer)]
        total = sum(_product(s) for s in shapes.values())
    except (OSError, ValueError, KeyError, TypeError, struct.error) as cause:
        raise RefusedError(
            Reason.BASE_MODEL_UNREADABLE,
            f"expected config.json and safetensors of a decoder, got otherwise ({cause!r}); "
            "convert the base model",
        ) from cause
    size = Size(
        total=total,
        body=sum(_product(s) for s in linear),
        head=vocabulary * hidden,
        adapter=rank * sum(out + inner for out, inner in linear),
    )
    return Shape(size, layers, hidden, feed_forward, vocabulary)


def _tensor_shapes(path: Path) -> dict[str, list[int]]:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > 100_000_000:
            raise ValueError(f"expected a safetensors header in `{path.name}`, got {length} bytes")
        header = json.loads(file.read(length))
    return {
        name: cast("list[int]", entry["shape"])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _product(shape: list[int]) -> int:
    product = 1
    for length in shape:
        product *= length
    return product


def render_text(document: JsonValue) -> str:
    """Return a plan as lines for people: member and value, nested members indented."""
    lines: list[str] = []

    def walk(value: JsonValue, indent: str) -> None:
        if not isinstance(value, dict):
            return
        for name, inner in value.items():
            if isinstance(inner, dict):
                lines.append(f"{indent}{name}")
                walk(inner, indent + "  ")
            else:
                shown = "; ".join(map(str, inner)) if isinstance(inner, list) else inner
                shown = "unknown" if shown is None else shown
                lines.append(f"{indent}{name:<{28 - len(indent)}}{shown}")

    walk(document, "")
    return "\n".join(lines) + "\n"
