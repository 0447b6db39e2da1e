"""What the policy in the shadow would have changed: its records beside those that counted."""

from collections.abc import Iterator
from typing import Any

from sqlmodel import Session, col, select

from audit.event import from_bytes
from policies.decision import Decision
from policies.what_if import NO_TEAM, NOT_ASKED, Change, RuleChange, summary
from service import in_force
from service.archive import load
from service.log_tables import AuditEntry
from service.tables import StoredDecision


def differences(session: Session, *, since: str) -> dict[str, Any]:
    """Count where verdict or findings of the last policy in the shadow differ, by rule and team.

    Args:
        session: where decisions and their entries are.
        since: an instant or a day; only decisions made at or after it.
    """
    tried = in_force.newest_act(session, "shadow")
    if tried is None or tried.policy_digest is None:
        return {"policy": None, "number": None, **summary(())}
    changes = tuple(_changes(session, tried.policy_digest, since))
    return {"policy": tried.policy_digest, "number": tried.number, **summary(changes)}


def _changes(session: Session, policy: str, since: str) -> Iterator[Change]:
    rows = session.exec(
        select(StoredDecision, AuditEntry.body)
        .join(AuditEntry, col(AuditEntry.id) == col(StoredDecision.entry_id))
        .where(col(StoredDecision.created_at) >= since)
        .order_by(col(StoredDecision.id))
    )
    for row, body in rows:
        shadow: Any = from_bytes(body).data.get("shadow")
        if shadow is not None and shadow["policy"] == policy:
            counted = Decision.from_record(load(session, row.record_digest))
            tried = Decision.from_record(load(session, shadow["record"]))
            yield _change(row, counted, tried)


def _change(row: StoredDecision, counted: Decision, tried: Decision) -> Change:
    old = {finding.rule: finding.outcome for finding in counted.results}
    new = {finding.rule: finding.outcome for finding in tried.results}
    facts: Any = counted.document["facts"]
    return Change(
        subject=f"{row.subject_kind}:{row.subject_id}",
        team=str((facts.get("job") or {}).get("team") or NO_TEAM),
        evaluated_at=str(counted.document["evaluated_at"]),
        before=counted.verdict,
        after=tried.verdict,
        rules=tuple(
            RuleChange(rule, old.get(rule, NOT_ASKED), new.get(rule, NOT_ASKED))
            for rule in sorted({*old, *new})
            if old.get(rule) != new.get(rule)
        ),
    )
