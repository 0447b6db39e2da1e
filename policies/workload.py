"""What a fine-tune asks of a machine: FLOP and memory of a decoder, in integers, without floats.

Names: P parameters, L layers, h hidden width, f feed-forward width, V vocabulary, r adapter rank,
S longest row in tokens, T tokens trained over all epochs, k/a key-value heads per attention head.

    body     L (2 h² + 2 h² k/a + 3 h f)         linear layers of attention and gated feed-forward
    head     V h                                  output projection
    adapter  r L (9 h + 2 h k/a + 3 f)            LoRA on every linear layer of the body

    FLOP, architecture   6 P T                    the law's convention, whatever is frozen
    FLOP, executed       a token                  recomputing activations adds
      full               6 (body + head)          2 body
      lora, qlora        4 (body + head)          2 body + 2 adapter
                         + 6 adapter
      attention scores   7 L h S                  2 L h S

A frozen base needs no weight gradient, hence 4 and not 6. Rows held out for evaluation are scored
twice at 2 FLOP per parameter, which is what training on them would take, so T counts every row.

Memory of one GPU, in bytes; w is 2 for bf16 and 4 for fp32:

    weights      w P; qlora: body at NF4's bits, the rest at 2 bytes
    adapter      its weight, gradient and optimiser together (16 bytes for each parameter)
    gradients    full: w P
    optimiser    full: 12 P in bf16 (an fp32 copy and two moments), 8 P in fp32
    activations  w S L (4 f + 8.5 h), full 10.5 h; with checkpointing w S (h L + one layer's)
    logits       a chunk of rows times V times 10 bytes
    reserve      context and libraries of a GPU, and fragmentation on all terms

On several GPUs a model that fits one is copied to each; a larger one is sharded (FSDP): weights,
gradients and optimiser are divided, two layers are gathered at a time, adapters are copied.

Source: C(2025) 7719 section 2.3 (6 P D); QLoRA, arXiv 2305.14314 (NF4); own measurements of
FLOP and of bytes kept for the backward pass, as the rows of table `estimates` say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_INTEGER = 2**53 - 1
METHODS = ("lora", "qlora", "full")
FLOP_UNIT = 10**15
_MIB = 1 << 20
_GATHERED_LAYERS = 2


def up(value: int, by: int) -> int:
    """Divide, rounding up."""
    return -(-value // by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Dimensions of a decoder with gated feed-forward layers; all at least 1."""

    parameters: int
    layers: int
    hidden: int
    feed_forward: int
    vocabulary: int
    heads: int
    kv_heads: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Shape | None":
        """Read a base model's facts, or a row of `models`; None while a dimension is unknown.

        None as well when the dimensions ask for more linear parameters than the model has: then
        it is built in another way (an ungated feed-forward, for instance) and nothing follows.
        """
        names = {
            "parameters": "parameters",
            "layers": "layers",
            "hidden": "hidden_size",
            "feed_forward": "intermediate_size",
            "vocabulary": "vocabulary_size",
            "heads": "attention_heads",
            "kv_heads": "kv_heads",
        }
        values = {name: row.get(source) for name, source in names.items()}
        if any(not value for value in values.values()):
            return None
        shape = cls(**{name: int(value or 0) for name, value in values.items()})
        return shape if shape.body <= shape.parameters else None

    @property
    def body(self) -> int:
        """Count the parameters of the linear layers, without the output projection."""
        h = self.hidden
        attention = 2 * h * h + up(2 * h * h * self.kv_heads, self.heads)
        return self.layers * (attention + 3 * h * self.feed_forward)

    @property
    def head(self) -> int:
        """Count the parameters of the output projection."""
        return self.vocabulary * self.hidden

    def adapter(self, rank: int) -> int:
        """Count the parameters of LoRA of this rank on every linear layer of the body."""
        keys = up(2 * self.hidden * self.kv_heads, self.heads)
        return rank * self.layers * (9 * self.hidden + keys + 3 * self.feed_forward)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A fine-tune: what of a shape is trained, how, and on how long rows."""

    shape: Shape
    method: str
    """`lora`, `qlora` or `full`."""
    rank: int
    """Of the adapters; 0 when there are none."""
    row_tokens: int
    """Longest row, which is one micro-batch."""
    precision: str
    """`bf16` or `fp32`."""
    checkpointing: bool
    """Whether activations are computed again in the backward pass instead of kept."""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Workload | None":
        """Read the facts of a fine-tune; None while something that matters is unknown."""
        training, job = facts.get("training") or {}, facts.get("job") or {}
        method, precision = job.get("method"), training.get("precision")
        rank, rows = (training.get(name) or 0 for name in ("rank", "max_tokens"))
        checkpointing = training.get("gradient_checkpointing")
        is_known = method in METHODS and (method == "full" or rank) and rows
        if not is_known or precision is None or checkpointing is None:
            return None
        shape = Shape.of(facts.get("base_model") or {})
        if shape is None:
            return None
        return cls(
            shape=shape,
            method=str(method),
            rank=0 if method == "full" else rank,
            row_tokens=rows,
            precision=precision,
            checkpointing=checkpointing,
        )

    @property
    def adapter(self) -> int:
        """Count the parameters of the adapters."""
        return self.shape.adapter(self.rank)

    def executed_flop(self, tokens: int) -> int:
        """Return the FLOP that the hardware does for `tokens` trained tokens, an upper bound."""
        shape, again = self.shape, int(self.checkpointing)
        scores = (7 + 2 * again) * shape.layers * shape.hidden * self.row_tokens
        if self.method == "full":
            products = (6 + 2 * again) * shape.body + 6 * shape.head
        else:
            products = (4 + 2 * again) * shape.body + 4 * shape.head
            products += (6 + 2 * again) * self.adapter
        return tokens * (products + scores)


def architecture_flop_1e15(parameters: int, tokens: int) -> int:
    """Return 6 · P · T in units of 1e15 FLOP, rounded up.

    For adapters on a frozen base it is an upper bound, and it is what the guidelines ask for.

    Source: Commission guidelines on GPAI obligations, C(2025) 7719, section 2.3.
    """
    return up(6 * parameters * tokens, FLOP_UNIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on one GPU by term."""

    weights: int
    adapter: int
    gradients: int
    optimiser: int
    activations: int
    logits: int
    runtime: int
    fragmentation: int

    @property
    def total_mib(self) -> int:
        """Return the sum in MiB, rounded up."""
        terms = (getattr(self, name) for name in self.__slots__)
        return up(sum(terms), _MIB)


