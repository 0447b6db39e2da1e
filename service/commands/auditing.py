"""`placet audit`: looking after the log, on the database and the published files themselves."""

import argparse
import dataclasses

from service.commands.errors import CommandError, Status
from service.commands.operating import NO_SCHEMA, make_private, read_settings, stored
from service.commands.output import line, machine
from service.commands.serving import installed
from service.reconciling import reconcile as compared
from service.recovering import recover as put_back
from service.schema import is_current


def recover(arguments: argparse.Namespace) -> int:
    """Put back what a restored database lost of the published log."""
    make_private()
    with installed(read_settings()) as installation:
        if not is_current(installation.database):
            raise CommandError(NO_SCHEMA)
        # However many entries wait: they wait for this.
        transactions = dataclasses.replace(installation.transactions, max_pending=None)
        done = put_back(installation.ledger, transactions)
    if arguments.json:
        machine({} if done is None else {**dataclasses.asdict(done), "count": done.count})
    elif done is None:
        line("nothing is lost: the database holds everything that was published")
    else:
        line(f"put back entries {done.first} to {done.last}; {done.entry_id} says so in the log")
        line("business rows and documents of that range are gone: see `placet audit reconcile`")
    return Status.OK


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
