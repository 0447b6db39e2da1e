"""What a verification found, level by level; "not checked" is never shown as a pass.

    L0 format        the file is an export of ours, and every entry is well formed
    L1 integrity     entries, tiles and entries.ndjson lead to the root of the checkpoint
    L2 signature     the log's key signed the checkpoint and the manifest, which lists all members
    L3 consistency   the log that I remember is the beginning of this one
    L4 witnesses     the witnesses that I trust cosigned the checkpoint
    L5 time          a trusted timestamp dates the checkpoint
    L6 invariants    the entries tell an allowed story (`audit.invariants`)
    L7 documents     every document that an entry refers to is enclosed
    L8 replay        each decision comes out again from its policy and facts
    L9 policies      maintainers whose keys I have signed every policy that was put in force
    L10 disclosures  the values that were disclosed to me are those that entries committed to

Exit status: 0 verified, 1 tampered, 2 malformed or usage, 3 trust not established (no key given,
none of them signed, or a witness is missing), 4 incomplete. When several apply, the first of 2, 1,
3, 4.
"""

import json
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

from audit.invariants import Violation

REPORT_FORMAT = "placet.verify-report/1"

NAMES = {
    "L0": "format",
    "L1": "integrity",
    "L2": "signature",
    "L3": "consistency",
    "L4": "witnesses",
    "L5": "time",
    "L6": "invariants",
    "L7": "documents",
    "L8": "replay",
    "L9": "policies",
    "L10": "disclosures",
}


class Outcome(StrEnum):
    """What is known about a level."""

    PASS = "pass"  # noqa: S105 — an outcome
    FAIL = "fail"
    NOT_CHECKED = "not checked"


class Exit(IntEnum):
    """The exit status of a verification."""

    VERIFIED = 0
    TAMPERED = 1
    MALFORMED = 2
    UNTRUSTED = 3
    INCOMPLETE = 4


_PRECEDENCE = (Exit.MALFORMED, Exit.TAMPERED, Exit.UNTRUSTED, Exit.INCOMPLETE)
_VERDICTS = {
    Exit.VERIFIED: "VERIFIED",
    Exit.TAMPERED: "TAMPERED",
    Exit.MALFORMED: "MALFORMED",
    Exit.UNTRUSTED: "NOT TRUSTED",
    Exit.INCOMPLETE: "INCOMPLETE",
}


@dataclass(frozen=True)
class Level:
    """One level's outcome; `exit_code` is the status that this level alone asks for."""

    id: str
    outcome: Outcome
    detail: str
    exit_code: Exit = Exit.VERIFIED

    @property
    def name(self) -> str:
        """What the level is about, in one word."""
        return NAMES[self.id]


@dataclass(frozen=True)
class Report:
    """The result of a verification; `levels` holds L0 to L10 in order."""

    levels: tuple[Level, ...]
    origin: str | None = None
    size: int | None = None
    root: bytes | None = None
    violations: tuple[Violation, ...] = ()
    absent: tuple[str, ...] = ()
    hinted_keys: tuple[str, ...] = ()

    @property
    def exit_code(self) -> Exit:
        """The status of the whole: the gravest that a level asks for."""
        asked = {level.exit_code for level in self.levels}
        return next((code for code in _PRECEDENCE if code in asked), Exit.VERIFIED)

    @property
    def verdict(self) -> str:
        """The status in words."""
        return _VERDICTS[self.exit_code]

    def with_level(self, level: Level) -> "Report":
        """Return a copy in which this level's outcome is replaced, as a replay does with L8."""
        levels = tuple(level if old.id == level.id else old for old in self.levels)
        return replace(self, levels=levels)


def passed(level: str, detail: str) -> Level:
    """Make a level that holds."""
    return Level(level, Outcome.PASS, detail)


def failed(level: str, detail: str, exit_code: Exit = Exit.TAMPERED) -> Level:
    """Make a level that does not hold."""
    return Level(level, Outcome.FAIL, detail, exit_code)


def not_checked(level: str, detail: str, exit_code: Exit = Exit.VERIFIED) -> Level:
    """Make a level about which nothing is known."""
    return Level(level, Outcome.NOT_CHECKED, detail, exit_code)


def malformed(detail: str) -> Report:
    """Make the report about a file that could not be read as an export."""
    rest = [not_checked(level, "the file is malformed") for level in NAMES if level != "L0"]
    return Report((failed("L0", detail, Exit.MALFORMED), *rest))


def to_json(report: Report) -> str:
    """Render for machines: one line of ASCII JSON, `placet.verify-report/1`."""
    return json.dumps(
        {
            "format": REPORT_FORMAT,
            "verdict": report.verdict,
            "exit_code": int(report.exit_code),
            "origin": report.origin,
            "size": report.size,
            "root": report.root.hex() if report.root is not None else None,
            "levels": [
                {"id": each.id, "name": each.name, "outcome": each.outcome, "detail": each.detail}
                for each in report.levels
            ],
            "violations": [vars(each) for each in report.violations],
            "absent": list(report.absent),
            "hinted_keys": list(report.hinted_keys),
        }
    )


def to_text(report: Report) -> str:
    """Render for people, in printable ASCII whatever the file contained."""
    lines = [f"log    {report.origin or 'unknown'}"]
    if report.size is not None and report.root is not None:
        lines.append(f"tree   {report.size} entries, root {report.root.hex()}")
    lines += [
        f"{level.id} {level.name:<12} {level.outcome:<12} {level.detail}" for level in report.levels
    ]
    lines += [f"  entry {each.index}: {each.rule}: {each.detail}" for each in report.violations]
    lines += [f"  missing {each}" for each in report.absent[:20]]
    if len(report.absent) > 20:
        lines.append(f"  ... and {len(report.absent) - 20} more")
    if report.exit_code == Exit.UNTRUSTED:
        lines.append("Give the key that you got from another place than this file, by --vkey.")
        lines += [f"  hint only, in the file: {vkey}" for vkey in report.hinted_keys]
    lines.append(report.verdict)
    return "\n".join(map(_printable, lines)) + "\n"


def _printable(line: str) -> str:
    return "".join(
        char
        if " " <= char <= "~"
        else char.encode("ascii", "backslashreplace").decode()
        if char > "~"
        else f"\\x{ord(char):02x}"
        for char in line
    )
