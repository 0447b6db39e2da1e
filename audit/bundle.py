r"""The export: one zip file that lets a stranger check the log up to a size, offline.

Members, in this order (sorted, and the manifest last so that it is written in one pass):

    VERIFY.txt             how to check this file, in words
    checkpoint             the signed note that everything here leads to
    entries.ndjson         to read and search: {"entry":<its bytes>,"index":n,"leaf_hash":"<hex>"}
    keys.json              verifier keys: a hint only, trust comes from elsewhere
    objects/sha256-<hex>   documents that entries refer to by digest
    placet_verify.py       the verifier in one file (`audit.single`)
    tile/…                 hash tiles and entry bundles of the tree, exactly as published
    manifest.dsse.json     DSSE by the log's key over manifest.json
    manifest.json          what is here and what is not (`audit.manifest`)

The range is always [0, size): the export is complete, and says which referenced documents it lacks.
An *excerpt* holds some of the entries, in entries.ndjson, and the hash tiles but no entry bundles:
what it leaves out is fixed by its leaf hashes, and unseen.
Every member but the two manifests is listed with digest and size; no other name is allowed. The zip
itself has one form only (`audit.container`). Equal input gives equal bytes when the signer is
deterministic, as Ed25519 is.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Self

from audit.canonical import (
    CanonicalError,
    Digest,
    digest,
    parse_canonical,
)
from audit.container import (
    MAX_MEMBERS,
    ContainerError,
    Member,
    read_chunks,
    read_members,
)
from audit.manifest import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    BundleError,
    object_name,
    parse_manifest,
)
from audit.merkle import leaf_hash
from audit.note import Checkpoint, NoteError, parse_checkpoint, split_note
from audit.tiles import (
    ENTRIES,
    TILE_WIDTH,
    TileError,
    bundles_of,
    parse_entries,
    parse_hashes,
    parse_tile_path,
    paths_of,
    tile_path,
    tiles_of,
)

ENVELOPE = "manifest.dsse.json"
KEYS_FORMAT = "placet.keys/1"

_MIB = 1_048_576
_LIMITS = {
    "VERIFY.txt": 65_536,
    "checkpoint": _MIB,
    "entries.ndjson": 2**32,
    "keys.json": _MIB,
    "placet_verify.py": _MIB,
    ENVELOPE: 48 * _MIB,
    MANIFEST: MAX_MANIFEST_BYTES,
}
_OBJECT = re.compile(r"objects/sha256-[0-9a-f]{64}", re.ASCII)
_MAX_OBJECT_BYTES = 64 * _MIB
_MAX_TILE_BYTES = TILE_WIDTH * 32
_MAX_ENTRIES_BYTES = TILE_WIDTH * (2 + 65_535)
_REFERENCE = re.compile(rb'"(sha256:[0-9a-f]{64})"')


class Bundle:
    """An open export whose form was checked; nothing in it is trusted yet.

    Use it in a `with` statement or close it.
    """

    def __init__(self, file: BinaryIO, members: Mapping[str, Member]) -> None:
        self._file = file
        self._members = members
        self.manifest_bytes = self.read(MANIFEST)
        self.manifest = parse_manifest(self.manifest_bytes)
        self.checkpoint_note = self.read("checkpoint")
        self.checkpoint = checkpoint_of(self.checkpoint_note)

    @property
    def names(self) -> tuple[str, ...]:
        """All member names, in file order."""
        return tuple(self._members)

    @functools.cached_property
    def present(self) -> frozenset[str]:
        """The member names of the documents that are enclosed."""
        return frozenset(name for name in self._members if name.startswith("objects/"))

    def size_of(self, name: str) -> int:
        """Return a member's size in bytes."""
        return self._members[name].size

    def read(self, name: str) -> bytes:
        """Return a member's data; KeyError when there is none of that name.

        Raises:
            BundleError: the data does not have its CRC-32.
        """
        return b"".join(self.chunks(name))

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield a member's data in chunks; raises as `read` does."""
        try:
            yield from read_chunks(self._file, self._members[name])
        except ContainerError as cause:
            raise BundleError(str(cause)) from cause

    def document(self, reference: str) -> bytes | None:
        """Return the document with this digest, or None when it is not here.

        Raises:
            BundleError: a member of that name holds other bytes.
        """
        name = object_name(reference)
        if name not in self._members:
            return None
        data = self.read(name)
        if digest(data) != reference:
            raise BundleError(f"member {name!a} does not have the digest in its name")
        return data

    def entry_groups(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield (index of the first, up to 256 entries) in order.

        Raises:
            BundleError: an entry bundle is malformed.
        """
        for n, width in bundles_of(self.checkpoint.size):
            try:
                yield n * TILE_WIDTH, parse_entries(self.read(tile_path(ENTRIES, n, width)), width)
            except TileError as cause:
                raise BundleError(f"entry bundle {n}: {cause}") from cause

    def leaf_groups(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield (index of the first, up to 256 leaf hashes) in order, as the tiles have them.

        Raises:
            BundleError: a tile is malformed.
        """
        for n, width in bundles_of(self.checkpoint.size):
            try:
                yield n * TILE_WIDTH, parse_hashes(self.read(tile_path(0, n, width)), width)
            except TileError as cause:
                raise BundleError(f"tile {n}: {cause}") from cause

    def shown(self) -> Iterator[tuple[int, bytes]]:
        """Yield (index, entry) of what an excerpt shows, in order.

        Raises:
            BundleError: a line is not what `entry_line` writes, or the order is another.
        """
        last, left = -1, b""
        for chunk in (*self.chunks("entries.ndjson"), b""):
            *lines, left = (left + chunk).split(b"\n")
            for line in lines:
                index, entry = _read_line(line + b"\n")
                if index <= last or index >= self.checkpoint.size:
                    raise BundleError(f"entries.ndjson: entry {index} stands in the wrong place")
                last = index
                yield index, entry
        if left:
            raise BundleError("entries.ndjson: the last line has no end")

    def hinted_keys(self) -> tuple[str, ...]:
        """Return the verifier keys in keys.json: nothing to rely on.

        Raises:
            BundleError: keys.json is malformed.
        """
        try:
            match parse_canonical(self.read("keys.json")):
                case {"format": format_, "vkeys": list(vkeys), **more} if (
                    format_ == KEYS_FORMAT
                    and not more
                    and all(isinstance(vkey, str) for vkey in vkeys)
                ):
                    return tuple(map(str, vkeys))
        except CanonicalError as cause:
            raise BundleError(f"keys.json: {cause}") from cause
        raise BundleError("keys.json is malformed")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_bundle(path: Path) -> Bundle:
    """Open an export and check its form: zip, names, order, manifest, set of members and tiles.

    No signature and no digest is checked here; `audit.verify` does.

    Raises:
        BundleError: the form is wrong. OSError: the file cannot be read.
    """
    file = path.open("rb")
    try:
        bundle = Bundle(file, read_members(file, _limit_of))
        _check_members(bundle)
    except ContainerError as cause:
        file.close()
        raise BundleError(str(cause)) from cause
    except KeyError as cause:
        file.close()
        raise BundleError(f"the member {cause} is missing") from cause
    except BundleError:
        file.close()
        raise
    return bundle


def references(entry: bytes) -> Iterator[Digest]:
    """Yield each digest that an entry's bytes refer to, in order, repeats included."""
    for match in _REFERENCE.finditer(entry):
        yield Digest(match[1].decode())


def entry_line(index: int, entry: bytes, leaf: bytes) -> bytes:
    """Return one line of entries.ndjson; the entry's bytes stand in it unchanged."""
    return b'{"entry":%s,"index":%d,"leaf_hash":"%s"}\n' % (entry, index, leaf.hex().encode())


def tiles_in(size: int, *, is_whole: bool) -> Iterator[str]:
    """Yield the tiles of an export: an excerpt has hashes of all entries, and no bundles."""
    if is_whole:
        yield from paths_of(size)
    else:
        yield from (tile_path(*tile) for tile in tiles_of(size))


_LINE = re.compile(
    rb'\{"entry":(\{.*\}),"index":(0|[1-9][0-9]{0,15}),"leaf_hash":"[0-9a-f]{64}"\}\n'
)


def _read_line(line: bytes) -> tuple[int, bytes]:
    match = _LINE.fullmatch(line)
    if match is None or entry_line(int(match[2]), match[1], leaf_hash(match[1])) != line:
        raise BundleError("entries.ndjson holds a line that no entry makes")
    return int(match[2]), match[1]


def _limit_of(name: str) -> int:
    if name in _LIMITS:
        return _LIMITS[name]
    if _OBJECT.fullmatch(name):
        return _MAX_OBJECT_BYTES
    try:
        level, _, _ = parse_tile_path(name)
    except TileError as cause:
        raise ContainerError(f"unknown member {name!a}") from cause
    return _MAX_ENTRIES_BYTES if level == ENTRIES else _MAX_TILE_BYTES


def checkpoint_of(note: bytes) -> Checkpoint:
    """Read the checkpoint of a signed note, whose signatures are not looked at.

    Raises:
        BundleError: malformed.
    """
    try:
        return parse_checkpoint(split_note(note)[0])
    except NoteError as cause:
        raise BundleError(f"checkpoint: {cause}") from cause


def _check_members(bundle: Bundle) -> None:
    manifest, names = bundle.manifest, bundle.names
    if manifest.checkpoint != replace(bundle.checkpoint, extension=()):
        raise BundleError("the manifest is about another checkpoint")
    if bundle.checkpoint.size > MAX_MEMBERS * TILE_WIDTH:
        raise BundleError("the checkpoint is larger than any export can be")
    listed = list(manifest.members)
    if listed != sorted(listed) or (*listed, ENVELOPE, MANIFEST) != names:
        raise BundleError("the members are not the ones that the manifest lists, in its order")
    fixed = {name for name in _LIMITS if name not in {ENVELOPE, MANIFEST}}
    is_whole = manifest.excerpt is None
    expected = fixed.union(tiles_in(bundle.checkpoint.size, is_whole=is_whole))
    found = {name for name in listed if not name.startswith("objects/")}
    if found != expected:
        odd = min(found.symmetric_difference(expected))
        raise BundleError(f"member {odd!a} is missing, or does not belong to this tree")
    if any(bundle.size_of(name) != size for name, (_, size) in manifest.members.items()):
        raise BundleError("a member does not have the size that the manifest lists")
