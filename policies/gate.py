"""The gate: facts in, decision and record out. Pure; nothing here reads a clock or a file.

Steps:
 (1) contract: a closed, typed facts document, or deny;
 (2) derive what rules need and JSON Schema cannot say;
 (3) ask every rule in force. Each fact that `applies_when` names must be known, else the rule is
     `unknown`; then it may be `not_applicable`; then the same for `requires`, which ends in
     `pass` or `violated`. A failing engine is `error`. `violated` may be turned into `waived`;
 (4) obligations: each family that binds must have been asked;
 (5) the worst outcome decides: deny > require_approval > allow_with_warnings > allow.
     `unknown` and `error` deny, except on a `warn` rule, where they warn. No rules: deny.

So the gate is monotone: deleting a fact, withdrawing a waiver, or adding a rule to a policy whose
obligations are answered never makes a verdict milder. No decision is ever remembered: each takes
every step; only pure parts of them (`policies.memory`) answer again what they answered before.

`replay` decides again from a record and compares bytes. Level 1 asks the rules about the
recorded facts and derived facts; level 2 derives again from the raw facts and reference data.
Level 2 needs the derivation that the record names: where that is not today's, it is not checked.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from audit.canonical import CanonicalError, canonical, digest, parse
from policies.asking import CompiledRule, ask, compile_rule
from policies.decision import Decision, GateError
from policies.derive import VERSION
from policies.deriving import derived
from policies.evaluator import Evaluator, default_evaluator
from policies.facts import Checked, check, check_bytes, taken
from policies.judging import Question, judge
from policies.memory import Written
from policies.policy import Policy
from policies.reference import Reference
from policies.waiver import Waiver, WaiverError

__all__ = ["CompiledRule", "ReplayResult", "ask", "compile_rule", "decide", "replay"]


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
    `facts` are not changed, and not kept.

    Raises:
        GateError: the instant or the subject is misspelt.
    """
    engine = evaluator or default_evaluator()
    question = Question(policy, reference.digest, evaluated_at, subject, tuple(waivers), engine)
    return _decide(question, reference, check(facts, engine))


def _decide(question: Question, reference: Reference, checked: Checked) -> Decision:
    at = question.instant()
    found = Written.of({}) if checked.errors else derived(checked, reference, at)
    return judge(question, checked, found)


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a replay found; `identical` means that all of it was checked and holds.

    `same_inputs`: the policy and reference bytes have the digests that the record names.
    `same_output` (level 1): the recorded facts and derived facts give the recorded bytes.
    `same_derived` (level 2): the raw facts and reference data give the recorded derived facts;
    None when that was not checked, and `not_checked` says why.
    `differing` names the members of the record that came out differently.
    """

    same_inputs: bool
    same_output: bool
    same_derived: bool | None
    differing: tuple[str, ...]
    verdict: str
    not_checked: str = ""

    @property
    def identical(self) -> bool:
        """Say whether the record was reproduced byte for byte from exactly its inputs."""
        return self.same_inputs and self.same_output and self.same_derived is True


def replay(
    record: bytes,
    policy_bytes: bytes,
    reference_bytes: bytes,
    *,
    evaluator: Evaluator | None = None,
) -> ReplayResult:
    """Decide again from a record, the policy and the reference data, and compare.

    The policy and the reference data are read once for all records that share them. Reference
    data are read only where level 2 is checked, for they may be from another release as well.

    Raises:
        GateError: the record is malformed.
        RuleError: the policy is.
        ReferenceDataError: the reference data are.
    """
    engine = evaluator or default_evaluator()
    policy = Policy.from_bytes(policy_bytes)
    named = (_digest(policy_bytes), _digest(reference_bytes))
    if _TODAY in record:
        reference = Reference.from_bytes(reference_bytes)
        verdict = _again(record, policy, reference, engine)
        if verdict is not None:
            is_named = named == (policy.digest, reference.digest)
            return ReplayResult(is_named, True, True, (), verdict)
    return _compared(record, policy, reference_bytes, named, engine)


_TODAY = b',"derivation":%b,' % canonical(VERSION)


@functools.lru_cache(maxsize=16)
def _digest(data: bytes) -> str:
    return digest(data)


def _again(record: bytes, policy: Policy, reference: Reference, engine: Evaluator) -> str | None:
    """Return the verdict when deciding again gives exactly these bytes, else None.

    What is read out of the record here is a guess at what was asked: only the comparison counts,
    for the bytes of a decision are those of a well-formed record, whatever led to asking for it.
    """
    try:
        facts, evaluated_at, subject, waivers = _asked(record)
        question = Question(policy, reference.digest, evaluated_at, subject, waivers, engine)
        second = _decide(question, reference, check_bytes(facts, engine))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return second.verdict if second.record == record else None


_FACTS, _DIGEST, _AT = b',"facts":', b',"facts_digest":"sha256:', b',"evaluated_at":"'
_SUBJECT, _UNTIL, _WAIVERS = b',"subject":"', b'","valid_until":"', b',"waivers":'


def _asked(record: bytes) -> tuple[bytes, str, str, tuple[Waiver, ...]]:
    """Cut what was asked out of a record, trusting its order; raises ValueError when it fails."""
    start = record.index(_FACTS)
    end = record.index(_DIGEST, start)
    at = record.rindex(_AT, 0, start) + len(_AT)
    subject = record.rindex(_SUBJECT) + len(_SUBJECT)
    listed = record[record.rindex(_WAIVERS) + len(_WAIVERS) : -1]
    waivers: Any = [] if listed == b"[]" else parse(listed)
    return (
        record[start + len(_FACTS) : end],
        record[at : at + 20].decode(),
        record[subject : record.index(_UNTIL, subject)].decode(),
        tuple(Waiver.from_document(w) for w in waivers),
    )


def _compared(
    record: bytes,
    policy: Policy,
    reference_bytes: bytes,
    named: tuple[str, str],
    engine: Evaluator,
) -> ReplayResult:
    """Read a record strictly, decide again, and say what differs."""
    first = Decision.from_record(record)
    document: Any = first.document
    if not isinstance(document["derived"], dict):
        raise GateError("decision record: `derived` is not an object")
    try:
        waivers = tuple(Waiver.from_document(w) for w in document["waivers"])
        about = document["evaluated_at"], document["subject"], waivers, engine
        question = Question(policy, named[1], *about, document["derivation"])
        question.instant()
        facts = document["facts"]
        checked = taken(facts, first.contract_errors)
        second = None
        if question.derivation == VERSION:
            reference = Reference.from_bytes(reference_bytes)
            second = _decide(question, reference, check(facts, engine))
            checked = taken(facts, second.contract_errors)
        level_1 = judge(question, checked, Written.of(document["derived"]))
    except (KeyError, TypeError, AttributeError, CanonicalError, WaiverError) as cause:
        raise GateError("decision record: a member is missing or misshapen") from cause
    made = second or level_1
    names = sorted(set(document) | set(made.document))
    return ReplayResult(
        same_inputs=(document.get("policy"), document.get("reference")) == named,
        same_output=level_1.record == record,
        same_derived=None if second is None else document["derived"] == second.document["derived"],
        differing=tuple(n for n in names if document.get(n) != made.document.get(n)),
        verdict=made.verdict,
        not_checked=""
        if second
        else f"derived by {question.derivation!r}, and this release derives by {VERSION!r}: "
        "level 2 needs the release that made the record",
    )
