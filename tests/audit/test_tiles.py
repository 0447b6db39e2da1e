"""Tiles of a growing log: what is published is exactly what a reader and a mirror expect."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.merkle import EMPTY_ROOT, check_consistency, check_inclusion, leaf_hash, root
from audit.tiles import (
    ENTRIES,
    TileError,
    TileReader,
    build_tiles,
    encode_entries,
    parse_entries,
    parse_tile_path,
    paths_of,
    tile_path,
    tiles_of,
)


def entry(n):
    return b"entry %d" % n


def grow(*sizes):
    """Publish a log that grows to each size in turn; return all files ever written."""
    files, old = {}, 0
    for size in sizes:
        for path, data in build_tiles(old, [entry(n) for n in range(old, size)], files.__getitem__):
            assert files.setdefault(path, data) == data, "a published file would change"
        old = size
    return files


@pytest.mark.parametrize(
    "sizes",
    [(1,), (1, 2, 3), (255, 256, 257), (256,), (300, 512), (0, 5), (511, 513, 1030), (7, 7, 8)],
)
def test_growing_publishes_every_tile_of_the_last_tree(sizes):
    files = grow(*sizes)

    assert set(paths_of(sizes[-1])) <= set(files)
    reader = TileReader(sizes[-1], files.__getitem__)
    assert reader.root() == root([leaf_hash(entry(n)) for n in range(sizes[-1])])


@given(st.lists(st.integers(0, 700), min_size=1, max_size=5).map(sorted))
@settings(max_examples=25, deadline=None)
def test_every_way_to_grow_gives_the_same_tiles(sizes):
    files, at_once = grow(*sizes), grow(sizes[-1])

    assert {path: files[path] for path in paths_of(sizes[-1])} == at_once


def test_a_log_of_65793_entries_has_three_levels():
    files = grow(65_793)
    reader = TileReader(65_793, files.__getitem__)
    leaves = [leaf_hash(entry(n)) for n in range(65_793)]

    tree_root = root(leaves)

    assert "tile/2/000.p/1" in files
    assert reader.root() == tree_root
    for index in (0, 255, 256, 65_535, 65_536, 65_792):
        check_inclusion(index, 65_793, leaves[index], reader.prove_inclusion(index), tree_root)
    for old in (1, 255, 256, 65_535, 65_536, 65_537, 65_793):
        proof = reader.prove_consistency(old)
        check_consistency(old, 65_793, proof, root(leaves[:old]), tree_root)


def test_proofs_for_earlier_sizes_come_from_the_same_tiles():
    files = grow(600)
    reader = TileReader(600, files.__getitem__)
    leaves = [leaf_hash(entry(n)) for n in range(600)]
    for size in (1, 2, 255, 256, 257, 511, 599):
        tree_root = root(leaves[:size])
        proof = reader.prove_inclusion(size - 1, size)
        check_inclusion(size - 1, size, leaves[size - 1], proof, tree_root)
        check_consistency(1, size, reader.prove_consistency(1, size), leaves[0], tree_root)
        assert reader.range_hash(0, size) == tree_root
    assert reader.leaf(7) == leaves[7]


def test_a_tile_is_read_once():
    files, asked = grow(600), []

    def read(path):
        asked.append(path)
        return files[path]

    reader = TileReader(600, read)
    for index in range(0, 600, 7):
        reader.prove_inclusion(index)

    assert len(asked) == len(set(asked))


def test_ranges_that_are_no_node_are_refused():
    reader = TileReader(10, grow(10).__getitem__)
    for start, end in ((0, 0), (5, 3), (-1, 2), (0, 11), (1, 3), (3, 7)):
        with pytest.raises(TileError):
            reader.range_hash(start, end)
    with pytest.raises(TileError):
        reader.prove_inclusion(0, 11)
    assert TileReader(0, grow().__getitem__).root() == EMPTY_ROOT


def test_a_tile_of_a_wrong_length_is_refused():
    reader = TileReader(10, lambda _: b"\0" * 31)
    with pytest.raises(TileError, match="expected 320"):
        reader.root()


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=256))
def test_entry_bundles_read_back(entries):
    assert parse_entries(encode_entries(entries), len(entries)) == entries


@given(st.binary(max_size=40), st.integers(0, 5))
def test_a_malformed_bundle_raises_nothing_but_its_own_error(body, width):
    try:
        entries = parse_entries(body, width)
    except TileError:
        return
    assert not width or encode_entries(entries) == body


@pytest.mark.parametrize("entries", [[], [b""] * 257, [b"x" * 65_536]])
def test_impossible_bundles_are_refused(entries):
    with pytest.raises(TileError):
        encode_entries(entries)


def test_the_longest_entry_fits():
    assert parse_entries(encode_entries([b"x" * 65_535]), 1) == [b"x" * 65_535]


@given(st.integers(0, 63) | st.just(ENTRIES), st.integers(0, 10**12), st.integers(1, 256))
def test_paths_read_back(level, n, width):
    assert parse_tile_path(tile_path(level, n, width)) == (level, n, width)


@pytest.mark.parametrize(
    ("level", "n", "width"),
    [(64, 0, 1), (-1, 0, 1), ("data", 0, 1), (0, -1, 1), (0, 0, 0), (0, 0, 257)],
)
def test_impossible_tiles_have_no_path(level, n, width):
    with pytest.raises(TileError):
        tile_path(level, n, width)


@given(st.text("tile/entrsx0123456789.p", max_size=40))
def test_a_path_that_is_accepted_is_the_canonical_one(path):
    try:
        parts = parse_tile_path(path)
    except TileError:
        return
    assert tile_path(*parts) == path


def test_a_path_of_absurd_length_is_refused():
    with pytest.raises(TileError):
        parse_tile_path("tile/0/" + "x001/" * 20 + "000")


def test_tile_sets_hold_each_hash_once():
    for size in (0, 1, 255, 256, 257, 70_000):
        widths = {}
        for level, _, width in tiles_of(size):
            widths[level] = widths.get(level, 0) + width
        assert widths == {level: size >> (8 * level) for level in range(8) if size >> (8 * level)}
