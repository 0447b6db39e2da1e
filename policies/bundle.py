"""A policy bundle `placet.policy-bundle/1`: packs as one file that maintainers sign.

    {"format": "placet.policy-bundle/1",
     "manifest": {"number": 7, "policy": "sha256:…", "created": "2026-11-30T12:00:00Z",
                  "effective": "2026-12-01", "rollback_of": null,
                  "files": [{"path": "eu-baseline/pack.yaml", "digest": "sha256:…",
                             "size_bytes": 812}]},
     "files": {"eu-baseline/pack.yaml": "format: placet.pack/1 …"},
     "signatures": [{"keyid": "maintainer-a+530d903a", "sig": "<base64>"}]}

The manifest is what is signed: its canonical JSON as the payload of a DSSE pre-authentication
encoding of type `PAYLOAD_TYPE`, each signature by another maintainer. It names every file by
digest, and the policy that the files give, so that a signature covers all of them. The same
folder, number, dates and signatures give the same bytes.

`number` counts bundles up and is never used again. `rollback_of` is the number of the bundle that
this one takes back; without it a policy that was left is not brought back. `effective` is the first
day on which the bundle may be enforced; the dates of laws stand in the rules.

Nothing here signs or checks a signature: this room knows canonical bytes only.
"""

import datetime as dt
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from audit.canonical import CanonicalError, Digest, canonical, digest, is_digest, parse_canonical
from policies.decision import GateError, parse_instant
from policies.load import load_policy
from policies.policy import Policy

FORMAT = "placet.policy-bundle/1"
PAYLOAD_TYPE = "application/vnd.placet.policy-manifest+json"
MAX_BUNDLE_BYTES = 8_388_608
MAX_FILES = 2_000
MAX_NUMBER = 2**53 - 1

_PATH = re.compile(r"[a-z0-9][a-z0-9-]{0,63}/[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_MANIFEST = frozenset({"number", "policy", "created", "effective", "rollback_of", "files"})


class BundleError(ValueError):
    """The bundle is refused; the message names the member or the file."""


@dataclass(frozen=True)
class Manifest:
    """What maintainers sign."""

    number: int
    policy: Digest
    created: str
    effective: str
    rollback_of: int | None
    files: tuple[tuple[str, Digest, int], ...]
    """(path, digest, size in bytes), by path."""

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "number": self.number,
            "policy": self.policy,
            "created": self.created,
            "effective": self.effective,
            "rollback_of": self.rollback_of,
            "files": [{"path": p, "digest": d, "size_bytes": n} for p, d, n in self.files],
        }

    def to_bytes(self) -> bytes:
        """Return the canonical bytes that are signed."""
        return canonical(self.to_document())


@dataclass(frozen=True)
class Bundle:
    """A manifest, the files it names, and signatures as (keyid, base64)."""

    manifest: Manifest
    files: Mapping[str, str]
    signatures: tuple[tuple[str, str], ...] = ()

    def to_bytes(self) -> bytes:
        """Return the canonical bytes of the file."""
        return canonical(
            {
                "format": FORMAT,
                "manifest": self.manifest.to_document(),
                "files": dict(self.files),
                "signatures": [{"keyid": keyid, "sig": sig} for keyid, sig in self.signatures],
            }
        )

    @property
    def digest(self) -> Digest:
        """The digest of the file, signatures included."""
        return digest(self.to_bytes())

    def signed(self, keyid: str, sig: str) -> "Bundle":
        """Return the bundle with one more signature; one by the same key is replaced."""
        others = [one for one in self.signatures if one[0] != keyid]
        return replace(self, signatures=tuple(sorted([*others, (keyid, sig)])))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Bundle":
        """Read a bundle strictly: every file is there, named, and has its digest.

        Raises:
            BundleError: not canonical JSON, a member is missing, unknown or malformed, a path that
                leads anywhere, or a file that differs from the manifest.
        """
        try:
            document: Any = parse_canonical(data, max_bytes=MAX_BUNDLE_BYTES)
        except CanonicalError as cause:
            raise BundleError(f"bundle: {cause}") from cause
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise BundleError(f"bundle: expected format `{FORMAT}`")
        if set(document) != {"format", "manifest", "files", "signatures"}:
            raise BundleError("bundle: expected `format`, `manifest`, `files` and `signatures`")
        files = document["files"]
        if not isinstance(files, dict) or not all(isinstance(t, str) for t in files.values()):
            raise BundleError("bundle: `files` maps each path to its text")
        manifest = _manifest(document["manifest"])
        if manifest.files != _listed(files):
            raise BundleError("bundle: its files are not those that the manifest names")
        return cls(manifest, files, _signatures(document["signatures"]))

    def write_to(self, folder: Path) -> None:
        """Write the files below a folder, as `policies.load.read_packs` reads them."""
        for path, text in self.files.items():
            target = folder.joinpath(*PurePosixPath(path).parts)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(text.encode())


