r"""One spelling for every JSON document that is digested or signed.

The bytes are RFC 8785 (JSON Canonicalization Scheme) on a subset that has no floats: objects
with their keys in UTF-16 code unit order, no white space, strings with the shortest escapes,
integers within ±(2^53 - 1), `true`, `false`, `null`. Non-integers are written as decimal strings
("0.0002"), because two machines may print one float differently and then disagree on a digest.

    canonical({"b": 1, "a": ["é", None]})  ->  b'{"a":["\xc3\xa9",null],"b":1}'

A digest is written "sha256:" and 64 lower-case hexadecimal digits.

Source: RFC 8785 §3.2 (2020), RFC 8259 (2017), FIPS 180-4.
"""

import hashlib
import json
import re
from collections.abc import Callable
from typing import NewType, NoReturn, TypeAlias

Digest = NewType("Digest", str)
JsonValue: TypeAlias = "bool | int | str | list[JsonValue] | dict[str, JsonValue] | None"

MAX_INT = 2**53 - 1
MAX_DEPTH = 64
MAX_DOCUMENT_BYTES = 1_048_576


class CanonicalError(ValueError):
    """The value or text has no canonical form here; the message says which part is refused."""


def canonical(value: object) -> bytes:
    """Write `value` in its one canonical form.

    Accepts dict, list, tuple, str, int, bool and None, nested at most 64 deep.

    Raises:
        CanonicalError: a float, another type, a key that is not a string, an integer outside
            ±(2^53 - 1), a lone surrogate, or nesting that is too deep.
    Source: RFC 8785 §3.2.
    """
    text = _ENCODER.encode(_ordered(value, 0))
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as cause:
        raise CanonicalError("a string holds a lone surrogate: expected valid unicode") from cause


def parse(data: bytes, *, max_bytes: int = MAX_DOCUMENT_BYTES) -> JsonValue:
    """Read JSON text strictly; white space and key order are free, everything else is not.

    What comes back always has a canonical form: `canonical(parse(data))` never raises.

    Raises:
        CanonicalError: too long, not UTF-8, not JSON, a duplicate key, a float, an exponent,
            NaN, "-0", an integer outside ±(2^53 - 1), a lone surrogate, nesting above 64.
    """
    if len(data) > max_bytes:
        raise CanonicalError(f"document of {len(data)} bytes: expected at most {max_bytes}")
    try:
        text = data.decode("utf-8")
        value: JsonValue = _DECODER.decode(text)
        if "\\u" in text:  # only an escape can spell a surrogate without its partner
            _ENCODER.encode(value).encode("utf-8")
    except UnicodeError as cause:
        raise CanonicalError("not valid UTF-8, or a lone surrogate in a string") from cause
    except json.JSONDecodeError as cause:
        raise CanonicalError(f"not JSON: {cause.msg} at character {cause.pos}") from cause
    except RecursionError as cause:
        raise CanonicalError(f"nested too deep: expected at most {MAX_DEPTH} levels") from cause
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(value, 0)
    return value


def parse_canonical(data: bytes, *, max_bytes: int = MAX_DOCUMENT_BYTES) -> JsonValue:
    """Read JSON that must already be in canonical form, as everything digested is.

    Raises:
        CanonicalError: as `parse`, or the bytes are another spelling of the same value.
    """
    value = parse(data, max_bytes=max_bytes)
    if canonical(value) != data:
        raise CanonicalError("not in canonical form: expected RFC 8785 key order and spacing")
    return value


def digest(data: bytes) -> Digest:
    """Return the SHA-256 of `data` as "sha256:" and 64 hexadecimal digits."""
    return Digest("sha256:" + hashlib.sha256(data).hexdigest())


def digest_of(value: object) -> Digest:
    """Return the digest of the canonical form of `value`; raises as `canonical` does."""
    return digest(canonical(value))


def is_digest(value: object) -> bool:
    """Say whether `value` is a well-formed digest string."""
    return isinstance(value, str) and _DIGEST(value) is not None


def _ordered(value: object, depth: int) -> object:
    """Return a copy whose dicts are in UTF-16 key order, refusing what has no canonical form."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        if not -MAX_INT <= value <= MAX_INT:
            raise CanonicalError("integer outside ±(2^53 - 1): write it as a decimal string")
        return value
    if depth >= MAX_DEPTH:
        raise CanonicalError(f"nested too deep: expected at most {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {key: _ordered(value[key], depth + 1) for key in _sorted_keys(value)}
    if isinstance(value, list | tuple):
        return [_ordered(item, depth + 1) for item in value]
    kind = type(value).__name__
    hint = "write it as a decimal string" if isinstance(value, float) else "convert it first"
    raise CanonicalError(f"a value of type `{kind}` has no canonical form: {hint}")


def _sorted_keys(value: dict[object, object]) -> list[str]:
    keys = [key for key in value if isinstance(key, str)]
    if len(keys) != len(value):
        raise CanonicalError("an object key is not a string")
    if all(map(str.isascii, keys)):
        return sorted(keys)
    # Code points above U+FFFF sort before U+E000..U+FFFF in UTF-16, unlike in Python's own order.
    return sorted(keys, key=lambda key: key.encode("utf-16-be", "surrogatepass"))


def _check_depth(value: JsonValue, depth: int) -> None:
    if not isinstance(value, dict | list):
        return
    if depth >= MAX_DEPTH:
        raise CanonicalError(f"nested too deep: expected at most {MAX_DEPTH} levels")
    for item in value.values() if isinstance(value, dict) else value:
        _check_depth(item, depth + 1)


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise CanonicalError("an object has a duplicate key: expected each key once")
    return result


def _integer(text: str) -> int:
    if len(text) <= 17 and text != "-0":
        value = int(text)
        if -MAX_INT <= value <= MAX_INT:
            return value
    raise CanonicalError("an integer is -0 or outside ±(2^53 - 1): expected a decimal string")


def _refuse_number(text: str) -> NoReturn:
    del text
    raise CanonicalError("a number is not an integer: expected a decimal string")


_DIGEST = re.compile(r"sha256:[0-9a-f]{64}").fullmatch
_REFUSE: Callable[[str], NoReturn] = _refuse_number
_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_REFUSE,
    parse_constant=_REFUSE,
)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
