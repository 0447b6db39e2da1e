"""The auditor's command: `placet verify BUNDLE --vkey KEY`, also as `python -I -m audit verify`.

Use `-I` with `-m`: otherwise Python would run an `audit.py` that lies in the evidence folder.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from audit.bundle import Bundle, open_bundle
from audit.canonical import is_digest
from audit.disclosure import MAX_DISCLOSURE_BYTES, Disclosure, DisclosureError
from audit.keys import ED25519, NoteError, VerifyKey
from audit.listing import write_table
from audit.manifest import BundleError
from audit.note import Checkpoint
from audit.policy import MAX_POLICY_BYTES, WitnessPolicy, WitnessPolicyError, parse_policy
from audit.remembered import RememberedError, load_remembered, store_remembered
from audit.report import Exit, Report, malformed, to_json, to_text
from audit.signers import Trusted
from audit.verify import examine

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 — no public name

MAX_VKEY_FILE_BYTES = 1_048_576
_UNREADABLE = (NoteError, RememberedError, DisclosureError, WitnessPolicyError)

_EPILOG = """\
examples:
  placet verify export.zip --vkey "example.com/log+530d903a+AekyeRrm…"
  placet verify export.zip --vkey-file keys.txt --state log.state
  placet verify export.zip --vkey-file keys.txt --witness-policy policy.txt --json
  placet verify export.zip --vkey-file keys.txt --policy-signer-file maintainers.txt

The key must come from another place than the export: a contract, a letter, the log's web page.
Keys of witnesses count when they are given; each of them must then have cosigned. A file for
--witness-policy says which of them are enough.
With keys of policy signers, two of them must have signed each policy that was put in force; name
the policy that your release ships, which nobody signs, by its digest with --policy.
--state remembers the log's size and root, so that the next export can be checked to extend it.
--disclosed holds a value that you were given against the commitment in its entry.

exit status:
  0 verified   1 tampered   2 malformed or usage   3 trust not established   4 documents missing
