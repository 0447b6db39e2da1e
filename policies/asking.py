"""Asking rules: what a rule says about facts, remembered by what it looks at.

A rule is a pure function of the facts that its schemas name. So the facts are cut into cells,
`/compute/gpus`, `/derived/budget`, `/datasets/*/licence`; rules that look at the same cells form
a group, and their findings are remembered under the exact bytes of these cells. A new job id or
another cost asks only the rules that look at it again; the others answer from memory, the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policies.cells import Cells, look, picker
from policies.decision import VERDICTS, Finding
from policies.evaluator import Checker, EvaluationError, Evaluator, Failure
from policies.facts import Checked
from policies.memory import MAX_ENTRIES, Key, Memory, Written, key_of
from policies.pointers import Path, missing
from policies.rule import Rule

# What an engine can raise on a schema it compiled and facts that the contract let through.
_ENGINE_FAULTS = (EvaluationError, ArithmeticError, LookupError, TypeError, ValueError)
# These keywords look at a whole value; all others at its type, its length or named members.
_WHOLE = frozenset({"const", "enum", "uniqueItems"})

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A rule with its two schemas compiled by one engine."""

    rule: Rule
    applies: Checker | None
    requires: Checker


def compile_rule(rule: Rule, evaluator: Evaluator) -> CompiledRule:
    """Compile one rule.

    Raises:
        EvaluationError: the engine refuses a schema.
    """
    applies = None if rule.applies_when is None else evaluator.compile(rule.applies_when)
    return CompiledRule(rule, applies, evaluator.compile(rule.requires))


Reply = tuple[str, tuple[Failure, ...], tuple[str, ...]]
"""The outcome of a rule, where it was violated, and what was missing."""


def ask(asked: CompiledRule, seen: Facts) -> Finding:
    """Ask one rule about facts with their derived facts."""
    return _finding(asked.rule, _reply(asked, seen, {}))


def _finding(rule: Rule, reply: Reply) -> Finding:
    return Finding(rule.id, rule.version, rule.effect, *reply)


def _reply(asked: CompiledRule, seen: Facts, cache: dict[Path, list[str]]) -> Reply:
    """Ask one rule; `cache` remembers what is missing, across rules that see the same."""
    rule = asked.rule
    outcome, at, absent = "error", tuple[Failure, ...](), tuple[str, ...]()
    try:
        if asked.applies is not None and (absent := _absent(rule.applies_needs, seen, cache)):
            outcome = "unknown"
        elif asked.applies is not None and not asked.applies.is_valid(seen):
            outcome = "not_applicable"
        elif absent := _absent(rule.requires_needs, seen, cache):
            outcome = "unknown"
        elif asked.requires.is_valid(seen):
            outcome = "pass"
        else:
            at, outcome = tuple(asked.requires.failures(seen)), "violated"
    except _ENGINE_FAULTS:
        outcome = "error"
    return outcome, at, absent


def _absent(
    paths: tuple[Path, ...], seen: Mapping[str, Any], known: dict[Path, list[str]]
) -> tuple[str, ...]:
    found: list[str] = []
    for path in paths:
        if path not in known:
            known[path] = missing(seen, path)
        found += known[path]
    return tuple(sorted(set(found))) if found else ()


def weight(finding: Finding) -> int:
    """Say what one outcome alone would lead to, as a place in `VERDICTS`."""
    if finding.outcome in ("pass", "not_applicable"):
        return 0
    if finding.outcome == "waived" or finding.effect == "warn":
        return VERDICTS.index("allow_with_warnings")
    return VERDICTS.index(finding.effect if finding.outcome == "violated" else "deny")


def cells(rule: Rule) -> tuple[Path, ...]:
    """List the cells of the facts that a rule looks at; they decide its finding.

    A cell is a member of a member, or of every element of a list; nothing shorter, unless the
    rule looks at the shorter one as a whole.
    """
    looked_at = {_cut(path) for path in rule.applies_needs + rule.requires_needs}
    for schema in (rule.applies_when, rule.requires):
        looked_at |= {_cut(path) for path in _wholes(schema or {}, ())}
    is_inside = {p for p in looked_at if any(p[:n] in looked_at for n in range(len(p)))}
    return tuple(sorted(looked_at - is_inside))


