"""The gate: facts in, decision and record out. Pure; nothing here reads a clock or a file.

Steps, numbered in the code:
 (1) contract: a closed, typed facts document, or deny;
 (2) derive what rules need and JSON Schema cannot say;
 (3) ask every rule in force. Each fact that `applies_when` names must be known, else the rule is
     `unknown`; then it may be `not_applicable`; then the same for `requires`, which ends in
     `pass` or `violated`. A failing engine is `error`. `violated` may be turned into `waived`;
 (4) obligations: each family that binds must have been asked;
 (5) the worst outcome decides: deny > require_approval > allow_with_warnings > allow.
     `unknown` and `error` deny, except on a `warn` rule, where they warn. No rules: deny.

So the gate is monotone: deleting a fact, withdrawing a waiver, or adding a rule to a policy whose
obligations are answered never makes a verdict milder.

`replay` decides again from a record and compares bytes. Level 1 asks the rules about the
recorded facts and derived facts; level 2 derives again from the raw facts and reference data.
"""

import datetime as dt
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.canonical import canonical, digest
from policies.decision import (
    FORMAT,
    INSTANT,
    VERDICTS,
    Decision,
    Finding,
    GateError,
    parse_instant,
)
from policies.derive import VERSION, derive
from policies.evaluator import Checker, EvaluationError, Evaluator, Failure, default_evaluator
from policies.facts import contract_errors
from policies.pointers import Path, missing
from policies.policy import Policy
from policies.reference import Reference
from policies.rule import Approval, Rule
from policies.waiver import Waiver, WaiverError, considered

_SUBJECT_FORM = re.compile(r"[a-z][a-z_]*:[A-Za-z0-9][A-Za-z0-9._-]{0,127}(@[0-9]{1,9})?\Z")
# What an engine can raise on a schema it compiled and facts that the contract let through.
_ENGINE_FAULTS = (EvaluationError, ArithmeticError, LookupError, TypeError, ValueError)


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


@functools.lru_cache(maxsize=32)
def _compiled(policy: Policy, evaluator: Evaluator) -> tuple[CompiledRule, ...]:
    return tuple(compile_rule(rule, evaluator) for rule in policy.rules)


@dataclass(frozen=True, slots=True)
class _Question:
    """All that a decision depends on, facts and derived facts apart."""

    policy: Policy
    reference: Reference
    evaluated_at: str
    subject: str
    waivers: tuple[Waiver, ...]
    evaluator: Evaluator


def decide(
    policy: Policy,
    reference: Reference,
    facts: Any,
    *,
    evaluated_at: str,
    subject: str,
    waivers: Sequence[Waiver] = (),
    evaluator: Evaluator | None = None,
) -> Decision:
    """Decide on facts at an instant; the same arguments give the same bytes on any engine.

    `evaluated_at` is `YYYY-MM-DDThh:mm:ssZ`; `subject` is `kind:id` or `kind:id@version`.

    Raises:
        GateError: the instant or the subject is misspelt.
    """
    at = parse_instant(evaluated_at)
    if not _SUBJECT_FORM.match(subject):
        raise GateError(f"subject {subject!r}: expected `kind:id` or `kind:id@version`")
    engine = evaluator or default_evaluator()
    question = _Question(policy, reference, evaluated_at, subject, tuple(waivers), engine)
    encoded, plain, errors = contract_errors(facts, engine)  # (1)
    derived = {} if errors else derive(plain, reference, at)  # (2)
    return _judge(question, (encoded, plain), derived, errors)


