"""What a check of one document found, in the form that the report writers take.

`findings` are `policies.render.Explanation`s, from here or as the service's JSON; `results` name
every rule that was asked with its outcome, so that "did not apply" never reads as "passed".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from policies.positions import Position, locate

Found = Mapping[str, Any]


@dataclass(frozen=True)
class Checked:
    """One checked document.

    Args:
        file: its path as the caller named it, relative to the repository when it is relative.
        verdict: allow, allow_with_warnings, require_approval or deny.
        findings: explanations of what is neither passed nor not applicable, the gravest first.
        results: {"rule", "version", "effect", "outcome"} of every rule asked, in their order.
        approvals: {"role", "count"} that would still be needed.
        evaluated_at: the instant of the decision.
        digests: of record, facts, policy and reference data, by name.
        language: of the messages.
        positions: of the document's members.
        places: where facts come from in the document, as `policies.positions.locate` takes them.
    """

    file: str
    verdict: str
    findings: Sequence[Found]
    results: Sequence[Found]
    approvals: Sequence[Found] = ()
    evaluated_at: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)
    language: str = "en"
    positions: Mapping[str, Position] = field(default_factory=dict)
    places: Sequence[tuple[str, str]] = ()

    def where(self, finding: Found) -> tuple[str, Position] | None:
        """Say which member of the document a finding came from, if that can be told."""
        return locate(finding["pointer"], self.positions, self.places)


def is_closed(finding: Found) -> bool:
    """Say whether a finding denies because something is not known or could not be asked."""
    return finding["effect"] != "warn" and finding["outcome"] in ("unknown", "error")


def weight(finding: Found) -> str:
    """Say what a finding leads to: deny, require_approval or warn."""
    if finding["outcome"] == "waived":
        return "warn"
    return "deny" if is_closed(finding) else str(finding["effect"])
