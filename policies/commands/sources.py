"""`placet policy sources`: rows of reference data that a person should look at again.

A row needs a look when it was last checked too long ago, when nobody verified it, or when it has
ended by the day asked about. Finding some is no error unless `--fail` says so.
"""

import argparse
import datetime as dt
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from policies.commands.grammar import command, line, say
from policies.load import load_reference
from policies.reference import Reference, stale

_EXAMPLES = """\
placet policy sources --stale-after 180d
placet policy sources --stale-after 90d --on 2027-06-01 --fail --json"""


def add(commands: Any) -> None:
    """Add `sources` to the commands of `placet policy`."""
    text = "list reference rows that need a look"
    parser = command(commands, "sources", text, _EXAMPLES, _run)
    parser.add_argument("--stale-after", default="180d", metavar="DAYS", help="such as 180d")
    parser.add_argument("--on", metavar="DATE", help="the day to look from (default: today, UTC)")
    parser.add_argument("--fail", action="store_true", help="exit 1 when a row needs a look")


def _run(options: argparse.Namespace) -> int:
    if not re.fullmatch(r"[0-9]{1,5}d", options.stale_after):
        raise ValueError(f"--stale-after {options.stale_after}: expected days, such as 180d")
    today = dt.datetime.now(dt.UTC).date()
    on = dt.date.fromisoformat(options.on) if options.on else today
    reference = load_reference(options.reference)
    old = [
        {"table": r.table, "key": r.key, "checked_on": r.checked_on, "source": r.source}
        for r in stale(reference, on, int(options.stale_after[:-1]))
    ]
    counts = _counts(reference, on, old)
    found = sum(sum(row[k] for k in ("stale", "unverified", "ended")) for row in counts.values())
    if options.json:
        say({"on": on.isoformat(), "tables": counts, "stale": old})
    else:
        line(f"{'table':16} {'rows':>5} {'stale':>6} {'unverified':>11} {'ended':>6}  oldest")
        for name, row in counts.items():
            numbers = f"{row['stale']:>6} {row['unverified']:>11} {row['ended']:>6}"
            line(f"{name:16} {row['rows']:>5} {numbers}  {row['oldest']}")
        for each in old:
            line(f"STALE  {each['table']}/{each['key']}  {each['checked_on']}  {each['source']}")
    return 1 if options.fail and found else 0


def _counts(reference: Reference, on: dt.date, old: list[dict[str, str]]) -> dict[str, Any]:
    stale_rows, day = Counter(row["table"] for row in old), on.isoformat()
    return {
        name: {
            "rows": len(rows),
            "stale": stale_rows[name],
            "unverified": sum(row["confidence"] == "unverified" for row in rows),
            "ended": sum(_end(row) < day for row in rows),
            "oldest": min((row["checked_on"] for row in rows), default=""),
        }
        for name, rows in sorted(reference.tables.items())
    }


def _end(row: Mapping[str, Any]) -> str:
    return str(row.get("until") or row.get("valid_until") or "9999-12-31")
