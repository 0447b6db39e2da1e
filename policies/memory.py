"""Remembering what a pure function answered, by the exact bytes of what it was asked.

The gate asks the same things again and again: most jobs of a team differ in their ids and costs
only. So an answer is kept under a key that two questions share only when they are the same to
the last type: the `marshal` form, version 2, of the question. It tells `True` from 1, 1 from
1.0, a list from a tuple and absent from null; it knows no subclasses; and it depends on nothing
but the value and the order of an object's members, which costs at most a second entry. Keys
never leave the process, so it does not matter that another Python would write other ones.

A memory is bounded in entries and in the length of a key. A full one forgets everything.
"""

import json
import marshal
from collections.abc import Callable, Iterable
from typing import Any, Generic, NoReturn, TypeVar

from audit.canonical import MAX_DEPTH, MAX_INT, canonical

MAX_ENTRIES = 256
MAX_KEY_BYTES = 2048

_STRING = frozenset({str})
_ATOMS = frozenset({str, int, bool, type(None)})

Answer = TypeVar("Answer")
Key = bytes | tuple[bytes, ...]


def key_of(value: Any) -> bytes:
    """Return bytes that are equal for equal values of equal types only.

    Raises:
        ValueError: a value inside has no such form: a subclass, a set of strangers, a cycle.
    """
    return marshal.dumps(value, 2)


def quick(value: Any) -> bytes | None:
    """Return `canonical(value)` when the standard library's C code can tell that this is it.

    None for what it cannot tell about: anything but ASCII, numbers that may be too large or no
    integers, deep nesting, and types that are not JSON's own. Subclasses pass for what they are
    subclasses of, so ask for the `key_of` a value first.
    """
    if _is_flat(value):
        text = _ENCODER.encode(value)
        return text.encode() if text.isascii() else None
    try:
        text = _ENCODER.encode(value)
        is_same = text.isascii() and _DECODER.decode(text) == value  # so no tuples, no other keys
    except (ValueError, TypeError, RecursionError):
        return None
    if not is_same or text.count("[") + text.count("{") > MAX_DEPTH // 2:
        return None
    return text.encode()


def read(data: bytes) -> Any:
    """Read JSON text that holds integers of up to 15 digits and no other numbers.

    Raises:
        ValueError: it is something else.
    """
    return _DECODER.decode(data.decode())


def is_canonical(data: bytes, value: Any) -> bool:
    """Say whether `data` is sure to be `canonical(value)`; `value` is what `read` made of it."""
    if not data.isascii() or data.count(b"[") + data.count(b"{") > MAX_DEPTH // 2:
        return False
    return _ENCODER.encode(value).encode() == data


def _is_flat(value: Any) -> bool:
    """Say whether a value is an object of atoms that all have a canonical form, if ASCII."""
    if type(value) is not dict or set(map(type, value)) != _STRING:
        return False
    kinds = set(map(type, value.values()))
    if not kinds <= _ATOMS:
        return False
    return int not in kinds or all(
        -MAX_INT <= v <= MAX_INT for v in value.values() if type(v) is int
    )


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"not an integer: {text}")


def _integer(text: str) -> int:
    if len(text) > 15:  # it may be outside ±(2^53 - 1)
        raise ValueError(f"a long integer: {text}")
    return int(text)


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, sort_keys=True, separators=(",", ":")
)
_DECODER = json.JSONDecoder(
    parse_float=_refuse_number, parse_constant=_refuse_number, parse_int=_integer
)


class Memory(Generic[Answer]):
    """Answers by key, at most `entries` of them."""

    def __init__(self, entries: int = MAX_ENTRIES) -> None:
        self._entries = entries
        self._answers: dict[Key, Answer] = {}
        self.get: Callable[[Key], Answer | None] = self._answers.get
        """Return the answer to a key, or None when it is not remembered."""

    def keep(self, key: Key, answer: Answer) -> None:
        """Remember an answer, unless the key is too long to be worth it."""
        length = len(key) if isinstance(key, bytes) else sum(len(part) for part in key)
        if length > MAX_KEY_BYTES:
            return
        if len(self._answers) >= self._entries:
            self._answers.clear()
        self._answers[key] = answer


class Pieces:
    """Writes objects with known member names in canonical form, member by member.

    `depth` says how deep in the final document the object will stand.
    """

    def __init__(self, names: Iterable[str], *, depth: int) -> None:
        self._names = tuple((name, canonical(name) + b":") for name in sorted(names))
        if not all(name.isascii() for name, _ in self._names):
            raise ValueError("a member name is not ASCII: expected names that sort by their bytes")
        self._memories = {name: Memory[bytes](4 * MAX_ENTRIES) for name, _ in self._names}
        self._around = depth + 1

    def write(self, value: dict[str, Any]) -> tuple[bytes, dict[str, bytes]] | None:
        """Return the canonical bytes of an object and the key of each member.

        None when the object is not of this kind: another type or name somewhere. Then only the
        long way, `audit.canonical`, tells whether it has a canonical form.

        Raises:
            CanonicalError: a member has none.
        """
        written: list[bytes] = []
        keys: dict[str, bytes] = {}
        for name, prefix in self._names:
            if name not in value:
                continue
            member = value[name]
            try:
                key = key_of(member)
            except ValueError:
                return None
            memory = self._memories[name]
            piece = memory.get(key)
            if piece is None:
                body = quick(member) or self._slowly(member)
                if body is None:
                    return None
                piece = prefix + body
                memory.keep(key, piece)
            written.append(piece)
            keys[name] = key
        if len(keys) != len(value):
            return None
        return b"{%b}" % b",".join(written), keys

    def _slowly(self, member: Any) -> bytes | None:
        around, wrapped = self._around, member
        for _ in range(around):
            wrapped = [wrapped]
        body = canonical(wrapped)[around:-around]
        return body if _same(json.loads(body), member) else None


def _same(one: Any, other: Any) -> bool:
    """Say whether two values are equal and of the same types all the way down."""
    if type(one) is not type(other):
        return False
    if type(one) is dict:
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if type(one) is list:
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
