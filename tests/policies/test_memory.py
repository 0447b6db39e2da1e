"""What is remembered answers as if nothing were."""

import random

import pytest
from worlds import STRANGE, UNREADABLE, world

from audit.canonical import CanonicalError, canonical
from policies.memory import MAX_ENTRIES, MAX_KEY_BYTES, Memory, Pieces, key_of, quick

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
def test_pieces_write_what_canonical_writes_or_leave_it_to_it(value):
    pieces = Pieces(NAMES, depth=1)
    for document in (
        {"a": value},
        {"b": [value], "a": 1},
        {"c": value, "z": 1},
        {"a": {"x": value}},
    ):
        for _ in range(3):
            try:
                written = pieces.write(document)
            except CanonicalError:
                with pytest.raises(CanonicalError):
                    canonical(document)
                continue
            if written is not None:
                assert written[0] == canonical(document)
                assert written[1] == {name: key_of(v) for name, v in document.items()}


def test_a_tuple_or_a_subclass_is_left_to_the_long_way():
    pieces = Pieces(NAMES, depth=1)
    assert pieces.write({"a": [1]}) is not None

    for stranger in ((1,), [(1,)], Loud("x"), {"x": Loud("y")}):
        assert pieces.write({"a": stranger}) is None
    assert pieces.write({"z": 1}) is None


def test_depth_counts_from_the_record():
    pieces, nested = Pieces(NAMES, depth=1), 1
    for _ in range(62):
        nested = [nested]

    assert pieces.write({"a": nested}) is not None
    with pytest.raises(CanonicalError):
        pieces.write({"a": [nested]})


def test_a_memory_is_bounded():
    memory = Memory[int]()
    for number in range(3 * MAX_ENTRIES):
        memory.keep(b"%d" % number, number)
    memory.keep(b"x" * (MAX_KEY_BYTES + 1), 1)
    memory.keep((b"x" * MAX_KEY_BYTES, b"y"), 1)

    assert len(memory._answers) <= MAX_ENTRIES
    assert memory.get(b"x" * (MAX_KEY_BYTES + 1)) is None
    assert memory.get(b"%d" % (3 * MAX_ENTRIES - 1)) == 3 * MAX_ENTRIES - 1


def test_names_that_sort_differently_are_refused():
    with pytest.raises(ValueError, match="ASCII"):
        Pieces(["\ue000"], depth=0)
