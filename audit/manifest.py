"""The manifest of an export, `placet.manifest/1`: what is in it, and what is not.

    {"checkpoint":{"origin":"example.com/log","root":"<base64>","size":15},
     "counts":{"entries":15,"objects":9},"export":{…what the exporter states…},
     "format":"placet.manifest/1",
     "members":[{"digest":"sha256:…","name":"VERIFY.txt","size_bytes":812},…],
     "missing":["sha256:…"],"range":{"end":15,"first":0}}

An excerpt (`placet.manifest/2`) has `"counts":{"entries":15,"objects":2,"shown":4}`, and in place
of `range` the `selection` by which its entries were chosen (`audit.selection`).

`members` lists every other member but the manifest's own envelope, in file order. `missing` lists,
sorted, the digests that entries refer to and for which no document is enclosed. The range is always
[0, size): what is no excerpt is complete. Canonical JSON; signed by the log's key (`audit.dsse`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from audit.canonical import CanonicalError, Digest, JsonValue, canonical, is_digest, parse_canonical
from audit.keys import NoteError, encode_base64
from audit.note import Checkpoint, parse_checkpoint
from audit.selection import Selection, SelectionError

MANIFEST = "manifest.json"
MANIFEST_TYPE = "application/vnd.placet.manifest+json"
MANIFEST_FORMAT = "placet.manifest/1"
EXCERPT_FORMAT = "placet.manifest/2"
MAX_MANIFEST_BYTES = 32 * 1_048_576


class BundleError(ValueError):
    """An export is malformed, or its parts do not make one."""


@dataclass(frozen=True)
class Manifest:
    """What manifest.json says, checked for form only."""

    checkpoint: Checkpoint
    members: Mapping[str, tuple[Digest, int]]
    missing: tuple[Digest, ...]
    export: Mapping[str, JsonValue]
    excerpt: "Excerpt | None" = None
    """None when all entries are enclosed."""


@dataclass(frozen=True)
class Excerpt:
    """How many entries are enclosed, and by which conditions they were chosen."""

    shown: int
    selection: Selection


def object_name(reference: str) -> str:
    """Return the member name of the document with this digest."""
    return "objects/" + reference.replace(":", "-", 1)


def format_manifest(manifest: Manifest) -> bytes:
    """Write manifest.json."""
    head = manifest.checkpoint
    objects = sum(name.startswith("objects/") for name in manifest.members)
    members = [
        {"digest": listed, "name": name, "size_bytes": size}
        for name, (listed, size) in manifest.members.items()
    ]
    counts: dict[str, JsonValue] = {"entries": head.size, "objects": objects}
    document: dict[str, JsonValue] = {
        "checkpoint": {
            "origin": head.origin,
            "root": encode_base64(head.root),
            "size": head.size,
        },
        "counts": counts,
        "export": dict(manifest.export),
        "format": MANIFEST_FORMAT,
        "members": cast("list[JsonValue]", members),
        "missing": list(manifest.missing),
    }
    if manifest.excerpt is None:
        document["range"] = {"end": head.size, "first": 0}
    else:
        counts["shown"] = manifest.excerpt.shown
        document["format"] = EXCERPT_FORMAT
        document["selection"] = manifest.excerpt.selection.to_document()
    return canonical(document)


def parse_manifest(data: bytes) -> Manifest:
    """Read manifest.json strictly: only what `format_manifest` writes is accepted.

    Raises:
        BundleError: malformed.
    """
    try:
        value = parse_canonical(data, max_bytes=MAX_MANIFEST_BYTES)
        match value:
            case {
                "checkpoint": {"origin": str(origin), "root": str(root), "size": int(size)},
                "export": dict(export),
                "members": list(members),
                "missing": list(missing),
                **more,
            }:
                head = parse_checkpoint(f"{origin}\n{size}\n{root}\n")
                table = dict(map(_listed, members))
                absent = tuple(map(_missing, missing))
                manifest = Manifest(head, table, absent, export, _excerpt(more))
                if format_manifest(manifest) == data:
                    return manifest
    except (CanonicalError, NoteError, SelectionError) as cause:
        raise BundleError(f"{MANIFEST}: {cause}") from cause
    raise BundleError(f"{MANIFEST} is malformed: expected {MANIFEST_FORMAT}")


def _excerpt(more: Mapping[object, object]) -> Excerpt | None:
    match more:
        case {"counts": {"shown": int(shown)}, "selection": selection}:
            return Excerpt(shown, Selection.from_document(selection))
    return None


def _listed(item: JsonValue) -> tuple[str, tuple[Digest, int]]:
    match item:
        case {"digest": str(listed), "name": str(name), "size_bytes": int(size)} if is_digest(
            listed
        ):
            if name.startswith("objects/") and object_name(listed) != name:
                raise BundleError(f"{MANIFEST} lists {name!a} under another digest")
            return name, (Digest(listed), size)
    raise BundleError(f"{MANIFEST} has a malformed line about a member")


def _missing(item: JsonValue) -> Digest:
    if not is_digest(item):
        raise BundleError(f"{MANIFEST} has a malformed digest under `missing`")
    return Digest(cast("str", item))
