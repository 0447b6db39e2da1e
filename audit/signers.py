"""Which policies decided, and who signed them: each policy in force held against its bundle.

A bundle is a document beside the log. Its entry must say what its manifest says; this needs no key
and is a part of level L6. That maintainers signed it is level L9, since only an auditor knows whose
keys these are: for each policy.activated, two different given keys must have signed the manifest.

    {"format": "placet.policy-bundle/1",
     "manifest": {"number": 7, "policy": "sha256:…", "effective": "2026-12-01", "rollback_of": null,
                  "files": [{"path": …, "digest": "sha256:…", "size_bytes": 812}], …},
     "files": {"eu-baseline/pack.yaml": "…"},
     "signatures": [{"keyid": "maintainer-a+530d903a", "sig": "<base64>"}]}

What is signed is the canonical manifest under DSSE's pre-authentication encoding (`audit.dsse`).
A policy that came without a bundle is what a release ships: nobody signed it, and it counts only
when the auditor named its digest. That the files give the policy is what the signers say.
"""

from dataclasses import dataclass, field
from typing import cast

from audit.canonical import JsonValue, canonical, digest
from audit.consent import Violate
from audit.dsse import keyid_of, pae
from audit.enclosed import Enclosed, Members, UnreadableError, differing
from audit.event import Event
from audit.keys import NoteError, VerifyKey, strict_base64

BUNDLE_FORMAT = "placet.policy-bundle/1"
POLICY_MANIFEST_TYPE = "application/vnd.placet.policy-manifest+json"
SIGNERS = 2

_Keyed = list[tuple[str, str]]
_Signed = tuple[bytes, _Keyed]


@dataclass(frozen=True)
class Trusted:
    """What an auditor trusts about policies: maintainers' keys, and digests of shipped policies."""

    keys: tuple[VerifyKey, ...] = ()
    policies: frozenset[str] = frozenset()


@dataclass
class Signatures:
    """What is known of the policies that were put in force.

    Args:
        trusted: what the auditor gave.
        num_trusted: how often a policy was put in force that two given keys signed or was named.
        faults: a given key's signature is wrong.
        unsigned: fewer than two given keys signed.
        unknown: nothing says whether to trust it: no bundle, or the bundle is not enclosed.
    """

    trusted: Trusted
    num_trusted: int = 0
    faults: list[str] = field(default_factory=list)
    unsigned: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


class Bundles:
    """Reads the bundle of each policy that is put in force."""

    def __init__(self, violate: Violate, enclosed: Enclosed, signatures: Signatures) -> None:
        self._violate = violate
        self._enclosed = enclosed
        self._signatures = signatures

    def activate(self, event: Event) -> None:
        """Take in policy.activated: hold it against its bundle and the trusted keys."""
        found, policy = self._signatures, str(event.data["policy"])
        name = f"number {event.data['number']} ({policy})"
        signed = self._signed(event, name)
        if policy in found.trusted.policies:
            found.num_trusted += 1
        elif event.data["bundle"] is None:
            found.unknown.append(f"{name} came without a bundle")
        elif signed is None:
            found.unknown.append(f"the bundle of {name} cannot be read here")
        else:
            self._count(name, *signed)

    def _signed(self, event: Event, name: str) -> _Signed | None:
        """Return what was signed and by whom; None without a bundle that can be read here."""
        if event.data["bundle"] is None:
            return None
        try:
            bundle = self._enclosed.read(str(event.data["bundle"]), BUNDLE_FORMAT)
            signatures = [] if bundle is None else _signatures_of(bundle)
        except UnreadableError as cause:
            self._violate("policy-bundle-readable", f"{name}: {cause}")
            return None
        if bundle is None:
            return None
        self._bind(event, bundle, signatures)
        return canonical(bundle["manifest"]), signatures

    def _bind(self, event: Event, bundle: Members, signatures: _Keyed) -> None:
        data, manifest = event.data, cast("dict[str, JsonValue]", bundle["manifest"])
        said = {name: data[name] for name in ("policy", "number")}
        wrong = differing(said | {"rollback_of": data.get("rollback_of")}, manifest)
        if _files_of(bundle) != manifest.get("files"):
            wrong.append("files")
        if not {str(s) for s in cast("list[str]", data["signers"])} <= {k for k, _ in signatures}:
            wrong.append("signers")
        is_early = str(manifest.get("effective")) > event.at[:10]
        if data["mode"] == "enforce" and is_early:
            wrong.append("effective")
        if wrong:
            self._violate(
                "policy-binds-bundle", f"{data['bundle']} says another {', '.join(wrong)}"
            )

    def _count(self, name: str, manifest: bytes, signatures: _Keyed) -> None:
        """Count the given keys that signed; one key under two names is one signer."""
        found = self._signatures
        keys = {keyid_of(key): key for key in found.trusted.keys}
        message, signed = pae(POLICY_MANIFEST_TYPE, manifest), set()
        for keyid, encoded in signatures:
            if keyid not in keys:
                continue
            try:
                is_right = keys[keyid].verify(strict_base64(encoded), message)
            except NoteError:
                is_right = False
            if not is_right:
                found.faults.append(f"the signature of {keyid} under {name} does not verify")
                return
            signed.add(keys[keyid].public_key)
        if len(signed) < SIGNERS:
            found.unsigned.append(f"{name} is signed by {len(signed)} of the given keys")
        else:
            found.num_trusted += 1


def _files_of(bundle: Members) -> JsonValue:
    files = cast("dict[str, str]", bundle["files"])
    bodies = {path: files[path].encode() for path in sorted(files)}
    return [
        {"path": path, "digest": digest(body), "size_bytes": len(body)}
        for path, body in bodies.items()
    ]


def _signatures_of(bundle: Members) -> _Keyed:
    files, listed = bundle.get("files"), bundle.get("signatures")
    is_readable = (
        isinstance(bundle.get("manifest"), dict)
        and isinstance(files, dict)
        and all(isinstance(text, str) for text in files.values())
        and isinstance(listed, list)
    )
    found: _Keyed = []
    for one in cast("list[JsonValue]", listed) if is_readable else [None]:
        match one:
            case {"keyid": str(keyid), "sig": str(sig)}:
                found.append((keyid, sig))
            case _:
                raise UnreadableError("expected a manifest, files and signatures")
    return found
