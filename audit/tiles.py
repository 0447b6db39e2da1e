"""Tiles: the files that a log publishes, and the reader that builds proofs from them.

A tree is cut into tiles of 256 hashes. Tile n of level l holds, at place i, the root over the
leaves [(n·256 + i)·256^l, (n·256 + i + 1)·256^l): level 0 the leaf hashes, level 1 the roots of
full tiles of level 0, and so on. Beside them lie entry bundles with the entries themselves.

    tile/<level>/<n>[.p/<width>]     width x 32 bytes; no ".p" when all 256 are there
    tile/entries/<n>[.p/<width>]     width x (u16 big-endian length || entry)

n is written in groups of three digits, all but the last with an x: 1234067 is x001/x234/067. A tree
of 70,000 leaves has level 0 with 273 full tiles and 273.p/112, level 1 with 000 and 001.p/17, and
level 2 with 000.p/1. Full tiles never change; a partial one may be deleted once the full is there.

A tile proves nothing by itself: compare what it leads to with a signed root.

Source: c2sp.org/tlog-tiles v0.1.0, commit 5ba5ee8 (2026-07-22).
"""

import re
import struct
from collections.abc import Callable, Iterator, Sequence

from audit.merkle import (
    EMPTY_ROOT,
    HASH_BYTES,
    consistency_path,
    inclusion_path,
    largest_power_below,
    leaf_hashes,
    node_hash,
    pair_up,
)

TILE_WIDTH = 256
MAX_LEVEL = 63
MAX_ENTRY_BYTES = 65_535
ENTRIES = "entries"

ReadTile = Callable[[str], bytes]
Tile = tuple[int, int, int]

_PATH = re.compile(
    r"tile/(?P<level>[1-9]?[0-9]|entries)/(?P<n>(?:x[0-9]{3}/)*[0-9]{3})(?:\.p/(?P<width>[1-9][0-9]{0,2}))?",
    re.ASCII,
)


class TileError(ValueError):
    """A path or a tile is malformed, or a tile does not fit its tree."""


def tile_path(level: int | str, n: int, width: int = TILE_WIDTH) -> str:
    """Return the path of tile `n` of a level (0 to 63, or "entries").

    Raises:
        TileError: no such tile.
    """
    known = level == ENTRIES or (isinstance(level, int) and 0 <= level <= MAX_LEVEL)
    if not known or n < 0 or not 1 <= width <= TILE_WIDTH:
        raise TileError(f"no tile with level {level}, number {n} and width {width}")
    digits = f"{n % 1000:03d}"
    while n >= 1000:
        n //= 1000
        digits = f"x{n % 1000:03d}/{digits}"
    return f"tile/{level}/{digits}" + (f".p/{width}" if width < TILE_WIDTH else "")


def parse_tile_path(path: str) -> tuple[int | str, int, int]:
    """Read a path into (level, number, width); only the spelling of `tile_path` is accepted.

    Raises:
        TileError: anything else.
    """
    match = _PATH.fullmatch(path) if len(path) <= 64 else None
    if match is None:
        raise TileError("malformed tile path")
    level = match["level"] if match["level"] == ENTRIES else int(match["level"])
    n, width = int(match["n"].replace("x", "").replace("/", "")), int(match["width"] or TILE_WIDTH)
    if tile_path(level, n, min(width, TILE_WIDTH)) != path:
        raise TileError("malformed tile path")
    return level, n, width


