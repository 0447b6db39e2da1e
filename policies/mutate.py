"""Mutation testing of rules: change one thing in a rule and see whether anything notices.

A mutant is killed by `cases` when one of the rule's own tests no longer comes out as it says. Else
it is killed by `boundary` when a generated document tells it from the rule: each case's document
with each fact that the rule names set to the values around its bounds, to each member of its
enumerations, or taken away, at the instants around the rule's dates. What neither tells apart
survives; `survivors.yaml` of a pack says why one may: {mutants: [{rule, mutant, reason}]}.

Only the changed rule is asked, about documents derived once. Nothing is drawn: equal packs give
equal reports. An obligation that is dropped is told apart by the families that must be asked.
"""

import copy
import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from policies.asking import ask, compile_rule
from policies.cases import seen_by
from policies.coverage import first
from policies.evaluator import Evaluator
from policies.facts import catalogue
from policies.lint import described
from policies.load import Pack
from policies.pointers import Path, drop, get, join, put
from policies.policy import Policy
from policies.reference import Reference
from policies.rule import Rule, RuleError

_SECOND, _DAY = dt.timedelta(seconds=1), dt.timedelta(days=1)
_BOUNDS = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"}
    | {"minLength", "maxLength", "minContains"}
)
_FORM = "%Y-%m-%dT%H:%M:%SZ"
Document = tuple[Mapping[str, Any], str]


@dataclass(frozen=True, slots=True)
class Short:
    """The list that a document has, cut to a length."""

    length: int


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one rule, or of a pack's obligations, and what noticed it."""

    rule: str
    name: str
    killed_by: str
    """`cases`, `boundary`, or empty: it survived."""


def mutate(
    packs: Sequence[Pack],
    reference: Reference,
    evaluator: Evaluator,
    *,
    progress: Callable[[str], None] = lambda _rule: None,
) -> tuple[Mutant, ...]:
    """Make and judge every mutant of the packs; `progress` is told each rule's id first."""
    found: list[Mutant] = []
    for pack in packs:
        for rule in pack.rules:
            progress(rule.id)
            found += _of_rule(rule, pack, reference, evaluator)
    return (*found, *_of_obligations(packs))


def survivors(pack: Pack) -> dict[tuple[str, str], str]:
    """Return why a mutant may survive, by rule and mutant, as the pack's `survivors.yaml` says.

    Raises:
        RuleError: the file has another shape, or a reason is empty.
    """
    listed: Any = pack.survivors
    if not isinstance(listed, Mapping) or set(listed) != {"mutants"}:
        raise RuleError(f"pack `{pack.document['id']}`: survivors.yaml: expected `mutants` alone")
    found: dict[tuple[str, str], str] = {}
    for row in listed["mutants"] or ():
        if not isinstance(row, Mapping) or set(row) != {"rule", "mutant", "reason"}:
            raise RuleError("survivors.yaml: expected rows of `rule`, `mutant` and `reason`")
        if not str(row["reason"]).strip():
            raise RuleError(f"survivors.yaml: `{row['rule']}`: write the reason")
        found[str(row["rule"]), str(row["mutant"])] = str(row["reason"])
    return found


def _of_rule(
    rule: Rule, pack: Pack, reference: Reference, evaluator: Evaluator
) -> Iterator[Mutant]:
    cases = pack.tests[rule.id]
    own = [seen_by(c, pack.bases[c["given"]], reference, evaluator) for c in cases]
    around = list(_boundary(rule, own))
    told_own, told_around = _told(rule, own, evaluator), _told(rule, around, evaluator)
    for name, document in mutants(rule.document):
        changed = Rule(document)
        killed_by = ""
        now = _told(changed, own, evaluator)
        if any(
            after[0] != before[0] or ("at" in case and after[1] != before[1])
            for case, before, after in zip(cases, told_own, now, strict=True)
        ):
            killed_by = "cases"
        elif now != told_own or _told(changed, around, evaluator) != told_around:
            killed_by = "boundary"
        yield Mutant(rule.id, name, killed_by)


