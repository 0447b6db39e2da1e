"""What a value of each kind looks like, and nothing about what it means.

| kind     | value                                                          |
|----------|----------------------------------------------------------------|
| line     | text in one line, 1 to 500 characters                          |
| text     | text, 1 to 8,000 characters                                    |
| code     | an id: letters, digits, `._:/@-`, 1 to 200 characters          |
| digest   | `sha256:` and 64 hexadecimal digits                            |
| integer  | whole number from 0 to 2^53 - 1                                |
| decimal  | decimal string such as "0.0002", at most 60 characters         |
| instant  | `YYYY-MM-DDThh:mm:ssZ`                                         |
| lines    | list of at most 200 lines; empty means "none", and is an answer |
| integers | list of at most 200 whole numbers                              |
| table    | 1 to 200 named texts                                           |

Texts may hold anything a person can type; making them harmless is the renderer's work. Lone
surrogates are refused, because such text has no bytes.
"""

import re
from datetime import datetime
from typing import Final, TypeAlias

from audit.canonical import MAX_INT, is_digest

Value: TypeAlias = str | int | list[str] | list[int] | dict[str, str]

MAX_LINE: Final = 500
MAX_TEXT: Final = 8_000
MAX_ITEMS: Final = 200
_CODE = re.compile(r"[A-Za-z0-9._:/@-]{1,200}")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,40})(?:\.[0-9]{1,18})?")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def fault(kind: str, value: object) -> str | None:
    """Say what is wrong with `value` as a value of `kind`, or return None when it is right."""
    if kind in _SCALARS:
        expected, accepts = _SCALARS[kind]
        return None if accepts(value) else f"expected {expected}, got {_describe(value)}"
    if kind == "table":
        return _table_fault(value)
    item, expected = ("line", "texts") if kind == "lines" else ("integer", "whole numbers")
    if not isinstance(value, list) or len(value) > MAX_ITEMS:
        return f"expected a list of at most {MAX_ITEMS} {expected}, got {_describe(value)}"
    return next((found for part in value if (found := fault(item, part))), None)


def is_empty(value: object) -> bool:
    """Say whether a value says nothing: blank text or an empty table.

    An empty list is not empty in this sense: "no prohibited practices" is an answer.
    """
    return value == {} or (isinstance(value, str) and not value.strip())


def is_date(value: object) -> bool:
    """Say whether `value` is a calendar day written `YYYY-MM-DD`."""
    return isinstance(value, str) and bool(_DATE.fullmatch(value)) and _exists(value)


def is_instant(value: object) -> bool:
    """Say whether `value` is a moment written `YYYY-MM-DDThh:mm:ssZ`."""
    return isinstance(value, str) and bool(_INSTANT.fullmatch(value)) and _exists(value)


def is_line(value: object) -> bool:
    """Say whether `value` is text of 1 to 500 characters with no line break and no surrogate."""
    return _is_text(value, MAX_LINE) and isinstance(value, str) and len(value.splitlines()) == 1


def is_code(value: object) -> bool:
    """Say whether `value` is an id."""
    return isinstance(value, str) and bool(_CODE.fullmatch(value))


def is_count(value: object) -> bool:
    """Say whether `value` is a whole number from 0 to 2^53 - 1."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INT


def _is_long_text(value: object) -> bool:
    return _is_text(value, MAX_TEXT)


def _is_decimal(value: object) -> bool:
    return isinstance(value, str) and bool(_DECIMAL.fullmatch(value))


_SCALARS: Final = {
    "line": (f"one line of 1 to {MAX_LINE} characters", is_line),
    "text": (f"text of 1 to {MAX_TEXT} characters", _is_long_text),
    "code": ("an id of letters, digits and ._:/@-", is_code),
    "digest": ('"sha256:" and 64 hexadecimal digits', is_digest),
    "integer": ("a whole number from 0 to 2^53 - 1", is_count),
    "decimal": ('a decimal string such as "0.0002"', _is_decimal),
    "instant": ("an instant such as 2026-11-30T09:00:00Z", is_instant),
}
KINDS: Final = (*_SCALARS, "lines", "integers", "table")


def _is_text(value: object, most: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= most and _has_bytes(value)


def _has_bytes(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _exists(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _table_fault(value: object) -> str | None:
    if not isinstance(value, dict) or not 0 < len(value) <= MAX_ITEMS:
        return f"expected a table of 1 to {MAX_ITEMS} named texts, got {_describe(value)}"
    for name, text in value.items():
        if not is_line(name):
            return f"expected names of one line, got {_describe(name)}"
        if not _is_long_text(text):
            return f"expected texts of 1 to {MAX_TEXT} characters, got {_describe(text)}"
    return None


def _describe(value: object) -> str:
    if isinstance(value, str):
        return f"{value[:40]!a} of {len(value)} characters"
    if isinstance(value, list | dict):
        return f"a {type(value).__name__} of {len(value)}"
    return f"{type(value).__name__} {ascii(value)[:40]}"
