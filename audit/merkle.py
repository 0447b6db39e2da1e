"""The Merkle tree of RFC 6962: hashes, roots, and the two proofs, over SHA-256.

    leaf  = SHA-256(0x00 || entry)
    node  = SHA-256(0x01 || left || right)
    empty = SHA-256("")

A tree of n > 1 leaves is split at the largest power of two below n. An *inclusion proof* shows
that a leaf is at an index of a tree of a size; its hashes go from the leaf's sibling to the
root's child. A *consistency proof* shows that a tree of m leaves is the beginning of a tree of n
leaves. A consistency proof from size 0 says nothing and is refused, even from 0 to 0: the caller
treats "nothing remembered" as a case of its own.

`prove_*` and `check_*` are pairs: the first makes what the second accepts. A check raises on any
doubt and returns nothing, so that a forgotten result can never be read as a yes.

Source: RFC 6962 §2.1 (2013); RFC 9162 §2.1.3.2 and §2.1.4.2 (2021).
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence

HASH_BYTES = 32
MAX_PROOF_HASHES = 63
EMPTY_ROOT = hashlib.sha256(b"").digest()

# The hash of leaves [start, end), for a range that lies in one node of the tree.
RangeHash = Callable[[int, int], bytes]


class MerkleError(ValueError):
    """A proof does not hold, or its parts are malformed."""


def leaf_hash(entry: bytes) -> bytes:
    """Return SHA-256(0x00 || entry)."""
    return hashlib.sha256(b"\x00" + entry).digest()


def leaf_hashes(entries: Iterable[bytes]) -> list[bytes]:
    """Return the leaf hash of each entry; a little faster than one by one."""
    sha256 = hashlib.sha256
    return [sha256(b"\x00" + entry).digest() for entry in entries]


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return SHA-256(0x01 || left || right)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def pair_up(hashes: Sequence[bytes]) -> list[bytes]:
    """Return the parents of neighbouring hashes; an odd last one is left out."""
    sha256 = hashlib.sha256
    return [
        sha256(b"\x01" + left + right).digest()
        for left, right in zip(hashes[::2], hashes[1::2], strict=False)
    ]


def largest_power_below(size: int) -> int:
    """Return the largest power of two smaller than `size`, which must be at least 2."""
    return 1 << ((size - 1).bit_length() - 1)


def root(leaf_hashes: Sequence[bytes]) -> bytes:
    """Return the root of the tree over these leaf hashes; about one hash per leaf."""
    frontier = Frontier()
    frontier.extend(leaf_hashes)
    return frontier.root()


def prove_inclusion(leaf_hashes: Sequence[bytes], index: int) -> list[bytes]:
    """Build the inclusion proof of leaf `index`; costs O(n) hashes, tiles do it in O(log n).

    Raises:
        MerkleError: `index` is not in the tree.
    """
    return inclusion_path(_range_hash(leaf_hashes), index, len(leaf_hashes))


def prove_consistency(leaf_hashes: Sequence[bytes], old_size: int) -> list[bytes]:
    """Build the proof that the first `old_size` leaves are the beginning of this tree; O(n).

    Raises:
        MerkleError: `old_size` is 0 or above the size.
    """
    return consistency_path(_range_hash(leaf_hashes), old_size, len(leaf_hashes))


def inclusion_path(range_hash: RangeHash, index: int, size: int) -> list[bytes]:
    """Build an inclusion proof from a source of range hashes.

    Source: RFC 6962 §2.1.1.

    Raises:
        MerkleError: `index` is not in a tree of `size`.
    """
    if not 0 <= index < size:
        raise MerkleError(f"index {index} is not in a tree of {size} leaves")
    path, start, end = [], 0, size
    while end - start > 1:
        middle = start + largest_power_below(end - start)
        if index < middle:
            path.append(range_hash(middle, end))
            end = middle
        else:
            path.append(range_hash(start, middle))
            start = middle
    return path[::-1]


def consistency_path(range_hash: RangeHash, old_size: int, size: int) -> list[bytes]:
    """Build a consistency proof from a source of range hashes.

    Source: RFC 6962 §2.1.2.

    Raises:
        MerkleError: not 0 < `old_size` <= `size`.
    """
    if not 0 < old_size <= size:
        raise MerkleError(f"no consistency proof from size {old_size} to {size}")
    path, start, end = [], 0, size
    while old_size != end:
        middle = start + largest_power_below(end - start)
        if old_size <= middle:
            path.append(range_hash(middle, end))
            end = middle
        else:
            path.append(range_hash(start, middle))
            start = middle
    if start:  # the old tree is not itself a node of the new one, so its last part is told
        path.append(range_hash(start, end))
    return path[::-1]


def root_from_inclusion(index: int, size: int, leaf: bytes, proof: Sequence[bytes]) -> bytes:
    """Return the root that `proof` leads to from the hash `leaf`; compare it with a signed one.

    Source: RFC 9162 §2.1.3.2.

    Raises:
        MerkleError: the index is not in the tree, a hash is not 32 bytes, or the proof has not
            exactly the length that index and size ask for.
    """
    if not 0 <= index < size:
        raise MerkleError(f"index {index} is not in a tree of {size} leaves")
    _check_hashes(leaf, *proof)
    fn, sn, result = index, size - 1, leaf
    for sibling in proof:
        if sn == 0:
            raise MerkleError("inclusion proof is too long")
        if fn & 1 or fn == sn:
            result = node_hash(sibling, result)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            result = node_hash(result, sibling)
        fn, sn = fn >> 1, sn >> 1
    if sn:
        raise MerkleError("inclusion proof is too short")
    return result


def check_inclusion(
    index: int, size: int, leaf: bytes, proof: Sequence[bytes], tree_root: bytes
) -> None:
    """Check that the leaf hash `leaf` is at `index` of the tree with this size and root.

    Take size and root from a signed checkpoint, never from the proof.

    Raises:
        MerkleError: it is not, or a part is malformed.
    """
    if root_from_inclusion(index, size, leaf, proof) != tree_root:
        raise MerkleError(f"inclusion proof of index {index} leads to another root")


def check_consistency(
    old_size: int, size: int, proof: Sequence[bytes], old_root: bytes, new_root: bytes
) -> None:
    """Check that the tree (old_size, old_root) is the beginning of the tree (size, new_root).

    Source: RFC 9162 §2.1.4.2.

    Raises:
        MerkleError: it is not, `old_size` is 0 or above `size`, or a part is malformed.
    """
    if not 0 < old_size <= size:
        raise MerkleError(f"no consistency from size {old_size} to {size}")
    _check_hashes(old_root, new_root, *proof)
    if old_size == size and not proof and old_root == new_root:
        return
    if old_size == size or not proof:
        raise MerkleError(f"no proof that leads from size {old_size} to {size}")
    whole = old_size & (old_size - 1) == 0  # the old tree is a node of the new one
    old, new = _walk(old_size, size, [old_root, *proof] if whole else proof)
    if old != old_root or new != new_root:
        raise MerkleError(f"the tree of {old_size} leaves is not the beginning of this one")


def _walk(old_size: int, size: int, path: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Climb from the last node of the old tree; return the old and the new root it leads to."""
    first, *rest = path
    fn, sn = old_size - 1, size - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    old, new = first, first
    for sibling in rest:
        if sn == 0:
            raise MerkleError("consistency proof is too long")
        if fn & 1 or fn == sn:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            new = node_hash(new, sibling)
        fn, sn = fn >> 1, sn >> 1
    if sn:
        raise MerkleError("consistency proof is too short")
    return old, new


