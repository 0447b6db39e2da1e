"""The operator's commands: they run the service, or work on its database and keys directly."""

from argparse import ArgumentParser
from pathlib import Path

from service.commands.grammar import Subparsers, command, group_of

_ROLES = ("submitter", "officer", "auditor", "admin")


def add_commands(subparsers: Subparsers) -> None:
    """Add them all."""
    _processes(subparsers)
    _people(subparsers)
    _tokens(subparsers)
    _personal_data(subparsers)
    _witness(subparsers)
    commands = group_of(subparsers, "audit", "look after the audit log")
    command(
        commands,
        "recover",
        "put entries back that a restored database lost, from the published log",
        handler="auditing:recover",
        examples="placet audit recover",
        extra="service",
    )
    command(
        commands,
        "reconcile",
        "compare the business rows with the entries; ends with 1 when something differs",
        handler="auditing:reconcile",
        examples="placet audit reconcile\nplacet audit reconcile --json",
        extra="service",
    )
    command(
        subparsers,
        "doctor",
        "check packages, settings, keys, rules, database, storage and tracking",
        handler="doctor:doctor",
        examples="placet doctor\nplacet doctor --json",
        extra="service",
    )
    parser = command(
        subparsers,
        "demo",
        "show the whole product on this machine: deny, approve, train, deploy, export, verify",
        handler="showing:demo",
        examples="placet demo\nplacet demo --folder /tmp/placet-demo --steps 4",
        extra="service",
    )
    parser.add_argument(
        "--folder", type=Path, default=Path(".placet/demo"),
        help="where each run gets a folder of its own (default: .placet/demo)",
    )  # fmt: skip
    parser.add_argument(
        "--cache", type=Path, default=Path(".cache/placet"),
        help="where the small base model is kept (default: .cache/placet)",
    )  # fmt: skip
    parser.add_argument("--steps", type=int, metavar="N", help="train N updates at most")


def _processes(subparsers: Subparsers) -> None:
    parser = command(
        subparsers,
        "serve",
        "run the API and the worker in one process",
        handler="serving:serve",
        examples="placet serve --migrate\nPLACET_PORT=9000 placet serve\nplacet serve --no-worker",
        extra="service",
    )
    parser.add_argument("--host", help="address to listen on (default: PLACET_HOST)")
    parser.add_argument("--port", type=int, help="port to listen on (default: PLACET_PORT)")
    parser.add_argument(
        "--migrate", action="store_true", help="bring the database up to date first"
    )
    parser.add_argument(
        "--no-worker", action="store_true", help="the API only; `placet worker` runs elsewhere"
    )
    command(
        subparsers,
        "worker",
        "run the worker alone: it dispatches, observes, deploys, and signs the log",
        handler="serving:work",
        examples="placet worker",
        extra="service",
    )
    command(
        subparsers,
        "migrate",
        "bring the database to this release's schema and start the log",
        handler="serving:migrate",
        examples="placet migrate",
        extra="service",
    )


def _people(subparsers: Subparsers) -> None:
    commands = group_of(subparsers, "principal", "add and list who may call")
    parser = command(
        commands,
        "add",
        "add a principal",
        handler="people:add_principal",
        examples='placet principal add --name "A. Perrin" --role submitter --team care\n'
        'placet principal add --name "M. Roux" --role officer --token-days 90',
        extra="service",
    )
    parser.add_argument("--name", required=True, help="the name colleagues know; never in the log")
    parser.add_argument("--role", action="append", choices=_ROLES, required=True)
    parser.add_argument("--team", action="append", help="a team; repeat for more")
    parser.add_argument("--kind", choices=("human", "service"), default="human")
    parser.add_argument("--token-days", type=int, metavar="N", help="issue a token for N days")
    command(
        commands, "list", "list principals", handler="people:list_principals",
        examples="placet principal list", extra="service",
    )  # fmt: skip
    _changes(commands)


