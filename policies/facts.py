"""The facts contract `placet.facts/1`: a closed, typed document, all that a rule may see.

The specification is `schema/facts.json` (raw facts) and `schema/derived.json` (what the gate
computes from them and shows to rules under `/derived`). A member that is null or absent is
unknown. There are no floats and no free text: every string is a code, an identifier, a digest
or a licence expression, so look-alike letters, spaces and control characters are refused.

    {"format": "placet.facts/1", "stage": "train",
     "job": {"id": "job_01", "kind": "fine_tune", "max_minutes": 30, "from_scratch": false},
     "datasets": [{"id": "ds_01", "categories_declared": ["public"], "provider": "ovhcloud", …}]}

A request that brings its own `derived` is refused like any other unknown member.
"""

import functools
import json
from importlib import resources
from typing import Any

from audit.canonical import CanonicalError, canonical
from policies.evaluator import Checker, Evaluator, Failure
from policies.memory import Pieces, is_canonical
from policies.strict import StrictError, parse_json, parse_yaml

FORMAT = "placet.facts/1"
MAX_FACTS_BYTES = 262_144

# Keywords that the contract reports beside those of JSON Schema.
UNREADABLE = "document"  # not an object with a canonical form of at most MAX_FACTS_BYTES
CHARACTERS = "characters"  # a quote, a backslash or a control character somewhere


class FactsError(ValueError):
    """The text is not a facts document that could be judged at all."""


@functools.cache
def schema(name: str) -> dict[str, Any]:
    """Return one of the schemas in `schema/`, without its annotations that are not rules."""
    text = resources.files("policies").joinpath("schema", f"{name}.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@functools.cache
def catalogue() -> dict[str, Any]:
    """Return the schema of what rules see: the raw facts plus `derived`."""
    raw = schema("facts")
    return {**raw, "properties": {**raw["properties"], "derived": schema("derived")}}


@functools.cache
def _contract(evaluator: Evaluator) -> Checker:
    return evaluator.compile(schema("facts"))


def parse_facts(data: bytes, *, syntax: str = "json") -> dict[str, Any]:
    """Read a facts document from strict JSON or YAML; it is *not* yet checked by the contract.

    Raises:
        FactsError: the text is refused by the strict reader, or is not an object.
    """
    try:
        value = parse_yaml(data) if syntax == "yaml" else parse_json(data)
    except StrictError as cause:
        raise FactsError(f"facts: {cause}") from cause
    if not isinstance(value, dict):
        raise FactsError(f"facts: expected an object, got {type(value).__name__}")
    return value


def contract_errors(
    facts: Any, evaluator: Evaluator, spelling: bytes | None = None
) -> tuple[bytes, Any, list[Failure]]:
    """Check facts against the contract; any failure means that the gate denies.

    Returns the canonical bytes, the facts in JSON's own Python types (the same object where it
    has no others), and the failures, sorted: pairs of a JSON pointer and a keyword of JSON
    Schema or one of the keywords above. What cannot be read (a float, NaN, a big integer, a
    lone surrogate, too much, not an object) gives "null". Where `facts` were just made from
    bytes by `memory.read`, `spelling` is these bytes: canonical, they need not be written again.
    """
    try:
        data, plain = _read(facts, spelling)
    except (CanonicalError, RecursionError):
        data, plain = b"null", None
    if not isinstance(plain, dict) or len(data) > MAX_FACTS_BYTES:
        return b"null", None, [("", UNREADABLE)]
    if b"\\" in data:  # only a quote, a backslash or a control character needs an escape
        return data, plain, [("", CHARACTERS)]
    checker = _contract(evaluator)
    return data, plain, [] if checker.is_valid(plain) else checker.failures(plain)


@functools.cache
def _pieces() -> Pieces:
    return Pieces(schema("facts")["properties"], depth=1)


def _read(facts: Any, spelling: bytes | None) -> tuple[bytes, Any]:
    """Return canonical bytes, as deep as in the record, and plain types."""
    if spelling is not None and is_canonical(spelling, facts):
        return spelling, facts
    if type(facts) is dict and (written := _pieces().write(facts)) is not None:
        return written[0], facts
    data = canonical([facts])[1:-1]
    return data, json.loads(data)  # tuples and subclasses are gone
