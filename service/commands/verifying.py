"""`placet verify --replay`: level L8, every decision of a bundle made again from its own inputs.

`audit` checks the bytes (L0 to L7); here the gate runs again on the facts, the policy and the
reference data in the bundle, and its record must come out byte for byte, with the digests and the
verdict that the entry names.
"""

import argparse
import importlib
import json
import sys
from collections.abc import Iterator
from typing import Any

from audit.__main__ import CommandError as VerifyError
from audit.__main__ import remember, run_verify
from audit.bundle import Bundle
from audit.manifest import BundleError
from audit.report import (
    Exit,
    Level,
    Report,
    failed,
    not_checked,
    passed,
    to_json,
    to_text,
)

LEVEL = "L8"
_INPUTS = ("record", "policy", "reference", "facts")


class ReplayError(ValueError):
    """A decision does not come out again; the message names the entry."""


class AbsentError(LookupError):
    """A decision cannot be replayed, because the bundle lacks a document."""


def verify(arguments: argparse.Namespace) -> int:
    """Verify a bundle, and replay its decisions when asked to; return `verify`'s exit status."""
    try:
        report, bundle = run_verify(arguments)
        if arguments.replay and bundle is not None:
            report = report.with_level(_replayed(report, bundle))
        remember(arguments, report, bundle)
    except VerifyError as error:
        sys.stderr.write(f"placet verify: {str(error)!a}\n")
        return Exit.MALFORMED
    if bundle is not None:
        bundle.close()
    sys.stdout.write(to_json(report) + "\n" if arguments.json else to_text(report))
    return report.exit_code


def _replayed(report: Report, bundle: Bundle) -> Level:
    if report.exit_code in (Exit.MALFORMED, Exit.TAMPERED):
        return not_checked(LEVEL, "the bundle is not intact, so there is nothing to replay")
    try:
        gate = importlib.import_module("policies.gate")
    except ModuleNotFoundError:
        return not_checked(LEVEL, "not checked: install placet[policies]", Exit.UNTRUSTED)
    try:
        count = sum(1 for _ in _decisions(bundle, gate))
    except (ReplayError, BundleError) as error:
        return failed(LEVEL, str(error))
    except AbsentError as error:
        return not_checked(LEVEL, str(error), Exit.INCOMPLETE)
    return passed(LEVEL, f"{count} decisions replayed byte for byte")


def _decisions(bundle: Bundle, gate: Any) -> Iterator[int]:
    """Replay each decision in order; yield the index of each entry that holds."""
    for first, group in bundle.entry_groups():
        for index, body in enumerate(group, first):
            entry = json.loads(body)
            if entry["action"] == "gate.decided":
                _replay(bundle, gate, index, entry)
                yield index


def _replay(bundle: Bundle, gate: Any, index: int, entry: dict[str, Any]) -> None:
    data = entry["data"]
    found = {name: bundle.document(data[name]) for name in _INPUTS}
    for name, document in found.items():
        if document is None:
            raise AbsentError(f"entry {index}: the {name} {data[name]} is not in the bundle")
    try:
        result = gate.replay(found["record"], found["policy"], found["reference"])
        record = json.loads(found["record"] or b"{}")
    except ValueError as error:
        raise ReplayError(f"entry {index}: cannot be replayed: {error}") from error
    if not result.identical:
        members = ", ".join(result.differing) or "the inputs' digests"
        raise ReplayError(f"entry {index}: the decision comes out differently: {members}")
    subject = str(entry["resource"]).partition("@")[0]
    claimed = {
        "policy": data["policy"],
        "reference": data["reference"],
        "facts_digest": data["facts"],
        "verdict": data["verdict"],
        "approvals": data["approvals"],
        "subject": subject,
    }
    wrong = [name for name, value in claimed.items() if record.get(name) != value]
    if wrong:
        raise ReplayError(f"entry {index}: the entry and its record disagree: {', '.join(wrong)}")
