"""Who asked, who decided and who approved: the consent that a run or a deployment rests on.

A part of level L6; `audit.invariants` lists the rules. A decision is used once. It ends with the
next decision on the same subject, and takes the approvals that were given on it along. A refusal,
an expiry, a cancellation, a dispatch and an activation end the matter: who wants it after that
asks anew, in entries of its own. So a refusal stays the last word on what was refused.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from audit.event import Event, EventKind

Subject = tuple[str, str]
Violate = Callable[[str, str], None]

_ENDINGS = {EventKind.APPROVAL_REFUSED: "refusal", EventKind.APPROVAL_EXPIRED: "expiry"}


@dataclass
class Decision:
    """The part of a gate.decided that later entries must respect, and what became of it."""

    record: str
    verdict: str
    policy: str
    reference: str
    places: tuple[str, ...]
    given: set[tuple[str, str]] = field(default_factory=set)
    ending: str | None = None


class Consent:
    """Follows principals, requests, decisions and approvals; `check` asks for consent."""

    def __init__(self, violate: Violate) -> None:
        self._violate = violate
        self._roles: dict[str, frozenset[str]] = {}
        self._gone: set[str] = set()
        self._askers: defaultdict[Subject, set[str]] = defaultdict(set)
        self._latest: dict[Subject, Decision] = {}
        self._cancelled: set[Subject] = set()
        self._over: dict[Subject, str] = {}
        self._used: set[str] = set()

    def askers(self, subject: Subject) -> frozenset[str]:
        """Say who asked for a subject so far."""
        return frozenset(self._askers.get(subject, ()))

    def latest(self, subject: Subject) -> Decision | None:
        """Return the latest decision on a subject so far."""
        return self._latest.get(subject)

    def is_known(self, person: str) -> bool:
        """Say whether somebody was created before."""
        return person in self._roles

    def has_role(self, person: str, role: str) -> bool:
        """Say whether somebody was created before with this role."""
        return role in self._roles.get(person, ())

    @property
    def people(self) -> Mapping[EventKind, Callable[[Event, Subject], None]]:
        """Which entries say who is there, and what takes them in."""
        return {
            EventKind.PRINCIPAL_CREATED: self.admit,
            EventKind.PRINCIPAL_CHANGED: self.change,
            EventKind.PRINCIPAL_DISABLED: self.dismiss,
            EventKind.ERASURE_EXECUTED: self.dismiss,
        }

    def admit(self, event: Event, subject: Subject) -> None:
        """Take in principal.created: the roles that somebody has from here on."""
        if subject[1] in self._roles:
            self._violate("principal-once", f"{subject[1]} was created before")
            return
        self._roles[subject[1]] = frozenset(map(str, cast("list[str]", event.data["roles"])))

    def change(self, event: Event, subject: Subject) -> None:
        """Take in principal.changed: the roles that somebody has from here on."""
        if subject[1] not in self._roles:
            self._violate("change-needs-principal", f"{subject[1]} was never created")
            return
        self._roles[subject[1]] = frozenset(map(str, cast("list[str]", event.data["roles"])))

    def dismiss(self, _: Event, subject: Subject) -> None:
        """Take in principal.disabled or erasure.executed: somebody is out for good."""
        if subject[1] not in self._roles:
            self._violate("change-needs-principal", f"{subject[1]} was never created")
        self._gone.add(subject[1])

    def notice(self, event: Event) -> None:
        """Look at who acts, whatever the entry is about."""
        if event.actor.ref in self._gone:
            self._violate("disabled-acts-no-more", f"{event.actor.ref} was disabled before")

    def ask(self, event: Event, subject: Subject) -> None:
        """Take in job.submitted or deployment.requested."""
        if subject in self._askers:
            self._violate("request-once", f"{':'.join(subject)} was asked for before")
        if event.actor.ref not in self._roles:
            self._violate("request-needs-principal", f"{event.actor.ref} was never created")
        self._askers[subject].add(event.actor.ref)

    def decide(self, event: Event, subject: Subject) -> None:
        """Take in gate.decided."""
        if subject not in self._askers:
            self._violate("decision-needs-request", f"nobody asked for {':'.join(subject)} before")
        if subject in self._over:
            detail = f"{':'.join(subject)} was over with its {self._over[subject]}"
            self._violate("decision-after-end", detail)
        asked = cast("Sequence[Mapping[str, object]]", event.data["approvals"])
        places = [str(item["role"]) for item in asked for _ in range(cast("int", item["count"]))]
        self._latest[subject] = Decision(
            record=str(event.data["record"]),
            verdict=str(event.data["verdict"]),
            policy=str(event.data["policy"]),
            reference=str(event.data["reference"]),
            places=tuple(places),
        )

    def approve(self, event: Event, subject: Subject) -> None:
        """Take in approval.given; it counts when person, role and record are right."""
        person, role = event.actor.ref, str(event.data["role"])
        faults = {
            "no-self-approval": person in self._askers.get(subject, ()),
            "approver-is-human": event.actor.kind != "human",
            "approver-has-role": role not in self._roles.get(person, ()),
        }
        for rule in (rule for rule, is_broken in faults.items() if is_broken):
            self._violate(rule, f"{person} approved {':'.join(subject)} as {role}")
        latest = self._latest.get(subject)
        if (
            latest is not None
            and latest.record == event.data["record"]
            and True not in faults.values()
        ):
            latest.given.add((person, role))

    def withdraw(self, event: Event, subject: Subject) -> None:
        """Take in approval.refused or approval.expired: the latest decision is over."""
        if subject in self._latest:
            self._latest[subject].ending = _ENDINGS[event.action]
        self._over.setdefault(subject, _ENDINGS[event.action])

    def cancel(self, _: Event, subject: Subject) -> None:
        """Take in job.cancelled: no new decision brings it back."""
        self._cancelled.add(subject)
        self._over.setdefault(subject, "cancellation")

    def end(self, _: Event, subject: Subject) -> None:
        """Take in deployment.retired or deployment.failed."""
        self._over.setdefault(subject, "end")

    def check(self, move: str, subject: Subject, record: str) -> None:
        """Check that the latest decision lets `subject` make its `move`, and use it up."""
        name = ":".join(subject)
        if subject not in self._askers:
            self._violate(f"{move}-needs-request", f"nobody asked for {name} before")
        if subject in self._cancelled:
            self._violate(f"{move}-after-cancel", f"{name} was cancelled before")
        if record in self._used:
            self._violate(f"{move}-uses-decision-once", f"{record} was used before")
        self._used.add(record)
        self._over.setdefault(subject, move)
        latest = self._latest.get(subject)
        if latest is None:
            self._violate(f"{move}-needs-decision", f"no decision on {name} before")
            return
        if latest.verdict == "deny":
            self._violate(f"{move}-after-deny", f"the latest decision is {latest.record}")
        if latest.ending is not None:
            self._violate(f"{move}-after-{latest.ending}", f"of the decision {latest.record}")
        if latest.record != record:
            self._violate(f"{move}-binds-record", f"the latest decision is {latest.record}")
        if latest.verdict == "require_approval" and not self._is_approved(subject, latest):
            self._violate(f"{move}-needs-approvals", f"asked for {', '.join(latest.places)}")

    def _is_approved(self, subject: Subject, decision: Decision) -> bool:
        # A later submission in somebody else's name makes that person a submitter, too.
        askers = self._askers.get(subject, set())
        valid = [(person, role) for person, role in decision.given if person not in askers]
        return bool(askers) and covers(decision.places, valid)


def covers(places: Sequence[str], given: Sequence[tuple[str, str]]) -> bool:
    """Say whether different people can fill all places, each in a role that they approved in.

    No place at all is not covered: an empty demand must not be trivially met. This is a bipartite
    matching by augmenting paths: O(places^2 x approvals), recursion at most `places` deep, which an
    entry bounds to 100.
    """
    holders: dict[str, int] = {}  # person -> place

    def seat(place: int, asked: set[str]) -> bool:
        for person, role in given:
            if role != places[place] or person in asked:
                continue
            asked.add(person)
            if person not in holders or seat(holders[person], asked):
                holders[person] = place
                return True
        return False

    return bool(places) and all(seat(place, set()) for place in range(len(places)))
