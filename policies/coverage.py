"""Rule by outcome: what the rules' own tests show of each rule. Not lines of code.

Each rule has cells: `pass`, `not_applicable`, `violated` at each leaf of `requires`, `unknown`
for each fact it needs. A cell is shown by a `case` of the rule, or `generated` from the passing
case by taking one fact away or emptying one list; what neither shows is `missing`. A bound that
the facts contract alone already holds is `contract`: no document can break it.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policies.asking import ask, compile_rule
from policies.cases import seen_by
from policies.evaluator import Evaluator
from policies.facts import catalogue
from policies.lint import described
from policies.load import Pack
from policies.pointers import Path, drop, join, pattern_of, put
from policies.reference import Reference
from policies.rule import Rule

Leaf = tuple[Path, str]
_STRUCTURE = frozenset({"required", "properties", "items", "allOf", "type"})


@dataclass(frozen=True, slots=True)
class Cell:
    """One outcome of one rule, at a place, and what shows it."""

    rule: str
    outcome: str
    place: str
    shown_by: str


def leaves(schema: Mapping[str, Any], path: Path = ()) -> Iterator[Leaf]:
    """List where a schema can fail on known facts: paths with the keyword that fails there."""
    for keyword in schema:
        if keyword not in _STRUCTURE:
            yield path, keyword
    for name, inner in schema.get("properties", {}).items():
        yield from leaves(inner, (*path, name))
    if "items" in schema:
        yield from leaves(schema["items"], (*path, "*"))
    for inner in schema.get("allOf", ()):
        yield from leaves(inner, path)


def coverage(packs: Sequence[Pack], reference: Reference, evaluator: Evaluator) -> tuple[Cell, ...]:
    """List every cell of every rule in the packs."""
    return tuple(
        cell
        for pack in packs
        for rule in pack.rules
        for cell in _of_rule(rule, pack, reference, evaluator)
    )


def _of_rule(rule: Rule, pack: Pack, reference: Reference, evaluator: Evaluator) -> Iterator[Cell]:
    asked = compile_rule(rule, evaluator)
    documents = [
        seen
        for case in pack.tests[rule.id]
        for seen, at in [seen_by(case, pack.bases[case["given"]], reference, evaluator)]
        if rule.is_in_force(seen["stage"], at)
    ]
    passing = [seen for seen in documents if ask(asked, seen).outcome == "pass"]
    by_case = _cells_of([ask(asked, seen) for seen in documents])
    expected = {case["expect"] for case in pack.tests[rule.id]}
    by_case |= {(outcome, "") for outcome in expected & {"pass", "not_applicable"}}
    generated = _cells_of([ask(asked, seen) for one in passing[:1] for seen in _worn(rule, one)])
    for outcome, place in _wanted(rule):
        shown = "missing"
        if (outcome, place) in by_case:
            shown = "case"
        elif (outcome, place) in generated:
            shown = "generated"
        elif outcome == "violated" and _contract_holds(rule, place):
            shown = "contract"
        yield Cell(rule.id, outcome, place, shown)


def _cells_of(findings: Sequence[Any]) -> set[tuple[str, str]]:
    found = set()
    for finding in findings:
        if finding.outcome == "violated":
            found |= {("violated", f"{pattern_of(at)} {keyword}") for at, keyword in finding.at}
        elif finding.outcome == "unknown":
            found |= {("unknown", pattern_of(at)) for at in finding.missing}
        else:
            found.add((finding.outcome, ""))
    return found


def _wanted(rule: Rule) -> Iterator[tuple[str, str]]:
    yield "pass", ""
    yield "not_applicable", ""
    for path, keyword in dict.fromkeys(leaves(rule.requires)):
        yield "violated", f"{join(path)} {keyword}"
    for path in sorted({*rule.applies_needs, *rule.requires_needs}):
        yield "unknown", join(path)


def _worn(rule: Rule, seen: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Take one fact away, or empty one list, of a passing document."""
    for path in sorted({*rule.applies_needs, *rule.requires_needs}):
        worn = copy.deepcopy(dict(seen))
        drop(worn, join(first(path)))
        yield worn
    for path, keyword in leaves(rule.requires):
        if keyword == "minItems":
            worn = copy.deepcopy(dict(seen))
            put(worn, join(first(path)), [])
            yield worn


def first(path: Path) -> Path:
    """Write a path for the first element of each list."""
    return tuple("0" if part == "*" else part for part in path)


def _contract_holds(rule: Rule, place: str) -> bool:
    pointer, keyword = place.rsplit(" ", 1)
    known = described(catalogue(), pointer) or {}
    if keyword != "minimum" or "minimum" not in known:
        return False
    node: Any = rule.requires
    for part in pointer[1:].split("/"):
        node = node["items"] if part == "*" else node["properties"][part]
    return bool(known["minimum"] >= node["minimum"])
