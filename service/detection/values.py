"""What a row of data says, as one text: every string, number and name in it, however nested."""

import json
from datetime import date, time
from functools import lru_cache
from typing import Any

from pydantic_core import from_json

_SCALARS = (int, float, date, time)
_LEAST_FIGURES = 100_000  # a smaller number cannot be anybody's
_MAX_NESTED = 3
_ESCAPES = ((b"\\n", b"\n"), (b'\\"', b'"'), (b"\\t", b"\t"), (b"\\r", b"\r"))


def parsed(line: bytes) -> Any:
    """Read one JSON value.

    Raises:
        ValueError: it is none, or no UTF-8.
    """
    try:
        return from_json(line, cache_strings="keys")
    except ValueError:
        # The fast reader refuses half surrogates, which Python's and the trainer's accept.
        return json.loads(line)


def said(value: Any) -> str:
    """Return what a value says, one line for each string or number, with its name before it.

    Names matter: `{"phone": "0612345678"}` is a telephone number by its name. A string that is
    itself JSON is read, too. Cost is linear in the value.
    """
    parts: list[str] = []
    stack: list[tuple[str, Any, int]] = [("", value, 0)]
    while stack:
        name, item, depth = stack.pop()
        kind = type(item)
        if kind is str:
            if item[:1] in ("{", "[") and depth < _MAX_NESTED and _is_json(inner := _nested(item)):
                stack.append((name, inner, depth + 1))
            else:
                parts.append(f"{name}: {item}" if name else item)
        elif kind is dict:
            stack += [(_spoken(key), each, depth) for key, each in reversed(item.items())]
        elif kind is list or kind is tuple:
            stack += [(name, each, depth) for each in reversed(item)]
        elif kind is bytes:
            parts.append(f"{name}: {item.decode('utf-8', 'ignore')}")
        elif isinstance(item, _SCALARS) and _may_matter(item):
            parts.append(f"{name}: {item}")
        elif len(name) > 5:
            parts.append(name)
    return "\n".join(parts)


def said_by(line: bytes, value: Any) -> str:
    """Return what a line of JSON says, given the value that it parses to.

    A line without rare escapes is its own text once each string stands on a line of its own, at a
    tenth of the cost of walking the value. The result reads as `said(value)` does, with marks
    of JSON around it.
    """
    if b"_" in line:
        return said(value)
    if b"\\" in line:
        if b"\\\\" in line:
            return said(value)
        for escaped, plain in _ESCAPES:
            line = line.replace(escaped, plain)
        if b"\\" in line:
            return said(value)
    try:
        return (
            line.replace(b'","', b'"\n"').replace(b'", "', b'"\n"').replace(b'"},', b'"\n').decode()
        )
    except UnicodeDecodeError:
        return said(value)


def language_of(row: Any) -> str | None:
    """Return the language that a row's own field names, if any."""
    found = row.get("language") if type(row) is dict else None
    return found[:12] if isinstance(found, str) else None


@lru_cache(maxsize=4096)
def _spoken(name: object) -> str:
    return str(name).replace("_", " ")


def _may_matter(item: object) -> bool:
    return not isinstance(item, int) or abs(item) >= _LEAST_FIGURES


def _is_json(value: Any) -> bool:
    return isinstance(value, dict | list)


def _nested(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return None
