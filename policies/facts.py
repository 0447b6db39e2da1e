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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from audit.canonical import CanonicalError
from policies.evaluator import Checker, Evaluator, Failure
from policies.memory import Written
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


@dataclass(frozen=True, slots=True)
class Checked:
    """Facts after the contract, and what breaks it: sorted pairs of JSON pointer and keyword.

    The keyword is one of JSON Schema or one of those above. What cannot be read at all (a float,
    NaN, a big integer, a lone surrogate, too much, not an object) has the bytes `null`.
    """

    encoded: bytes
    facts: Any
    members: Mapping[str, bytes]
    """The canonical bytes of each member of `facts`."""
    errors: Sequence[Failure]


def check(facts: Any, evaluator: Evaluator) -> Checked:
    """Check facts against the contract; any failure means that the gate denies.

    Facts come back in JSON's own Python types: the same object where it has no others.
    """
    try:
        return _checked(Written.of(facts), evaluator)
    except (CanonicalError, RecursionError):
        return _unreadable()


def check_bytes(data: bytes, evaluator: Evaluator) -> Checked:
    """Check facts that stand in a record, in any spelling."""
    try:
        return _checked(Written.read(data), evaluator)
    except (CanonicalError, RecursionError):
        return _unreadable()


def taken(facts: Any, errors: Sequence[Failure]) -> Checked:
    """Take facts as a record has them, with what it says that breaks the contract.

    Raises:
        CanonicalError: they have no canonical form.
    """
    written = Written.of(facts)
    return Checked(written.encoded, written.value, written.members, errors)


def _checked(written: Written, evaluator: Evaluator) -> Checked:
    data, plain, members = written.encoded, written.value, written.members
    if not isinstance(plain, dict) or len(data) > MAX_FACTS_BYTES:
        return _unreadable()
    if b"\\" in data:  # only a quote, a backslash or a control character needs an escape
        return Checked(data, plain, members, [("", CHARACTERS)])
    checker = _contract(evaluator)
    errors = [] if checker.is_valid(plain) else checker.failures(plain)
    return Checked(data, plain, members, errors)


def _unreadable() -> Checked:
    return Checked(b"null", None, {}, [("", UNREADABLE)])
