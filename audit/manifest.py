"""The manifest of an export, `placet.manifest/1`: what is in it, and what is not.

    {"checkpoint":{"origin":"example.com/log","root":"<base64>","size":15},
     "counts":{"entries":15,"objects":9},"export":{…what the exporter states…},
     "format":"placet.manifest/1",
     "members":[{"digest":"sha256:…","name":"VERIFY.txt","size_bytes":812},…],
     "missing":["sha256:…"],"range":{"end":15,"first":0}}

`members` lists every other member but the manifest's own envelope, in file order. `missing` lists,
sorted, the digests that entries refer to and for which no document is enclosed. The range is always
[0, size): an export is complete. Canonical JSON; signed by the log's key (`audit.dsse`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from audit.canonical import CanonicalError, Digest, JsonValue, canonical, is_digest, parse_canonical
from audit.keys import NoteError, encode_base64
from audit.note import Checkpoint, parse_checkpoint

MANIFEST = "manifest.json"
MANIFEST_TYPE = "application/vnd.placet.manifest+json"
MANIFEST_FORMAT = "placet.manifest/1"
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
    return canonical(
        {
            "checkpoint": {
                "origin": head.origin,
                "root": encode_base64(head.root),
                "size": head.size,
            },
            "counts": {"entries": head.size, "objects": objects},
            "export": dict(manifest.export),
            "format": MANIFEST_FORMAT,
            "members": members,
            "missing": list(manifest.missing),
            "range": {"end": head.size, "first": 0},
        }
    )


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
            }:
                head = parse_checkpoint(f"{origin}\n{size}\n{root}\n")
                table = dict(map(_listed, members))
                manifest = Manifest(head, table, tuple(map(_missing, missing)), export)
                if format_manifest(manifest) == data:
                    return manifest
    except (CanonicalError, NoteError) as cause:
        raise BundleError(f"{MANIFEST}: {cause}") from cause
    raise BundleError(f"{MANIFEST} is malformed: expected {MANIFEST_FORMAT}")


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
