"""A decision table: every combination of a few abstract facts of a training job, decided.

A state is data class x place of the computing x place of data and outputs x state of
certificates x budget. Places come from the reference data; the states of certificates from the
facts catalogue, laid over what is derived, as if an operator had attached them. `None` stands for
unknown. The other facts are those of one base document, in which everything else is in order.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from audit.canonical import canonical
from policies.cases import DEFAULT_INSTANT
from policies.decision import parse_instant
from policies.derive import derive
from policies.evaluator import Evaluator
from policies.facts import catalogue, contract_errors
from policies.judging import Checked, Question, judge
from policies.lint import described
from policies.policy import Policy
from policies.reference import Reference

BUDGETS: Mapping[str, int | None] = {"within": 100, "at": 10_000, "over": 10_001, "unknown": None}
_SERVICES = {
    "own-site": ("local-process", "filesystem"),
    "ovhcloud": ("ai-training", "object-storage"),
    "aws": ("ec2", "s3"),
}
PLACES: Sequence[tuple[str, str] | None] = (
    ("own-site", "site"), ("ovhcloud", "GRA"), ("ovhcloud", "UK1"),
    ("aws", "eu-west-3"), ("aws", "us-east-1"), None,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class State:
    """One line of the table: the abstract facts, the verdict, and each rule's outcome."""

    data: str
    compute: str
    storage: str
    certificate: str
    budget: str
    verdict: str
    outcomes: Mapping[str, str]
    derived: Mapping[str, Any]


def states(
    policy: Policy, reference: Reference, base: Mapping[str, Any], evaluator: Evaluator
) -> Iterator[State]:
    """Decide every state; the order is fixed. A second for about two thousand states.

    Raises:
        ValueError: a state breaks the facts contract.
    """
    tags = ["unknown", *_known("/datasets/*/categories_declared/*")]
    kinds = ["unknown", *_known("/derived/compute/hds/status")]
    about = (reference.digest, DEFAULT_INSTANT, "job:table", (), evaluator)
    question = Question(policy, *about)
    for tag, compute, storage, budget in product(tags, PLACES, PLACES, BUDGETS):
        facts = _facts(base, tag, compute, storage, BUDGETS[budget])
        _, plain, errors = contract_errors(facts, evaluator)
        if errors:
            raise ValueError(f"the state {tag}, {compute} breaks the contract: {errors[0]}")
        checked = Checked(canonical([plain])[1:-1], plain, [])
        found = derive(facts, reference, parse_instant(DEFAULT_INSTANT))
        data = found.get("data", {})
        needs = data.get("french_health"), data.get("gov_sensitive")
        for kind in kinds if True in needs and budget == "within" else kinds[:1]:
            derived = _certified(found, kind)
            made = judge(question, checked, derived)
            outcomes = {finding.rule: finding.outcome for finding in made.results}
            names = tag, _name(compute), _name(storage), kind, budget
            yield State(*names, made.verdict, outcomes, derived)


def _known(pattern: str) -> list[str]:
    return [str(each) for each in (described(catalogue(), pattern) or {}).get("enum", ())]


def _name(place: tuple[str, str] | None) -> str:
    return "unknown" if place is None else "/".join(place)


def _facts(
    base: Mapping[str, Any],
    tag: str,
    compute: tuple[str, str] | None,
    storage: tuple[str, str] | None,
    cents: int | None,
) -> dict[str, Any]:
    facts = copy.deepcopy({k: v for k, v in base.items() if k != "derived"})
    facts["compute"] |= _place(compute, 0)
    for each in (*facts["datasets"], *facts["storage"]):
        each.update(_place(storage, 1))
    declared = None if tag == "unknown" else [tag]
    facts["datasets"][0] |= {"categories_declared": declared, "categories_detected": []}
    facts["cost"]["estimate_cents"] = cents
    return facts


def _place(place: tuple[str, str] | None, service: int) -> dict[str, str | None]:
    provider, region = place or (None, None)
    name = _SERVICES[provider][service] if provider else None
    return {"provider": provider, "region": region, "service": name}


def _certified(found: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Lay a state of certificates over every place."""
    derived: dict[str, Any] = copy.deepcopy(dict(found))
    parts = *derived.get("datasets", ()), *derived.get("storage", ())
    places = [derived.get("compute", {}), *parts]
    for place, scheme in product(places, ("hds", "secnumcloud")):
        if kind == "unknown":
            place.pop(scheme, None)
            continue
        place[scheme] = {"status": kind, "days_short": 0}
        if scheme == "hds":
            place[scheme]["missing_activities"] = 0
    return derived


def implied(found: Sequence[State], rules: Sequence[str]) -> list[tuple[str, str]]:
    """List (rule, other): wherever the rule is violated in the table, the other one is too."""
    violated = {
        rule: {i for i, state in enumerate(found) if state.outcomes.get(rule) == "violated"}
        for rule in rules
    }
    return [
        (rule, other)
        for rule, other in product(rules, rules)
        if rule != other and violated[rule] and violated[rule] <= violated[other]
    ]


def unmentioned(found: Sequence[State]) -> list[str]:
    """List the data classes that no rule tells from `public` anywhere in the table."""
    said: dict[str, list[Any]] = {}
    for state in found:
        if state.certificate == "unknown":
            said.setdefault(state.data, []).append((state.verdict, state.outcomes))
    return [tag for tag, told in said.items() if tag != "public" and told == said.get("public")]
