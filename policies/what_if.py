"""What-if: past decisions made again under a candidate policy, and what comes out otherwise.

Each record brings its own facts, instant, waivers and, by digest, its reference data: only the
policy is another. What the record says is the past; nothing is taken for unchanged because it
passed before. A waiver is for one version of a rule, so a candidate with a new version loses it.

    for change in compare(records, candidate, {reference.digest: reference}):
        if change.crosses_deny: …
    summary(changes)     counts by verdict, rule and team, ready for JSON
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policies.decision import FORMAT, VERDICTS, GateError
from policies.evaluator import Evaluator
from policies.gate import decide
from policies.policy import Policy
from policies.reference import Reference
from policies.waiver import Waiver, WaiverError

NOT_ASKED = "not_asked"
NO_TEAM = "-"


@dataclass(frozen=True, slots=True)
class RuleChange:
    """A rule whose outcome is another one; `not_asked` where the policy does not have it."""

    rule: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Change:
    """One past decision and what it would be; `before` and `after` are verdicts."""

    subject: str
    team: str
    evaluated_at: str
    before: str
    after: str
    rules: tuple[RuleChange, ...]

    @property
    def direction(self) -> str:
        """Return `stricter`, `milder` or `same`."""
        before, after = VERDICTS.index(self.before), VERDICTS.index(self.after)
        return "same" if before == after else "stricter" if after > before else "milder"

    @property
    def crosses_deny(self) -> str:
        """Return `to_deny` or `from_deny` where work is stopped or let through, else ``."""
        if self.before == self.after or "deny" not in (self.before, self.after):
            return ""
        return "to_deny" if self.after == "deny" else "from_deny"


def compare(
    records: Iterable[bytes],
    candidate: Policy,
    references: Mapping[str, Reference],
    *,
    evaluator: Evaluator | None = None,
) -> Iterator[Change]:
    """Decide on each record's facts again under `candidate`; lazily, one change per record.

    Args:
        records: decision records, of whose bytes the caller is sure.
        candidate: the policy to try.
        references: reference data by digest; each record names its own.
        evaluator: what asks the rules.

    Raises:
        GateError: a record is malformed, or its reference data is not there.
    """
    for record in records:
        document = _document(record)
        try:
            before, outcomes = document["verdict"], _outcomes(document["results"])
            waivers = tuple(Waiver.from_document(one) for one in document["waivers"])
            reference = references.get(document["reference"])
            if reference is None:
                raise GateError(f"the history lacks the reference data {document['reference']}")
            fresh = decide(
                candidate,
                reference,
                document["facts"],
                evaluated_at=document["evaluated_at"],
                subject=document["subject"],
                waivers=waivers,
                evaluator=evaluator,
            )
        except (KeyError, TypeError, AttributeError, WaiverError) as cause:
            raise GateError("decision record: a member is missing or misshapen") from cause
        yield Change(
            subject=document["subject"],
            team=_team(document["facts"]),
            evaluated_at=document["evaluated_at"],
            before=before,
            after=fresh.verdict,
            rules=_rules(outcomes, {one.rule: one.outcome for one in fresh.results}),
        )


def _document(record: bytes) -> dict[str, Any]:
    """Read a record without proving its form, which takes longer than deciding: replay does."""
    try:
        document = json.loads(record)
    except (ValueError, RecursionError) as cause:
        raise GateError("decision record: not JSON") from cause
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise GateError(f"decision record: expected format `{FORMAT}`")
    if document.get("verdict") not in VERDICTS:
        raise GateError(f"decision record: expected a verdict of {', '.join(VERDICTS)}")
    return document


def _outcomes(results: Any) -> dict[str, str]:
    return {str(result["rule"]): str(result["outcome"]) for result in results}


def _team(facts: Any) -> str:
    job = facts.get("job") if isinstance(facts, dict) else None
    team = job.get("team") if isinstance(job, dict) else None
    return team if isinstance(team, str) else NO_TEAM


def _rules(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[RuleChange, ...]:
    return tuple(
        RuleChange(rule, old.get(rule, NOT_ASKED), new.get(rule, NOT_ASKED))
        for rule in sorted({*old, *new})
        if old.get(rule) != new.get(rule)
    )


def summary(changes: Sequence[Change]) -> dict[str, Any]:
    """Count what changes by verdict, by rule and by team; every changed decision is listed.

    A rule counts under `verdicts` where its outcome and the verdict changed together.
    """
    changed = [one for one in changes if one.before != one.after]
    return {
        "decisions": len(changes),
        "changed": len(changed),
        "stricter": sum(one.direction == "stricter" for one in changed),
        "milder": sum(one.direction == "milder" for one in changed),
        "to_deny": sum(one.crosses_deny == "to_deny" for one in changed),
        "from_deny": sum(one.crosses_deny == "from_deny" for one in changed),
        "verdicts": _verdicts(changed),
        "rules": _by_rule(changes),
        "teams": _by_team(changes),
        "list": [_listed(one) for one in changed],
    }


def _verdicts(changed: Sequence[Change]) -> list[dict[str, Any]]:
    counts = Counter((one.before, one.after) for one in changed)
    return [
        {"before": before, "after": after, "count": count}
        for (before, after), count in sorted(counts.items())
    ]


def _by_rule(changes: Sequence[Change]) -> list[dict[str, Any]]:
    outcomes: dict[str, Counter[tuple[str, str]]] = {}
    verdicts: Counter[str] = Counter()
    for one in changes:
        for rule in one.rules:
            outcomes.setdefault(rule.rule, Counter())[rule.before, rule.after] += 1
            verdicts[rule.rule] += one.before != one.after
    return [
        {
            "rule": rule,
            "decisions": counts.total(),
            "verdicts": verdicts[rule],
            "outcomes": [
                {"before": before, "after": after, "count": count}
                for (before, after), count in sorted(counts.items())
            ],
        }
        for rule, counts in sorted(outcomes.items())
    ]


def _by_team(changes: Sequence[Change]) -> list[dict[str, Any]]:
    teams: dict[str, list[Change]] = {}
    for one in changes:
        teams.setdefault(one.team, []).append(one)
    return [
        {
            "team": team,
            "decisions": len(own),
            "stricter": sum(one.direction == "stricter" for one in own),
            "milder": sum(one.direction == "milder" for one in own),
            "to_deny": sum(one.crosses_deny == "to_deny" for one in own),
            "from_deny": sum(one.crosses_deny == "from_deny" for one in own),
        }
        for team, own in sorted(teams.items())
    ]


def _listed(one: Change) -> dict[str, Any]:
    return {
        "subject": one.subject,
        "team": one.team,
        "evaluated_at": one.evaluated_at,
        "before": one.before,
        "after": one.after,
        "rules": [{"rule": r.rule, "before": r.before, "after": r.after} for r in one.rules],
    }