def _cut(path: Path) -> Path:
    return path[: 3 if path[1:2] == ("*",) else 2]


def _wholes(schema: Mapping[str, Any], path: Path) -> Iterable[Path]:
    if not _WHOLE.isdisjoint(schema):
        yield path
    for name, inner in schema.get("properties", {}).items():
        yield from _wholes(inner, (*path, name))
    for keyword in ("items", "contains"):
        if keyword in schema:
            yield from _wholes(schema[keyword], (*path, "*"))
    for keyword in ("allOf", "anyOf"):
        for inner in schema.get(keyword, ()):
            yield from _wholes(inner, path)


Answer = tuple[Finding, bytes, int]
"""A finding, its canonical bytes, and its weight."""


class _Group:
    """Rules that look at the same cells, with what they answered by what they saw there."""

    def __init__(self, looked_at: Sequence[Path]) -> None:
        self._rules: list[tuple[CompiledRule, dict[Reply, Answer]]] = []
        self.places: list[int] = []
        """Where each rule stands among all."""
        self.memory = Memory[list[Answer]]()
        self._raw = {cell[0] for cell in looked_at if cell and cell[0] != "derived"}
        self._derived = {cell[1] for cell in looked_at if cell[:1] == ("derived",) != cell}
        self._is_whole = () in looked_at or ("derived",) in looked_at

    def add(self, rule: CompiledRule, place: int) -> None:
        """Let a rule join, which stands at this place among all."""
        self._rules.append((rule, {}))
        self.places.append(place)

    def answers(self, facts: Facts, derived: Facts, key: Key) -> list[Answer]:
        """Ask the rules, and remember the answers unless an engine failed."""
        seen = {**facts, "derived": derived}
        if not self._is_whole:  # engines read all that they are given, looked at or not
            seen = {name: seen[name] for name in self._raw if name in seen}
            seen["derived"] = {name: derived[name] for name in self._derived if name in derived}
        known: dict[Path, list[str]] = {}
        found = []
        for rule, answers in self._rules:
            reply = _reply(rule, seen, known)
            answer = answers.get(reply)
            if answer is None:
                finding = _finding(rule.rule, reply)
                answer = (finding, finding.to_bytes(), weight(finding))
                if len(answers) < MAX_ENTRIES:
                    answers[reply] = answer
            found.append(answer)
        if all(finding.outcome != "error" for finding, _, _ in found):
            self.memory.keep(key, found)
        return found


class Panel:
    """The rules in force, ready to be asked together."""

    def __init__(self, asked: Sequence[CompiledRule]) -> None:
        wanted = [cells(one.rule) for one in asked]
        looked_at = {cell for own in wanted for cell in own}
        self._derived = sorted(c[1] for c in looked_at if len(c) == 2 and c[0] == "derived")
        self._wholes = sorted(looked_at & {(), ("derived",)})
        self._raw = Cells(cell for cell in looked_at if cell and cell[0] != "derived")
        order = [("derived", name) for name in self._derived] + self._wholes
        place = {cell: index for index, cell in enumerate([*order, *self._raw.cells])}
        self._size = len(asked)
        groups: dict[tuple[Path, ...], _Group] = {}
        for index, (one, own) in enumerate(zip(asked, wanted, strict=True)):
            group = groups.setdefault(own, _Group(own))
            group.add(one, index)
        self._groups = tuple(
            (group, picker([place[cell] for cell in own]), group.memory.get)
            for own, group in groups.items()
        )

    def answers(self, checked: Checked, derived: Written) -> list[Answer]:
        """Ask every rule about facts that keep the contract; the answers are in the rules' order.

        Cost: a look-up for each set of cells, and asking the rules whose cells are new.
        """
        facts, made = checked.facts, derived.value
        met = [derived.members.get(name, b"") for name in self._derived]
        met += [key_of(look({**facts, "derived": made}, cell)) for cell in self._wholes]
        met += self._raw.keys(checked)
        found: list[Any] = [None] * self._size
        for group, pick, remembered in self._groups:
            key = pick(met)
            answers = remembered(key) or group.answers(facts, made, key)
            if len(answers) == 1:
                found[group.places[0]] = answers[0]
                continue
            for place, answer in zip(group.places, answers, strict=True):
                found[place] = answer
        return found