def tiles_of(size: int) -> Iterator[Tile]:
    """Yield (level, number, width) of every hash tile of a tree, lowest level first."""
    level = 0
    while count := size >> (8 * level):
        yield from ((level, n, TILE_WIDTH) for n in range(count // TILE_WIDTH))
        if count % TILE_WIDTH:
            yield level, count // TILE_WIDTH, count % TILE_WIDTH
        level += 1


def bundles_of(size: int) -> Iterator[tuple[int, int]]:
    """Yield (number, width) of every entry bundle of a tree."""
    for n in range(-(-size // TILE_WIDTH)):
        yield n, min(TILE_WIDTH, size - n * TILE_WIDTH)


def paths_of(size: int) -> Iterator[str]:
    """Yield the path of every tile and entry bundle of a tree."""
    for level, n, width in tiles_of(size):
        yield tile_path(level, n, width)
    for n, width in bundles_of(size):
        yield tile_path(ENTRIES, n, width)


def encode_entries(entries: Sequence[bytes]) -> bytes:
    """Write an entry bundle of 1 to 256 entries.

    Raises:
        TileError: a wrong number of entries, or one above 65,535 bytes.
    """
    if not 1 <= len(entries) <= TILE_WIDTH:
        raise TileError(f"{len(entries)} entries in a bundle: expected 1 to {TILE_WIDTH}")
    if any(len(entry) > MAX_ENTRY_BYTES for entry in entries):
        raise TileError(f"an entry is above {MAX_ENTRY_BYTES} bytes")
    return b"".join(struct.pack(">H", len(entry)) + entry for entry in entries)


def parse_entries(body: bytes, width: int) -> list[bytes]:
    """Read an entry bundle that must hold exactly `width` entries.

    Raises:
        TileError: cut short, or bytes are left over.
    """
    entries, position, length_of = [], 0, struct.Struct(">H").unpack_from
    try:
        for _ in range(width):
            end = position + 2 + length_of(body, position)[0]
            entries.append(body[position + 2 : end])
            position = end
    except struct.error as cause:
        raise TileError(f"entry bundle is cut short: expected {width} entries") from cause
    if position != len(body):
        raise TileError(f"entry bundle has a wrong length: expected {width} entries")
    return entries


def parse_hashes(body: bytes, width: int) -> list[bytes]:
    """Read a hash tile that must hold exactly `width` hashes.

    Raises:
        TileError: another length.
    """
    if len(body) != HASH_BYTES * width:
        raise TileError(f"tile of {len(body)} bytes: expected {HASH_BYTES * width}")
    return [body[i : i + HASH_BYTES] for i in range(0, len(body), HASH_BYTES)]


class TileReader:
    """Builds roots and proofs of one tree out of its tiles.

    `read` returns the bytes at a path. It is asked once per tile; each tile's inner nodes are kept,
    about 16 KiB, so make a new reader for each batch of work.
    """

    def __init__(self, size: int, read: ReadTile) -> None:
        self.size = size
        self._read = read
        self._rows: dict[tuple[int, int], list[list[bytes]]] = {}

    def root(self) -> bytes:
        """Return the root of the whole tree; O(log n) tiles."""
        return self.range_hash(0, self.size) if self.size else EMPTY_ROOT

    def leaf(self, index: int) -> bytes:
        """Return the leaf hash at `index`."""
        return self.range_hash(index, index + 1)

    def prove_inclusion(self, index: int, size: int | None = None) -> list[bytes]:
        """Build the inclusion proof of a leaf in the tree of `size`, or of the whole tree.

        Raises:
            MerkleError: the index is not in that tree. TileError: a tile is malformed.
        """
        return inclusion_path(self.range_hash, index, self._size(size))

    def prove_consistency(self, old_size: int, size: int | None = None) -> list[bytes]:
        """Build the proof from `old_size` to `size`, or to the whole tree.

        Raises:
            MerkleError: not 0 < old size <= size. TileError: a tile is malformed.
        """
        return consistency_path(self.range_hash, old_size, self._size(size))

    def range_hash(self, start: int, end: int) -> bytes:
        """Return the hash over leaves [start, end), a range that is a node of some tree.

        Raises:
            TileError: the range is empty, outside the tree or not a node, or a tile is malformed.
        """
        width = end - start
        if not 0 <= start < end <= self.size:
            raise TileError(f"no leaves [{start}, {end}) in a tree of {self.size}")
        if width & (width - 1):
            middle = start + largest_power_below(width)
            return node_hash(self.range_hash(start, middle), self.range_hash(middle, end))
        if start % width:
            raise TileError(f"leaves [{start}, {end}) are not one node of a tree")
        level, height = divmod(width.bit_length() - 1, 8)
        n, place = divmod(start // width, TILE_WIDTH >> height)
        return self._tile(level, n)[height][place]

    def _size(self, size: int | None) -> int:
        if size is not None and size > self.size:
            raise TileError(f"no tree of size {size} in one of {self.size}")
        return self.size if size is None else size

    def _tile(self, level: int, n: int) -> list[list[bytes]]:
        """Return the rows of a tile: row k holds the roots over 2^k of its hashes."""
        rows = self._rows.get((level, n))
        if rows is None:
            width = min(TILE_WIDTH, (self.size >> (8 * level)) - n * TILE_WIDTH)
            rows = [parse_hashes(self._read(tile_path(level, n, width)), width)]
            while len(rows[-1]) > 1:
                rows.append(pair_up(rows[-1]))
            self._rows[level, n] = rows
        return rows


def build_tiles(
    old_size: int, entries: Sequence[bytes], read: ReadTile
) -> Iterator[tuple[str, bytes]]:
    """Yield every (path, bytes) that growing a log by these entries adds, lowest level first.

    Partial tiles of the old tree are read back, so that new ones hold them as a prefix; full tiles
    come out once. The function writes nothing: put each pair where the log is published, in this
    order, and the checkpoint last. Costs about one hash per new entry and one read per level.

    Args:
        old_size: number of entries that the published tiles cover.
        entries: the new entries, in order.
        read: returns the bytes of a published tile or bundle.

    Raises:
        TileError: an entry is too long, or a tile that was read back is malformed.
    """
    if not entries:
        return
    new_size = old_size + len(entries)
    yield from _grow_bundles(old_size, entries, read)
    added, level = leaf_hashes(entries), 0
    while added:
        before = old_size >> (8 * level)
        first = before // TILE_WIDTH
        row = _old_part(level, before, read) + added
        for n in range(first, -(-(new_size >> (8 * level)) // TILE_WIDTH)):
            part = row[(n - first) * TILE_WIDTH : (n - first + 1) * TILE_WIDTH]
            yield tile_path(level, n, len(part)), b"".join(part)
        for _ in range(8):
            row = pair_up(row)
        added, level = row, level + 1


def _grow_bundles(
    old_size: int, entries: Sequence[bytes], read: ReadTile
) -> Iterator[tuple[str, bytes]]:
    first, kept = divmod(old_size, TILE_WIDTH)
    old = parse_entries(read(tile_path(ENTRIES, first, kept)), kept) if kept else []
    row = [*old, *entries]
    for start in range(0, len(row), TILE_WIDTH):
        part = row[start : start + TILE_WIDTH]
        yield tile_path(ENTRIES, first + start // TILE_WIDTH, len(part)), encode_entries(part)


def _old_part(level: int, before: int, read: ReadTile) -> list[bytes]:
    first, kept = divmod(before, TILE_WIDTH)
    return parse_hashes(read(tile_path(level, first, kept)), kept) if kept else []
