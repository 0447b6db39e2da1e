"""The rules' own tests: each rule file carries cases, and this runs them.

A case starts from a base facts document, sets and removes members by pointer, derives with the
reference data, and says which outcome the rule must give and where it must fail. Pointers under
`/derived` are applied after the derivation, so a case can speak of a certificate that the
shipped reference data do not hold. A rule must have a case for each outcome in `WANTED`.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policies.decision import parse_instant
from policies.deriving import derive
from policies.evaluator import Evaluator
from policies.facts import check
from policies.gate import ask, compile_rule
from policies.load import Pack
from policies.pointers import drop, put
from policies.reference import Reference
from policies.rule import Rule

WANTED = ("pass", "violated", "unknown", "not_applicable")
DEFAULT_INSTANT = "2026-11-30T12:00:00Z"
# The own site that cases run on: in France, with declared ownership.
CASE_SITE: Mapping[str, Any] = {
    "country": "FR",
    "declared_by": "prn_case",
    "checked_on": "2026-11-30",
    "parent_country": "FR",
    "establishments": [],
}


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What one case gave; `detail` says in what it differs, empty when it does not."""

    rule: str
    case: str
    expected: str
    got: str
    detail: str

    @property
    def ok(self) -> bool:
        """Say whether the case came out as it says."""
        return not self.detail


def seen_by(
    case: Mapping[str, Any], base: Mapping[str, Any], reference: Reference, evaluator: Evaluator
) -> tuple[dict[str, Any], str]:
    """Build what the rule sees in a case: facts with `derived`, and the instant.

    Raises:
        ValueError: a pointer that is not there, or facts that break the contract.
    """
    instant = str(case.get("evaluated_at", DEFAULT_INSTANT))
    facts: dict[str, Any] = copy.deepcopy({k: v for k, v in base.items() if k != "derived"})
    _change(facts, case, derived=False)
    errors = check(facts, evaluator).errors
    if errors:
        raise ValueError(f"facts break the contract: {errors}")
    derived = derive(facts, reference, parse_instant(instant))
    seen = {**facts, "derived": _laid_over(derived, base.get("derived", {}))}
    _change(seen, case, derived=True)
    return seen, instant


def _change(document: dict[str, Any], case: Mapping[str, Any], *, derived: bool) -> None:
    for pointer, value in case.get("set", {}).items():
        if pointer.startswith("/derived/") is derived:
            put(document, pointer, copy.deepcopy(value))
    for pointer in case.get("remove", ()):
        if pointer.startswith("/derived/") is derived:
            drop(document, pointer)


def _laid_over(under: Any, over: Any) -> Any:
    if isinstance(under, dict) and isinstance(over, dict):
        return {
            k: _laid_over(under.get(k), over[k]) if k in over else under[k]
            for k in {**under, **over}
        }
    if isinstance(under, list) and isinstance(over, list):
        return [_laid_over(a, b) for a, b in zip(under, over, strict=True)]
    return copy.deepcopy(over)


def run_case(
    rule: Rule,
    case: Mapping[str, Any],
    base: Mapping[str, Any],
    reference: Reference,
    evaluator: Evaluator,
) -> CaseResult:
    """Run one case of one rule."""
    expected, got, detail = str(case["expect"]), "error", ""
    try:
        seen, instant = seen_by(case, base, reference, evaluator)
    except ValueError as cause:
        return CaseResult(rule.id, case["name"], expected, got, f"case is malformed: {cause}")
    got = "not_applicable"
    if rule.is_in_force(seen["stage"], instant):
        finding = ask(compile_rule(rule, evaluator), seen)
        got = finding.outcome
        at = sorted({pointer for pointer, _ in finding.at})
        if "at" in case and at != sorted(case["at"]):
            detail = f"failed at {at}, expected {sorted(case['at'])}"
    if got != expected:
        detail = f"expected {expected}, got {got}"
    return CaseResult(rule.id, case["name"], expected, got, detail)


def run_cases(
    packs: Sequence[Pack], reference: Reference, evaluator: Evaluator
) -> tuple[CaseResult, ...]:
    """Run every case of every rule in the packs."""
    return tuple(
        run_case(rule, case, pack.bases[case["given"]], reference, evaluator)
        for pack in packs
        for rule in pack.rules
        for case in pack.tests[rule.id]
    )


def uncovered(packs: Sequence[Pack]) -> tuple[tuple[str, str], ...]:
    """List (rule, outcome) for every outcome of `WANTED` that no case of the rule expects."""
    return tuple(
        (rule.id, outcome)
        for pack in packs
        for rule in pack.rules
        for outcome in WANTED
        if outcome not in {case["expect"] for case in pack.tests[rule.id]}
    )