def _judge(
    question: _Question,
    both: tuple[bytes, Any],
    derived: Mapping[str, Any],
    errors: Sequence[Failure],
) -> Decision:
    """Take steps 3 to 5; `both` are the facts in canonical bytes and in plain JSON types."""
    policy, (encoded, facts) = question.policy, both
    results: list[Finding] = []
    obligations: dict[str, str] = {}
    if not errors:
        stage, seen = facts["stage"], {**facts, "derived": derived}
        rules = _compiled(policy, question.evaluator)
        in_force = [c for c in rules if c.rule.is_in_force(stage, question.evaluated_at)]
        known: dict[Path, list[str]] = {}
        results = [_waive(question, ask(rule, seen, known)) for rule in in_force]  # (3)
        obligations = _obligations(policy, stage, derived, in_force)  # (4)
    verdict = _verdict(results, errors, obligations)  # (5)
    approvals = _approvals(policy, results) if verdict == "require_approval" else ()
    document = {
        "format": FORMAT,
        "subject": question.subject,
        "evaluated_at": question.evaluated_at,
        "valid_until": _valid_until(policy, question.evaluated_at),
        "policy": policy.digest,
        "reference": question.reference.digest,
        "derivation": VERSION,
        "facts": facts,
        "facts_digest": digest(encoded),
        "derived": derived,
        "waivers": considered(question.waivers),
        "verdict": verdict,
        "approvals": [{"role": a.role, "count": a.count} for a in approvals],
        "contract_errors": [{"pointer": p, "keyword": k} for p, k in errors],
        "obligations": obligations,
        "results": [finding.to_document() for finding in results],
    }
    return Decision(
        verdict=verdict,
        approvals=approvals,
        results=tuple(results),
        contract_errors=tuple(errors),
        obligations=obligations,
        valid_until=document["valid_until"],
        facts_digest=document["facts_digest"],
        record=_record(document, encoded, results),
        document=document,
    )


def _record(document: Mapping[str, Any], encoded: bytes, results: Sequence[Finding]) -> bytes:
    """Return `canonical(document)`, faster: facts and results are already encoded."""
    ready = {"facts": encoded, "results": b"[%b]" % b",".join(f.to_bytes() for f in results)}
    members = [
        b'"%b":%b' % (name.encode(), ready.get(name) or canonical(value))
        for name, value in sorted(document.items())
    ]
    return b"{%b}" % b",".join(members)


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
        elif asked.applies is not None and not asked.applies.is_valid(
            _shown(seen, rule.applies_view)
        ):
            outcome = "not_applicable"
        elif absent := _absent(rule.requires_needs, seen, cache):
            outcome = "unknown"
        elif asked.requires.is_valid(shown := _shown(seen, rule.requires_view)):
            outcome = "pass"
        else:
            at, outcome = tuple(asked.requires.failures(shown)), "violated"
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


def _shown(seen: Mapping[str, Any], view: tuple[Path, ...]) -> dict[str, Any]:
    """Return only the members that a schema names: engines copy what they are given."""
    shown: dict[str, Any] = {path[0]: seen[path[0]] for path in view if len(path) == 1}
    inner = {path[1]: seen["derived"][path[1]] for path in view if len(path) == 2}
    return {**shown, "derived": inner} if inner else shown


def _waive(question: _Question, found: Finding) -> Finding:
    if found.outcome != "violated" or not question.waivers:
        return found
    rule = question.policy.rule(found.rule)
    covers = (w.covers(found, question.subject, question.evaluated_at) for w in question.waivers)
    if rule is not None and rule.waivable and any(covers):
        return Finding(found.rule, found.version, found.effect, "waived", found.at)
    return found


def _obligations(
    policy: Policy, stage: str, derived: Mapping[str, Any], in_force: Sequence[CompiledRule]
) -> dict[str, str]:
    """Answer every obligation that binds: `asked`, `missing`, or `unknown` with its data class."""
    families = {asked.rule.family for asked in in_force}
    data = derived.get("data", {})
    found: dict[str, str] = {}
    for o in policy.obligations:
        if not o.holds(stage, data):
            continue
        is_sure = o.data == "any" or o.data in data
        state = "asked" if o.family in families else "missing" if is_sure else "unknown"
        found[o.family] = "missing" if found.get(o.family) == "missing" else state
    return found


