"""The decision and its record `placet.decision/1`.

The record is canonical JSON of exactly these members:

    {"format": "placet.decision/1", "subject": "job:job_01@1",
     "evaluated_at": "2026-11-30T12:00:00Z", "valid_until": "2026-12-07T12:00:00Z",
     "policy": "sha256:…", "reference": "sha256:…", "derivation": "placet.derive/1",
     "facts": {…raw…}, "facts_digest": "sha256:…", "derived": {…}, "waivers": [],
     "verdict": "deny", "approvals": [], "contract_errors": [], "obligations": {"hds": "missing"},
     "results": [{"rule": "residency.compute", "version": "1.0.0", "effect": "deny",
                  "outcome": "violated", "at": [{"pointer": "/derived/compute/in_eea",
                  "keyword": "const"}], "missing": []}]}

It holds codes only: no rendered text and no engine's text. It names neither the engine nor a
version of Python, because two engines must give the same bytes; who ran it stands in the log
entry. Sequence, signature and chain are the log's. The derivation is named by a version that
changes whenever its output may change. Facts that cannot be read at all are recorded as null.
"""

import datetime as dt
import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from audit.canonical import CanonicalError, Digest, canonical, digest, parse
from policies.evaluator import Failure
from policies.memory import quick
from policies.rule import Approval

FORMAT = "placet.decision/1"
VERDICTS = ("allow", "allow_with_warnings", "require_approval", "deny")
OUTCOMES = ("pass", "not_applicable", "violated", "unknown", "error", "waived")
INSTANT = "%Y-%m-%dT%H:%M:%SZ"
MAX_RECORD_BYTES = 4_194_304

_INSTANT_FORM = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\Z")


class GateError(ValueError):
    """The question itself is malformed (subject, instant, record); no decision is made."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one rule; `at` when violated or waived, `missing` when unknown."""

    rule: str
    version: str
    effect: str
    outcome: str
    at: tuple[Failure, ...] = ()
    missing: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """Return the canonical bytes that stand in the record."""
        document = self.to_document()
        return quick(document) or canonical(document)

    def to_document(self) -> dict[str, Any]:
        """Return the form that stands in the record."""
        return {
            "rule": self.rule,
            "version": self.version,
            "effect": self.effect,
            "outcome": self.outcome,
            "at": [{"pointer": pointer, "keyword": keyword} for pointer, keyword in self.at],
            "missing": list(self.missing),
        }

    @classmethod
    def from_document(cls, result: Mapping[str, Any]) -> "Finding":
        """Read the form that stands in the record."""
        return cls(
            rule=result["rule"],
            version=result["version"],
            effect=result["effect"],
            outcome=result["outcome"],
            at=tuple((a["pointer"], a["keyword"]) for a in result["at"]),
            missing=tuple(result["missing"]),
        )


@dataclass(frozen=True)
class Decision:
    """A verdict with everything that led to it.

    `results` has every rule in force in the policy's order; `record` is the stored form.
    """

    verdict: str
    approvals: tuple[Approval, ...]
    results: tuple[Finding, ...]
    contract_errors: tuple[Failure, ...]
    obligations: Mapping[str, str]
    valid_until: str
    facts_digest: Digest
    record: bytes = field(repr=False)

    @functools.cached_property
    def document(self) -> Mapping[str, Any]:
        """Return the record as JSON values, read when they are first wanted."""
        document: dict[str, Any] = json.loads(self.record)
        return document

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the outcomes that are neither pass nor not applicable."""
        return tuple(r for r in self.results if r.outcome not in ("pass", "not_applicable"))

    @property
    def digest(self) -> Digest:
        """Return the digest of the record."""
        return digest(self.record)

    @classmethod
    def from_record(cls, record: bytes) -> "Decision":
        """Read a stored record back, for display; it proves nothing, `gate.replay` does.

        Raises:
            GateError: not canonical `placet.decision/1`.
        """
        document = _parse_record(record)
        try:
            return cls(
                verdict=document["verdict"],
                approvals=tuple(Approval(a["role"], a["count"]) for a in document["approvals"]),
                results=tuple(Finding.from_document(r) for r in document["results"]),
                contract_errors=tuple(
                    (e["pointer"], e["keyword"]) for e in document["contract_errors"]
                ),
                obligations=document["obligations"],
                valid_until=document["valid_until"],
                facts_digest=Digest(document["facts_digest"]),
                record=record,
            )
        except (KeyError, TypeError) as cause:
            raise GateError("decision record: a member is missing or misshapen") from cause


def _parse_record(record: bytes) -> dict[str, Any]:
    try:
        document = parse(record, max_bytes=MAX_RECORD_BYTES)
        is_canonical = canonical(document) == record
    except CanonicalError as cause:
        raise GateError(f"decision record: {cause}") from cause
    if not is_canonical or not isinstance(document, dict) or document.get("format") != FORMAT:
        raise GateError(f"decision record: expected canonical JSON of format `{FORMAT}`")
    return document


def parse_instant(text: object) -> dt.datetime:
    """Read `YYYY-MM-DDThh:mm:ssZ`, the one spelling of an instant, as aware UTC.

    Raises:
        GateError: another spelling, or a day that does not exist.
    """
    if not isinstance(text, str) or not _INSTANT_FORM.match(text):
        raise GateError(f"instant {text!r}: expected `YYYY-MM-DDThh:mm:ssZ`")
    try:
        return dt.datetime.fromisoformat(text)  # lenient, but the form is already strict
    except ValueError as cause:
        raise GateError(f"instant `{text}`: no such day or time") from cause