class Frontier:
    """The right edge of a growing tree: enough to append and to know the root.

    `edge` holds the hashes of the perfect subtrees, largest first, one for each 1 bit of `size`.
    Appending n leaves costs about n hashes; memory is O(log n). Store (size, edge) to go on later.
    """

    __slots__ = ("edge", "size")

    def __init__(self, size: int = 0, edge: Iterable[bytes] = ()) -> None:
        self.size = size
        self.edge = list(edge)
        if size < 0 or len(self.edge) != size.bit_count():
            raise MerkleError(f"a tree of {size} leaves does not have {len(self.edge)} edges")
        _check_hashes(*self.edge)

    def append(self, leaf: bytes) -> None:
        """Add one leaf hash."""
        self.append_subtree(0, leaf)

    def append_subtree(self, height: int, subtree_root: bytes) -> None:
        """Add 2^height leaves at once by the root over them.

        Raises:
            MerkleError: the present size is not a multiple of 2^height.
        """
        if self.size & ((1 << height) - 1):
            raise MerkleError(f"a subtree of height {height} does not fit at size {self.size}")
        bits, result = self.size >> height, subtree_root
        while bits & 1:
            result = node_hash(self.edge.pop(), result)
            bits >>= 1
        self.edge.append(result)
        self.size += 1 << height

    def extend(self, leaf_hashes: Iterable[bytes]) -> None:
        """Add leaf hashes in order."""
        for leaf in leaf_hashes:
            self.append_subtree(0, leaf)

    def root(self) -> bytes:
        """Return the root of the tree so far; O(log n) hashes."""
        if not self.edge:
            return EMPTY_ROOT
        result = self.edge[-1]
        for left in self.edge[-2::-1]:
            result = node_hash(left, result)
        return result


def _range_hash(leaf_hashes: Sequence[bytes]) -> RangeHash:
    return lambda start, end: root(leaf_hashes[start:end])


def _check_hashes(*hashes: bytes) -> None:
    if any(len(item) != HASH_BYTES for item in hashes):
        raise MerkleError(f"a hash has a wrong length: expected {HASH_BYTES} bytes")
