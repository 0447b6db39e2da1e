"""Steps 3 to 5 of the gate: from facts and derived facts to a verdict and its record.

`policies.gate` says what the steps mean. This is where the record is written: member by member,
in canonical order, each member in its canonical form.
"""

import bisect
import datetime as dt
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.canonical import Digest, canonical, digest
from policies.asking import Answer, CompiledRule, Panel, compile_rule, weight
from policies.decision import FORMAT, VERDICTS, Decision, Finding, GateError, parse_instant
from policies.derive import VERSION
from policies.evaluator import Evaluator, Failure
from policies.facts import Checked
from policies.memory import Memory, Written
from policies.policy import Policy
from policies.rule import Approval
from policies.waiver import Waiver, considered

_SUBJECT_FORM = re.compile(r"[a-z][a-z_]*:[A-Za-z0-9][A-Za-z0-9._-]{0,127}(@[0-9]{1,9})?\Z")
# Days are counted from an instant, so the first and the last years of the calendar are left out.
_YEARS = range(1900, 9000)
_DENY = VERDICTS.index("deny")
_DERIVATION = canonical(VERSION)
_RECORD = (
    b'{"approvals":%b,"contract_errors":%b,"derivation":%b,"derived":%b,"evaluated_at":"%b",'
    b'"facts":%b,"facts_digest":"%b","format":"' + FORMAT.encode() + b'","obligations":%b,'
    b'"policy":"%b","reference":"%b","results":[%b],"subject":"%b","valid_until":"%b",'
    b'"verdict":"%b","waivers":%b}'
)


@dataclass(frozen=True, slots=True)
class Question:
    """All that a decision depends on, facts and derived facts apart."""

    policy: Policy
    reference: str
    """The digest of the reference data."""
    evaluated_at: str
    subject: str
    waivers: tuple[Waiver, ...]
    evaluator: Evaluator
    derivation: str = VERSION

    def instant(self) -> dt.datetime:
        """Check instant and subject, and return the instant.

        Raises:
            GateError: one of them is misspelt.
        """
        at = _instant(self.evaluated_at)
        if at.year not in _YEARS:
            raise GateError(f"instant `{self.evaluated_at}`: expected a year from 1900 to 8999")
        if not _SUBJECT_FORM.match(self.subject):
            raise GateError(f"subject {self.subject!r}: expected `kind:id` or `kind:id@version`")
        return at


def judge(question: Question, checked: Checked, derived: Written) -> Decision:
    """Ask the rules, answer the obligations, take the worst outcome, and write the record."""
    policy, errors = question.policy, checked.errors
    answers: list[Answer] = []
    obligations: dict[str, str] = {}
    wanted: Mapping[str, tuple[Approval, ...]] = {}
    bound, is_open = b"{}", False
    if not errors:
        era = bisect.bisect_right(policy.edges, question.evaluated_at)
        bench = _bench(policy, question.evaluator, checked.facts["stage"], era)
        answers = bench.panel.answers(checked, derived)
        if question.waivers:
            answers = [_waived(question, answer) for answer in answers]
        obligations, bound, is_open = bench.obligations(derived)
        wanted = bench.approvals
    verdict = VERDICTS[max([rank for _, _, rank in answers]) if is_open and answers else _DENY]
    results = tuple([finding for finding, _, _ in answers])
    approvals = _united(wanted, results) if verdict == "require_approval" else ()
    facts_digest, valid_until = digest(checked.encoded), _valid_until(question)
    record = _RECORD % (
        _approvals_written(approvals),
        _errors_written(errors),
        _DERIVATION if question.derivation == VERSION else canonical(question.derivation),
        derived.encoded,
        question.evaluated_at.encode(),
        checked.encoded,
        facts_digest.encode(),
        bound,
        policy.digest.encode(),
        question.reference.encode(),
        b",".join([piece for _, piece, _ in answers]),
        question.subject.encode(),
        valid_until.encode(),
        verdict.encode(),
        canonical(considered(question.waivers)) if question.waivers else b"[]",
    )
    return Decision(
        verdict=verdict,
        approvals=approvals,
        results=results,
        contract_errors=tuple(errors),
        obligations=dict(obligations),
        valid_until=valid_until,
        facts_digest=Digest(facts_digest),
        record=record,
    )


