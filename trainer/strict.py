r"""Canonical JSON bytes and a strict reader for the trainer's documents; standard library only.

Every document that is digested or signed is JSON in the subset of RFC 8785 (JCS) without floats:
members sorted by UTF-16 code units, no white space, integers within ±(2^53 - 1), text without
lone surrogates. Whatever is not an integer is a decimal string, for instance `"0.0002"`.

    >>> canonical({"b": 1, "a": "é"})
    b'{"a":"\xc3\xa9","b":1}'

Source: RFC 8785 (June 2020), sections 3.2.2 and 3.2.3.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import NewType, NoReturn, TypeVar, Union, cast

Digest = NewType("Digest", str)
# `Union` rather than `|`: the members are forward references to the alias itself.
JsonValue = Union[None, bool, int, str, list["JsonValue"], dict[str, "JsonValue"]]  # noqa: UP007

T = TypeVar("T")

MAX_INTEGER = 2**53 - 1
MAX_DEPTH = 16
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,29})(\.[0-9]{1,12})?")
INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
URI = re.compile(r"(file:///|s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/)[A-Za-z0-9._~+=@/-]{1,1000}")
PATH = re.compile(r"[A-Za-z0-9._+=@-]{1,128}(/[A-Za-z0-9._+=@-]{1,128}){0,15}")


class ContractError(ValueError):
    """A document does not follow its format; the message names the member."""


def canonical(value: JsonValue) -> bytes:
    """Return the one byte sequence that stands for `value`.

    Raises:
        ContractError: for a float, an integer beyond 2^53 - 1, a lone surrogate or a key
            that is not text.
    """
    return json.dumps(
        _ordered(value, 0), ensure_ascii=False, allow_nan=False, separators=(",", ":")
    ).encode("utf-8")


def _ordered(value: JsonValue, depth: int) -> JsonValue:
    if depth > MAX_DEPTH:
        raise ContractError(f"expected at most {MAX_DEPTH} nested levels, got more")
    match value:
        case None | bool():
            return value
        case int():
            if abs(value) > MAX_INTEGER:
                raise ContractError(f"expected an integer within ±(2^53 - 1), got {value}")
            return value
        case str():
            return _scalar_text(value)
        case list():
            return [_ordered(item, depth + 1) for item in value]
        case dict():
            members = {_scalar_text(k): _ordered(v, depth + 1) for k, v in value.items()}
            return dict(sorted(members.items(), key=lambda m: m[0].encode("utf-16-be")))
    raise ContractError(f"expected JSON without floats, got {type(value).__name__}")


def _scalar_text(text: object) -> str:
    if not isinstance(text, str):
        raise ContractError(f"expected a text key, got {type(text).__name__}")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ContractError("expected Unicode text, got a lone surrogate")
    return text


def parse(data: bytes, *, max_bytes: int = 1_048_576) -> JsonValue:
    """Read strict JSON: UTF-8, no duplicate member, no float, at most `max_bytes`.

    Raises:
        ContractError: for anything else.
    """
    if len(data) > max_bytes:
        raise ContractError(f"expected at most {max_bytes} bytes, got {len(data)}")
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_members,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as cause:
        raise ContractError(f"expected UTF-8 JSON, got other bytes: {cause}") from cause
    return _ordered(value, 0)


def _members(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ContractError("expected each member once, got a duplicate")
    return members


def _refuse_number(text: str) -> NoReturn:
    raise ContractError(f"expected an integer or a decimal string, got the number {text[:40]}")


def digest(data: bytes) -> Digest:
    """Return `sha256:<64 hex>` of `data`."""
    return Digest("sha256:" + hashlib.sha256(data).hexdigest())


def decimal_text(value: float | Decimal, places: int = 6) -> str:
    """Write a finite number as a decimal string with `places` digits after the point.

    Raises:
        ContractError: for NaN and infinity, which no document may hold.
    """
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite():
        raise ContractError(f"expected a finite number, got {value}")
    return f"{number:.{places}f}"


class Reader:
    """Takes each member of one JSON object exactly once; `close` refuses what is left over.

    `where` is the path of the object in its document, used in messages (`spec.adapter`).
    """

    def __init__(self, value: JsonValue, where: str) -> None:
        if not isinstance(value, dict):
            raise ContractError(f"expected `{where}` to be an object, got {type(value).__name__}")
        self._left = dict(value)
        self._where = where

    def close(self) -> None:
        """Refuse members that nobody asked for.

        Raises:
            ContractError: naming the unknown members.
        """
        if self._left:
            unknown = ", ".join(sorted(self._left))
            raise ContractError(f"unknown members in `{self._where}`: {unknown}; remove them")

    def _take(self, name: str) -> JsonValue:
        if name not in self._left:
            raise ContractError(f"expected `{self._where}.{name}`, got nothing; add it")
        return self._left.pop(name)

    def _refuse(self, name: str, expected: str, got: JsonValue) -> NoReturn:
        shown = json.dumps(got, ensure_ascii=True)[:80]
        raise ContractError(f"expected `{self._where}.{name}` to be {expected}, got {shown}")

    def has(self, name: str) -> bool:
        """Say whether the member is there and not yet taken."""
        return name in self._left

    def names(self) -> list[str]:
        """List the members that are not yet taken, sorted."""
        return sorted(self._left)

    def constant(self, name: str, expected: str) -> None:
        """Take a member that can have one value only, such as `format`."""
        got = self._take(name)
        if got != expected:
            self._refuse(name, f'"{expected}"', got)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Take one of `choices`."""
        got = self._take(name)
        if not isinstance(got, str) or got not in choices:
            self._refuse(name, f"one of {', '.join(choices)}", got)
        return got

    def text(self, name: str, *, longest: int = 200, shortest: int = 1) -> str:
        """Take printable text of `shortest` to `longest` characters, without line breaks."""
        got = self._take(name)
        if not isinstance(got, str) or not shortest <= len(got) <= longest:
            self._refuse(name, f"text of {shortest} to {longest} characters", got)
        if got and not got.isprintable():
            self._refuse(name, "text without control characters", got)
        return got

    def prose(self, name: str) -> str:
        """Take text of any length that is not blank; line breaks are allowed."""
        got = self._take(name)
        if not isinstance(got, str) or not got.strip():
            self._refuse(name, "text that is not blank", got)
        return got

    def pattern(self, name: str, pattern: re.Pattern[str], what: str) -> str:
        """Take text that matches `pattern` as a whole; `what` names it in messages."""
        got = self._take(name)
        if not isinstance(got, str) or not pattern.fullmatch(got):
            self._refuse(name, what, got)
        return got

    def digest(self, name: str) -> Digest:
        """Take a digest, `sha256:<64 hex>`."""
        return Digest(self.pattern(name, DIGEST, "sha256:<64 lower-case hex>"))

    def instant(self, name: str) -> str:
        """Take an instant, `YYYY-MM-DDThh:mm:ssZ`."""
        return self.pattern(name, INSTANT, "an instant YYYY-MM-DDThh:mm:ssZ")

    def uri(self, name: str) -> str:
        """Take a `file:///` or `s3://bucket/` URI without `..` segments."""
        got = self.pattern(name, URI, "a file:/// or s3:// URI")
        if ".." in got.split("/"):
            self._refuse(name, "a URI without `..`", got)
        return got

    def path(self, name: str) -> str:
        """Take a relative POSIX path without `.` and `..` segments."""
        got = self.pattern(name, PATH, "a relative path")
        if {".", ".."} & set(got.split("/")):
            self._refuse(name, "a path without `.` and `..`", got)
        return got

    def integer(self, name: str, low: int, high: int = MAX_INTEGER) -> int:
        """Take an integer in [low, high]."""
        got = self._take(name)
        if isinstance(got, bool) or not isinstance(got, int) or not low <= got <= high:
            self._refuse(name, f"an integer from {low} to {high}", got)
        return got

    def decimal(self, name: str, low: str, high: str) -> Decimal:
        """Take a decimal string in [low, high]."""
        got = self.pattern(name, DECIMAL, 'a decimal string such as "0.1"')
        if not Decimal(low) <= Decimal(got) <= Decimal(high):
            self._refuse(name, f"a decimal from {low} to {high}", got)
        return Decimal(got)

    def nothing(self, name: str) -> bool:
        """Take the member if it is null, and say whether it was."""
        if self._left.get(name, 0) is None:
            self._take(name)
            return True
        return False

    def inner(self, name: str) -> "Reader":
        """Take an object."""
        return Reader(self._take(name), f"{self._where}.{name}")

    def items(self, name: str, *, most: int, fewest: int = 0) -> list[JsonValue]:
        """Take a list of `fewest` to `most` items."""
        got = self._take(name)
        if not isinstance(got, list) or not fewest <= len(got) <= most:
            self._refuse(name, f"a list of {fewest} to {most} items", None)
        return got

    def mapping(self, name: str, read: "Callable[[Reader, str], T]") -> dict[str, T]:
        """Take an object with free names (1 to 300 printable characters), each read alike."""
        inner = self.inner(name)
        names = inner.names()
        if any(not 1 <= len(key) <= 300 or not key.isprintable() for key in names):
            self._refuse(name, "an object with printable names of 1 to 300 characters", None)
        return {key: read(inner, key) for key in names}


def as_json(members: Mapping[str, object]) -> dict[str, JsonValue]:
    """Type a mapping that `canonical` is about to check."""
    return cast("dict[str, JsonValue]", dict(members))
