"""The linter: what a rule, pack or base may say, beyond its shape.

JSON Schema as people usually write it is an unsafe rule language: a misspelt keyword is ignored,
`not` and absent members pass by accident, patterns differ between engines, `$ref` fetches.
So a rule may use the keywords in `KEYWORDS` only; every property it names must be `required`;
`items` needs `minItems`, or an empty list would pass; every path, constant and bound must fit
the facts catalogue; texts are there in six languages, with placeholders that name facts.
"""

import datetime as dt
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from policies.evaluator import Checker, EvaluationError, default_evaluator
from policies.facts import catalogue, schema
from policies.pointers import join, pattern_of, split
from policies.rule import RuleError, needs

_NUMERIC = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_LIST = frozenset({"minItems", "maxItems", "items", "contains", "uniqueItems"})
_TEXT = frozenset({"minLength", "maxLength"})
_ANY = frozenset({"type", "const", "enum", "properties", "required", "allOf", "anyOf"})
KEYWORDS = _NUMERIC | _LIST | _TEXT | _ANY
PLACEHOLDER = re.compile(r"\{(/[A-Za-z0-9_*/]+)\}")

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


@functools.cache
def _shape(name: str) -> Checker:
    return default_evaluator().compile(schema(name))


def check_pack(document: Any, where: str) -> None:
    """Check the shape of a pack's own document.

    Raises:
        RuleError: it has another shape.
    """
    _check_shape("pack", document, where)


def check_rule(document: Any, where: str) -> None:
    """Check the shape of a rule and that its schemas stay in the keyword subset.

    This holds for stored policies too, whatever the facts catalogue says today.

    Raises:
        RuleError: naming the rule and the place.
    """
    _check_shape("rule", document, where)
    name = f"{where}: rule `{document['id']}`"
    for member in ("applies_when", "requires"):
        if document[member] is not None:
            _check_keywords(document[member], f"{name}: {member}")
    if (document["effect"] == "require_approval") != bool(document["approvals"]):
        raise RuleError(f"{name}: `approvals` belong to `require_approval`, and only to it")
    until = document["effective"]["until"]
    if until is not None and until <= document["effective"]["from"]:
        raise RuleError(f"{name}: `effective` ends before it begins")


def _check_shape(kind: str, document: Any, where: str) -> None:
    checker = _shape(kind)
    if not checker.is_valid(document):
        pointer, keyword = checker.failures(document)[0]
        raise RuleError(f"{where}: {kind} breaks `{keyword}` at `{pointer}`")
    for text in _strings(document):
        if _CONTROL.search(text):
            raise RuleError(f"{where}: a control or invisible character in {text!r}")


