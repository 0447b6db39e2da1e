"""`placet export` and `placet keys`: taking the evidence out of a running service."""

import argparse
from pathlib import Path

from service.commands.connection import connected
from service.commands.errors import CommandError, Status
from service.commands.output import fields, line, machine


def export(arguments: argparse.Namespace) -> int:
    """Make a bundle of the whole log and write it to a file."""
    out: Path = arguments.out
    if out.exists() and not arguments.force:
        raise CommandError(f"`{out}` exists; choose another name or give --force", Status.USAGE)
    with connected(arguments) as client:
        row = client.post("/v1/exports", {"recipient": arguments.recipient})
        try:
            size = client.download(row["bundle"], out)
        except OSError as error:
            raise CommandError(f"cannot write `{out}`: {error.strerror}", Status.USAGE) from error
    if arguments.json:
        machine({**row, "file": str(out), "size_bytes": size})
        return Status.OK
    line(f"written {out}: {row['num_entries']} entries, {size} bytes")
    line(f"verify it anywhere: placet verify {out} --replay --vkey KEY")
    line("The key must reach the verifier by another way than the bundle: see `placet keys`.")
    return Status.OK


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
