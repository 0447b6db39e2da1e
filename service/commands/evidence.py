"""`placet export` and `placet keys`: taking the evidence out of a running service."""

import argparse
from pathlib import Path
from typing import Any

from service.commands.connection import connected
from service.commands.errors import CommandError, Status
from service.commands.output import fields, line, machine


def export(arguments: argparse.Namespace) -> int:
    """Make a bundle of the log, or an excerpt, and write it to a file."""
    out: Path = arguments.out
    if out.exists() and not arguments.force:
        raise CommandError(f"`{out}` exists; choose another name or give --force", Status.USAGE)
    with connected(arguments) as client:
        body: dict[str, Any] = {"recipient": arguments.recipient}
        if selection := _selection(arguments):
            body["selection"] = selection
        row = client.post("/v1/exports", body)
        try:
            size = client.download(row["bundle"], out)
        except OSError as error:
            raise CommandError(f"cannot write `{out}`: {error.strerror}", Status.USAGE) from error
    if arguments.json:
        machine({**row, "file": str(out), "size_bytes": size})
        return Status.OK
    shown = row["num_shown"]
    what = f"{row['num_entries']} entries" if shown is None else f"{shown} entries shown"
    line(f"written {out}: {what}, {size} bytes")
    if shown is not None:
        line("An excerpt: what it leaves out is fixed by its hashes, and unseen.")
    line(f"verify it anywhere: placet verify {out} --replay --vkey KEY")
    line("The key must reach the verifier by another way than the bundle: see `placet keys`.")
    return Status.OK


def _selection(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {
        "since": arguments.since,
        "until": arguments.until,
        "jobs": arguments.job,
        "model_versions": arguments.model_version,
        "deployments": arguments.deployment,
        "datasets": arguments.dataset,
        "people": arguments.person,
        "kinds": arguments.kind,
    }
    return {name: value for name, value in given.items() if value is not None}


def keys(arguments: argparse.Namespace) -> int:
    """Show the log's name and verifier keys, to be published where auditors find them."""
    with connected(arguments) as client:
        found = client.get("/v1/log/keys")
    if arguments.json:
        machine(found)
        return Status.OK
    line(f"log  {found['origin']}")
    for vkey in found["vkeys"]:
        line(f"key  {vkey}")
    return Status.OK


def whoami(arguments: argparse.Namespace) -> int:
    """Show whose token this is."""
    with connected(arguments) as client:
        me = client.get("/v1/me")
    if arguments.json:
        machine(me)
    else:
        fields(me)
    return Status.OK