def _told(rule: Rule, documents: Sequence[Document], evaluator: Evaluator) -> list[tuple[Any, ...]]:
    """Say what a rule says of each document: outcome, where, and what that would lead to."""
    asked = compile_rule(rule, evaluator)
    found: list[tuple[Any, ...]] = []
    for seen, at in documents:
        if not rule.is_in_force(seen["stage"], at):
            found.append(("not_applicable", [], "", ()))
            continue
        finding = ask(asked, seen)
        counts = tuple((a.role, a.count) for a in rule.approvals)
        bites = finding.outcome in ("violated", "unknown")
        where = sorted({pointer for pointer, _ in finding.at})
        told = (rule.effect, counts, rule.waivable) if bites else ("", ())
        found.append((finding.outcome, where, *told))
    return found


def _boundary(rule: Rule, own: Sequence[Document]) -> Iterator[Document]:
    """Vary each document of the rule's own cases by one fact, then by its instant and stage."""
    values = _values(rule)
    for seen, at in own:
        for path, choices in values.items():
            for value in choices:
                varied = _with(seen, path, value)
                if varied is not None:
                    yield varied, at
        for stage, instant in product(("train", "deploy"), _instants(rule, at)):
            yield {**seen, "stage": stage}, instant


def _with(seen: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any] | None:
    varied = copy.deepcopy(dict(seen))
    try:
        if isinstance(value, Short):
            put(varied, join(first(path)), get(varied, join(first(path)))[: value.length])
        elif value is None:
            drop(varied, join(first(path)))
        else:
            put(varied, join(first(path)), value)
    except (ValueError, LookupError, TypeError):
        return None  # this case's document has no such place
    return varied if "stage" in varied else None


def _instants(rule: Rule, at: str) -> list[str]:
    edges = [edge for edge in (rule.starts_at, rule.ends_at) if edge]
    moments = [dt.datetime.strptime(edge, _FORM).replace(tzinfo=dt.UTC) for edge in edges]
    return [at, *((m + d).strftime(_FORM) for m in moments for d in (-_SECOND, 0 * _SECOND))]


def _values(rule: Rule) -> dict[Path, list[Any]]:
    """Say which values around its bounds each fact of a rule should take; None is absent."""
    named = (*rule.applies_needs, *rule.requires_needs)
    found: dict[Path, list[Any]] = {path: [None] for path in named}
    for schema in (rule.applies_when or {}, rule.requires):
        for at, node in nodes(schema):
            path = fact_path(at)
            if not path:
                continue
            choices = found.setdefault(path, [None])
            known = described(catalogue(), join(path)) or {}
            choices += [*known.get("enum", ()), *_near(node)]
    return found


def _near(node: Mapping[str, Any]) -> list[Any]:
    near: list[Any] = [*node.get("enum", ())]
    if isinstance(const := node.get("const"), bool):
        near += [True, False]
    elif const is not None:
        near.append(const)
    for keyword in sorted({"minimum", "maximum"} & set(node)):
        near += [node[keyword] - 1, node[keyword], node[keyword] + 1]
    if "minItems" in node or "contains" in node:
        near += [[], Short(max(node.get("minItems", 1), 1))]
    return near


def nodes(schema: Mapping[str, Any], at: Path = ()) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """List a schema and the schemas in it, each with its place in the schema."""
    yield at, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, (*at, "properties", name))
    for keyword in ("items", "contains"):
        if keyword in schema:
            yield from nodes(schema[keyword], (*at, keyword))
    for keyword in ("allOf", "anyOf"):
        for index, inner in enumerate(schema.get(keyword, ())):
            yield from nodes(inner, (*at, keyword, str(index)))


def fact_path(at: Path) -> Path:
    """Turn a place in a schema into the path of the fact that it speaks of."""
    found: list[str] = []
    parts = iter(at)
    for part in parts:
        if part in ("items", "contains"):
            found.append("*")
        elif part == "properties":
            found.append(next(parts))
        else:
            next(parts)
    return tuple(found)


