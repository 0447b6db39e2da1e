"""One pass over the entries of an export: hashes against tiles, the form and the story of each.

Steps (3) to (5) and (13) of `audit.verify`, for a whole export and for an excerpt.
"""

import hashlib
from dataclasses import dataclass, field

from audit.bundle import Bundle, entry_line, references
from audit.disclosure import Disclosures
from audit.event import EventError, from_bytes
from audit.invariants import Invariants
from audit.manifest import Excerpt, object_name
from audit.merkle import Frontier, leaf_hash, leaf_hashes, pair_up
from audit.tiles import TILE_WIDTH, tile_path


@dataclass
class Reading:
    """What one pass over the entries found."""

    invariants: Invariants
    disclosures: Disclosures
    excerpt: Excerpt | None = None
    integrity_fault: str | None = None
    entry_fault: str | None = None
    absent: set[str] = field(default_factory=set)


class _Broken(Exception):  # noqa: N818 — it carries a finding, not an error of ours
    """Entries and tiles do not lead to one root."""


class _TileCheck:
    """Compares computed hashes with the published tiles, level by level."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._rows: list[list[bytes]] = []
        self._done: list[int] = []
        self.frontier = Frontier()

    def add(self, leaves: list[bytes]) -> None:
        """Take the next 256 leaf hashes, or the last ones."""
        tile_root = self._add(0, leaves)
        if tile_root is None:
            self.frontier.extend(leaves)
        else:
            self.frontier.append_subtree(8, tile_root)

    def finish(self) -> None:
        """Compare the partial tiles on the right edge."""
        for level, row in enumerate(self._rows):
            if row:
                self._compare(level, row)

    def _add(self, level: int, hashes: list[bytes]) -> bytes | None:
        """Take hashes of a level; return the root of the tile that they complete, if any."""
        if level == len(self._rows):
            self._rows.append([])
            self._done.append(0)
        row = self._rows[level]
        row += hashes
        if len(row) < TILE_WIDTH:
            return None
        self._compare(level, row)
        self._rows[level] = []
        self._done[level] += 1
        for _ in range(8):
            row = pair_up(row)
        self._add(level + 1, row)
        return row[0]

    def _compare(self, level: int, row: list[bytes]) -> None:
        path = tile_path(level, self._done[level], len(row))
        if self._bundle.read(path) != b"".join(row):
            raise _Broken(f"{path} does not hold the hashes of what lies below it")


def read_entries(bundle: Bundle, reading: Reading) -> None:
    """Read every entry that is there; what was found is in `reading` afterwards.

    Raises:
        BundleError: a tile, an entry bundle or a line of entries.ndjson is malformed.
    """
    try:
        if bundle.manifest.excerpt is None:
            _read_all(bundle, reading)
        else:
            _read_shown(bundle, reading, bundle.manifest.excerpt)
    except _Broken as cause:
        reading.integrity_fault = str(cause)


def _read_shown(bundle: Bundle, reading: Reading, excerpt: Excerpt) -> None:
    """Hold what an excerpt shows against the leaf hashes of all, and these against the root."""
    tiles, shown = _TileCheck(bundle), iter(bundle.shown())
    following, count = next(shown, None), 0
    for first, leaves in bundle.leaf_groups():
        tiles.add(leaves)
        while following is not None and following[0] < first + len(leaves):
            index, entry = following
            if leaf_hash(entry) != leaves[index - first]:
                raise _Broken(f"entry {index} is not the one that the log holds there")
            _read_entry(index, entry, reading)
            _note_absent(bundle, entry, reading)
            following, count = next(shown, None), count + 1
    tiles.finish()
    if tiles.frontier.root() != bundle.checkpoint.root:
        raise _Broken("the leaf hashes lead to another root than the checkpoint's")
    if count != excerpt.shown:
        raise _Broken(f"{count} entries are shown, the manifest says {excerpt.shown}")


def _note_absent(bundle: Bundle, entry: bytes, reading: Reading) -> None:
    reading.absent.update(
        reference for reference in references(entry) if object_name(reference) not in bundle.present
    )


def _read_all(bundle: Bundle, reading: Reading) -> None:
    tiles, lines = _TileCheck(bundle), hashlib.sha256()
    for first, entries in bundle.entry_groups():
        leaves = leaf_hashes(entries)
        tiles.add(leaves)  # (3)
        for index, (entry, leaf) in enumerate(zip(entries, leaves, strict=True), first):
            lines.update(entry_line(index, entry, leaf))
            _read_entry(index, entry, reading)
            _note_absent(bundle, entry, reading)
    _check_end(bundle, tiles, lines.hexdigest())


def _check_end(bundle: Bundle, tiles: _TileCheck, lines_digest: str) -> None:
    tiles.finish()
    if tiles.frontier.root() != bundle.checkpoint.root:
        raise _Broken("the entries lead to another root than the checkpoint's")
    if bundle.manifest.members["entries.ndjson"][0] != f"sha256:{lines_digest}":
        raise _Broken("entries.ndjson does not say what the entries say")


def _read_entry(index: int, entry: bytes, reading: Reading) -> None:
    if reading.entry_fault is not None:
        return
    try:
        event = from_bytes(entry)  # (4)
    except EventError as cause:
        reading.entry_fault = f"entry {index}: {cause}"
    else:
        excerpt = reading.excerpt
        if excerpt is None:
            reading.invariants.read(index, event)  # (5)
        elif not excerpt.selection.matches(index, event):
            reading.entry_fault = f"entry {index} is shown and was not selected"
        reading.disclosures.read(event.id, event.sealed)  # (13)
