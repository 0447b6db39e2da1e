"""Writing an export: the whole log up to a checkpoint, or an excerpt of it (`audit.bundle`)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import BinaryIO

from audit.bundle import ENVELOPE, KEYS_FORMAT, checkpoint_of, entry_line, references, tiles_in
from audit.canonical import Digest, JsonValue, canonical, digest
from audit.container import ContainerError, ContainerWriter
from audit.dsse import sign_envelope
from audit.event import EventError, from_bytes
from audit.keys import Signer
from audit.manifest import (
    MANIFEST,
    MANIFEST_TYPE,
    BundleError,
    Excerpt,
    Manifest,
    format_manifest,
    object_name,
)
from audit.merkle import leaf_hashes
from audit.selection import Selection
from audit.tiles import (
    ENTRIES,
    TILE_WIDTH,
    ReadTile,
    TileError,
    bundles_of,
    parse_entries,
    tile_path,
)

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
    selection: Selection | None = None,
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
        selection: makes an excerpt of what matches; None encloses all entries.

    Returns:
        The manifest: `missing` lists the digests that entries refer to and `objects` lacks.

    Raises:
        BundleError: a document has another digest, the signer is not this log's, or too large.
    """
    head = checkpoint_of(checkpoint)
    if signer.name != head.origin:
        raise BundleError(f"signer is not the log's: expected a key named {head.origin!a}")
    writer, listed = ContainerWriter(out), {}
    lines = _Lines(head.size, tiles, objects, selection)
    try:
        payload = _payload(
            checkpoint=checkpoint,
            tiles=tiles,
            objects=objects,
            vkeys=[signer.vkey, *hinted_keys],
            verifier=verifier,
            lines=lines,
        )
        for name, chunks in payload:
            listed[name] = writer.add(name, chunks)
        missing = tuple(map(Digest, sorted(lines.missing)))
        excerpt = None if selection is None else Excerpt(lines.shown, selection)
        manifest = Manifest(head, listed, missing, manifest_fields, excerpt)
        data = format_manifest(manifest)
        writer.add(ENVELOPE, [sign_envelope(MANIFEST_TYPE, data, signer)])
        writer.add(MANIFEST, [data])
        writer.close()
    except (ContainerError, TileError, EventError) as cause:
        raise BundleError(str(cause)) from cause
    return manifest


def _payload(
    *,
    checkpoint: bytes,
    tiles: ReadTile,
    objects: Mapping[str, bytes],
    vkeys: list[str],
    verifier: bytes,
    lines: "_Lines",
) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Yield every listed member in order; `lines` learns what is missing while entries pass."""
    head = checkpoint_of(checkpoint)
    text = _VERIFY_TEXT.format(origin=head.origin, size=head.size)
    yield "VERIFY.txt", [text.encode()]
    yield "checkpoint", [checkpoint]
    yield "entries.ndjson", lines
    yield "keys.json", [canonical({"format": KEYS_FORMAT, "vkeys": vkeys})]
    for reference in sorted(objects):
        data = objects[reference]
        if digest(data) != reference:
            raise BundleError(f"a document does not have its digest: {reference!a}")
        yield object_name(reference), [data]
    yield "placet_verify.py", [verifier]
    for path in sorted(tiles_in(head.size, is_whole=lines.selection is None)):
        yield path, [tiles(path)]


class _Lines:
    """The lines of entries.ndjson, 256 entries at a time, and what was learnt while they passed."""

    def __init__(
        self,
        size: int,
        tiles: ReadTile,
        objects: Mapping[str, bytes],
        selection: Selection | None,
    ) -> None:
        self.selection = selection
        self.shown = 0
        self.missing: set[str] = set()
        self._size = size
        self._tiles = tiles
        self._objects = objects

    def __iter__(self) -> Iterator[bytes]:
        for n, width in bundles_of(self._size):
            entries = parse_entries(self._tiles(tile_path(ENTRIES, n, width)), width)
            triples = zip(count(n * TILE_WIDTH), entries, leaf_hashes(entries), strict=False)
            chosen = [one for one in triples if self._is_chosen(one[0], one[1])]
            self.shown += len(chosen)
            for _, entry, _ in chosen:
                self.missing.update(ref for ref in references(entry) if ref not in self._objects)
            yield b"".join([entry_line(*one) for one in chosen])

    def _is_chosen(self, index: int, entry: bytes) -> bool:
        return self.selection is None or self.selection.matches(index, from_bytes(entry))
