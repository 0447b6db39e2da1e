"""What must be true of the entries themselves, whoever signed them (level L6 of a verification).

A signed log can still tell a story that should not have happened. These rules read the entries in
order; each violation names the entry's index and the rule.

    indices-contiguous          entry n follows entry n - 1
    entry-id-unique             no two entries have one id
    log-is-origin               each entry names the log that it is in
    no-self-approval            nobody approves what they submitted or requested
    dispatch-needs-decision     run.dispatching: an earlier gate.decided, stage train, same job
    dispatch-after-deny         … whose latest verdict is not deny
    dispatch-binds-record       … and whose latest record is the one dispatched under
    dispatch-needs-approvals    … and, when it required approval, has it
    dispatch-once               one run.dispatching for each run id
    run-needs-dispatch          run.started, .observed, .finished: an earlier run.dispatching
    activation-needs-decision, activation-after-deny, activation-binds-record,
    activation-needs-approvals  deployment.activated: the same at stage deploy
    activation-needs-card, activation-needs-transparency
                                … and earlier card.issued and transparency.issued with these digests

"Has it": different people, none of them a submitter, can be assigned to all the places that the
decision asks for, each in a role that they approved in, each bound to this record. One person fills
one place, also when they approved in two roles. An approval.refused on the record, and an
approval.expired, cancel the approvals given before it.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from audit.event import Event, EventKind, resource_parts

MAX_VIOLATIONS = 100

Subject = tuple[str, str]


@dataclass(frozen=True)
class Violation:
    """One broken rule, at the index of the entry that broke it."""

    index: int
    rule: str
    detail: str


@dataclass(frozen=True)
class Decision:
    """The part of a gate.decided that later entries must respect."""

    record: str
    verdict: str
    places: tuple[str, ...]


class Invariants:
    """Reads entries in order and collects violations; memory grows with the things named."""

    def __init__(self, origin: str) -> None:
        self.violations: list[Violation] = []
        self.num_violations = 0
        self._origin = origin
        self._next_index = 0
        self._index = 0
        self._ids: set[str] = set()
        self._submitters: defaultdict[Subject, set[str]] = defaultdict(set)
        self._latest: dict[Subject, Decision] = {}
        self._approvals: dict[tuple[Subject, str], set[tuple[str, str]]] = {}
        self._runs: set[str] = set()
        self._issued: set[tuple[EventKind, str, str]] = set()
        self._handlers: dict[EventKind, Callable[[Event, Subject], None]] = {
            EventKind.JOB_SUBMITTED: self._submit,
            EventKind.DEPLOYMENT_REQUESTED: self._submit,
            EventKind.GATE_DECIDED: self._decide,
            EventKind.APPROVAL_GIVEN: self._approve,
            EventKind.APPROVAL_REFUSED: self._withdraw,
            EventKind.APPROVAL_EXPIRED: self._withdraw,
            EventKind.RUN_DISPATCHING: self._dispatch,
            EventKind.RUN_STARTED: self._run,
            EventKind.RUN_OBSERVED: self._run,
            EventKind.RUN_FINISHED: self._run,
            EventKind.CARD_ISSUED: self._issue,
            EventKind.TRANSPARENCY_ISSUED: self._issue,
            EventKind.DEPLOYMENT_ACTIVATED: self._activate,
        }

    def read(self, index: int, event: Event) -> None:
        """Take in one entry; violations appear in `violations` (the first 100) and are counted."""
        self._index = index
        if index != self._next_index:
            self._violate("indices-contiguous", f"expected index {self._next_index}")
        self._next_index = index + 1
        if event.id in self._ids:
            self._violate("entry-id-unique", f"{event.id} was used before")
        self._ids.add(event.id)
        if event.log != self._origin:
            self._violate("log-is-origin", f"the entry is of log {event.log!a}")
        handler = self._handlers.get(event.action)
        if handler is not None:
            handler(event, resource_parts(event.resource))

    def _submit(self, event: Event, subject: Subject) -> None:
        self._submitters[subject].add(event.actor.ref)

    def _decide(self, event: Event, subject: Subject) -> None:
        asked = cast("Sequence[Mapping[str, object]]", event.data["approvals"])
        places = [str(item["role"]) for item in asked for _ in range(cast("int", item["count"]))]
        record, verdict = str(event.data["record"]), str(event.data["verdict"])
        self._latest[subject] = Decision(record, verdict, tuple(places))

    def _approve(self, event: Event, subject: Subject) -> None:
        person, record = event.actor.ref, str(event.data["record"])
        if person in self._submitters[subject]:
            self._violate("no-self-approval", f"{person} submitted {':'.join(subject)}")
        given = self._approvals.setdefault((subject, record), set())
        given.add((person, str(event.data["role"])))

    def _withdraw(self, event: Event, subject: Subject) -> None:
        self._approvals.pop((subject, str(event.data["record"])), None)

    def _dispatch(self, event: Event, subject: Subject) -> None:
        run = str(event.data["run"])
        self._check_gate("dispatch", subject, str(event.data["record"]))
        if run in self._runs:
            self._violate("dispatch-once", f"{run} was dispatched before")
        self._runs.add(run)

    def _run(self, event: Event, _: Subject) -> None:
        if event.data["run"] not in self._runs:
            self._violate("run-needs-dispatch", f"{event.data['run']} was never dispatched")

    def _issue(self, event: Event, _: Subject) -> None:
        document = event.action.partition(".")[0]
        deployment, issued = str(event.data["deployment"]), str(event.data[document])
        self._issued.add((event.action, deployment, issued))

    def _activate(self, event: Event, subject: Subject) -> None:
        self._check_gate("activation", subject, str(event.data["record"]))
        for kind in (EventKind.CARD_ISSUED, EventKind.TRANSPARENCY_ISSUED):
            document = kind.partition(".")[0]
            if (kind, subject[1], event.data[document]) not in self._issued:
                self._violate(f"activation-needs-{document}", "it was not issued before")

    def _check_gate(self, move: str, subject: Subject, record: str) -> None:
        latest = self._latest.get(subject)
        if latest is None:
            self._violate(f"{move}-needs-decision", f"no decision on {':'.join(subject)} before")
            return
        if latest.verdict == "deny":
            self._violate(f"{move}-after-deny", f"the latest decision is {latest.record}")
        if latest.record != record:
            self._violate(f"{move}-binds-record", f"the latest decision is {latest.record}")
        if latest.verdict == "require_approval" and not self._is_approved(subject, latest):
            self._violate(f"{move}-needs-approvals", f"asked for {', '.join(latest.places)}")

    def _is_approved(self, subject: Subject, decision: Decision) -> bool:
        submitters = self._submitters[subject]
        given = self._approvals.get((subject, decision.record), set())
        valid = [(person, role) for person, role in given if person not in submitters]
        return bool(submitters) and covers(decision.places, valid)

    def _violate(self, rule: str, detail: str) -> None:
        self.num_violations += 1
        if len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(Violation(self._index, rule, detail))


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
