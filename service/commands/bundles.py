"""`placet policy sign|activate|current|differences`: bundles, from a maintainer to the service."""

import argparse
import json
from typing import Any

from audit.keys import Ed25519Signer, NoteError
from policies.bundle import Bundle, BundleError
from policies.commands.grammar import reason
from service.commands.connection import connected
from service.commands.deciding import confirm
from service.commands.errors import CommandError, Status
from service.commands.output import fields, line, machine, table


def sign(arguments: argparse.Namespace) -> int:
    """Add one maintainer's signature to a bundle file and print the key that checks it."""
    # With the service's own dependencies only: signing needs them, reading answers does not.
    from service.keys import KeyFileError, ed25519_seed  # noqa: PLC0415
    from service.policy_bundles import sign as signed  # noqa: PLC0415

    bundle = _read(arguments)
    if not arguments.key.exists():
        raise CommandError(
            f"there is no key `{arguments.key}`; make one with"
            f" `openssl genpkey -algorithm ed25519 -out {arguments.key}`",
            Status.USAGE,
        )
    try:
        signer = Ed25519Signer.from_seed(arguments.name, ed25519_seed(arguments.key))
    except (KeyFileError, NoteError, ValueError) as error:
        raise CommandError(str(error), Status.USAGE) from error
    done = signed(bundle, signer)
    staged = arguments.file.with_name(f".{arguments.file.name}.new")
    staged.write_bytes(done.to_bytes())
    staged.replace(arguments.file)
    signers = [keyid for keyid, _ in done.signatures]
    if arguments.json:
        machine({"bundle": done.digest, "vkey": signer.vkey, "signatures": signers})
    else:
        fields({"bundle": done.digest, "signed by": signers, "vkey": signer.vkey})
    return Status.OK


def activate(arguments: argparse.Namespace) -> int:
    """Put a bundle in force; status 2 when the service rejects it, and what was in force stays."""
    bundle = _read(arguments)
    mode = "shadow" if arguments.shadow else "enforce"
    if not arguments.json:
        line(f"number {bundle.manifest.number}, {len(bundle.files)} files, {mode}")
    confirm(arguments, "put it in force" if mode == "enforce" else "try it in the shadow")
    body = {
        "bundle": json.loads(bundle.to_bytes()),
        "mode": mode,
        "reason": arguments.reason,
    }
    with connected(arguments) as client:
        done = client.post("/v1/policies", body)
    if arguments.json:
        machine(done)
    else:
        fields({name: done[name] for name in ("id", "act", "number", "policy_digest", "signers")})
    return Status.OK


def current(arguments: argparse.Namespace) -> int:
    """Say what is in force."""
    with connected(arguments) as client:
        found = client.get("/v1/policies/current")
    if arguments.json:
        machine(found)
        return Status.OK
    shown: dict[str, Any] = {
        name: found[name] for name in ("policy", "number", "signers", "rules", "reference")
    }
    for name in ("shadow", "rejected"):
        act = found[name]
        shown[name] = None if act is None else f"{act['bundle_digest']} on {act['created_at']}"
    if found["rejected"] is not None:
        shown["because"] = found["rejected"]["reason_code"]
    fields(shown)
    return Status.OK


def differences(arguments: argparse.Namespace) -> int:
    """List what the policy in the shadow would have changed; status 0 also when there is some."""
    query = {} if arguments.since is None else {"since": arguments.since}
    with connected(arguments) as client:
        found = client.get("/v1/policies/shadow/differences", **query)
    if arguments.json:
        machine(found)
        return Status.OK
    if found["policy"] is None:
        line("no policy was ever tried in the shadow; see `placet policy activate --shadow`")
        return Status.OK
    line(
        f"number {found['number']}: {found['changed']} of {found['decisions']} decisions differ,"
        f" {found['stricter']} stricter, {found['milder']} milder"
    )
    table(("rule", "decisions", "verdicts"), found["rules"])
    line()
    table(("team", "decisions", "stricter", "milder"), found["teams"])
    return Status.OK


def _read(arguments: argparse.Namespace) -> Bundle:
    try:
        return Bundle.from_bytes(arguments.file.read_bytes())
    except BundleError as error:
        raise CommandError(
            f"`{arguments.file}` is no bundle of packs: {error}; `placet policy build` makes one",
            Status.USAGE,
        ) from error
    except OSError as error:
        raise CommandError(reason(error), Status.USAGE) from error
