"""A waiver `placet.waiver/1`: a named exception from one rule, for one subject, until a date.

    {"format": "placet.waiver/1", "id": "wvr_01", "rule": "budget.limit", "rule_version": "1.0.0",
     "subject": "job:job_01", "category": "waiver", "reason_digest": "sha256:…",
     "requester": "prn_a", "approvers": ["prn_b", "prn_c"],
     "not_before": "2026-11-30T00:00:00Z", "expires_at": "2026-12-07T00:00:00Z",
     "revoked_at": null}

`reason_digest` stands for a text that is kept elsewhere and may be erased: give a keyed commitment,
as the service does, and not the hash of a sentence that can be guessed.

It matches whole or not at all: exact ids, no wildcard; a new version of the rule ends it; the
interval is half-open. Only `violated` can be waived, never `unknown`, `error` or a contract
error, and only on a rule that says `waivable`. The judged facts cannot carry one. `is_active`
is the only place that decides whether a waiver holds.
"""

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from audit.canonical import is_digest
from policies.decision import Finding, GateError, parse_instant

FORMAT = "placet.waiver/1"
CATEGORIES = ("waiver", "mitigated")
MAX_DAYS = 366

_ID_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,254}\Z")


class WaiverError(ValueError):
    """The waiver is refused; it never counted."""


@dataclass(frozen=True, slots=True)
class Waiver:
    """One waiver; construction refuses a malformed one."""

    id: str
    rule: str
    rule_version: str
    subject: str
    category: str
    reason_digest: str
    requester: str
    approvers: tuple[str, ...]
    not_before: str
    expires_at: str
    revoked_at: str | None = None

    def __post_init__(self) -> None:
        named: tuple[object, ...] = (
            self.id,
            self.rule,
            self.rule_version,
            self.subject,
            self.requester,
        )
        for name in named + self.approvers:
            if not isinstance(name, str) or not _ID_FORM.match(name):
                raise WaiverError(f"waiver: `{name!r}` is not an exact id")
        if self.category not in CATEGORIES or not is_digest(self.reason_digest):
            raise WaiverError("waiver: expected category waiver or mitigated and a reason's digest")
        if len(set(self.approvers) - {self.requester}) < 2:
            raise WaiverError("waiver: expected two approvers who are not the requester")
        try:
            length = parse_instant(self.expires_at) - parse_instant(self.not_before)
            if self.revoked_at is not None:
                parse_instant(self.revoked_at)
        except GateError as cause:
            raise WaiverError(f"waiver: {cause}") from cause
        if not dt.timedelta(0) < length <= dt.timedelta(days=MAX_DAYS):
            raise WaiverError(f"waiver: expected to last more than 0 and at most {MAX_DAYS} days")

    @classmethod
    def from_document(cls, document: Any) -> "Waiver":
        """Read a waiver from its JSON form.

        Raises:
            WaiverError: unknown or missing members, or a value that is refused.
        """
        names = {"format", *(f.name for f in fields(cls))}
        if not isinstance(document, Mapping) or set(document) != names:
            raise WaiverError(f"waiver: expected exactly the members {sorted(names)}")
        if document["format"] != FORMAT or not isinstance(document["approvers"], list):
            raise WaiverError(f"waiver: expected format `{FORMAT}` and a list of approvers")
        values = {name: document[name] for name in names - {"format", "approvers"}}
        return cls(**values, approvers=tuple(document["approvers"]))

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {"format": FORMAT, **values, "approvers": list(self.approvers)}

    def is_active(self, at: str) -> bool:
        """Say whether the waiver holds at an instant: from, not until, not revoked."""
        is_revoked = self.revoked_at is not None and self.revoked_at <= at
        return self.not_before <= at < self.expires_at and not is_revoked

    def covers(self, finding: Finding, subject: str, at: str) -> bool:
        """Say whether the waiver speaks about this finding of this subject at this instant."""
        wanted = (self.rule, self.rule_version, self.subject)
        return wanted == (finding.rule, finding.version, subject) and self.is_active(at)


def considered(waivers: Sequence[Waiver]) -> list[dict[str, Any]]:
    """Return the JSON forms in the order of the record: by id."""
    return [w.to_document() for w in sorted(waivers, key=lambda w: w.id)]
