"""The commands that talk to a running service: teams, officers and auditors use them."""

import argparse
from pathlib import Path

from service.commands.grammar import Subparsers, command, group_of, remote

_LANGUAGES = ("en", "fr", "de", "es", "pt", "pl")
_WAIVER_STATES = ("requested", "approved", "active", "expired", "refused", "revoked")
_RECIPIENTS = ("auditor", "authority", "controller", "internal")


def add_commands(subparsers: Subparsers) -> None:
    """Add them all, in the order of the main flow."""
    _registry(subparsers)
    _jobs(subparsers)
    _check(subparsers)
    _decisions(subparsers)
    _waivers(subparsers)
    _deployments(subparsers)
    _documents(subparsers)
    _reference(subparsers)
    _evidence(subparsers)


def _registry(subparsers: Subparsers) -> None:
    commands = group_of(subparsers, "dataset", "inspect, register, list and show dataset versions")
    _register_dataset(commands)
    _inspect(commands)
    _list_and_show(commands, "dataset", "dataset versions", "a dataset version", "ds_…")

    commands = group_of(subparsers, "base-model", "register, list and show base models")
    parser = remote(
        commands,
        "register",
        "register a base model: every file is hashed, parameters are counted",
        handler="registry:register_base_model",
        examples="placet base-model register base.yaml\n"
        "placet base-model register --name smollm2 --uri ./smollm2 --licence Apache-2.0"
        " --allows-fine-tuning",
    )
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="YAML or JSON document")
    parser.add_argument("--name", help="its name")
    parser.add_argument("--uri", help="s3:// or file:// address, or a path on this machine")
    parser.add_argument("--licence", help="SPDX id")
    parser.add_argument(
        "--allows-fine-tuning",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether the licence allows it, as you read it",
    )
    parser.add_argument(
        "--training-flop-1e15", type=int, metavar="N", help="its training compute, in 1e15 FLOP"
    )
    parser.add_argument("--source", help="where it came from")
    _list_and_show(commands, "base_model", "base models", "a base model", "bm_…")


def _register_dataset(commands: Subparsers) -> None:
    parser = remote(
        commands,
        "register",
        "register a dataset version: every object is read, hashed and looked through",
        handler="registry:register_dataset",
        examples="placet dataset register dataset.yaml\n"
        "placet dataset register --name helpdesk --team care --uri ./helpdesk.jsonl"
        " --licence Apache-2.0 --category public",
    )
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="YAML or JSON document")
    parser.add_argument("--name", help="its name")
    parser.add_argument("--team", help="the team that owns it")
    parser.add_argument("--uri", help="s3:// or file:// address, or a path on this machine")
    parser.add_argument(
        "--format",
        choices=("chat-jsonl", "jsonl", "csv", "parquet", "text"),
        help="how rows are written (default: told by the objects); jobs train on chat-jsonl only",
    )
    parser.add_argument("--licence", help="SPDX id")
    parser.add_argument("--category", action="append", help="data category; repeat for more")
    parser.add_argument("--legal-basis", help="GDPR Art. 6 basis, for personal data")
    parser.add_argument("--art9-basis", help="GDPR Art. 9(2) basis, for special categories")
    parser.add_argument("--dpia", help="reference of the impact assessment")
    parser.add_argument("--country", action="append", help="data subjects' country; repeat it")


def _inspect(commands: Subparsers) -> None:
    parser = command(
        commands,
        "inspect",
        "look for personal data in files on this machine, before registering them; prints counts,"
        " where, and which categories to declare, never a value",
        handler="inspecting:inspect",
        examples="placet dataset inspect rows.jsonl\n"
        "placet dataset inspect export.csv tables/ --sample-permille 100 --seed 7 --json",
        extra="detection",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="file or folder")
    parser.add_argument(
        "--format", choices=("jsonl", "csv", "parquet", "text"), help="default: told by the file"
    )
    parser.add_argument(
        "--sample-permille",
        type=int,
        default=1000,
        metavar="N",
        help="share of rows (default: all)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which rows are drawn")


