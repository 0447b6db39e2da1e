"""The decision table: every combination of a few abstract facts, and what the gate says. Pure.

It is the view of completeness: an officer sees which worlds are allowed at all, and whether one of
them should not be. `worlds.yaml` holds the axes; each world is a whole facts document, decided by
the gate itself, so nothing here judges.
"""

import copy
import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from policies.decision import VERDICTS
from policies.gate import decide
from policies.pointers import put
from policies.policy import Policy
from policies.reference import Reference
from policies.strict import parse_yaml

STAGES = ("train", "deploy")


@dataclass(frozen=True, slots=True)
class World:
    """One combination of values, by axis, and what the gate said of it.

    `findings` are (rule, outcome) of every rule in force, pass and not applicable included.
    """

    stage: str
    values: Mapping[str, str]
    verdict: str
    findings: tuple[tuple[str, str], ...]

    @property
    def deciding(self) -> tuple[str, ...]:
        """Return the rules that are neither passed nor not applicable."""
        quiet = ("pass", "not_applicable")
        return tuple(rule for rule, outcome in self.findings if outcome not in quiet)


@dataclass(frozen=True, slots=True)
class Survey:
    """What a table as a whole tells.

    Attributes:
        verdicts: worlds by stage and verdict.
        never_violated: rules that are asked, and that no world violates.
        never_asked: rules that apply in no world, or are not in force on its day.
        implied: (rule, other), of those that deny: every world that violates the first violates the
            other.
        unmentioned: data categories that belong to no class, so that no rule can tell them apart.
    """

    verdicts: Mapping[str, Mapping[str, int]]
    never_violated: tuple[str, ...]
    never_asked: tuple[str, ...]
    implied: tuple[tuple[str, str], ...]
    unmentioned: tuple[str, ...]


@functools.cache
def _spec() -> Any:
    return parse_yaml(resources.files("policies").joinpath("worlds.yaml").read_bytes())


def axes(stage: str) -> dict[str, tuple[str, ...]]:
    """Return the values of every axis of a stage, in order; `certificates` comes last."""
    found = {name: tuple(values) for name, values in _spec()[stage]["axes"].items()}
    return {**found, "certificates": tuple(_spec()["certificates"])}


def size(stage: str) -> int:
    """Return how many worlds a stage has."""
    total = 1
    for values in axes(stage).values():
        total *= len(values)
    return total


def worlds(policy: Policy, reference: Reference, stage: str) -> Iterator[World]:
    """Decide on every world of a stage, in the order of the axes; about 1 ms each.

    `reference` is laid under: the site and the recorded certificates are those of the worlds.
    """
    spec = _spec()
    names = axes(stage)
    sited = Reference(reference.tables, spec["sited"])
    references = {name: _certified(sited, name) for name in spec["certificates"]}
    for combination in itertools.product(*names.values()):
        values = dict(zip(names, combination, strict=True))
        made = decide(
            policy,
            references[values["certificates"]],
            facts_of(stage, values),
            evaluated_at=spec["instant"],
            subject="case:table",
        )
        findings = tuple((one.rule, one.outcome) for one in made.results)
        yield World(stage, values, made.verdict, findings)


def facts_of(stage: str, values: Mapping[str, str]) -> dict[str, Any]:
    """Build the facts document of a world."""
    spec = _spec()[stage]
    facts: dict[str, Any] = copy.deepcopy(spec["base"])
    for axis, chosen in spec["axes"].items():
        for pointer, value in chosen[values[axis]].items():
            put(facts, pointer, copy.deepcopy(value))
    return facts


def _certified(reference: Reference, name: str) -> Reference:
    """Return the reference data with what the operator of a world has recorded."""
    spec = _spec()
    dates = spec["certificates"][name]
    if dates is None:
        return reference
    rows = [
        {
            **place,
            **dates,
            "scheme": scheme,
            "status": "attested",
            "framework_version": version,
            "activities": [1, 2, 3, 4, 5, 6],
            "confidence": "declared",
            "checked_on": spec["sited"]["checked_on"],
            "source": "the decision table's own world",
        }
        for place in spec["certified"]
        for scheme, version in spec["schemes"].items()
    ]
    tables = {**reference.tables, "certificates": (*reference.rows("certificates"), *rows)}
    return Reference(tables, reference.site)


def survey(policy: Policy, reference: Reference, decided: Sequence[World]) -> Survey:
    """Sum up what a list of worlds shows about the policy."""
    counts: dict[str, Counter[str]] = {}
    against: dict[str, set[int]] = {rule.id: set() for rule in policy.rules}
    asked: set[str] = set()
    for number, world in enumerate(decided):
        counts.setdefault(world.stage, Counter())[world.verdict] += 1
        for rule, outcome in world.findings:
            if outcome != "not_applicable":
                asked.add(rule)
            if outcome == "violated":
                against[rule].add(number)
    effects = {rule.id: rule.effect for rule in policy.rules}
    refusing = {rule: seen for rule, seen in against.items() if seen and effects[rule] == "deny"}
    implied = tuple(
        (rule, other)
        for rule, seen in sorted(refusing.items())
        for other, others in sorted(refusing.items())
        if rule != other and seen <= others and (seen != others or rule < other)
    )
    return Survey(
        verdicts={stage: {v: found[v] for v in VERDICTS} for stage, found in counts.items()},
        never_violated=tuple(sorted(r for r, seen in against.items() if not seen and r in asked)),
        never_asked=tuple(sorted(set(against) - asked)),
        implied=implied,
        unmentioned=tuple(
            sorted(
                str(row["tag"])
                for row in reference.rows("categories")
                if not row["classes"] and not row["implies"] and row["same_as"] is None
            )
        ),
    )
