"""Remembering what a pure function answered, by the exact bytes of what it was asked.

The gate asks the same things again and again: most jobs of a team differ in their ids and costs
only. So an answer is kept under a key that two questions share only when they are the same to
the last type: the `marshal` form, version 2, of the question. It tells `True` from 1, 1 from
1.0, a list from a tuple and absent from null; it knows no subclasses; and it depends on nothing
but the value and the order of an object's members, which costs at most a second entry. Keys
never leave the process, so it does not matter that another Python would write other ones.

A memory is bounded in entries and in the length of a key. A full one forgets everything.
"""

import marshal
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from audit.canonical import canonical

MAX_ENTRIES = 256
MAX_KEY_BYTES = 2048

_ATOMS = frozenset({str, int, bool, type(None)})

Answer = TypeVar("Answer")
Key = bytes | tuple[bytes, ...]


def key_of(value: Any) -> bytes:
    """Return bytes that are equal for equal values of equal types only.

    Raises:
        ValueError: a value inside has no such form: a subclass, a set of strangers, a cycle.
    """
    return marshal.dumps(value, 2)


def is_plain(value: object) -> bool:
    """Say whether a value is made of JSON's own Python types only, subclasses excluded."""
    kind = type(value)
    if kind is dict:
        return all(type(k) is str and is_plain(v) for k, v in value.items())  # type: ignore[attr-defined]
    if kind is list:
        return all(map(is_plain, value))  # type: ignore[call-overload]
    return kind in _ATOMS


class Memory(Generic[Answer]):
    """Answers by key, at most `MAX_ENTRIES` of them."""

    def __init__(self) -> None:
        self._answers: dict[Key, Answer] = {}
        self.get: Callable[[Key], Answer | None] = self._answers.get
        """Return the answer to a key, or None when it is not remembered."""

    def keep(self, key: Key, answer: Answer) -> None:
        """Remember an answer, unless the key is too long to be worth it."""
        length = len(key) if isinstance(key, bytes) else sum(len(part) for part in key)
        if length > MAX_KEY_BYTES:
            return
        if len(self._answers) >= MAX_ENTRIES:
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
        self._memories = {name: Memory[bytes]() for name, _ in self._names}
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
                if not is_plain(member):
                    return None
                piece = prefix + self._canonical(member)
                memory.keep(key, piece)
            written.append(piece)
            keys[name] = key
        if len(keys) != len(value):
            return None
        return b"{%b}" % b",".join(written), keys

    def _canonical(self, member: object) -> bytes:
        around = self._around
        for _ in range(around):
            member = [member]
        return canonical(member)[around:-around]
