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
Every member but the two manifests is listed with digest and size; no other name is allowed. The zip
itself has one form only (`audit.container`). Equal input gives equal bytes when the signer is
deterministic, as Ed25519 is.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Self

from audit.canonical import (
    CanonicalError,
    Digest,
    JsonValue,
    canonical,
    digest,
    parse_canonical,
)
from audit.container import (
    MAX_MEMBERS,
    ContainerError,
    ContainerWriter,
    Member,
    read_chunks,
    read_members,
)
from audit.dsse import sign_envelope
from audit.keys import Signer
from audit.manifest import (
    MANIFEST,
    MANIFEST_TYPE,
    MAX_MANIFEST_BYTES,
    BundleError,
    Manifest,
    format_manifest,
    object_name,
    parse_manifest,
)
from audit.merkle import leaf_hashes
from audit.note import Checkpoint, NoteError, parse_checkpoint, split_note
from audit.tiles import (
    ENTRIES,
    TILE_WIDTH,
    ReadTile,
    TileError,
    bundles_of,
    parse_entries,
    parse_tile_path,
    paths_of,
    tile_path,
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

_VERIFY_TEXT = """\
This file is an export of the audit log
    {origin}
with its first {size} entries. Check it with the log's verifier key, which you must have got from
another place than this file:

    placet verify BUNDLE.zip --vkey KEY

or, with Python 3.11 and the package `cryptography` 48 or newer, without installing Placet:

    unzip -p BUNDLE.zip placet_verify.py > placet_verify.py
    python3 -I placet_verify.py BUNDLE.zip --vkey KEY

Read placet_verify.py before you trust it, or take it from the project's release.
Exit status: 0 verified, 1 tampered, 2 malformed, 3 no trusted key, 4 documents are missing.
keys.json is a hint: a forger would have put another key there.
"""


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
        self.checkpoint = _checkpoint_of(self.checkpoint_note)

    @property
    def names(self) -> tuple[str, ...]:
        """All member names, in file order."""
        return tuple(self._members)

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


def write_bundle(
    out: BinaryIO,
    *,
    checkpoint: bytes,
    tiles: ReadTile,
    objects: Mapping[str, bytes],
    signer: Signer,
    verifier: bytes,
    manifest_fields: Mapping[str, JsonValue],
    hinted_keys: Sequence[str] = (),
) -> Manifest:
    """Write an export to a seekable file, in one pass and O(largest member) memory.

    Args:
        out: opened for binary writing, empty.
        checkpoint: the signed note to prove; its origin must be the signer's name.
        tiles: returns the published bytes at a tile or entry bundle path of that tree.
        objects: documents by their digest "sha256:<hex>"; may load lazily.
        signer: the log's own key, for the manifest.
        verifier: the text of placet_verify.py, from `audit.single.build`.
        manifest_fields: what the exporter states, kept under "export"; canonical JSON values.
        hinted_keys: more verifier keys for keys.json; the signer's is always there.

    Returns:
        The manifest: `missing` lists the digests that entries refer to and `objects` lacks.

    Raises:
        BundleError: a document has another digest, the signer is not this log's, or too large.
    """
    head = _checkpoint_of(checkpoint)
    if signer.name != head.origin:
        raise BundleError(f"signer is not the log's: expected a key named {head.origin!a}")
    missing: set[str] = set()
    writer, listed = ContainerWriter(out), {}
    try:
        payload = _payload(
            checkpoint=checkpoint,
            tiles=tiles,
            objects=objects,
            vkeys=[signer.vkey, *hinted_keys],
            verifier=verifier,
            missing=missing,
        )
        for name, chunks in payload:
            listed[name] = writer.add(name, chunks)
        manifest = Manifest(head, listed, tuple(map(Digest, sorted(missing))), manifest_fields)
        data = format_manifest(manifest)
        writer.add(ENVELOPE, [sign_envelope(MANIFEST_TYPE, data, signer)])
        writer.add(MANIFEST, [data])
        writer.close()
    except (ContainerError, TileError) as cause:
        raise BundleError(str(cause)) from cause
    return manifest


def references(entry: bytes) -> Iterator[Digest]:
    """Yield each digest that an entry's bytes refer to, in order, repeats included."""
    for match in _REFERENCE.finditer(entry):
        yield Digest(match[1].decode())


def entry_line(index: int, entry: bytes, leaf: bytes) -> bytes:
    """Return one line of entries.ndjson; the entry's bytes stand in it unchanged."""
    return b'{"entry":%s,"index":%d,"leaf_hash":"%s"}\n' % (entry, index, leaf.hex().encode())


def _payload(
    *,
    checkpoint: bytes,
    tiles: ReadTile,
    objects: Mapping[str, bytes],
    vkeys: list[str],
    verifier: bytes,
    missing: set[str],
) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Yield every listed member in order; fills `missing` while the entries pass."""
    head = _checkpoint_of(checkpoint)
    text = _VERIFY_TEXT.format(origin=head.origin, size=head.size)
    yield "VERIFY.txt", [text.encode()]
    yield "checkpoint", [checkpoint]
    yield "entries.ndjson", _entry_lines(head.size, tiles, objects, missing)
    yield "keys.json", [canonical({"format": KEYS_FORMAT, "vkeys": vkeys})]
    for reference in sorted(objects):
        data = objects[reference]
        if digest(data) != reference:
            raise BundleError(f"a document does not have its digest: {reference!a}")
        yield object_name(reference), [data]
    yield "placet_verify.py", [verifier]
    for path in sorted(paths_of(head.size)):
        yield path, [tiles(path)]


def _entry_lines(
    size: int, tiles: ReadTile, objects: Mapping[str, bytes], missing: set[str]
) -> Iterator[bytes]:
    for n, width in bundles_of(size):
        entries = parse_entries(tiles(tile_path(ENTRIES, n, width)), width)
        for entry in entries:
            missing.update(ref for ref in references(entry) if ref not in objects)
        pairs = zip(entries, leaf_hashes(entries), strict=True)
        yield b"".join(
            entry_line(index, entry, leaf)
            for index, (entry, leaf) in enumerate(pairs, n * TILE_WIDTH)
        )


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


def _checkpoint_of(note: bytes) -> Checkpoint:
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
    expected = fixed.union(paths_of(bundle.checkpoint.size))
    found = {name for name in listed if not name.startswith("objects/")}
    if found != expected:
        odd = min(found.symmetric_difference(expected))
        raise BundleError(f"member {odd!a} is missing, or does not belong to this tree")
    if any(bundle.size_of(name) != size for name, (_, size) in manifest.members.items()):
        raise BundleError("a member does not have the size that the manifest lists")
