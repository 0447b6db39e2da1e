"""`placet verify --replay`: level L8 beside the levels that need nothing of ours.

`audit` checks the bytes and the story (L0 to L7); `service.commands.replaying` makes every decision
of the bundle again.
"""

import argparse
import importlib
import sys

from audit.__main__ import CommandError as VerifyError
from audit.__main__ import remember, run_verify, tabulate
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
from service.commands.replaying import AbsentError, Replay, ReplayError

LEVEL = "L8"


def verify(arguments: argparse.Namespace) -> int:
    """Verify a bundle, and replay its decisions when asked to; return `verify`'s exit status."""
    try:
        report, bundle = run_verify(arguments)
        if arguments.replay and bundle is not None:
            report = report.with_level(_replayed(report, bundle))
        remember(arguments, report, bundle)
        tabulate(arguments, report, bundle)
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
    if bundle.manifest.excerpt is not None:
        return not_checked(
            LEVEL, "an excerpt may leave out what decisions rest on", Exit.INCOMPLETE
        )
    try:
        gate = importlib.import_module("policies.gate")
    except ModuleNotFoundError:
        return not_checked(LEVEL, "not checked: install placet[policies]", Exit.UNTRUSTED)
    replay = Replay(bundle, gate)
    try:
        replay.read_all()
    except (ReplayError, BundleError) as error:
        return failed(LEVEL, str(error))
    except AbsentError as error:
        return not_checked(LEVEL, str(error), Exit.INCOMPLETE)
    detail = f"{replay.num_decisions} decisions replayed byte for byte, about what the log says"
    return passed(LEVEL, detail)
