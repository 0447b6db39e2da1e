"""What is remembered answers as if nothing were."""

import json
import random

import pytest
from worlds import STRANGE, UNREADABLE, world

from audit.canonical import CanonicalError, canonical, parse
from policies.memory import MAX_BYTES, MAX_ENTRIES, MAX_KEY_BYTES, Memory, Written, key_of, quick

VALUES = (*STRANGE, *UNREADABLE, None, [1, [2, {"a": "b"}]], {"b": 1, "a": [True, None]})
NAMES = ("a", "b", "c")


class Loud(str):
    __slots__ = ()


@pytest.mark.parametrize("value", VALUES, ids=lambda v: repr(v)[:30])
def test_the_quick_way_is_the_canonical_way_or_none(value):
    for wrapped in (value, [value], {"k": value, "a": 1}, {"a": "x", "k": [value]}):
        made = quick(wrapped)

        assert made is None or made == canonical(wrapped)


def test_worlds_are_written_the_quick_way():
    rng = random.Random(1)
    worlds = [world(rng) for _ in range(200)]

    made = [quick(facts) for facts in worlds]

    assert made.count(None) < 100
    assert all(m in (None, canonical(f)) for m, f in zip(made, worlds, strict=True))


def test_keys_differ_where_types_do():
    values = (
        1,
        True,
        1.0,
        "1",
        [1],
        (1,),
        {"1": 1},
        {1: 1},
        None,
        [],
        {},
        (),
        0,
        False,
        "",
        "None",
    )

    assert len({key_of(value) for value in values}) == len(values)
    with pytest.raises(ValueError, match="unmarshallable"):
        key_of([Loud("a")])


@pytest.mark.parametrize("value", VALUES, ids=lambda v: repr(v)[:30])
def test_what_is_written_is_canonical_and_member_by_member_the_same(value):
    for document in (
        {"a": value},
        {"b": [value], "a": 1},
        {"c": value, "é": 1},
        {"a": {"x": value}},
        value,
    ):
        try:
            expected = canonical([document])[1:-1]
        except CanonicalError:
            with pytest.raises(CanonicalError):
                Written.of(document)
            continue

        written = Written.of(document)

        assert written.encoded == expected
        assert same(written.value, json.loads(expected))
        if isinstance(document, dict):
            assert written.members == {name: canonical(v) for name, v in document.items()}
        else:
            assert written.members == {}


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1}',
        b'{"a": 1}',
        b'{"b":1,"a":"x"}',
        b'{"a":"\xc3\xa9"}',
        b'{"a":"\\u00e9"}',
        b'{"a":[1,[2,{"b":null}]]}',
        b'{"a":{"z":1,"b":2}}',
        b"[1]",
        b"null",
    ],
)
def test_text_is_read_as_the_strict_reader_reads_it(text):
    written = Written.read(text)

    assert same(written.value, parse(text))
    assert written.encoded == canonical(parse(text))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b'{"a":1.0}',
        b'{"a":1e5}',
        b'{"a":-0}',
        b'{"a":[1.5]}',
        b'{"a":9007199254740992}',
        b'{"a":18446744073709551616}',
        b'{"a":1,"a":1}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":NaN}',
        b'{"a":"\\ud800"}',
        b'{"a":"\xff"}',
        b'{"a":' + b"[" * 200 + b"]" * 200 + b"}",
    ],
)
def test_text_that_the_strict_reader_refuses_is_refused(text):
    with pytest.raises(CanonicalError):
        parse(text)
    with pytest.raises(CanonicalError):
        Written.read(text)


def test_a_tuple_or_a_subclass_becomes_what_json_has():
    for stranger in ((1,), [(1,)], Loud("x"), {"x": Loud("y")}, {Loud("k"): (1,)}):
        written = Written.of({"a": stranger})

        assert same(written.value, json.loads(written.encoded))


def test_depth_counts_from_the_record():
    nested = 1
    for _ in range(62):
        nested = [nested]

    assert Written.of({"a": nested}).encoded == canonical([{"a": nested}])[1:-1]
    with pytest.raises(CanonicalError):
        Written.of({"a": [nested]})


def test_a_memory_keeps_what_comes_twice():
    memory = Memory[int]()

    memory.keep(b"once", 1)
    for _ in range(2):
        memory.keep(b"twice", 2)

    assert memory.get(b"once") is None
    assert memory.get(b"twice") == 2


def test_a_memory_is_bounded():
    memory = Memory[int]()
    for number in range(3 * MAX_ENTRIES):
        for _ in range(2):
            memory.keep(b"%d" % number, number)
    for _ in range(2):
        memory.keep(b"x" * (MAX_KEY_BYTES + 1), 1)
        memory.keep((b"x" * MAX_KEY_BYTES, b"y"), 1)

    assert len(memory._answers) <= MAX_ENTRIES
    assert len(memory._seen) <= 4 * MAX_ENTRIES
    assert memory.get(b"x" * (MAX_KEY_BYTES + 1)) is None
    assert memory.get(b"%d" % (3 * MAX_ENTRIES - 1)) == 3 * MAX_ENTRIES - 1


def test_a_memory_of_long_keys_is_bounded_by_their_bytes():
    memory = Memory[int]()
    for number in range(1000):
        for _ in range(2):
            memory.keep(b"%d" % number + b"x" * (MAX_KEY_BYTES - 4), number)

    assert sum(map(len, memory._answers)) <= MAX_BYTES


def same(one, other):
    """Say whether two values are equal and of the same types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other