"""


class CommandError(ValueError):
    """The command cannot run as asked: a file is unreadable or a key is malformed."""


def add_commands(subparsers: "Subparsers") -> argparse.ArgumentParser:
    """Mount `verify`, and return its parser so that a larger command can add options to it.

    The parser's default `handler` is `handle_verify`: (arguments) -> exit status.
    """
    parser = subparsers.add_parser(
        "verify",
        help="check an exported audit log offline",
        description="Check an exported audit log offline, level by level.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="the export, a zip file")
    parser.add_argument(
        "--vkey",
        metavar="KEY",
        action="append",
        default=[],
        help="a verifier key that you trust, of the log or a witness; repeat for more",
    )
    parser.add_argument(
        "--vkey-file",
        metavar="FILE",
        type=Path,
        help="verifier keys, one a line; # for comments",
    )
    parser.add_argument(
        "--state", metavar="FILE", type=Path, help="remember the log here, and check it extends"
    )
    parser.add_argument(
        "--witness-policy",
        metavar="FILE",
        type=Path,
        help="which witnesses must have cosigned, and how many (C2SP tlog-policy)",
    )
    _add_trust(parser)
    parser.add_argument(
        "--csv",
        metavar="FILE",
        type=Path,
        help="write the entries as a table, if nothing is wrong with the export",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(handler=handle_verify)
    return parser


def _add_trust(parser: argparse.ArgumentParser) -> None:
    """Add what an auditor brings along for the levels that rest on it."""
    parser.add_argument(
        "--policy-signer",
        metavar="KEY",
        action="append",
        default=[],
        help="a verifier key that you trust to sign policies; repeat for more",
    )
    parser.add_argument(
        "--policy-signer-file", metavar="FILE", type=Path, help="such keys, one a line"
    )
    parser.add_argument(
        "--policy",
        metavar="DIGEST",
        action="append",
        default=[],
        help="a policy that you trust without signatures, as sha256:…; repeat for more",
    )
    parser.add_argument(
        "--disclosed",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="a value that was disclosed to you, to be held against its entry; repeat for more",
    )


def run_verify(arguments: argparse.Namespace) -> tuple[Report, Bundle | None]:
    """Verify as asked; return the report and the export, still open when it could be opened.

    The caller closes the export, and may read on in it, as a replay does. The state file is not
    written: that is `remember`, to be called with the final report.

    Raises:
        CommandError: a file is unreadable, a key or the state file is malformed.
    """
    if arguments.csv and arguments.csv.exists():
        raise CommandError(f"{arguments.csv} is there already; name another file")
    try:
        vkeys = [*arguments.vkey, *_read_vkeys(arguments.vkey_file)]
        keys = [VerifyKey.parse(vkey) for vkey in vkeys]
        trusted = _trusted(arguments)
        remembered = load_remembered(arguments.state) if arguments.state else None
        disclosed = [Disclosure.from_bytes(_head(path)) for path in arguments.disclosed]
        witness_policy = _witness_policy(arguments.witness_policy)
        bundle = open_bundle(arguments.bundle)
    except BundleError as cause:
        return malformed(str(cause)), None
    except (*_UNREADABLE, OSError, UnicodeDecodeError) as cause:
        raise CommandError(str(cause)) from cause
    try:
        report = examine(
            bundle,
            keys,
            remembered=remembered,
            trusted=trusted,
            disclosed=disclosed,
            witness_policy=witness_policy,
        )
    except BundleError as cause:
        return malformed(str(cause)), bundle
    return report, bundle


def remember(arguments: argparse.Namespace, report: Report, bundle: Bundle | None) -> None:
    """Write the state file when one was asked for and nothing is wrong with the log.

    Raises:
        CommandError: it cannot be written.
    """
    if not arguments.state or bundle is None:
        return
    if report.exit_code not in (Exit.VERIFIED, Exit.INCOMPLETE):
        return
    now = bundle.checkpoint
    try:
        store_remembered(arguments.state, Checkpoint(now.origin, now.size, now.root))
    except OSError as cause:
        raise CommandError(f"the state cannot be written: {cause}") from cause


def tabulate(arguments: argparse.Namespace, report: Report, bundle: Bundle | None) -> None:
    """Write the table when one was asked for, and the entries are what was signed.

    Raises:
        CommandError: it cannot be written.
    """
    if not arguments.csv:
        return
    if bundle is None or report.exit_code not in (Exit.VERIFIED, Exit.INCOMPLETE):
        sys.stderr.write("placet verify: no table is written of an export that is not verified\n")
        return
    try:
        with arguments.csv.open("x", encoding="utf-8", newline="") as out:
            write_table(bundle, out)
    except (OSError, BundleError) as cause:
        raise CommandError(f"the table cannot be written: {cause}") from cause


def handle_verify(arguments: argparse.Namespace) -> int:
    """Run `verify`: print the report and return the exit status."""
    bundle = None
    try:
        report, bundle = run_verify(arguments)
        remember(arguments, report, bundle)
        tabulate(arguments, report, bundle)
    except CommandError as cause:
        sys.stderr.write(f"placet verify: {str(cause)!a}\n")
        return Exit.MALFORMED
    finally:
        if bundle is not None:
            bundle.close()
    sys.stdout.write(to_json(report) + "\n" if arguments.json else to_text(report))
    return report.exit_code


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="placet", description=__doc__.partition("\n")[0])
    add_commands(parser.add_subparsers(required=True, metavar="COMMAND"))
    arguments = parser.parse_args(argv)
    return int(arguments.handler(arguments))


def _trusted(arguments: argparse.Namespace) -> Trusted:
    signers = [*arguments.policy_signer, *_read_vkeys(arguments.policy_signer_file)]
    keys = tuple(VerifyKey.parse(vkey) for vkey in signers)
    for key in keys:
        if key.kind != ED25519:
            raise CommandError(f"{key.name} is no Ed25519 key, as policies are signed with")
    for name in arguments.policy:
        if not is_digest(name):
            raise CommandError(f"--policy: expected sha256: and 64 digits, got {name[:80]}")
    return Trusted(keys, frozenset(arguments.policy))


def _witness_policy(path: Path | None) -> WitnessPolicy | None:
    if path is None:
        return None
    with path.open("rb") as file:
        return parse_policy(file.read(MAX_POLICY_BYTES + 1))


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_DISCLOSURE_BYTES + 1)


def _read_vkeys(path: Path | None) -> list[str]:
    if path is None:
        return []
    with path.open("rb") as file:
        lines = file.read(MAX_VKEY_FILE_BYTES).decode("utf-8").split("\n")
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


if __name__ == "__main__":
    raise SystemExit(main())
