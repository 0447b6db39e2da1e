"""`placet policy` beyond one machine's files: history replayed, explained, and tried otherwise.

The room `policies` has the commands that need its files only. These need a service or an export.
"""

import argparse
from pathlib import Path

from service.commands.grammar import Subparsers, remote

_LANGUAGES = ("en", "fr", "de", "es", "pt", "pl")
_EXTRA = "policies,client"


def add_commands(subparsers: Subparsers) -> None:
    """Add them beside the room's own."""
    parser = remote(
        subparsers,
        "what-if",
        "decide the past again under other packs, and list what changes",
        handler="policy_history:what_if",
        examples="placet policy what-if packs/ --since 2026-11-01\n"
        "placet policy what-if packs/ --history evidence.zip --json\n"
        "placet policy what-if bundle.json --since 2026-11-01 --fail-on stricter",
    )
    parser.add_argument(
        "candidate", nargs="+", type=Path, metavar="PACKS",
        help="folders that hold all packs to try, a bundle of them, or a policy document",
    )  # fmt: skip
    parser.add_argument(
        "--fail-on", choices=("any", "stricter", "milder", "never"), default="any",
        help="end with 1 when something becomes denied (stricter), stops being denied (milder),"
        " either (any, the default), or not at all (never)",
    )  # fmt: skip
    _history(parser)
    parser = remote(
        subparsers,
        "replay",
        "make past decisions again and compare every byte: exits 0 identical, 1 differing,"
        " 4 not all could be checked",
        handler="policy_history:replay",
        examples="placet policy replay --all\n"
        "placet policy replay --all --since 2026-11-01\n"
        "placet policy replay --history evidence.zip",
    )
    parser.add_argument("--all", action="store_true", help="all that the service shows you")
    _history(parser)
    parser = remote(
        subparsers,
        "explain",
        "explain the gate's decision on a job or a deployment, so that people can act on it",
        handler="policy_history:explain",
        examples="placet policy explain job_…\nplacet policy explain dep_… --language fr",
    )
    parser.add_argument("id", metavar="ID", help="job_…, dep_… or dec_…")
    parser.add_argument("--language", choices=_LANGUAGES, default="en")
    parser.set_defaults(extra=_EXTRA)


def _history(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(extra=_EXTRA)
    group = parser.add_argument_group("history")
    group.add_argument("--since", metavar="DATE", help="only since then, YYYY-MM-DD")
    group.add_argument(
        "--history", type=Path, metavar="EXPORT", help="an export's zip file, not the service"
    )