def _list_and_show(commands: Subparsers, what: str, many: str, one: str, form: str) -> None:
    name = what.replace("_", "-")
    remote(
        commands, "list", f"list {many}", handler=f"registry:list_{what}s",
        examples=f"placet {name} list",
    )  # fmt: skip
    parser = remote(
        commands, "show", f"show {one}", handler=f"registry:show_{what}",
        examples=f"placet {name} show {form}",
    )  # fmt: skip
    parser.add_argument("id", metavar="ID")


def _jobs(subparsers: Subparsers) -> None:
    parser = remote(
        subparsers,
        "submit",
        "submit a job and see at once whether it may run, and why not",
        handler="jobs:submit",
        examples="placet submit job.yaml\nplacet submit - < job.yaml",
    )
    _document(parser, "the job, YAML or JSON; `-` reads standard input")
    parser = remote(
        subparsers,
        "jobs",
        "list jobs",
        handler="jobs:list_jobs",
        examples="placet jobs\nplacet jobs --state awaiting_approval",
    )
    parser.add_argument("--state", help="only jobs in this state")
    _with_id(subparsers, "job", "show a job, its decision and its runs", "jobs:show_job")
    _with_id(
        subparsers, "watch", "follow a job live, or a deployment until it answers", "watching:watch"
    )
    _with_id(subparsers, "logs", "print what a job's newest run wrote", "jobs:logs")
    _with_id(subparsers, "cancel", "cancel a job, or stop its run", "jobs:cancel")


def _check(subparsers: Subparsers) -> None:
    parser = remote(
        subparsers,
        "check",
        "say what the gate would decide, without submitting: exits 0 allow, 1 deny, 2 needs"
        " approval, 64 and more when there is no verdict",
        handler="checking:check",
        examples="placet check job.yaml\n"
        "placet check job.yaml --format sarif --output placet.sarif --language fr\n"
        "placet check --deploy deployment.yaml --format junit --output placet.xml\n"
        "placet check --facts facts.yaml --at 2026-12-01T09:00:00Z --site-country FR",
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="YAML or JSON")
    parser.add_argument("--deploy", action="store_true", help="they ask for deployments")
    parser.add_argument("--format", choices=("text", "json", "sarif", "junit"), default="text")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write the report there, and text to the screen"
    )
    parser.add_argument("--language", choices=_LANGUAGES, help="of the messages (default: en)")
    group = parser.add_argument_group("offline, with the rules on this machine")
    group.add_argument("--facts", type=Path, metavar="FILE", help="decide on a facts document")
    group.add_argument("--at", metavar="INSTANT", help="as of then, YYYY-MM-DDThh:mm:ssZ")
    group.add_argument("--packs", type=Path, action="append", help="folder of packs; repeatable")
    group.add_argument("--reference", type=Path, metavar="DIR", help="folder of reference tables")
    group.add_argument("--site-country", metavar="CC", help="country of the own site")


def _decisions(subparsers: Subparsers) -> None:
    for name, text in (
        ("approve", "approve a job or a deployment, as an officer who did not ask for it"),
        ("refuse", "refuse a job or a deployment; the reason reaches the team"),
    ):
        parser = remote(
            subparsers,
            name,
            text,
            handler=f"deciding:{name}",
            examples=f'placet {name} job_… --reason "checked the purpose with the team"\n'
            f"placet {name} dep_… --seen 3 --yes",
        )
        parser.add_argument("id", metavar="ID", help="job_… or dep_…")
        parser.add_argument(
            "--reason", default="", required=name == "refuse", help="kept beside the log, erasable"
        )
        parser.add_argument(
            "--seen", type=int, metavar="VERSION", help="decide only if it is still this version"
        )
        parser.add_argument("--yes", action="store_true", help="do not ask again on a terminal")


