"""Every tree up to 40 leaves, every leaf, every pair of sizes, every bit of a proof."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.merkle import (
    EMPTY_ROOT,
    Frontier,
    MerkleError,
    check_consistency,
    check_inclusion,
    leaf_hash,
    node_hash,
    prove_consistency,
    prove_inclusion,
    root,
    root_from_inclusion,
)

MAX = 40
LEAVES = [leaf_hash(bytes([n])) for n in range(MAX)]


def recursive_root(leaves):
    """RFC 6962 §2.1 as it is written: the oracle."""
    if not leaves:
        return EMPTY_ROOT
    if len(leaves) == 1:
        return leaves[0]
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return node_hash(recursive_root(leaves[:k]), recursive_root(leaves[k:]))


ROOTS = [recursive_root(LEAVES[:n]) for n in range(MAX + 1)]


def refuses(check, *arguments):
    try:
        check(*arguments)
    except MerkleError:
        return True
    return False


def test_root_is_the_recursive_definition():
    assert [root(LEAVES[:n]) for n in range(MAX + 1)] == ROOTS


def test_every_leaf_of_every_tree_is_proven():
    for size in range(1, MAX + 1):
        for index in range(size):
            proof = prove_inclusion(LEAVES[:size], index)
            check_inclusion(index, size, LEAVES[index], proof, ROOTS[size])


def test_an_inclusion_proof_holds_for_one_place_only():
    for size in range(1, 20):
        for index in range(size):
            proof = prove_inclusion(LEAVES[:size], index)
            for other in range(size):
                refused = refuses(check_inclusion, other, size, LEAVES[index], proof, ROOTS[size])
                assert refused is (other != index)


def test_every_pair_of_sizes_is_consistent():
    for size in range(1, MAX + 1):
        for old in range(1, size + 1):
            proof = prove_consistency(LEAVES[:size], old)
            check_consistency(old, size, proof, ROOTS[old], ROOTS[size])


def test_a_consistency_proof_holds_for_its_two_trees_only():
    for size in range(2, 18):
        for old in range(1, size):
            proof = prove_consistency(LEAVES[:size], old)
            for wrong in range(1, size + 1):
                if wrong != old:
                    assert refuses(check_consistency, old, size, proof, ROOTS[wrong], ROOTS[size])
                    assert refuses(check_consistency, wrong, size, proof, ROOTS[wrong], ROOTS[size])
            assert refuses(check_consistency, old, size, proof, ROOTS[old], ROOTS[size - 1])


def test_every_hash_of_a_proof_matters():
    for size in (1, 2, 3, 7, 8, 13):
        for index in range(size):
            proof = prove_inclusion(LEAVES[:size], index)
            for altered in alterations(proof):
                assert refuses(check_inclusion, index, size, LEAVES[index], altered, ROOTS[size])
        for old in range(1, size + 1):
            proof = prove_consistency(LEAVES[:size], old)
            for altered in alterations(proof):
                assert refuses(check_consistency, old, size, altered, ROOTS[old], ROOTS[size])


def alterations(proof):
    """Proofs that differ by one hash: changed, cut, lengthened, doubled, added, removed."""
    for i, item in enumerate(proof):
        for changed in (bytes([item[0] ^ 1]) + item[1:], item[:-1] + bytes([item[-1] ^ 128])):
            yield [*proof[:i], changed, *proof[i + 1 :]]
        yield [*proof[:i], item[:-1], *proof[i + 1 :]]
        yield [*proof[:i], *proof[i + 1 :]]
        yield [*proof[:i], item, *proof[i:]]
    yield [*proof, b"\x00" * 32]
    yield [b"\x00" * 32, *proof]
    yield [*proof, b""]


@pytest.mark.parametrize(("index", "size"), [(0, 0), (-1, 1), (1, 1), (5, 3)])
def test_an_index_outside_the_tree_is_refused(index, size):
    assert refuses(root_from_inclusion, index, size, LEAVES[0], [])
    assert refuses(prove_inclusion, LEAVES[:size], index)


@pytest.mark.parametrize(("old", "size"), [(0, 0), (0, 5), (6, 5), (-1, 5)])
def test_consistency_from_nothing_or_backwards_is_refused(old, size):
    assert refuses(check_consistency, old, size, [], ROOTS[0], ROOTS[size])
    assert refuses(prove_consistency, LEAVES[:size], old)


def test_equal_sizes_need_equal_roots_and_no_proof():
    check_consistency(5, 5, [], ROOTS[5], ROOTS[5])
    assert refuses(check_consistency, 5, 5, [], ROOTS[5], ROOTS[6])
    assert refuses(check_consistency, 5, 5, [ROOTS[5]], ROOTS[5], ROOTS[5])


def test_a_short_leaf_hash_is_refused():
    assert refuses(root_from_inclusion, 0, 1, LEAVES[0][:31], [])


class TestFrontier:
    def test_appending_gives_every_root(self):
        frontier = Frontier()
        for size in range(MAX):
            assert (frontier.size, frontier.root()) == (size, ROOTS[size])
            frontier.append(LEAVES[size])

    @given(st.lists(st.integers(0, 3), max_size=10))
    def test_perfect_subtrees_may_be_added_where_they_fit(self, heights):
        frontier, leaves = Frontier(), []
        for height in heights:
            part = [leaf_hash(b"%d" % (len(leaves) + i)) for i in range(1 << height)]
            if len(leaves) % (1 << height):
                with pytest.raises(MerkleError):
                    frontier.append_subtree(height, recursive_root(part))
                continue
            frontier.append_subtree(height, recursive_root(part))
            leaves += part
        assert frontier.root() == recursive_root(leaves)

    def test_it_goes_on_from_what_was_stored(self):
        first = Frontier()
        first.extend(LEAVES[:21])

        second = Frontier(first.size, first.edge)
        second.extend(LEAVES[21:])

        assert second.root() == ROOTS[MAX]

    def test_an_edge_that_does_not_fit_the_size_is_refused(self):
        for size, edge in ((1, []), (3, [ROOTS[1]]), (-1, []), (1, [b"short"])):
            with pytest.raises(MerkleError):
                Frontier(size, edge)


def test_the_length_of_a_proof_is_checked_before_its_root():
    proof = prove_inclusion(LEAVES[:8], 3)
    with pytest.raises(MerkleError, match="too long"):
        root_from_inclusion(3, 8, LEAVES[3], [*proof, proof[0]])
    with pytest.raises(MerkleError, match="too short"):
        root_from_inclusion(3, 8, LEAVES[3], proof[:-1])
    proof = prove_consistency(LEAVES[:8], 3)
    with pytest.raises(MerkleError, match="too long"):
        check_consistency(3, 8, [*proof, proof[0]], ROOTS[3], ROOTS[8])
    with pytest.raises(MerkleError, match="too short"):
        check_consistency(3, 8, proof[:-1], ROOTS[3], ROOTS[8])
