"""What decisions rest on: the policy and the reference data that the log says are in force.

A part of level L6; `audit.invariants` lists the rules. Both are acts in the log like any other, so
nobody can decide by rules or rows that were not put in force before, in this log, by an act that
names who did it; `audit.tables` holds the rows and `audit.signers` the bundles. What ships is put
in force by the service itself, as number 0 and nobody's bundle.
"""

from collections.abc import Mapping
from typing import cast

from audit.consent import Consent, Subject, Violate
from audit.enclosed import Enclosed
from audit.event import Event
from audit.signers import SIGNERS, Bundles, Signatures
from audit.tables import KEYS, Tables

_OFFICER = "officer"
_SHIPPED = ("all", "shipped")


class Basis:
    """Follows acts on the policy and the reference data; `decide` asks for what is in force."""

    def __init__(
        self, violate: Violate, consent: Consent, enclosed: Enclosed, signatures: Signatures
    ) -> None:
        self._violate = violate
        self._tables = Tables(violate, enclosed)
        self._bundles = Bundles(violate, enclosed, signatures)
        self._consent = consent
        self._policy: str | None = None
        self._reference: str | None = None
        self._shadow: str | None = None
        self._number = 0
        self._left: set[str] = set()

    def activate(self, event: Event, _: Subject) -> None:
        """Take in policy.activated."""
        data = event.data
        policy, number = str(data["policy"]), cast("int", data["number"])
        signers = set(map(str, cast("list[str]", data["signers"])))
        if data["bundle"] is None:
            self._check_shipped(event, number, signers)
        else:
            self._check_bundle(event, number, signers)
        self._bundles.activate(event)
        if data["mode"] == "shadow":
            self._shadow = policy
            return
        if self._policy is not None:
            self._left.add(self._policy)
        self._policy, self._number, self._shadow = policy, number, None

    def _check_shipped(self, event: Event, number: int, signers: set[str]) -> None:
        """Check a policy that no bundle brought: what ships, which no bundle gives way to."""
        if number or signers or event.data["mode"] != "enforce" or self._number:
            self._violate("policy-needs-bundle", f"number {number} after number {self._number}")
        if event.actor.kind != "service":
            self._violate("policy-ships-by-service", f"{event.actor.ref} is not the service")

    def _check_bundle(self, event: Event, number: int, signers: set[str]) -> None:
        if number <= self._number:
            self._violate("policy-number-grows", f"number {number} after number {self._number}")
        policy = str(event.data["policy"])
        is_back = policy in self._left and policy != self._policy
        if is_back and event.data["mode"] == "enforce" and "rollback_of" not in event.data:
            self._violate("policy-rollback-is-said", f"{policy} was in force before and was left")
        if len(signers) < SIGNERS:
            self._violate("policy-signed-by-two", f"number {number} is signed by {len(signers)}")
        back = event.data.get("rollback_of")
        if back is not None and back != self._number:
            self._violate("policy-rollback-is-said", f"takes back {back}, not {self._number}")
        self._check_officer("policy-by-officer", event)

    def reject(self, event: Event, _: Subject) -> None:
        """Take in policy.rejected: whatever was in force stays."""
        if event.data["still"] != self._policy:
            self._violate("rejection-keeps-policy", f"{self._policy} was in force")

    def record(self, event: Event, _: Subject) -> None:
        """Take in reference.recorded."""
        if (event.data["table"], event.data["key"]) != _SHIPPED:
            self._check_officer("reference-by-officer", event)
            if self._reference is None:
                self._violate("reference-starts-shipped", "nothing was recorded as shipped before")
            if event.data["table"] in KEYS:
                self._tables.record(event)
            else:
                self._violate("reference-is-not-law", f"a row of {event.data['table']}")
        else:
            if event.actor.kind != "service":
                self._violate("reference-starts-shipped", f"{event.actor.ref} is not the service")
            self._tables.ship(event)
        self._reference = str(event.data["reference"])

    def _check_officer(self, rule: str, event: Event) -> None:
        person = event.actor.ref
        if event.actor.kind != "human" or not self._consent.has_role(person, _OFFICER):
            self._violate(rule, f"{person} was no officer")

    def check(self, move: str, subject: Subject) -> None:
        """Check that what the latest decision rests on is still in force when it is used."""
        latest = self._consent.latest(subject)
        if latest is None:  # consent names that
            return
        for name, used, known in (
            ("policy", latest.policy, self._policy),
            ("reference", latest.reference, self._reference),
        ):
            if used != known:
                detail = f"{':'.join(subject)} was decided by {used}, {known} is in force"
                self._violate(f"{move}-under-{name}", detail)

    def decide(self, event: Event, subject: Subject) -> None:
        """Take in gate.decided: by the policy, the rows and the shadow that are in force."""
        shadow = cast("Mapping[str, object] | None", event.data.get("shadow"))
        for rule, used, known in (
            ("decision-under-policy", event.data["policy"], self._policy),
            ("decision-under-reference", event.data["reference"], self._reference),
            ("decision-under-shadow", shadow and shadow["policy"], self._shadow),
        ):
            if used != known:
                said = "nothing" if known is None else known
                self._violate(rule, f"{':'.join(subject)} by {used}, and {said} was in force")
