"""Exceptions from a rule, and the decisions that rest on them: who asked, who signed, how long.

A part of level L6; `audit.invariants` lists the rules. A decision's record is a document beside the
log and holds the waivers that it was made with; `audit.records` reads it. One that is not enclosed
is never taken for one without waivers: the level is then not checked.

    {"subject": "job:job_…", "evaluated_at": "2026-11-30T12:00:00Z",
     "results": [{"rule": "budget.limit", "version": "1.0.0", "outcome": "waived", …}, …],
     "waivers": [{"id": "wvr_…", "rule": …, "rule_version": …, "subject": …, "category": …,
                  "reason_digest": "sha256:<the sealed reason's commitment, in hex>",
                  "requester": "prn_…", "approvers": ["prn_…", "prn_…"],
                  "not_before": …, "expires_at": …, "revoked_at": null, "format": …}], …}
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import cast

from audit.canonical import JsonValue
from audit.consent import Consent, Subject, Violate
from audit.enclosed import Enclosed, Members, UnreadableError
from audit.event import Event, EventKind
from audit.records import CLOCK_SKEW
from audit.waivable import Waivable

_SIGNATURES = 2
_TERMS = ("rule", "rule_version", "category", "not_before", "expires_at")
_CLOSINGS = {EventKind.WAIVER_REFUSED: "refusal", EventKind.WAIVER_REVOKED: "revocation"}


@dataclass
class Exemption:
    """A waiver that was requested, who signed it in which role, and what became of it.

    `roles` are those that may sign; None when the policy that says so is not enclosed.
    """

    subject: Subject
    requester: str
    terms: Mapping[str, JsonValue]
    reason: str | None
    roles: frozenset[str] | None
    signers: dict[str, str] = field(default_factory=dict)
    ending: str | None = None
    ended_at: str = ""


class Waivers:
    """Follows waivers by their ids, and holds every record that counts one against them."""

    def __init__(self, violate: Violate, consent: Consent, enclosed: Enclosed) -> None:
        self._violate = violate
        self._consent = consent
        self._waivable = Waivable(enclosed)
        self._known: dict[JsonValue, Exemption] = {}
        self._counted: dict[Subject, dict[str, Exemption]] = {}
        self._trained: dict[str, Subject] = {}

    def request(self, event: Event, subject: Subject) -> None:
        """Take in waiver.requested; the first one with an id counts."""
        name, person = str(event.data["waiver"]), event.actor.ref
        if name in self._known:
            self._violate("waiver-once", f"{name} was requested before")
            return
        if not self._consent.askers(subject):
            self._violate("waiver-needs-subject", f"nobody asked for {':'.join(subject)} before")
        if event.actor.kind != "human" or not self._consent.is_known(person):
            self._violate("waiver-needs-person", f"{person} requested {name}")
        terms = {member: event.data[member] for member in _TERMS}
        roles = self._roles_by_request(event, subject)
        self._known[name] = Exemption(subject, person, terms, _reason(event), roles)

    def _roles_by_request(self, event: Event, subject: Subject) -> frozenset[str] | None:
        """Check what is asked for by what was in force; return the roles that may sign for it."""
        data, latest = event.data, self._consent.latest(subject)
        name, rule = str(data["waiver"]), str(data["rule"])
        if latest is None:
            self._violate("waiver-needs-decision", f"{name}: nothing was decided before")
            return None
        try:
            if self._waivable.has_reference(latest.reference):
                longest = self._waivable.longest(latest.reference, rule)
                if not timedelta(0) < _length(data) <= timedelta(days=longest or 0):
                    self._violate("waiver-too-long", f"{name}: at most {longest or 0} days")
            if not self._waivable.has_policy(latest.policy):
                return None
        except UnreadableError as cause:
            self._violate("waiver-basis-readable", f"{name}: {cause}")
            return None
        terms = self._waivable.rule(latest.policy, rule)
        if terms is None or not terms.is_waivable or terms.version != data["rule_version"]:
            detail = f"{name}: {rule} {data['rule_version']} cannot be waived"
            self._violate("waiver-is-allowed", detail)
        return frozenset() if terms is None else terms.roles

    def approve(self, event: Event, subject: Subject) -> None:
        """Take in waiver.approved; it counts when person, role and waiver are right."""
        found = self._of(event, subject)
        if found is None:
            return
        person, role, name = event.actor.ref, str(event.data["role"]), event.data["waiver"]
        faults = {
            "waiver-four-eyes": person == found.requester
            or person in self._consent.askers(subject)
            or person in found.signers,
            "waiver-approver-is-human": event.actor.kind != "human",
            "waiver-approver-has-role": not self._consent.has_role(person, role),
            "waiver-approver-may-sign": found.roles is not None and role not in found.roles,
            "waiver-after-end": found.ending is not None,
        }
        for rule in (rule for rule, is_broken in faults.items() if is_broken):
            self._violate(rule, f"{person} approved {name} as {role}")
        if True not in faults.values():
            found.signers[person] = role

    def close(self, event: Event, subject: Subject) -> None:
        """Take in waiver.refused or waiver.revoked: from here on it counts for nothing."""
        found = self._of(event, subject)
        if found is None:
            return
        if found.ending is not None:
            self._violate("waiver-after-end", f"{event.data['waiver']} was over before")
            return
        found.ending, found.ended_at = _CLOSINGS[event.action], event.at

    def decide(self, event: Event, subject: Subject, record: Members | None) -> None:
        """Hold a decision's record, when it could be read, against the waivers of the log."""
        self._counted.pop(subject, None)
        if record is None:
            return
        try:
            named = cast("list[dict[str, JsonValue]]", record["waivers"])
            results = cast("list[dict[str, JsonValue]]", record["results"])
            at = str(record["evaluated_at"])
            policy = str(event.data["policy"])
            sound = [one for one in named if self._is_sound(one, subject, at, policy)]
            waived = [(r["rule"], r["version"]) for r in results if r["outcome"] == "waived"]
            self._counted[subject] = {str(one["id"]): self._known[one["id"]] for one in sound}
        except (AttributeError, KeyError, TypeError) as cause:
            detail = f"{event.data['record']}: {type(cause).__name__}"
            self._violate("decision-record-readable", detail)
            return
        self._check_covered(waived, sound)

    def check(self, move: str, event: Event, subject: Subject) -> None:
        """Check that every waiver that the latest decision counts still holds at this move."""
        at = f"{event.at[:19]}Z"
        for name, found in self._counted.get(subject, {}).items():
            if found.ending is not None or at >= str(found.terms["expires_at"]):
                why = found.ending or "its end"
                self._violate(f"{move}-after-waiver", f"{name} counted, and this is after {why}")

    def model(self, event: Event, subject: Subject) -> None:
        """Take in model_version.registered."""
        self._trained.setdefault(subject[1], ("job", str(event.data["job"])))

    def check_trained(self, event: Event, _: Subject) -> None:
        """Check that what a model was trained under was not revoked before it is asked for or used.

        Two acts at once may each not know of the other, so 10 minutes pass between them.
        """
        model = str(event.data["model_version"])
        trained = self._trained.get(model, ("job", ""))
        at = datetime.fromisoformat(event.at)
        for name, found in self._counted.get(trained, {}).items():
            if found.ending and datetime.fromisoformat(found.ended_at) + CLOCK_SKEW < at:
                self._violate("model-after-waiver", f"{model} was trained under {name}, revoked")

    def _check_covered(
        self,
        waived: Sequence[tuple[JsonValue, JsonValue]],
        sound: Sequence[Mapping[str, JsonValue]],
    ) -> None:
        covered = [(one["rule"], one["rule_version"]) for one in sound]
        for rule, version in waived:
            if (rule, version) not in covered:
                self._violate("waived-needs-waiver", f"nobody waived {rule} {version} by then")

    def _may_sign(self, found: Exemption, policy: str) -> bool:
        """Say whether all signed in roles that the rule has in the policy that counts it."""
        try:
            if not self._waivable.has_policy(policy):
                return True
        except UnreadableError as cause:
            self._violate("waiver-basis-readable", f"{policy}: {cause}")
            return False
        terms = self._waivable.rule(policy, str(found.terms["rule"]))
        return terms is not None and terms.roles.issuperset(found.signers.values())

    def _is_sound(
        self, named: Mapping[str, JsonValue], subject: Subject, at: str, policy: str
    ) -> bool:
        """Check one waiver of a record; every fault is named."""
        name, found = str(named["id"]), self._known.get(named["id"])
        if found is None:
            self._violate("waived-needs-request", f"{name} was not requested before")
            return False
        stated = {member: named[member] for member in _TERMS}
        signers = cast("list[str]", named["approvers"])
        askers = {found.requester, *self._consent.askers(subject)}
        not_before, expires_at = str(found.terms["not_before"]), str(found.terms["expires_at"])
        faults = {
            "waived-binds-subject": found.subject != subject
            or named["subject"] != ":".join(subject),
            "waived-binds-terms": stated != found.terms or named["requester"] != found.requester,
            "waived-binds-reason": named["reason_digest"] != found.reason,
            "waived-needs-approvals": len(set(signers)) != len(signers)
            or set(signers) != set(found.signers)
            or len(set(found.signers) - askers) < _SIGNATURES,
            "waived-needs-roles": not self._may_sign(found, policy),
            f"waived-after-{found.ending}": found.ending is not None,
            "waived-in-time": not not_before <= at < expires_at,
        }
        for rule in (rule for rule, is_broken in faults.items() if is_broken):
            self._violate(rule, f"{name}, counted at {at}")
        return True not in faults.values()

    def _of(self, event: Event, subject: Subject) -> Exemption | None:
        name = event.data["waiver"]
        found = self._known.get(name)
        if found is None or found.subject != subject:
            self._violate("waiver-needs-request", f"{name} was not requested for this before")
            return None
        return found


def _length(data: Mapping[str, JsonValue]) -> timedelta:
    start, end = str(data["not_before"]), str(data["expires_at"])
    return datetime.fromisoformat(end) - datetime.fromisoformat(start)


def _reason(event: Event) -> str | None:
    """Return the commitment to the reason as records spell it, or None when nothing is sealed."""
    commitment = event.sealed.get("reason")
    return None if commitment is None else f"sha256:{base64.b64decode(commitment).hex()}"
