"""What somebody asks an estimate for: numbers, a job document or facts become workloads.

A number may carry k, M, B or T (powers of 1000): `8B`, `20M`, `1.5B`. A base model is named by a
row of table `models`, by the row nearest to a number of parameters, or by its own `config.json`.
A job document (YAML) says how it is trained and where; facts (`placet.facts/1`) say all of it.
What is not said is chosen for each flavor, or assumed as `Asked` says.
"""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from policies.cost import CostError
from policies.estimate import Option, constants, option
from policies.reference import Reference, Row
from policies.workload import MAX_INTEGER, METHODS, Shape, Workload

FACTS_FORMAT = "placet.facts/1"
_NUMBER = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9}))?([kKmMbBtT]?)\Z")
_POWERS = {"": 0, "k": 3, "m": 6, "b": 9, "t": 12}
_NEAR = Fraction(1, 5)
_MOST_GPUS = 64  # beyond it nothing is one job any more
_PRECISIONS = ("bf16", "fp32")
_DIMENSIONS = (
    "parameters", "layers", "hidden_size", "intermediate_size", "vocabulary_size",
    "attention_heads", "kv_heads",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question; None is "not said", to be chosen for each flavor."""

    shape: Shape
    method: str = "lora"
    rank: int = 16
    row_tokens: int = 4096
    precision: str = "bf16"
    tokens: int = 0
    checkpointing: bool | None = None
    providers: tuple[str, ...] = ()
    flavor: str | None = None
    gpus: int | None = None
    from_scratch: bool = False
    max_minutes: int | None = None
    budget_cents: int | None = None

    def workload(self, *, checkpointing: bool) -> Workload:
        """Return the workload with or without recomputed activations."""
        return Workload(
            shape=self.shape,
            method=self.method,
            rank=0 if self.method == "full" else self.rank,
            row_tokens=self.row_tokens,
            precision=self.precision,
            checkpointing=checkpointing,
        )


@dataclass(frozen=True, slots=True)
class Offer:
    """An option, and whether it recomputes activations."""

    option: Option
    checkpointing: bool


def number(text: str, what: str) -> int:
    """Read a whole number from 1 to 2^53-1, with a power of 1000 as its last letter.

    Raises:
        CostError: anything else; zero and negative numbers too.
    """
    found = _NUMBER.match(text)
    value = Fraction(0)
    if found:
        whole, decimals, letter = found.groups()
        power = _POWERS[letter.lower()]
        value = Fraction(f"{whole}.{decimals or 0}") * 10**power
    if value.denominator != 1 or not 1 <= value <= MAX_INTEGER:
        raise CostError(
            f"{what}: expected a whole number from 1 to 2^53-1, as 20M or 8B, got `{text}`"
        )
    return int(value)


def model_shape(
    reference: Reference, *, model: str | None, parameters: int | None
) -> tuple[Shape, str]:
    """Find a shape in table `models`: by name, or the one nearest in parameters, within a fifth.

    Returns the shape and the name of its row.

    Raises:
        CostError: no such row; names those there are.
    """
    rows = reference.rows("models")
    known = ", ".join(f"{row['id']} ({row['parameters'] / 10**9:.3g}B)" for row in rows)
    if model is not None:
        row = next((row for row in rows if row["id"] == model), None)
        if row is None:
            raise CostError(f"--model {model}: there is no such row; known: {known}")
        return _shape(row, f"model {model}"), model
    if parameters is None or not rows:
        raise CostError("which base model? give --params 8B, --model ID or --config config.json")
    row = min(rows, key=lambda each: (abs(each["parameters"] - parameters), each["id"]))
    if abs(row["parameters"] - parameters) > parameters * _NEAR:
        raise CostError(
            f"--params: no shape within a fifth of {parameters}; known: {known};"
            " or give the model's own --config config.json"
        )
    return _shape(row, f"model {row['id']}"), str(row["id"])


def config_shape(data: bytes, parameters: int | None) -> Shape:
    """Read a shape from a model's `config.json`; it does not say how many parameters there are.

    Without a number they are counted from the dimensions, for a gated decoder.

    Raises:
        CostError: a dimension is missing or is no whole number from 1 to 2^53-1.
    """
    try:
        config: Any = json.loads(data)
    except (ValueError, RecursionError) as cause:
        raise CostError("--config: expected a model's config.json, in JSON") from cause
    names = {
        "layers": "num_hidden_layers",
        "hidden_size": "hidden_size",
        "intermediate_size": "intermediate_size",
        "vocabulary_size": "vocab_size",
        "attention_heads": "num_attention_heads",
    }
    row: dict[str, Any] = {}
    for name, source in names.items():
        row[name] = _dimension(config, source)
    row["kv_heads"] = (
        _dimension(config, "num_key_value_heads")
        if "num_key_value_heads" in config
        else row["attention_heads"]
    )
    shape = _shape({**row, "parameters": parameters or MAX_INTEGER}, "--config")
    outer = 1 if config.get("tie_word_embeddings") is True else 2
    counted = parameters or shape.body + outer * shape.head
    return _shape({**row, "parameters": counted}, "--config")


def _dimension(config: Any, name: str) -> int:
    value = config.get(name) if isinstance(config, dict) else None
    if type(value) is not int or not 1 <= value <= MAX_INTEGER:
        raise CostError(f"--config: expected `{name}`, a whole number of at least 1, got {value!r}")
    return value


def _shape(row: Mapping[str, Any], what: str) -> Shape:
    shape = Shape.of(row)
    if shape is None:
        raise CostError(
            f"{what}: its dimensions ask for more parameters than it has; only decoders with"
            " gated feed-forward layers can be estimated"
        )
    return shape


def said_in(document: Any) -> dict[str, Any]:
    """Read what a job document or facts say that an estimate needs; absent is not said.

    Raises:
        CostError: not an object, or a member that is no whole number or not one of the words.
    """
    if not isinstance(document, dict):
        raise CostError("job: expected a job document or facts, an object in YAML or JSON")
    parts = {name: _part(document, name) for name in ("job", "training", "compute", "cost")}
    base = {name: _count(_part(document, "base_model"), name) for name in _DIMENSIONS}
    is_facts = document.get("format") == FACTS_FORMAT
    job, training = (parts["job"], parts["training"]) if is_facts else (document, parts["training"])
    cost = parts["cost"] if is_facts else document
    compute = parts["compute"]
    on_cpu = compute.get("gpus") == 0
    found = {
        "method": _word(job if is_facts else training, "method", METHODS),
        "precision": _word(training, "precision", _PRECISIONS),
        "rank": _count(training, "rank"),
        "row_tokens": _count(training, "max_tokens"),
        "tokens": _count(training, "tokens"),
        "epochs": None if is_facts else _count(training, "epochs"),
        "checkpointing": _word(training, "gradient_checkpointing", (False, True)),
        "provider": _text(compute, "provider"),
        "flavor": _text(compute, "flavor"),
        "gpus": None if on_cpu else _count(compute, "gpus"),
        "on_cpu": True if on_cpu else None,
        "max_minutes": _count(job, "max_minutes"),
        "budget_cents": _count(cost, "budget_cents") if cost.get("budget_cents") != 0 else None,
        "from_scratch": True if job.get("from_scratch") is True else None,
        "shape": Shape.of(base),
    }
    return {name: value for name, value in found.items() if value is not None}


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = document.get(name)
    return part if isinstance(part, dict) else {}


def _count(part: Mapping[str, Any], name: str) -> int | None:
    value = part.get(name)
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= MAX_INTEGER:
        raise CostError(f"job: `{name}`: expected a whole number of at least 1, got {value!r}")
    return value


def _text(part: Mapping[str, Any], name: str) -> str | None:
    value = part.get(name)
    if value is not None and not isinstance(value, str):
        raise CostError(f"job: `{name}`: expected text, got {value!r}")
    return value


def _word(part: Mapping[str, Any], name: str, words: Sequence[Any]) -> Any:
    value = part.get(name)
    if value is not None and not any(value is word or value == word for word in words):
        said = ", ".join(map(str, words))
        raise CostError(f"job: `{name}`: expected one of {said}, got {value!r}")
    return value


def rows_for(asked: Asked, reference: Reference) -> list[Row]:
    """Return the flavors that are asked for, those with GPUs only.

    Raises:
        CostError: an unknown provider or flavor; names those there are.
    """
    every = [row for row in reference.rows("flavors") if row["gpu"] is not None]
    providers = sorted({str(row["provider"]) for row in every})
    unknown = [name for name in asked.providers if name not in providers]
    if unknown:
        raise CostError(
            f"there is no provider `{unknown[0]}` with GPU flavors; known: {', '.join(providers)}"
        )
    rows = [row for row in every if not asked.providers or row["provider"] in asked.providers]
    if asked.flavor is None:
        return rows
    chosen = [row for row in rows if row["flavor"] == asked.flavor]
    if not chosen:
        known = ", ".join(str(row["flavor"]) for row in rows)
        raise CostError(f"there is no GPU flavor `{asked.flavor}`; known: {known}")
    return chosen


def offer(asked: Asked, reference: Reference, row: Row) -> Offer:
    """Choose what is not said: the fewest GPUs, then kept rather than recomputed activations.

    What never fits is offered with all GPUs that a job may have and recomputed activations.
    """
    most = constants(reference)["gpus_max"]
    if not 1 <= most <= _MOST_GPUS:
        raise CostError(f"estimates.gpus_max: expected 1 to {_MOST_GPUS}, got {most}")
    counts = range(1, most + 1) if asked.gpus is None else (asked.gpus,)
    ways = (False, True) if asked.checkpointing is None else (asked.checkpointing,)
    for gpus, way in itertools.product(counts, ways):
        work = asked.workload(checkpointing=way)
        made = Offer(option(work, asked.tokens, reference, row, gpus), way)
        if made.option.fit is not None and made.option.fit.headroom_mib >= 0:
            break
    return made


def referral(asked: Asked, reference: Reference) -> str | None:
    """Say why a solutions architect has to plan this, or None when a team may ask for it."""
    most = constants(reference)["gpus_max"]
    if asked.from_scratch:
        return "training from scratch needs a solutions architect: it is a project of its own"
    if asked.gpus is not None and asked.gpus > most:
        return (
            f"{asked.gpus} GPUs need a solutions architect: the platform runs jobs on up to {most}"
        )
    return None
