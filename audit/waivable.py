"""What may be waived, who may sign for it and how long it may last, as policy and rows say it.

A part of level L6; `audit.invariants` lists the rules. The policy says of each rule whether it is
`waivable` and which roles approve; where it names none, officers do. The reference data say the
longest time in days: `waiver_max_days.<rule>`, else `waiver_max_days`. Without such a row nothing
can be waived.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from audit.canonical import JsonValue
from audit.enclosed import Enclosed, Members, UnreadableError

POLICY_FORMAT = "placet.policy/1"
REFERENCE_FORMAT = "placet.reference/1"
_LONGEST = "waiver_max_days"


@dataclass(frozen=True)
class RuleTerms:
    """What a policy says of one rule."""

    version: str
    is_waivable: bool
    roles: frozenset[str]


class Waivable:
    """Reads policies and reference data, each once."""

    def __init__(self, enclosed: Enclosed) -> None:
        self._enclosed = enclosed
        self._rules: dict[str, dict[str, RuleTerms]] = {}
        self._days: dict[str, dict[str, int]] = {}

    def has_policy(self, policy: str) -> bool:
        """Say whether a policy is enclosed; one that is not is remembered as missing.

        Raises:
            UnreadableError: it is no policy.
        """
        if policy not in self._rules:
            document = self._enclosed.read(policy, POLICY_FORMAT)
            if document is None:
                return False
            self._rules[policy] = dict(_rules(document))
        return True

    def rule(self, policy: str, rule: str) -> RuleTerms | None:
        """Return what an enclosed policy says of a rule, or None when it has no such rule."""
        return self._rules[policy].get(rule)

    def has_reference(self, reference: str) -> bool:
        """Say whether reference data are enclosed; what is not is remembered as missing.

        Raises:
            UnreadableError: it is no reference data.
        """
        if reference not in self._days:
            document = self._enclosed.read(reference, REFERENCE_FORMAT)
            if document is None:
                return False
            self._days[reference] = dict(_days(document))
        return True

    def longest(self, reference: str, rule: str) -> int | None:
        """Return how many days a waiver of a rule may last by enclosed reference data, if any."""
        days = self._days[reference]
        return days.get(f"{_LONGEST}.{rule}", days.get(_LONGEST))


def _rules(policy: Members) -> Iterator[tuple[str, RuleTerms]]:
    try:
        for rule in cast("list[dict[str, JsonValue]]", policy["rules"]):
            asked = cast("list[dict[str, JsonValue]]", rule["approvals"])
            roles = frozenset(str(one["role"]) for one in asked) or frozenset({"officer"})
            yield str(rule["id"]), RuleTerms(str(rule["version"]), rule["waivable"] is True, roles)
    except (KeyError, TypeError) as cause:
        raise UnreadableError("a policy has rules with id, version, waivable, approvals") from cause


def _days(reference: Members) -> Iterator[tuple[str, int]]:
    try:
        tables = cast("dict[str, list[dict[str, JsonValue]]]", reference["tables"])
        for row in tables.get("thresholds", []):
            if str(row["id"]).startswith(_LONGEST) and type(row.get("value")) is int:
                yield str(row["id"]), cast("int", row["value"])
    except (AttributeError, KeyError, TypeError) as cause:
        raise UnreadableError("reference data have tables of rows") from cause
