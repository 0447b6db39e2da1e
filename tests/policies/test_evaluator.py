"""Both engines agree on the keyword subset."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import evaluator as module
from policies.evaluator import EvaluationError, PythonEvaluator, RustEvaluator
from policies.lint import KEYWORDS

PYTHON, RUST = PythonEvaluator(), RustEvaluator()


VALUES = st.recursive(
    st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "FR", "\U0001f600"]),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from("abc"), v, max_size=3),
    max_leaves=6,
)
LEAVES = st.one_of(
    st.fixed_dictionaries({"const": VALUES}),
    st.fixed_dictionaries({"enum": st.lists(VALUES, min_size=1, max_size=3)}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "string", "boolean", "array", "object"])}
    ),
    *(
        st.fixed_dictionaries({k: st.integers(-2, 2)})
        for k in sorted(KEYWORDS)
        if "imum" in k.lower()
    ),
    *(
        st.fixed_dictionaries({k: st.integers(0, 2)})
        for k in ("minItems", "maxItems", "minLength", "maxLength")
    ),
    st.just({"uniqueItems": True}),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda s: st.one_of(
        st.fixed_dictionaries(
            {
                "required": st.lists(st.sampled_from("abc"), unique=True, max_size=2),
                "properties": st.dictionaries(st.sampled_from("abc"), s, max_size=3),
            }
        ),
        st.fixed_dictionaries({"items": s, "minItems": st.integers(0, 2)}),
        st.fixed_dictionaries({"contains": s}),
        st.fixed_dictionaries({"allOf": st.lists(s, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"anyOf": st.lists(s, min_size=1, max_size=2)}),
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(schema=SCHEMAS, value=VALUES)
def test_both_engines_say_the_same_about_any_schema_of_the_subset(schema, value):
    one, other = PYTHON.compile(schema), RUST.compile(schema)

    assert one.is_valid(value) == other.is_valid(value)
    assert one.failures(value) == other.failures(value)
    assert one.is_valid(value) is (one.failures(value) == [])


def test_a_schema_that_is_none_is_refused(evaluator):
    with pytest.raises(EvaluationError):
        evaluator.compile({"type": "nonsense"})


def test_the_reference_engine_stands_in_when_the_fast_one_is_not_installed(monkeypatch):
    module.default_evaluator.cache_clear()
    assert module.default_evaluator().name == "jsonschema-rs"
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _name: None)
    module.default_evaluator.cache_clear()
    try:
        assert module.default_evaluator().name == "jsonschema"
    finally:
        module.default_evaluator.cache_clear()