class _Bench:
    """The rules in force at one stage in one era, and the obligations that bind there."""

    def __init__(self, policy: Policy, asked: Sequence[CompiledRule], stage: str) -> None:
        self.panel = Panel(asked)
        self._families = frozenset(one.rule.family for one in asked)
        self._binding = tuple(o for o in policy.obligations if stage in o.stages)
        self._stage = stage
        self.approvals = {one.rule.id: one.rule.approvals for one in asked if one.rule.approvals}
        self._known = Memory[tuple[dict[str, str], bytes, bool]]()

    def obligations(self, derived: Written) -> tuple[dict[str, str], bytes, bool]:
        """Answer every obligation that binds, write the answers, and say whether all are `asked`.

        The others are `missing`, or `unknown` with the class of the data.
        """
        key = derived.members.get("data", b"")
        answer = self._known.get(key)
        if answer is None:
            found = self._found(derived.value.get("data", {}))
            answer = (found, canonical(found), set(found.values()) <= {"asked"})
            self._known.keep(key, answer)
        return answer

    def _found(self, data: Mapping[str, Any]) -> dict[str, str]:
        found: dict[str, str] = {}
        for o in self._binding:
            if not o.holds(self._stage, data):
                continue
            is_sure = o.data == "any" or o.data in data
            state = "asked" if o.family in self._families else "missing" if is_sure else "unknown"
            found[o.family] = "missing" if found.get(o.family) == "missing" else state
        return found


def _united(
    wanted: Mapping[str, tuple[Approval, ...]], results: Sequence[Finding]
) -> tuple[Approval, ...]:
    """Unite the approvals of every violated rule: the highest count for each role."""
    counts: dict[str, int] = {}
    for finding in results:
        if finding.outcome == "violated":
            for approval in wanted.get(finding.rule, ()):
                counts[approval.role] = max(counts.get(approval.role, 0), approval.count)
    return tuple(Approval(role, counts[role]) for role in sorted(counts))


@functools.lru_cache(maxsize=16)
def _compiled(policy: Policy, evaluator: Evaluator) -> tuple[CompiledRule, ...]:
    return tuple(compile_rule(rule, evaluator) for rule in policy.rules)


@functools.lru_cache(maxsize=16)
def _bench(policy: Policy, evaluator: Evaluator, stage: str, era: int) -> _Bench:
    """Return the rules in force between two neighbours of the policy's edges."""
    since = policy.edges[era - 1] if era else ""
    asked = [c for c in _compiled(policy, evaluator) if c.rule.is_in_force(stage, since)]
    return _Bench(policy, asked, stage)


def _waived(question: Question, answer: Answer) -> Answer:
    found = answer[0]
    if found.outcome != "violated":
        return answer
    rule = question.policy.rule(found.rule)
    covers = (w.covers(found, question.subject, question.evaluated_at) for w in question.waivers)
    if rule is None or not rule.waivable or not any(covers):
        return answer
    waived = Finding(found.rule, found.version, found.effect, "waived", found.at)
    return waived, waived.to_bytes(), weight(waived)


def _valid_until(question: Question) -> str:
    """Return the end of the decision's validity: never past the next change of rules in force."""
    policy, now = question.policy, question.evaluated_at
    latest = _after(now, policy.validity_minutes)
    later = bisect.bisect_right(policy.edges, now)
    return min(latest, policy.edges[later]) if later < len(policy.edges) else latest


def _after(now: str, minutes: int) -> str:
    later = _instant(now) + dt.timedelta(minutes=minutes)
    return later.isoformat()[:19] + "Z"


# Asked for twice in each decision.
_instant = functools.lru_cache(maxsize=64)(parse_instant)


@functools.lru_cache(maxsize=256)
def _approvals_written(approvals: tuple[Approval, ...]) -> bytes:
    return canonical([{"role": a.role, "count": a.count} for a in approvals])


def _errors_written(errors: Sequence[Failure]) -> bytes:
    if not errors:
        return b"[]"
    return canonical([{"pointer": pointer, "keyword": keyword} for pointer, keyword in errors])