def _waivers(subparsers: Subparsers) -> None:
    commands = group_of(subparsers, "waiver", "request, list, show and decide on waivers of a rule")
    parser = remote(
        commands,
        "request",
        "ask that one violated rule is waived for one job or deployment, until a date",
        handler="waivers:request",
        examples="placet waiver request job_… --rule budget.limit --ticket GRC-1042"
        ' --reason "the grant arrives on Monday" --expires 2026-12-07T00:00:00Z',
    )
    parser.add_argument("id", metavar="ID", help="job_… or dep_…")
    parser.add_argument("--rule", required=True, help="id of the violated rule")
    parser.add_argument("--reason", required=True, help="kept beside the log, erasable")
    parser.add_argument("--ticket", required=True, help="where the case is kept; no person's name")
    parser.add_argument(
        "--expires", required=True, metavar="INSTANT", help="end, YYYY-MM-DDThh:mm:ssZ"
    )
    parser.add_argument("--not-before", metavar="INSTANT", help="start (default: now)")
    parser.add_argument(
        "--mitigated", action="store_true", help="the risk is met in another way (category)"
    )
    parser.add_argument("--key", metavar="KEY", help="Idempotency-Key, to repeat a request")
    parser = remote(
        commands, "list", "list waivers", handler="waivers:list_waivers",
        examples="placet waiver list\nplacet waiver list --subject job:job_… --state active",
    )  # fmt: skip
    parser.add_argument(
        "--subject", metavar="SUBJECT", help="only of job:job_… or deployment:dep_…"
    )
    parser.add_argument("--state", choices=_WAIVER_STATES, help="only those that stand so now")
    for name, text, handler in (
        ("show", "show a waiver as it stands now", "show_waiver"),
        ("approve", "approve a waiver, as one of two who asked for none of it", "approve"),
        ("refuse", "refuse a waiver; the reason reaches the team", "refuse"),
        ("revoke", "end a waiver now; what waits under it is decided again", "revoke"),
    ):
        needs_reason = name in {"refuse", "revoke"}
        example = f"placet waiver {name} wvr_…" + ' --reason "…"' * needs_reason
        parser = remote(commands, name, text, handler=f"waivers:{handler}", examples=example)
        parser.add_argument("id", metavar="ID", help="wvr_…")
        if name != "show":
            parser.add_argument(
                "--reason", default="", required=needs_reason, help="kept beside the log, erasable"
            )
        if name in {"approve", "refuse"}:
            parser.add_argument("--seen", type=int, metavar="VERSION", help="only this version")
            parser.add_argument("--yes", action="store_true", help="do not ask again")


def _deployments(subparsers: Subparsers) -> None:
    remote(
        subparsers, "models", "list model versions", handler="deployments:list_models",
        examples="placet models",
    )  # fmt: skip
    parser = remote(
        subparsers,
        "deploy",
        "ask for a deployment and see at once whether it may be",
        handler="deployments:deploy",
        examples="placet deploy deployment.yaml",
    )
    _document(parser, "the deployment, YAML or JSON; `-` reads standard input")
    remote(
        subparsers, "deployments", "list deployments", handler="deployments:list_deployments",
        examples="placet deployments",
    )  # fmt: skip
    _with_id(
        subparsers, "deployment", "show a deployment", "deployments:show_deployment", form="dep_…"
    )
    _with_id(
        subparsers, "retire", "retire a deployment: it stops answering", "deployments:retire",
        form="dep_…",
    )  # fmt: skip
    parser = _with_id(
        subparsers, "ask", "ask a deployed model a question", "deployments:ask", form='dep_… "…?"'
    )
    parser.add_argument("question", metavar="QUESTION")
    parser.add_argument("--max-tokens", type=int, default=120, help="longest answer (default: 120)")


def _documents(subparsers: Subparsers) -> None:
    for name, text, forms in (
        ("card", "read a deployment's model card", ("md", "html", "json")),
        ("transparency", "read a deployment's transparency record", ("html", "json")),
    ):
        parser = remote(
            subparsers,
            name,
            text,
            handler=f"deployments:{name}",
            examples=f"placet {name} dep_…\nplacet {name} dep_… --form html --out {name}.html",
        )
        parser.add_argument("id", metavar="ID", help="dep_…")
        parser.add_argument(
            "--form", choices=forms, default="json" if name == "transparency" else "md"
        )
        parser.add_argument("--out", type=Path, metavar="FILE", help="write it to a file")


