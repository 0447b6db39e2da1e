"""One value, one spelling; and nothing without a canonical form gets in."""

import contextlib
import enum
import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.canonical import (
    MAX_INT,
    CanonicalError,
    canonical,
    digest,
    digest_of,
    is_digest,
    parse,
    parse_canonical,
)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-MAX_INT, MAX_INT)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_canonical_text_reads_back_as_the_same_value(value):
    assert parse(canonical(value)) == value
    assert parse_canonical(canonical(value)) == value


@given(VALUES)
def test_canonical_text_is_a_fixed_point_whatever_the_spelling(value):
    spelt = json.dumps(value, indent=1, ensure_ascii=True).encode()

    assert canonical(parse(spelt)) == canonical(value)


@given(
    st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "ignore"))
)
def test_parse_raises_nothing_but_its_own_error(data):
    try:
        value = parse(data)
    except CanonicalError:
        return
    assert parse(canonical(value)) == value


@given(st.text('[]{}",:\\ud8e019-.+eEnulltrfas ', max_size=40))
def test_parse_of_json_like_text_raises_nothing_but_its_own_error(text):
    with contextlib.suppress(CanonicalError):
        canonical(parse(text.encode()))


def test_keys_are_in_utf_16_order():
    value = {"\U0001f600": 1, "\ufb33": 2, "é": 3, "a": 4, "": 5}

    assert list(json.loads(canonical(value))) == ["", "a", "é", "\U0001f600", "\ufb33"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": 1, "a": [None, True]}, b'{"a":[null,true],"b":1}'),
        ('\x00\x1f\b\t\n\f\r"\\/\x7f', b'"\\u0000\\u001f\\b\\t\\n\\f\\r\\"\\\\/\x7f"'),
        ((1, 2), b"[1,2]"),
        ([], b"[]"),
        (MAX_INT, b"9007199254740991"),
        (-MAX_INT, b"-9007199254740991"),
        (enum.IntEnum("E", {"A": 7}).A, b"7"),
        (enum.StrEnum("S", {"A": "x"}).A, b'"x"'),
        ("\u2028", b'"\xe2\x80\xa8"'),
    ],
)
def test_spelling(value, expected):
    assert canonical(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        1.0,
        float("nan"),
        {"a": [float("inf")]},
        MAX_INT + 1,
        -MAX_INT - 1,
        {1: 2},
        {None: 1},
        "\ud800",
        {"\udfff": 1},
        {"\udfff": 1, "b": 2},
        b"bytes",
        Decimal("0.1"),
        {1, 2},
        object(),
    ],
)
def test_what_has_no_canonical_form_is_refused(value):
    with pytest.raises(CanonicalError):
        canonical(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "nul",
        "1.0",
        "1e3",
        "-0",
        "01",
        "+1",
        "1_0",
        "NaN",
        "Infinity",
        "-Infinity",
        "9007199254740992",
        "-9007199254740992",
        "9" * 5000,
        '{"a":1,"a":1}',
        '{"x":{"a":1,"a":2}}',
        '{"a":1,}',
        "[1,]",
        "[1] x",
        "{'a':1}",
        '"\t"',
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '{"\\ud83d":1}',
        '"\\x"',
        "\ufeff1",
        "// c\n1",
    ],
)
def test_lax_json_is_refused(text):
    with pytest.raises(CanonicalError):
        parse(text.encode())


def test_an_escaped_pair_of_surrogates_is_one_character():
    assert parse(b'"\\ud83d\\ude00"') == "\U0001f600"


@pytest.mark.parametrize("data", [b"\xff", b'"\xc3"', b'"\xed\xa0\x80"', b'"\xc0\x80"'])
def test_invalid_utf_8_is_refused(data):
    with pytest.raises(CanonicalError, match="UTF-8"):
        parse(data)


def test_depth_is_limited_in_both_directions():
    deep = "[" * 64 + "]" * 64
    assert canonical(parse(deep.encode())) == deep.encode()
    wide = "[" + ",".join(["[]"] * 200) + "]"
    assert canonical(parse(wide.encode())) == wide.encode()
    for count in (65, 100_000):
        with pytest.raises(CanonicalError, match="deep"):
            parse(b"[" * count + b"]" * count)
    with pytest.raises(CanonicalError, match="deep"):
        parse(b'{"a":' * 65 + b"1" + b"}" * 65)
    value = []
    for _ in range(64):
        value = [value]
    with pytest.raises(CanonicalError, match="deep"):
        canonical(value)


def test_size_is_limited():
    assert parse(b"[1]", max_bytes=3) == [1]
    with pytest.raises(CanonicalError, match="at most 2"):
        parse(b"[1]", max_bytes=2)


def test_another_spelling_is_not_canonical():
    with pytest.raises(CanonicalError, match="not in canonical form"):
        parse_canonical(b'{"a": 1}')


def test_digests():
    empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

    assert digest(b"") == empty
    assert digest_of({"a": 1}) == digest(b'{"a":1}')
    assert is_digest(empty)
    for wrong in (
        empty[:-1],
        empty + "0",
        empty.upper(),
        "sha512:" + "0" * 64,
        None,
        7,
        empty[:-1] + "\n",
    ):
        assert not is_digest(wrong)