def build(
    folder: Path, *, number: int, created: str, effective: str, rollback_of: int | None = None
) -> Bundle:
    """Make the unsigned bundle of a folder of packs, or of one pack.

    Raises:
        RuleError: the packs do not load.
        BundleError: the number, a date, or a name of a file cannot stand in a bundle.
    """
    policy = load_policy([folder])
    root = folder.parent if (folder / "pack.yaml").is_file() else folder
    names = [folder] if root is not folder else sorted(p.parent for p in folder.glob("*/pack.yaml"))
    try:
        files = {
            path.relative_to(root).as_posix(): path.read_bytes().decode()
            for pack in names
            for path in sorted(pack.iterdir())
            if path.is_file()
        }
    except UnicodeDecodeError as cause:
        raise BundleError(f"bundle: a file of `{folder.name}` is no UTF-8 text") from cause
    document = {
        "number": number,
        "policy": policy.digest,
        "created": created,
        "effective": effective,
        "rollback_of": rollback_of,
        "files": [{"path": p, "digest": d, "size_bytes": n} for p, d, n in _listed(files)],
    }
    return Bundle(_manifest(document), files)


def policy_at(paths: Sequence[Path]) -> Policy:
    """Load a policy from folders of packs, or from one file: a bundle or a policy document.

    Who signed a bundle is not asked here.

    Raises:
        BundleError: a bundle is malformed, or its files are not the policy that it names.
        RuleError: a rule does not lint, or the file is neither of both.
        OSError: a path cannot be read.
    """
    if len(paths) != 1 or not paths[0].is_file():
        return load_policy(paths)
    data = paths[0].read_bytes()
    if f'"format":"{FORMAT}"'.encode() not in data:
        return Policy.from_bytes(data)
    bundle = Bundle.from_bytes(data)
    with tempfile.TemporaryDirectory() as folder:
        bundle.write_to(Path(folder))
        policy = load_policy([Path(folder)])
    if policy.digest != bundle.manifest.policy:
        raise BundleError("bundle: its files give another policy than its manifest names")
    return policy


def _listed(files: Mapping[str, str]) -> tuple[tuple[str, Digest, int], ...]:
    if not files or len(files) > MAX_FILES:
        raise BundleError(f"bundle: expected 1 to {MAX_FILES} files, got {len(files)}")
    for path in files:
        if _PATH.fullmatch(path) is None:
            raise BundleError(f"bundle: {path[:80]!a} is no path of a file in a pack")
    encoded = {path: files[path].encode() for path in sorted(files)}
    return tuple((path, digest(body), len(body)) for path, body in encoded.items())


def _manifest(document: Any) -> Manifest:
    if not isinstance(document, dict) or set(document) != _MANIFEST:
        raise BundleError(f"bundle: a manifest has exactly {', '.join(sorted(_MANIFEST))}")
    number, back = document["number"], document["rollback_of"]
    if type(number) is not int or not 1 <= number <= MAX_NUMBER:
        raise BundleError("bundle: `number` is an integer from 1; 0 is what ships")
    if back is not None and (type(back) is not int or not 0 <= back < number):
        raise BundleError("bundle: `rollback_of` is the smaller number of the bundle taken back")
    if not isinstance(document["policy"], str) or not is_digest(document["policy"]):
        raise BundleError("bundle: `policy` is a digest")
    _check_days(document["created"], document["effective"])
    return Manifest(
        number=number,
        policy=Digest(document["policy"]),
        created=document["created"],
        effective=document["effective"],
        rollback_of=back,
        files=tuple(_files(document["files"])),
    )


def _check_days(created: Any, effective: Any) -> None:
    wanted = (
        "bundle: expected `created` as YYYY-MM-DDThh:mm:ssZ and `effective` as YYYY-MM-DD,"
        f" got {created!a} and {effective!a}"
    )
    if not isinstance(effective, str) or _DAY.fullmatch(effective) is None:
        raise BundleError(wanted)
    try:
        parse_instant(created)
        dt.date.fromisoformat(effective)
    except (GateError, ValueError) as cause:
        raise BundleError(wanted) from cause


def _files(listed: Any) -> Iterable[tuple[str, Digest, int]]:
    for one in listed if isinstance(listed, list) else [None]:
        match one:
            case {"path": str(path), "digest": str(name), "size_bytes": int(size), **more} if (
                not more and type(size) is int
            ):
                yield path, Digest(name), size
            case _:
                raise BundleError("bundle: a file has `path`, `digest` and `size_bytes`")


def _signatures(listed: Any) -> tuple[tuple[str, str], ...]:
    found = []
    for one in listed if isinstance(listed, list) else [None]:
        match one:
            case {"keyid": str(keyid), "sig": str(sig), **more} if not more:
                found.append((keyid, sig))
            case _:
                raise BundleError("bundle: a signature has `keyid` and `sig`")
    if found != sorted(dict(found).items()):
        raise BundleError("bundle: signatures stand in the order of their keys, one for each")
    return tuple(found)
