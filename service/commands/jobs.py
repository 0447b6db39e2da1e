"""`placet submit`, `jobs`, `job`, `logs`, `cancel`: a team's work with its jobs."""

import argparse
import sys
from typing import Any

from service.commands.connection import connected
from service.commands.documents import read_document
from service.commands.errors import Status
from service.commands.findings import show_findings, verdict_of
from service.commands.output import fields, line, machine, printable, table

_NEXT = {
    "awaiting_approval": "an officer decides: placet approve {id}",
    "approved": "it starts by itself: placet watch {id}",
    "dispatching": "placet watch {id}",
    "running": "placet watch {id}",
    "denied": "change what the findings name, then submit again",
}


def submit(arguments: argparse.Namespace) -> int:
    """Submit a job and show the gate's decision; a denied job ends with status 1."""
    body = read_document(arguments.file)
    with connected(arguments) as client:
        row = client.post("/v1/jobs", body, key=arguments.key)
    show(row, as_json=arguments.json)
    return Status.REFUSED if row["state"] == "denied" else Status.OK


def list_jobs(arguments: argparse.Namespace) -> int:
    """List jobs, oldest first."""
    query = {"state": arguments.state} if arguments.state else {}
    with connected(arguments) as client:
        rows = list(client.items("/v1/jobs", **query))
    if arguments.json:
        machine(rows)
    else:
        table(("id", "name", "team", "state", "created_at"), rows)
    return Status.OK


def show_job(arguments: argparse.Namespace) -> int:
    """Show a job with its decision and its runs."""
    with connected(arguments) as client:
        show(client.get(f"/v1/jobs/{arguments.id}"), as_json=arguments.json)
    return Status.OK


def logs(arguments: argparse.Namespace) -> int:
    """Print what the job's newest run wrote."""
    with connected(arguments) as client:
        text = client.get_bytes(f"/v1/jobs/{arguments.id}/log").decode("utf-8", "replace")
    if arguments.json:
        machine({"id": arguments.id, "log": text})
        return Status.OK
    for each in text.splitlines():
        line(each)
    if not text:
        sys.stderr.write("nothing written yet\n")
    return Status.OK


def cancel(arguments: argparse.Namespace) -> int:
    """Cancel a job: as it is now, not as it was some time ago."""
    path = f"/v1/jobs/{arguments.id}"
    with connected(arguments) as client:
        _, etag = client.seen(path)
        row = client.post(f"{path}/cancel", {}, etag=etag)
    if arguments.json:
        machine(row)
    else:
        line(f"{row['id']} is {row['state']}")
    return Status.OK


def show(row: dict[str, Any], *, as_json: bool) -> None:
    """Print a job."""
    if as_json:
        machine(row)
        return
    decision = row["decision"]
    line(f"{row['id']}  {row['state']}")
    facts = {
        "name": row["name"],
        "team": row["team"],
        "submitted by": row["submitted_by"],
        "dataset": row["dataset"],
        "base model": row["base_model"],
        "document": row["document_digest"],
        "reason": row["reason_code"],
    }
    if decision is not None:
        facts |= {"decision": decision["id"], "record": decision["record_digest"]}
        facts["verdict"] = verdict_of(decision)
    fields({name: value for name, value in facts.items() if value is not None}, indent="  ")
    if decision is not None:
        show_findings(decision)
    for run in row["runs"]:
        line()
        fields(
            {
                "run": run["id"],
                "state": run["state"],
                "MLflow run": run["mlflow_run"],
                "model version": run["model_version"],
                "tracking": run["tracking_error"] or "ok",
            },
            indent="  ",
        )
    following = _NEXT.get(row["state"])
    if following:
        line()
        line(printable(f"next: {following.format(id=row['id'])}"))