def mutants(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """List the changed documents of a rule, each with the name of its change."""
    for member in ("applies_when", "requires"):
        for at, node in nodes(document[member] or {}):
            for name, changed in _changes(node):
                place = f"{member}{join(fact_path(at))}"
                yield f"{place}: {name}", _replaced(document, (member, *at), changed)
    if document["applies_when"] is not None:
        yield "applies always", {**document, "applies_when": None}
    yield "applies never", {**document, "applies_when": {"const": 0}}
    effects = [e for e in ("deny", "require_approval", "warn") if e != document["effect"]]
    yield from ((f"effect {effect}", {**document, "effect": effect}) for effect in effects)
    yield "waivable turned", {**document, "waivable": not document["waivable"]}
    stages = document["stages"]
    yield from ((f"stage {s} dropped", {**document, "stages": [x for x in stages if x != s]})
                for s in stages)  # fmt: skip
    for index, approval in enumerate(document["approvals"]):
        kept = [dict(a) for a in document["approvals"]]
        kept[index]["count"] -= 1
        yield f"{approval['role']} count -1", {**document, "approvals": kept}
    for edge, value in document["effective"].items():
        for days in (-1, 1) if value else ():
            moved = (dt.datetime.strptime(value, _FORM) + days * _DAY).strftime(_FORM)  # noqa: DTZ007
            yield f"{edge} {days:+} day", {
                **document, "effective": {**document["effective"], edge: moved},
            }  # fmt: skip


def _changes(node: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for keyword, value in node.items():
        for name, other in _other_values(keyword, value):
            yield name, {**node, keyword: other}
        rest = {k: v for k, v in node.items() if k != keyword}
        if keyword in _BOUNDS or keyword == "enum":
            yield f"{keyword} dropped", rest
        if keyword == "required":
            for name in value:
                yield f"`{name}` dropped", _without(node, name)
        if keyword in ("items", "contains"):
            other = "contains" if keyword == "items" else "items"
            yield f"{keyword} became {other}", {**rest, other: value}


def _other_values(keyword: str, value: Any) -> Iterator[tuple[str, Any]]:
    if keyword in _BOUNDS:
        if value > 0 or keyword in ("minimum", "maximum"):
            yield f"{keyword} -1", value - 1
        yield f"{keyword} +1", value + 1
    if keyword == "enum":
        for item in value:
            yield f"enum without {item}", [x for x in value if x != item] or ["no-such"]
    if keyword == "const":
        yield "const turned", (not value) if isinstance(value, bool) else f"not-{value}"
    if keyword in ("allOf", "anyOf") and len(value) > 1:
        for index in range(len(value)):
            yield f"{keyword}/{index} dropped", value[:index] + value[index + 1 :]


def _without(node: Mapping[str, Any], name: str) -> dict[str, Any]:
    changed = {**node, "required": [each for each in node["required"] if each != name]}
    changed["properties"] = {k: v for k, v in node.get("properties", {}).items() if k != name}
    return changed


def _replaced(document: Mapping[str, Any], at: Path, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(dict(document))
    node: Any = changed
    for part in at[:-1]:
        node = node[int(part)] if isinstance(node, list) else node[part]
    node[int(at[-1]) if isinstance(node, list) else at[-1]] = value
    return changed


def _of_obligations(packs: Sequence[Pack]) -> Iterator[Mutant]:
    """Drop each obligation of each pack; a pack may be in force alone, so it is judged alone."""
    for pack in packs:
        whole = _asked_for(pack.document)
        for index, each in enumerate(pack.document["obligations"]):
            kept = [o for i, o in enumerate(pack.document["obligations"]) if i != index]
            name = f"obligation {each['family']} for {each['data']} data dropped"
            killed = _asked_for({**pack.document, "obligations": kept}) != whole
            yield Mutant(f"pack {pack.document['id']}", name, "boundary" if killed else "")


def _asked_for(pack: Mapping[str, Any]) -> set[tuple[str, str, str]]:
    """List which families bind, by stage and class of data."""
    obligations = Policy((pack,), ()).obligations
    classes = {o.data for o in obligations} | {"none"}
    every = dict.fromkeys(classes, False)
    return {
        (o.family, stage, name)
        for o in obligations
        for stage in ("train", "deploy")
        for name in classes
        if o.holds(stage, {**every, name: True})
    }