def _changes(commands: Subparsers) -> None:
    parser = command(
        commands,
        "change",
        "give a principal other roles and teams, in place of those it has",
        handler="people:change_principal",
        examples="placet principal change prn_… --role officer --role auditor",
        extra="service",
    )
    parser.add_argument("id", metavar="PRINCIPAL", help="prn_…")
    parser.add_argument("--role", action="append", choices=_ROLES, required=True)
    parser.add_argument("--team", action="append", help="a team; repeat for more")
    parser = command(
        commands,
        "disable",
        "let a principal call no more, for good",
        handler="people:disable_principal",
        examples="placet principal disable prn_…",
        extra="service",
    )
    parser.add_argument("id", metavar="PRINCIPAL", help="prn_…")


def _tokens(subparsers: Subparsers) -> None:
    commands = group_of(subparsers, "token", "issue, list and revoke tokens")
    parser = command(
        commands,
        "issue",
        "issue a token; its secret is shown once",
        handler="people:issue_token",
        examples="placet token issue prn_… --days 90",
        extra="service",
    )
    parser.add_argument("principal", metavar="PRINCIPAL", help="prn_…")
    parser.add_argument("--days", type=int, default=90, help="lifetime, 1 to 366 (default: 90)")
    command(
        commands, "list", "list tokens", handler="people:list_tokens",
        examples="placet token list", extra="service",
    )  # fmt: skip
    parser = command(
        commands,
        "revoke",
        "revoke a token; it stops working at once",
        handler="people:revoke_token",
        examples="placet token revoke tok_…",
        extra="service",
    )
    parser.add_argument("id", metavar="ID", help="tok_…")


def _personal_data(subparsers: Subparsers) -> None:
    parser = command(
        subparsers,
        "erase",
        "erase a person's data beside the log; it cannot be undone",
        handler="erasing:erase",
        examples="placet erase prn_… --ground art17-1-b\n"
        "placet erase prn_… --ground retention --yes --json",
        extra="service",
    )
    parser.add_argument("subject", metavar="PRINCIPAL", help="prn_…")
    parser.add_argument(
        "--ground", required=True, metavar="CODE", help="art17-1-a to art17-1-e, or retention"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser = command(
        subparsers,
        "disclose",
        "give one sealed value of one entry to one auditor, checkable with the log",
        handler="erasing:disclose",
        examples="placet disclose evt_… reason --to auditor-2026-17 --out reason.json",
        extra="service",
    )
    parser.add_argument("entry", metavar="ENTRY", help="evt_…")
    parser.add_argument("field", metavar="FIELD", help="the sealed field, such as `reason`")
    parser.add_argument(
        "--to",
        required=True,
        metavar="CODE",
        help="your code for the recipient; no name: it is logged",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="file to write")


def _witness(subparsers: Subparsers) -> None:
    commands = group_of(subparsers, "witness", "run a witness: it cosigns logs that only grow")

    def add(name: str, text: str, examples: str) -> ArgumentParser:
        parser = command(
            commands, name, text, handler=f"witnessing:{name}", examples=examples, extra="service"
        )
        parser.add_argument(
            "--data",
            type=Path,
            default=Path(".placet-witness"),
            metavar="FOLDER",
            help="the witness's own folder: key and memory (default: .placet-witness)",
        )
        return parser

    parser = add(
        "serve",
        "answer logs that ask for cosignatures",
        "placet witness serve --name witness.example.org\n"
        "placet witness serve --data /srv/witness --host 0.0.0.0 --port 8081",
    )
    parser.add_argument("--name", help="its key name, for ever; needed the first time")
    parser.add_argument("--host", default="127.0.0.1", help="address (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8081, help="port (default: 8081)")
    parser = add(
        "key",
        "show the witness's verifier keys, and make them first when there are none",
        "placet witness key --name witness.example.org\nplacet witness key --json",
    )
    parser.add_argument("--name", help="its key name, for ever; needed the first time")
    parser = add(
        "trust",
        "watch a log from now on; also while the witness runs",
        'placet witness trust "placet.example.org/log+530d903a+AekyeRrm…"',
    )
    parser.add_argument(
        "vkey", metavar="VKEY", help="a verifier key of the log, as `placet migrate` prints"
    )
    add(
        "status",
        "show which logs are watched, and how far they were cosigned",
        "placet witness status\nplacet witness status --data /srv/witness --json",
    )
