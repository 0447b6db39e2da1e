"""Measure the audit log: tiles, proofs, verification, exports, and what an entry costs a database.

    python tests/bench/audit/bench.py [--leaves 1000000] [--seconds 5] [--only NAME] [--json FILE]

Nothing is asserted but that answers are right; README.md says how to read the table. Peers run on
the same machine in the same run: pymerkle, a chain of hashes with one head row, a plain table.
"""

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path[:0] = [
    str(Path(__file__).parent),
    str(Path(__file__).parents[2]),
    str(Path(__file__).parents[3]),
]

import database
import probe
import tree
from rows import Row, ratios

PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "probe": probe.measured,
    "tree": tree.measured,
    "database": database.measured,
}


def main() -> int:
    """Print the table and the ratios, and write them as JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leaves", type=int, default=1_000_000, help="entries of the large log")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each load runs")
    parser.add_argument("--clients", type=int, default=16, help="clients of each load")
    parser.add_argument("--only", choices=PARTS, help="measure one part")
    parser.add_argument("--json", type=Path, help="write the rows here")
    arguments = parser.parse_args()
    write, rows = sys.stdout.write, []
    write(f"{platform.platform()}, Python {platform.python_version()}\n")
    for name, part in PARTS.items():
        if arguments.only not in (None, name):
            continue
        for row in part(arguments):
            rows.append(row)
            write(f"{row.what:62} {row.figures()}\n")
            sys.stdout.flush()
    for line in ratios(rows):
        write(f"{line}\n")
    if arguments.json:
        document = [row.to_document() for row in rows]
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