def _strings(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield key
            yield from _strings(value)
    elif isinstance(node, list):
        for value in node:
            yield from _strings(value)


def _check_keywords(node: Any, where: str) -> None:
    if not isinstance(node, dict) or not node:
        raise RuleError(f"{where}: expected a schema object with at least one keyword")
    unknown = sorted(set(node) - KEYWORDS)
    if unknown:
        raise RuleError(f"{where}: keyword `{unknown[0]}` is refused: use {sorted(KEYWORDS)}")
    loose = sorted(set(node.get("properties", {})) - set(node.get("required", ())))
    if loose:
        raise RuleError(f"{where}: property `{loose[0]}` is not `required`: absent, it would pass")
    if "items" in node and node.get("minItems", 0) < 1:
        raise RuleError(f"{where}: `items` without `minItems` passes on an empty list")
    if node.get("const", 0) is None or None in node.get("enum", ()):
        raise RuleError(f"{where}: null is unknown; a rule cannot ask for it")
    for name, inner in _inner(node):
        _check_keywords(inner, f"{where}{name}")


def _inner(node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """List the schemas inside a schema, with how the place of what they speak about is written."""
    for name, inner in node.get("properties", {}).items():
        yield f"/{name}", inner
    for keyword in ("items", "contains"):
        if keyword in node:
            yield "/*", node[keyword]
    for keyword in ("allOf", "anyOf"):
        for inner in node.get(keyword, ()):
            yield "", inner


def lint_rule(document: Mapping[str, Any], where: str) -> None:
    """Check a rule from a file completely: shape, keywords, paths, types, texts.

    Raises:
        RuleError: naming the rule and the place.
    """
    check_rule(document, where)
    name = f"{where}: rule `{document['id']}`"
    for member in ("applies_when", "requires"):
        if document[member] is not None:
            try:
                default_evaluator().compile(document[member])
            except EvaluationError as cause:
                raise RuleError(f"{name}: {member}: {cause}") from cause
            _check_against(document[member], catalogue(), f"{name}: {member}")
    _check_dates(document, name)
    patterns = {join(path[:n]) for path in needs(document["requires"]) for n in range(9)}
    strange = sorted(set(document["messages"]) - patterns)
    if strange:
        raise RuleError(f"{name}: message for `{strange[0]}`, which `requires` does not name")
    for texts in (document["title"], document["remediation"], *document["messages"].values()):
        for language, text in texts.items():
            _check_text(text, f"{name}: {language}")


def _check_dates(document: Mapping[str, Any], name: str) -> None:
    """Refuse a day or a time that does not exist: dates are compared as text."""
    effective = document["effective"]
    written = [
        ("effective.from", effective["from"]),
        *([("effective.until", effective["until"])] if effective["until"] is not None else []),
        *((f"legal_basis `{basis['ref']}`", basis["from"]) for basis in document["legal_basis"]),
    ]
    for where, text in written:
        try:
            dt.datetime.fromisoformat(text)
        except ValueError as cause:
            raise RuleError(f"{name}: {where}: `{text}` is no date of the calendar") from cause


def _check_text(text: str, where: str) -> None:
    for pointer in PLACEHOLDER.findall(text):
        if described(catalogue(), pattern_of(pointer)) is None:
            raise RuleError(f"{where}: placeholder `{pointer}` names no fact")
    if "{" in (rest := PLACEHOLDER.sub("", text)) or "}" in rest:
        raise RuleError(f"{where}: a brace outside `{{/pointer}}` in {text!r}")


def described(known: Mapping[str, Any], pattern: str) -> Mapping[str, Any] | None:
    """Return what a catalogue says of the fact at a path without indexes, or None."""
    node: Any = known
    for part in split(pattern):
        node = node.get("items") if part == "*" else node.get("properties", {}).get(part)
        if node is None:
            return None
    found: Mapping[str, Any] = node
    return found


def _check_against(node: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
    """Check a rule's schema against the catalogue's schema for the same place."""
    types = _types(known)
    for keywords, expected in ((_NUMERIC, "integer"), (_LIST, "array"), (_TEXT, "string")):
        used = sorted(keywords & set(node))
        if used and expected not in types:
            raise RuleError(f"{where}: `{used[0]}` on {sorted(types)}: expected {expected}")
    values = [*node.get("enum", ()), *([node["const"]] if "const" in node else ())]
    for value in values:
        if not _holds(known, value):
            raise RuleError(f"{where}: the facts never hold {value!r} here")
    if "type" in node and node["type"] not in types:
        raise RuleError(f"{where}: type `{node['type']}`: the facts hold {sorted(types)}")
    strange = sorted({*node.get("properties", ()), *node.get("required", ())} - _members(known))
    if strange:
        raise RuleError(f"{where}: there is no fact `{strange[0]}` here")
    for name, inner in _inner(node):
        below = known if name == "" else described(known, name)
        _check_against(inner, below or {}, f"{where}{name}")


def _members(known: Mapping[str, Any]) -> set[str]:
    return set(known.get("properties", ()))


def _holds(known: Mapping[str, Any], value: Any) -> bool:
    """Say whether the facts can hold this constant at a place that the catalogue describes."""
    kind = {bool: "boolean", int: "integer", str: "string"}.get(type(value))
    if kind not in _types(known):
        return False
    allowed = known.get("enum", [known["const"]] if "const" in known else [value])
    return value in allowed and bool(re.search(known.get("pattern", ""), str(value)))


def _types(known: Mapping[str, Any]) -> set[str]:
    declared = known.get("type", "string")  # a bare `const` or `enum` of the catalogue is text
    return set(declared if isinstance(declared, list) else [declared]) - {"null"}
