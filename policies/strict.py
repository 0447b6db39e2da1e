"""Strict readers: YAML and JSON text become plain JSON values, or are refused.

YAML is read from parser events, so nothing is resolved behind our back. Accepted: one document
of block or flow mappings and sequences; plain scalars `null`, `true`, `false` and decimal
integers as in YAML 1.2; everything else is text. Refused, each with its line: duplicate keys,
keys that are not text, merge keys, anchors, aliases, tags, directives, several documents, empty
values, `~`, and plain scalars that some YAML version reads as something else than text: floats,
dates, times, octal, hexadecimal, underscored numbers, `True`, `.nan`. Quote them to mean text.
Country code `NO` is text here, as in YAML 1.2 (in YAML 1.1 it is false).

JSON is `audit.canonical.parse`: no duplicate keys, floats, NaN, big integers, lone surrogates.

Source: YAML 1.2.2 §10.2 (core schema, 2021-10-01); YAML 1.1 type repository (2005).
"""

import functools
import io
import json
import re
from collections.abc import Iterator

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from audit.canonical import CanonicalError, JsonValue, canonical, parse

MAX_YAML_BYTES = 1_048_576
MAX_DEPTH = 64

_MAX_DIGITS = 20  # more than any integer that has a canonical form
_INTEGER = re.compile(r"(0|-?[1-9][0-9]*)\Z")
# Plain scalars that start like a number but are none of our integers: versions of YAML disagree.
_NUMBER_LIKE = re.compile(
    r"[-+]?(\.?[0-9][0-9_.,:xXoObBeE+a-fA-F-]*|\.(inf|Inf|INF|nan|NaN|NAN))\Z"
)
_DATE_LIKE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?\Z")
_CONSTANTS: dict[str, JsonValue] = {"null": None, "true": True, "false": False}
_REFUSED_WORDS = frozenset({"", "~", "<<", "=", "Null", "NULL", "True", "TRUE", "False", "FALSE"})


class StrictError(ValueError):
    """The text is not in the strict subset; the message names the line and the remedy."""


def parse_json(data: bytes) -> JsonValue:
    """Read strict JSON text.

    Raises:
        StrictError: whatever `audit.canonical.parse` refuses.
    """
    try:
        return parse(data)
    except CanonicalError as cause:
        raise StrictError(str(cause)) from cause


def parse_yaml(data: bytes) -> JsonValue:
    """Read one strict YAML document as a JSON value.

    Raises:
        StrictError: not UTF-8, over 1 MiB, not YAML, or outside the subset described above.
    """
    value: JsonValue = json.loads(_canonical_of(data))
    return value


@functools.lru_cache(maxsize=256)
def _canonical_of(data: bytes) -> bytes:
    """Parse once per text: a pure Python parser takes 20 ms for a rule."""
    if len(data) > MAX_YAML_BYTES:
        raise StrictError(f"document of {len(data)} bytes: expected at most {MAX_YAML_BYTES}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as cause:
        raise StrictError(f"not UTF-8 at byte {cause.start}") from cause
    reader = YAML(typ="safe", pure=True)
    try:
        return canonical(_document(iter(reader.parse(io.StringIO(text)))))
    except YAMLError as cause:
        summary = " ".join(str(cause).split())
        raise StrictError(f"not YAML: {summary}") from cause
    except (CanonicalError, RecursionError) as cause:
        raise StrictError(f"no canonical form: {cause}") from cause


def _document(events: Iterator[Event]) -> JsonValue:
    next(events)  # stream start
    first = next(events)
    if isinstance(first, StreamEndEvent):
        raise StrictError("empty document: expected a mapping")
    if isinstance(first, DocumentStartEvent) and (first.version or first.tags):
        raise _refuse(first, "directive", "remove the line that starts with `%`")
    value = _value(next(events), events, 0)
    next(events)  # document end
    after = next(events)
    if not isinstance(after, StreamEndEvent):
        raise _refuse(after, "second document", "put one document in one file")
    return value


def _value(event: Event, events: Iterator[Event], depth: int) -> JsonValue:
    if depth > MAX_DEPTH:
        raise _refuse(event, "nesting", f"expected at most {MAX_DEPTH} levels")
    if getattr(event, "anchor", None) is not None:
        raise _refuse(event, "anchor or alias", "write the value out")
    if getattr(event, "tag", None) is not None:
        raise _refuse(event, "tag", "remove it; types follow from the spelling")
    if isinstance(event, MappingStartEvent):
        return _mapping(events, depth)
    if isinstance(event, SequenceStartEvent):
        return _sequence(events, depth)
    assert isinstance(event, ScalarEvent)  # noqa: S101 — the parser's grammar leaves nothing else
    return _scalar(event)


def _mapping(events: Iterator[Event], depth: int) -> JsonValue:
    result: dict[str, JsonValue] = {}
    while not isinstance(event := next(events), MappingEndEvent):
        key = _value(event, events, depth + 1)
        if not isinstance(key, str):
            raise _refuse(event, "key that is not text", "quote it")
        if key in result:
            raise _refuse(event, f"duplicate key `{key}`", "expected each key once")
        result[key] = _value(next(events), events, depth + 1)
    return result


def _sequence(events: Iterator[Event], depth: int) -> JsonValue:
    result: list[JsonValue] = []
    while not isinstance(event := next(events), SequenceEndEvent):
        result.append(_value(event, events, depth + 1))
    return result


def _scalar(event: ScalarEvent) -> JsonValue:
    text = str(event.value)
    if event.style is not None:
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.match(text):
        if len(text) > _MAX_DIGITS:  # Python would refuse some thousands itself, less kindly
            raise _refuse(event, f"integer of {len(text)} digits", "quote it to mean text")
        return int(text)
    if text in _REFUSED_WORDS or _NUMBER_LIKE.match(text) or _DATE_LIKE.match(text):
        raise _refuse(event, f"ambiguous plain value `{text}`", "quote it to mean text")
    return text


def _refuse(event: Event, what: str, remedy: str) -> StrictError:
    mark = event.start_mark
    line = "?" if mark is None else str(mark.line + 1)
    return StrictError(f"line {line}: {what} is refused: {remedy}")
