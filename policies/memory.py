"""Remembering what a pure function answered, by the exact bytes of what it was asked.

The gate asks the same things again and again: most jobs of a team differ in their ids and costs
only. So an answer is kept under a key that two questions share only when they are the same to
the last type. For values of any type that is the `marshal` form, version 2: it tells `True` from
1, 1 from 1.0, a list from a tuple and absent from null; it knows no subclasses; and it depends on
nothing but the value and the order of an object's members, which costs at most a second entry.
Keys never leave the process, so it does not matter that another Python would write other ones.
For values that have one, the canonical bytes are the key.

A memory is bounded in entries and in the length of its keys. A full one forgets everything.
"""

import functools
import json
import marshal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson

from audit.canonical import MAX_DEPTH, MAX_INT, canonical, parse

MAX_ENTRIES = 2048
MAX_KEY_BYTES = 8192
MAX_BYTES = 1 << 20

_SORTED = orjson.OPT_SORT_KEYS
_dumps = orjson.dumps

Answer = TypeVar("Answer")
Key = bytes | tuple[bytes, ...]
"""What an answer is kept under: as exact as the bytes of the question."""


def key_of(value: Any) -> bytes:
    """Return bytes that are equal for equal values of equal types only.

    Raises:
        ValueError: a value inside has no such form: a subclass, a set of strangers, a cycle.
    """
    return marshal.dumps(value, 2)


def quick(value: Any) -> bytes | None:
    """Return `canonical(value)` when the fast encoder is sure to write the same.

    None for what it is not sure about: anything but ASCII, large numbers, deep nesting, and types
    that are not JSON's own.
    """
    if not _is_plain((value,), MAX_DEPTH // 2):
        return None
    try:
        written = _dumps(value, option=_SORTED)
    except TypeError:  # a key that is no string, a lone surrogate
        return None
    return written if written.isascii() else None


def _is_plain(nodes: Iterable[Any], depth: int) -> bool:
    """Say whether all nodes are of JSON's own types, their integers small, and not too deep."""
    for node in nodes:
        kind = type(node)
        if kind is dict or kind is list:
            inside = node.values() if kind is dict else node
            if depth == 0 or not _is_plain(inside, depth - 1):
                return False
        elif kind is int:
            if not -MAX_INT <= node <= MAX_INT:
                return False
        elif kind is not str and kind is not bool and node is not None:
            return False
    return True


class Memory(Generic[Answer]):
    """Answers by key: at most `MAX_ENTRIES`, with keys of at most `MAX_BYTES` together.

    An answer is kept when it comes for the second time: what never comes again is most of what is
    asked (a job's own id, its cost), and would push out what does.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._seen: set[int] = set()
        self._answers: dict[Key, Answer] = {}
        self.get: Callable[[Key], Answer | None] = self._answers.get
        """Return the answer to a key, or None when it is not remembered."""

    def keep(self, key: Key, answer: Answer) -> None:
        """Remember an answer if it comes again, unless the key is too long to be worth it."""
        mark = hash(key)
        if mark not in self._seen:
            if len(self._seen) >= 4 * MAX_ENTRIES:
                self._seen.clear()
            self._seen.add(mark)
            return
        length = len(key) if isinstance(key, bytes) else sum(map(len, key))
        if length > MAX_KEY_BYTES:
            return
        if len(self._answers) >= MAX_ENTRIES or self._bytes + length > MAX_BYTES:
            self._answers.clear()
            self._bytes = 0
        self._answers[key] = answer
        self._bytes += length


@dataclass(frozen=True, slots=True)
class Written:
    """A value in canonical bytes, in JSON's own Python types, and member by member.

    `members` holds the canonical bytes of each member's value: two objects have the same bytes
    under a name exactly when they have the same value there.
    """

    encoded: bytes
    value: Any
    members: Mapping[str, bytes]

    @classmethod
    def of(cls, value: Any) -> "Written":
        """Write a value; the same object where it is of JSON's own types already.

        Raises:
            CanonicalError: it has no canonical form, as deep as a member of a record.
        """
        written = cls._quickly(value)
        if written is not None:
            return written
        encoded = canonical([value])[1:-1]
        plain = json.loads(encoded)  # tuples and subclasses are gone
        items = plain.items() if isinstance(plain, dict) else ()
        return cls(encoded, plain, {name: canonical(item) for name, item in items})

    @classmethod
    def read(cls, data: bytes) -> "Written":
        """Read what `of` has written, or another spelling of it.

        Raises:
            CanonicalError: not JSON, a name twice, or a number that is no integer.
        """
        try:
            written = cls._quickly(orjson.loads(data))
        except orjson.JSONDecodeError:
            written = None
        is_same = written is not None and written.encoded == data  # so no name comes twice
        return written if written is not None and is_same else cls.of(parse(data))

    @classmethod
    def _quickly(cls, value: Any) -> "Written | None":
        """Write an object as `quick` does, if it can."""
        if type(value) is not dict or not _is_plain((value,), MAX_DEPTH // 2):
            return None
        if not all(type(name) is str for name in value):
            return None
        try:
            members = {name: _dumps(value[name], option=_SORTED) for name in sorted(value)}
            encoded = b"{%b}" % b",".join([_named(n) + body for n, body in members.items()])
        except TypeError:  # further inside a key that is no string, or a lone surrogate
            return None
        return cls(encoded, value, members) if encoded.isascii() else None


@functools.lru_cache(maxsize=1024)
def _named(name: str) -> bytes:
    return _dumps(name) + b":"