def memory(work: Workload, rows: Mapping[str, int], *, shards: int = 1) -> Memory:
    """Return what one GPU holds at most.

    Args:
        work: What is trained.
        rows: Values of table `estimates` by id.
        shards: GPUs over which weights, gradients and optimiser are divided; 1 divides nothing.

    Raises:
        KeyError: a row is missing.
    """
    shape, is_full = work.shape, work.method == "full"
    width = 2 if work.precision == "bf16" else 4
    weights = _weights(work, rows, width)
    if shards > 1:
        layers = min(_GATHERED_LAYERS, shape.layers) * width * up(shape.body, shape.layers)
        weights = up(weights, shards) + layers
    hidden = "activation_hidden_full_tenths" if is_full else "activation_hidden_tenths"
    layer = rows["activation_feed_forward_tenths"] * shape.feed_forward
    layer = width * work.row_tokens * (layer + rows[hidden] * shape.hidden)
    kept = width * work.row_tokens * shape.hidden * shape.layers
    terms = {
        "weights": weights,
        "adapter": rows["adapter_bytes"] * work.adapter,
        "gradients": up(width * shape.parameters, shards) if is_full else 0,
        "optimiser": up((12 if width == 2 else 8) * shape.parameters, shards) if is_full else 0,
        "activations": kept + up(layer, 10) if work.checkpointing else up(layer * shape.layers, 10),
        "logits": rows["logits_bytes"]
        * min(work.row_tokens, rows["logits_rows"])
        * shape.vocabulary,
        "runtime": rows["runtime_mib"] * _MIB,
    }
    fragmentation = up(sum(terms.values()) * rows["fragmentation_permille"], 1000)
    return Memory(**terms, fragmentation=fragmentation)


def _weights(work: Workload, rows: Mapping[str, int], width: int) -> int:
    if work.method != "qlora":
        return width * work.shape.parameters
    rest = work.shape.parameters - work.shape.body
    return up(work.shape.body * rows["nf4_millibits"], 8000) + 2 * rest