def _verdict(
    results: Sequence[Finding], errors: Sequence[Failure], obligations: Mapping[str, str]
) -> str:
    if errors or not results or set(obligations.values()) - {"asked"}:
        return "deny"
    return max((_weight(finding) for finding in results), key=VERDICTS.index)


def _weight(finding: Finding) -> str:
    """Say what one outcome alone would lead to."""
    if finding.outcome in ("pass", "not_applicable"):
        return "allow"
    if finding.outcome == "waived" or finding.effect == "warn":
        return "allow_with_warnings"
    return finding.effect if finding.outcome == "violated" else "deny"


def _approvals(policy: Policy, results: Sequence[Finding]) -> tuple[Approval, ...]:
    """Unite the approvals of every violated rule: the highest count for each role."""
    counts: dict[str, int] = {}
    asking = {finding.rule for finding in results if finding.outcome == "violated"}
    for rule in policy.rules:
        for approval in rule.approvals if rule.id in asking else ():
            counts[approval.role] = max(counts.get(approval.role, 0), approval.count)
    return tuple(Approval(role, counts[role]) for role in sorted(counts))


def _valid_until(policy: Policy, now: str) -> str:
    """Return the end of the decision's validity: never past the next change of rules in force."""
    minutes = dt.timedelta(minutes=policy.validity_minutes)
    latest = (parse_instant(now) + minutes).strftime(INSTANT)
    return min([edge for edge in policy.edges if now < edge < latest], default=latest)


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a replay found; `identical` means that all of it holds.

    `same_inputs`: the policy and reference bytes have the digests that the record names.
    `same_output` (level 1): the recorded facts and derived facts give the recorded bytes.
    `same_derived` (level 2): the raw facts and reference data give the recorded derived facts.
    `differing` names the members of the record that came out differently.
    """

    same_inputs: bool
    same_output: bool
    same_derived: bool
    differing: tuple[str, ...]
    verdict: str

    @property
    def identical(self) -> bool:
        """Say whether the record was reproduced byte for byte from exactly its inputs."""
        return self.same_inputs and self.same_output and self.same_derived


def replay(
    record: bytes,
    policy_bytes: bytes,
    reference_bytes: bytes,
    *,
    evaluator: Evaluator | None = None,
) -> ReplayResult:
    """Decide again from a record, the policy and the reference data, and compare.

    Raises:
        GateError: the record is malformed.
        RuleError: the policy is.
        ReferenceDataError: the reference data are.
    """
    document: Any = Decision.from_record(record).document
    policy, reference = Policy.from_bytes(policy_bytes), Reference.from_bytes(reference_bytes)
    try:
        waivers = tuple(Waiver.from_document(w) for w in document["waivers"])
        facts, derived, subject = document["facts"], document["derived"], document["subject"]
        evaluated_at = document["evaluated_at"]
        second = decide(
            policy,
            reference,
            facts,
            evaluated_at=evaluated_at,
            subject=subject,
            waivers=waivers,
            evaluator=evaluator,
        )
    except (KeyError, TypeError, WaiverError) as cause:
        raise GateError("decision record: a member is missing or misshapen") from cause
    if not isinstance(derived, dict):
        raise GateError("decision record: `derived` is not an object")
    engine = evaluator or default_evaluator()
    question = _Question(policy, reference, evaluated_at, subject, waivers, engine)
    first = _judge(question, (canonical(facts), facts), derived, second.contract_errors)
    names = sorted(set(document) | set(second.document))
    return ReplayResult(
        same_inputs=document.get("policy") == digest(policy_bytes)
        and document.get("reference") == digest(reference_bytes),
        same_output=first.record == record,
        same_derived=derived == second.document["derived"],
        differing=tuple(n for n in names if document.get(n) != second.document.get(n)),
        verdict=second.verdict,
    )
