"""Hostile YAML and JSON are refused; what is accepted means one thing."""

import pytest

from policies.facts import FactsError, parse_facts
from policies.pointers import drop, fill, get, join, missing, pattern_of, put, split
from policies.strict import StrictError, parse_json, parse_yaml

REFUSED = {
    "duplicate key": b"a: 1\na: 2\n",
    "anchor": b"a: &x 1\n",
    "alias": b"a: &x [1]\nb: *x\n",
    "lone alias": b"a: *x\n",
    "merge key": b"a: {<<: {b: 1}}\n",
    "tag": b"a: !!str 1\n",
    "python tag": b"a: !!python/object/apply:os.system [ls]\n",
    "directive": b"%YAML 1.1\n---\na: 1\n",
    "tag directive": b"%TAG ! tag:x,2000:\n---\na: 1\n",
    "two documents": b"a: 1\n---\nb: 2\n",
    "date": b"a: 2026-11-30\n",
    "date and time": b"a: 2026-11-30T12:00:00Z\n",
    "float": b"a: 1.10\n",
    "exponent": b"a: 1234e5\n",
    "infinity": b"a: .inf\n",
    "not a number": b"a: -.NaN\n",
    "octal": b"a: 014\n",
    "new octal": b"a: 0o14\n",
    "hexadecimal": b"a: 0x1F\n",
    "underscored": b"a: 1_000\n",
    "sexagesimal": b"a: 12:30:45\n",
    "plus": b"a: +1\n",
    "minus zero": b"a: -0\n",
    "big integer": b"a: 9007199254740992\n",
    "capital boolean": b"a: True\n",
    "tilde": b"a: ~\n",
    "nothing": b"a:\n",
    "number as key": b"1: a\n",
    "null as key": b"null: a\n",
    "list as key": b"[1]: a\n",
    "boolean as key": b"true: a\n",
    "empty": b"",
    "only a comment": b"# nothing\n",
    "not YAML": b"a: [1\n",
    "tab": b"a:\n\t- 1\n",
    "not UTF-8": b"a: \xff\n",
    "deep": b"[" * 70 + b"]" * 70,
    "very deep": b"[" * 5000,
    "escaped surrogate": b'a: "\\ud800"\n',
    "too large": b"a: " + b"x" * 1_048_576,
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_hostile_yaml_is_refused(text):
    with pytest.raises(StrictError):
        parse_yaml(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"a: NO\n", {"a": "NO"}),
        (b"a: [no, yes, on, off, y]\n", {"a": ["no", "yes", "on", "off", "y"]}),
        (b"on: 1\n", {"on": 1}),
        (b"a: [true, false, null, 0, -7]\n", {"a": [True, False, None, 0, -7]}),
        (
            b'a: ["1.0", "2026-11-30", "~", "", "True"]\n',
            {"a": ["1.0", "2026-11-30", "~", "", "True"]},
        ),
        (b"a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        (b"--- {a: {b: [c]}}\n", {"a": {"b": ["c"]}}),
        (b"a: sha256:00ff\n", {"a": "sha256:00ff"}),
        (b"a: eu-west-3\n", {"a": "eu-west-3"}),
        ("a: é\n".encode(), {"a": "é"}),
    ],
)
def test_what_is_accepted_means_one_thing(text, value):
    assert parse_yaml(text) == value


def test_a_refusal_names_its_line():
    with pytest.raises(StrictError, match="line 3: duplicate key `a`"):
        parse_yaml(b"a: 1\nb: 2\na: 3\n")


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":2}',
        b'{"a":NaN}',
        b'{"a":1e400}',
        b'{"a":1.5}',
        b'{"a":9007199254740993}',
        b'{"a":"\\ud800"}',
    ],
)
def test_hostile_json_is_refused(text):
    with pytest.raises(StrictError):
        parse_json(text)
    with pytest.raises(FactsError):
        parse_facts(text)


def test_facts_are_an_object():
    with pytest.raises(FactsError, match="expected an object"):
        parse_facts(b"[1]")
    with pytest.raises(FactsError, match="line 1"):
        parse_facts(b"a: ~", syntax="yaml")
    assert parse_facts(b"stage: train", syntax="yaml") == {"stage": "train"}


def test_pointers_name_places():
    document = {"a": [{"b": 1}, {"b": None}, {}], "c": None}

    assert missing(document, ("a", "*", "b")) == ["/a/1/b", "/a/2/b"]
    assert missing(document, ("c", "*", "d")) == ["/c"]
    assert missing({"a": 3}, ("a", "*")) == ["/a"]
    assert missing({"a": [None, 1]}, ("a", "*")) == ["/a/0"]
    assert missing({"a": []}, ("a", "*", "b")) == []
    assert get(document, "/a/0/b") == 1
    assert get(document, "/a/9/b") is None
    assert get(document, "/a/x") is None
    assert get(document, "") is document
    assert split("") == ()
    assert join(("a", 0)) == "/a/0"
    assert pattern_of("/a/0/b") == "/a/*/b"
    assert fill("/a/*/b", "/x/7/y") == "/a/7/b"
    assert fill("/a/*/b", "/x") == "/a/*/b"


def test_pointers_change_places():
    document = {"a": [1, 2]}

    put(document, "/a/2", 3)
    put(document, "/a/0", 0)
    put(document, "/b", {})
    drop(document, "/a/1")

    assert document == {"a": [0, 3], "b": {}}
    drop(document, "/b")
    for change in (
        lambda: put(document, "/z/y", 1),
        lambda: put(document, "/a/9", 1),
        lambda: drop(document, "/z"),
        lambda: drop(document, "/a/7"),
    ):
        with pytest.raises(ValueError, match="nothing there"):
            change()


@pytest.mark.parametrize("pointer", ["a", "/a~1b"])
def test_a_misspelt_pointer_is_refused(pointer):
    with pytest.raises(ValueError, match="expected"):
        split(pointer)