def _reference(subparsers: Subparsers) -> None:
    commands = group_of(subparsers, "reference", "reference data: what the rules rest on")
    parser = remote(
        commands,
        "list",
        "list the tables in force, or the rows of one with key, origin and author",
        handler="reference:listed",
        examples="placet reference list\nplacet reference list certificates --json",
    )
    parser.add_argument("table", nargs="?", metavar="TABLE", help="one table, for instance prices")
    parser = remote(
        commands,
        "record",
        "put a row of our own in force: a certificate, a price, a site, an attestation",
        handler="reference:record",
        examples="placet reference record prices price.yaml\n"
        "placet reference record certificates hds.yaml --document hds-2026.pdf",
    )
    parser.add_argument("table", metavar="TABLE", help="the table, for instance certificates")
    parser.add_argument("file", type=Path, metavar="FILE", help="the row, YAML or JSON")
    parser.add_argument("--document", type=Path, metavar="FILE", help="what the row rests on")
    parser.add_argument("--reason", default="", help="why; kept sealed beside the log")
    parser = remote(
        commands,
        "withdraw",
        "take away what is in force under a key: our own row, else the shipped one",
        handler="reference:withdraw",
        examples="placet reference withdraw prices ovhcloud/l40s-1-gpu/EUR --reason 'offer ended'",
    )
    parser.add_argument("table", metavar="TABLE", help="the table, for instance prices")
    parser.add_argument("key", metavar="KEY", help="the row's key, as `list` shows it")
    parser.add_argument("--reason", default="", help="why; kept sealed beside the log")
    parser = remote(
        commands,
        "expiring",
        "list certificates and rows of law that turn soon, with the work that rests on them",
        handler="expiring:expiring",
        examples="placet reference expiring\nplacet reference expiring --within 90 --json",
    )
    parser.add_argument(
        "--within", type=int, metavar="DAYS", help="days from today (default: the house policy's)"
    )


def _evidence(subparsers: Subparsers) -> None:
    parser = remote(
        subparsers,
        "export",
        "make a bundle of the log, or an excerpt of it, that anyone can verify offline",
        handler="evidence:export",
        examples="placet export --recipient auditor --out evidence.zip\n"
        "placet export --recipient authority --deployment dep_… --out deployment.zip\n"
        "placet export --recipient auditor --since 2026-11-01 --until 2026-12-01"
        " --kind gate.decided --out november.zip",
    )
    parser.add_argument("--recipient", choices=_RECIPIENTS, required=True, help="who will get it")
    parser.add_argument("--out", type=Path, metavar="FILE", required=True, help="the zip to write")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    excerpt = parser.add_argument_group(
        "excerpt", "show only entries that meet every condition given; repeat one for more of it"
    )
    excerpt.add_argument(
        "--since", metavar="DAY", help="from this day on, YYYY-MM-DD or an instant"
    )
    excerpt.add_argument("--until", metavar="DAY", help="before this day")
    for name, metavar, what in (
        ("job", "job_…", "a job, with all that led to it and came of it"),
        ("model-version", "mv_…", "a model version, likewise"),
        ("deployment", "dep_…", "a deployment, likewise"),
        ("dataset", "ds_…", "a data set, with the jobs that used it"),
        ("person", "prn_…", "what somebody did"),
        ("kind", "KIND", "a kind of entry, such as gate.decided"),
    ):
        excerpt.add_argument(f"--{name}", action="append", metavar=metavar, help=what)
    remote(
        subparsers, "keys", "show the log's verifier keys", handler="evidence:keys",
        examples="placet keys",
    )  # fmt: skip
    remote(
        subparsers, "whoami", "show whose token this is", handler="evidence:whoami",
        examples="placet whoami",
    )  # fmt: skip


def _with_id(
    subparsers: Subparsers, name: str, text: str, handler: str, *, form: str = "job_…"
) -> argparse.ArgumentParser:
    parser = remote(subparsers, name, text, handler=handler, examples=f"placet {name} {form}")
    parser.add_argument("id", metavar="ID", help=form.partition(" ")[0])
    return parser


def _document(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help=text)
    parser.add_argument(
        "--key", metavar="KEY", help="Idempotency-Key, to repeat a request that was cut off"
    )
