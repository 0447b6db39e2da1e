"""`placet erase` and `placet disclose`: personal data beside the log, for the operator."""

import argparse
import dataclasses
import sys

from service import erasure
from service.clock import system_clock
from service.commands.errors import CommandError, Status
from service.commands.operating import stored
from service.commands.output import fields, line, machine
from service.principals import find_principal


def erase(arguments: argparse.Namespace) -> int:
    """Erase what is known of a principal, after a question on a terminal."""
    with stored(arguments) as transactions:
        with transactions.read() as session:
            name = find_principal(session, arguments.subject).name
        if not arguments.yes:
            _confirm(arguments.subject, name)
        with transactions.write() as tx:
            done = erasure.erase(
                tx, subject=arguments.subject, ground=arguments.ground, clock=system_clock
            )
        erasure.scrub(transactions.engine)
    if arguments.json:
        machine(dataclasses.asdict(done))
        return Status.OK
    fields(dataclasses.asdict(done))
    line("the log still verifies; backups and exports that were handed out keep what they hold")
    return Status.OK


def _confirm(subject: str, name: str) -> None:
    """Ask for the id; raises CommandError where nobody can answer, or the answer is another."""
    if not sys.stdin.isatty():
        raise CommandError("erasing cannot be undone; say --yes to go on", Status.USAGE)
    sys.stderr.write(f"This erases `{name}` ({subject}) for good. Type the id to go on: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != subject:
        raise CommandError("not erased: that was another id", Status.REFUSED)


def disclose(arguments: argparse.Namespace) -> int:
    """Write one sealed value to a file that only its owner can read."""
    with stored(arguments) as transactions:
        if arguments.out.exists():
            raise CommandError(f"`{arguments.out}` is there already; name another", Status.USAGE)
        with transactions.write() as tx:
            found = erasure.disclose(
                tx, entry_id=arguments.entry, field=arguments.field, recipient=arguments.to
            )
            # Before the commit: an entry says that it was given, so the file must be there.
            with arguments.out.open("xb") as out:
                out.write(found.to_bytes())
    if arguments.json:
        machine({"entry": found.entry, "field": found.field, "file": str(arguments.out)})
        return Status.OK
    line(f"wrote `{arguments.out}`; check it with `placet verify BUNDLE.zip --disclosed FILE`")
    return Status.OK
