"""The entries of an export as a table, for people who read them in a spreadsheet.

UTF-8 with a byte order mark, RFC 4180 lines, one header. A cell that a spreadsheet would take for a
formula gets an apostrophe before it, so that nothing in the log is ever run. The table proves
nothing: write it from an export that was verified, and keep the export.
"""

import csv
import json
from collections.abc import Iterable, Iterator
from typing import TextIO

from audit.bundle import Bundle
from audit.event import EventError, from_bytes
from audit.merkle import leaf_hash

COLUMNS = (
    *("index", "id", "at", "action", "resource", "outcome"),
    *("actor_kind", "actor", "actor_auth", "data", "sealed", "leaf_hash"),
)
_BOM = "\ufeff"
# What a spreadsheet runs, and the white space before which it still does.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_table(bundle: Bundle, out: TextIO) -> int:
    """Write every entry that an export shows; return how many.

    Args:
        bundle: an open export, verified before.
        out: opened as text with `encoding="utf-8"` and `newline=""`.

    Raises:
        BundleError: a member is malformed.
    """
    out.write(_BOM)
    table = csv.writer(out, lineterminator="\r\n")
    table.writerow(COLUMNS)
    count = 0
    for index, entry in _entries(bundle):
        table.writerow(map(_safe, _row(index, entry)))
        count += 1
    return count


def _entries(bundle: Bundle) -> Iterator[tuple[int, bytes]]:
    if bundle.manifest.excerpt is not None:
        yield from bundle.shown()
        return
    for first, group in bundle.entry_groups():
        yield from enumerate(group, first)


def _row(index: int, entry: bytes) -> Iterable[str]:
    leaf = leaf_hash(entry).hex()
    try:
        event = from_bytes(entry)
    except EventError:  # verification has said so: the bytes are shown as they are
        return (str(index), *[""] * 8, entry.decode("utf-8", "backslashreplace"), "", leaf)
    data = json.dumps(event.data, ensure_ascii=False, sort_keys=True)
    return (
        *(str(index), event.id, event.at, str(event.action), event.resource, event.outcome),
        *(event.actor.kind, event.actor.ref, event.actor.auth),
        *(data, ", ".join(sorted(event.sealed)), leaf),
    )


def _safe(cell: str) -> str:
    return f"'{cell}" if cell.startswith(_FORMULA) else cell
