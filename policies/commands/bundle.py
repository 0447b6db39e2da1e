"""`placet policy build` and `placet policy inspect`: packs as one file to sign, and what is in it.

Signing needs a key and stands with the service (`placet policy sign`).
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from policies.bundle import Bundle, BundleError, build
from policies.commands.grammar import reason
from policies.rule import RuleError

_REFUSED = (BundleError, RuleError, OSError)
_BUILD_EXAMPLES = """\
examples:
  placet policy build packs/ --number 7 --created 2026-11-30T12:00:00Z --out policy-7.json
  placet policy build packs/ --number 8 --created 2026-12-01T09:00:00Z --effective 2027-01-01 \\
      --out policy-8.json
"""
_INSPECT_EXAMPLES = """\
examples:
  placet policy inspect policy-7.json
  placet policy inspect policy-7.json --json
"""


def add(commands: Any) -> None:
    """Add `build` and `inspect` to the commands of `placet policy`."""
    parser = _command(commands, "build", "make a bundle of packs, to be signed", _BUILD_EXAMPLES)
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of packs, or one pack")
    parser.add_argument("--number", type=int, required=True, help="its number; numbers only grow")
    parser.add_argument("--created", required=True, help="instant, YYYY-MM-DDThh:mm:ssZ")
    parser.add_argument("--effective", help="first day to enforce it (default: day of --created)")
    parser.add_argument(
        "--rollback-of", type=int, metavar="N", help="the number in force that this one takes back"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="file to write")
    parser.set_defaults(handler=_build)
    parser = _command(commands, "inspect", "say what a bundle holds", _INSPECT_EXAMPLES)
    parser.add_argument("file", type=Path, metavar="FILE", help="a bundle")
    parser.set_defaults(handler=_inspect)


def _command(commands: Any, name: str, text: str, examples: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    return parser


def _build(options: argparse.Namespace) -> int:
    try:
        bundle = build(
            options.folder,
            number=options.number,
            created=options.created,
            effective=options.effective or options.created[:10],
            rollback_of=options.rollback_of,
        )
        with options.out.open("xb") as out:
            out.write(bundle.to_bytes())
    except _REFUSED as cause:
        return _refused(cause)
    _show(bundle, as_json=options.json)
    return 0


def _inspect(options: argparse.Namespace) -> int:
    try:
        bundle = Bundle.from_bytes(options.file.read_bytes())
    except BundleError as cause:
        return _refused(BundleError(f"`{options.file}` is no bundle of packs: {cause}"))
    except OSError as cause:
        return _refused(cause)
    _show(bundle, as_json=options.json)
    return 0


def _refused(cause: Exception) -> int:
    sys.stderr.write(f"placet policy: {reason(cause)}\n")
    return 2


def _show(bundle: Bundle, *, as_json: bool) -> None:
    manifest = bundle.manifest
    signers = [keyid for keyid, _ in bundle.signatures]
    if as_json:
        document = {**manifest.to_document(), "bundle": bundle.digest, "signatures": signers}
        sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
        return
    back = "" if manifest.rollback_of is None else f", takes back number {manifest.rollback_of}"
    lines = [
        f"number     {manifest.number}{back}",
        f"policy     {manifest.policy}",
        f"bundle     {bundle.digest}",
        f"created    {manifest.created}",
        f"effective  {manifest.effective}",
        f"signed by  {', '.join(signers) or 'nobody yet: placet policy sign'}",
        f"files      {len(manifest.files)}",
        *(f"  {size:>8}  {path}" for path, _, size in manifest.files),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
