"""What a decision's record says, held against its entry and against the time of its use.

A part of level L6; `audit.invariants` lists the rules. Whether the gate would decide so is level
L8; here the record and the entry about it must tell the same, for the decision that counts and for
the one made beside it by the policy in the shadow.

    {"format": "placet.decision/1", "subject": "job:job_…", "verdict": "require_approval",
     "policy": "sha256:…", "reference": "sha256:…", "facts": {"stage": "train", …},
     "facts_digest": "sha256:…", "approvals": [{"role": "officer", "count": 1}],
     "evaluated_at": "2026-11-30T12:00:00Z", "valid_until": "2026-12-07T12:00:00Z", …}

Times are claims. A decision is used from 10 minutes before it was made until it ends, and as late
as the latest entry about its subject says: who dates a dispatch back must date back the rest, too.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from audit.canonical import JsonValue, digest_of
from audit.consent import Subject, Violate
from audit.enclosed import Enclosed, Members, UnreadableError, differing
from audit.event import Event
from audit.kinds import SECONDS, is_instant

RECORD_FORMAT = "placet.decision/1"
CLOCK_SKEW = timedelta(minutes=10)
"""How far apart the gate, the log and a permit may be in time: clocks of one house."""


class Records:
    """Holds each record against its entry, and each use of a decision against its times."""

    def __init__(self, violate: Violate, enclosed: Enclosed) -> None:
        self._violate = violate
        self._enclosed = enclosed
        self._times: dict[str, tuple[datetime, datetime]] = {}
        self._latest: dict[Subject, datetime] = {}

    def note(self, event: Event, subject: Subject) -> None:
        """Take in the time of an entry about a job or a deployment."""
        if subject[0] in ("job", "deployment"):
            at = datetime.fromisoformat(event.at)
            self._latest[subject] = max(at, self._latest.get(subject, at))

    def decide(self, event: Event, subject: Subject) -> Members | None:
        """Take in gate.decided; return the record that counts, when it can be read."""
        data, about = event.data, ":".join(subject)
        same: dict[str, JsonValue] = {
            "subject": about,
            "reference": data["reference"],
            "facts_digest": data["facts"],
        }
        said = {name: data[name] for name in ("verdict", "policy", "approvals")}
        record = self._held(event, str(data["record"]), same | said)
        shadow = data.get("shadow")
        if isinstance(shadow, dict):
            tried = {name: shadow[name] for name in ("verdict", "policy")}
            self._held(event, str(shadow["record"]), same | tried)
        if record is not None and not _wrong_times(event, record):
            made, ends = str(record["evaluated_at"]), str(record["valid_until"])
            times = datetime.fromisoformat(made), datetime.fromisoformat(ends)
            self._times[str(data["record"])] = times
        return record

    def check(self, move: str, event: Event, subject: Subject) -> None:
        """Check that the decision that a move names was there and valid then."""
        times = self._times.get(str(event.data["record"]))
        if times is None:  # consent names a decision that nobody made
            return
        (start, end), at = times, datetime.fromisoformat(event.at)
        latest = self._latest.get(subject, at)
        if not start - CLOCK_SKEW <= at < end or latest - CLOCK_SKEW >= end:
            detail = f"at {event.at}, but decided at {_text(start)} until {_text(end)}"
            self._violate(f"{move}-in-time", detail)

    def _held(self, event: Event, name: str, said: Members) -> Members | None:
        try:
            record = self._enclosed.read(name, RECORD_FORMAT)
        except UnreadableError as cause:
            self._violate("decision-record-readable", f"{name}: {cause}")
            return None
        if record is None:
            return None
        expected, facts = dict(said), record.get("facts")
        if facts is None:  # no facts could be read, so no digest of them says anything
            del expected["facts_digest"]
            expected["verdict"] = "deny"
        wrong = differing(expected, record)
        wrong += _wrong_facts(event.data, record) if facts is not None else []
        wrong += _wrong_times(event, record)
        if wrong:
            self._violate("decision-binds-record", f"{name} says another {', '.join(wrong)}")
        return record


def _wrong_facts(data: Mapping[str, JsonValue], record: Members) -> list[str]:
    facts = record["facts"]
    wrong = differing({"stage": data["stage"]}, facts)
    return wrong if digest_of(facts) == record.get("facts_digest") else [*wrong, "facts"]


def _wrong_times(event: Event, record: Members) -> list[str]:
    made, ends = record.get("evaluated_at"), record.get("valid_until")
    if not is_instant(made, SECONDS):
        return ["evaluated_at"]
    apart = abs(datetime.fromisoformat(str(made)) - datetime.fromisoformat(event.at))
    wrong = ["evaluated_at"] if apart > CLOCK_SKEW else []
    if not is_instant(ends, SECONDS) or str(ends) < str(made):
        wrong.append("valid_until")
    return wrong


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
