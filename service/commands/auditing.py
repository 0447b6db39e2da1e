"""`placet audit reconcile`: the business rows against the entries, on the database itself."""

import argparse
import dataclasses

from service.commands.errors import Status
from service.commands.operating import stored
from service.commands.output import line, machine
from service.reconciling import reconcile as compared


def reconcile(arguments: argparse.Namespace) -> int:
    """Compare, and end with 1 when something differs."""
    with stored(arguments) as transactions, transactions.snapshot() as session:
        done = compared(session)
    if arguments.json:
        machine(dataclasses.asdict(done))
    else:
        for one in done.differences:
            line(f"{one.rule}  {one.subject}: {one.found}")
        if done.num_differences > len(done.differences):
            line(f"… and {done.num_differences - len(done.differences)} more")
        line(
            f"{done.num_differences} differences between {done.rows} rows, {done.entries} entries"
            f" and {done.documents} documents"
        )
    return Status.OK if done.num_differences == 0 else Status.REFUSED
