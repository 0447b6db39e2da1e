"""Asking rules: what a rule says about facts, remembered by what it looks at.

A rule is a pure function of the facts that its schemas name. So the facts are cut into cells,
`/compute/gpus`, `/derived/budget`, `/datasets/*/licence`, each rule knows which cells it looks
at, and its finding is remembered under their exact bytes. A new job id or another cost asks only
the rules that look at it again; the others answer from memory, and answer the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from policies.decision import VERDICTS, Finding
from policies.evaluator import Checker, EvaluationError, Evaluator, Failure
from policies.memory import MAX_ENTRIES, Key, Memory, key_of
from policies.pointers import Path, missing
from policies.rule import Rule

# What an engine can raise on a schema it compiled and facts that the contract let through.
_ENGINE_FAULTS = (EvaluationError, ArithmeticError, LookupError, TypeError, ValueError)
# These keywords look at a whole value; all others at its type, its length or named members.
_WHOLE = frozenset({"const", "enum", "uniqueItems"})


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


def ask(
    asked: CompiledRule, seen: Mapping[str, Any], known: dict[Path, list[str]] | None = None
) -> Finding:
    """Ask one rule; `known` remembers what is missing, across the rules of one decision."""
    rule = asked.rule
    cache: dict[Path, list[str]] = {} if known is None else known
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
    return Finding(rule.id, rule.version, rule.effect, outcome, at, absent)


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


def look(node: Any, path: Path) -> object:
    """Return what a path meets; a tuple, which JSON has none of, where it breaks off."""
    for depth, part in enumerate(path):
        if part == "*":
            if type(node) is not list:
                return (depth, node)
            rest = path[depth + 1 :]
            return [look(item, rest) for item in node]
        if type(node) is not dict:
            return (depth, node)
        if part not in node:
            return (depth,)
        node = node[part]
    return node


def _derived_name(cell: Path) -> str:
    return cell[1] if len(cell) == 2 and cell[0] == "derived" else ""


Answer = tuple[Finding, bytes, int]
"""A finding, its canonical bytes, and its weight."""


class _Seat:
    """One rule with what it answered, by the cells it looked at."""

    def __init__(self, asked: CompiledRule, looked_at: Sequence[int]) -> None:
        self.asked = asked
        self.pick = itemgetter(*looked_at) if looked_at else lambda _met: b""
        self.memory = Memory[Answer]()
        self._answers: dict[Finding, Answer] = {}

    def answer(self, seen: Mapping[str, Any], known: dict[Path, list[str]], key: Key) -> Answer:
        """Ask the rule, and remember the answer unless the engine failed."""
        finding = ask(self.asked, seen, known)
        answer = self._answers.get(finding)
        if answer is None:
            answer = (finding, finding.to_bytes(), weight(finding))
            if len(self._answers) < MAX_ENTRIES:
                self._answers[finding] = answer
        if finding.outcome != "error":
            self.memory.keep(key, answer)
        return answer


class Panel:
    """The rules in force, ready to be asked together."""

    def __init__(self, asked: Sequence[CompiledRule]) -> None:
        wanted = [cells(one.rule) for one in asked]
        looked_at = sorted({cell for own in wanted for cell in own})
        place = {cell: index for index, cell in enumerate(looked_at)}
        self._cells = tuple((cell, _derived_name(cell)) for cell in looked_at)
        seats = [
            _Seat(one, [place[c] for c in own]) for one, own in zip(asked, wanted, strict=True)
        ]
        self._rows = tuple((seat, seat.pick, seat.memory.get) for seat in seats)

    def answers(
        self, facts: Mapping[str, Any], derived: Mapping[str, Any], keys: Mapping[str, bytes]
    ) -> list[Answer]:
        """Ask every rule, in order; `keys` holds the key of each derived member, when known."""
        seen = {**facts, "derived": derived}
        met = [
            keys[name] if name in keys else key_of(look(seen, cell)) for cell, name in self._cells
        ]
        known: dict[Path, list[str]] = {}
        found: list[Answer] = []
        for seat, pick, remembered in self._rows:
            key = pick(met)
            found.append(remembered(key) or seat.answer(seen, known, key))
        return found
