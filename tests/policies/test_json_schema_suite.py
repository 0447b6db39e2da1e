"""The official cases of JSON Schema 2020-12, on the keywords that rules may use.

`data/json-schema-test-suite/SOURCE.md` says where they come from.
"""

import json
from pathlib import Path

import pytest

from policies.evaluator import PythonEvaluator, RustEvaluator
from policies.lint import KEYWORDS

SUITE = Path(__file__).parent / "data" / "json-schema-test-suite"
ENGINES = (PythonEvaluator(), RustEvaluator())
ANNOTATIONS = {"$schema", "$comment"}


def in_subset(schema):
    if not isinstance(schema, dict) or set(schema) - KEYWORDS - ANNOTATIONS:
        return False
    inner = [*schema.get("properties", {}).values()]
    inner += [*schema.get("allOf", ()), *schema.get("anyOf", ())]
    inner += [schema[k] for k in ("items", "contains") if k in schema]
    return all(map(in_subset, inner))


def groups():
    for path in sorted(SUITE.rglob("*.json")):
        for group in json.loads(path.read_text("utf-8")):
            if in_subset(group["schema"]):
                yield pytest.param(group, id=f"{path.stem}: {group['description']}")


GROUPS = list(groups())


def test_the_suite_is_there_as_a_whole():
    assert sum(len(group.values[0]["tests"]) for group in GROUPS) == 372


def test_every_keyword_that_rules_may_use_has_official_cases():
    assert all(any(k in json.dumps(g.values[0]["schema"]) for g in GROUPS) for k in KEYWORDS)


@pytest.mark.parametrize("group", GROUPS)
def test_both_engines_answer_as_the_suite_does(group):
    checkers = [engine.compile(group["schema"]) for engine in ENGINES]
    for case in group["tests"]:
        answers = [checker.is_valid(case["data"]) for checker in checkers]
        found = [checker.failures(case["data"]) for checker in checkers]

        assert answers == [case["valid"]] * 2, case["description"]
        assert found[0] == found[1], case["description"]
        assert bool(found[0]) is not case["valid"]
