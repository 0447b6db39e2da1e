"""`placet deploy` and what follows: `deployment`, `retire`, `card`, `transparency`, `ask`."""

import argparse
import sys
from pathlib import Path
from typing import Any

from service.commands.connection import connected
from service.commands.documents import read_document
from service.commands.errors import CommandError, Status
from service.commands.findings import show_findings, verdict_of
from service.commands.output import fields, line, machine, table

_NEXT = {
    "awaiting_approval": "an officer decides: placet approve {id}",
    "approved": "it starts by itself: placet watch {id}",
    "active": 'placet ask {id} "…"; placet card {id}; placet transparency {id}',
    "denied": "change what the findings name, then ask again",
}


def deploy(arguments: argparse.Namespace) -> int:
    """Ask for a deployment and show the gate's decision; a denied one ends with status 1."""
    body = read_document(arguments.file)
    with connected(arguments) as client:
        row = client.post("/v1/deployments", body, key=arguments.key)
    show(row, as_json=arguments.json)
    return Status.REFUSED if row["state"] == "denied" else Status.OK


def list_deployments(arguments: argparse.Namespace) -> int:
    """List deployments, oldest first."""
    columns = ("id", "name", "team", "state", "model_version", "created_at")
    return _list(arguments, "/v1/deployments", columns)


def list_models(arguments: argparse.Namespace) -> int:
    """List model versions, oldest first."""
    columns = ("id", "name", "team", "job", "mlflow_version", "created_at")
    return _list(arguments, "/v1/model-versions", columns)


def show_deployment(arguments: argparse.Namespace) -> int:
    """Show a deployment with its decision."""
    with connected(arguments) as client:
        show(client.get(f"/v1/deployments/{arguments.id}"), as_json=arguments.json)
    return Status.OK


def retire(arguments: argparse.Namespace) -> int:
    """Retire a deployment; the gateway stops answering at once."""
    path = f"/v1/deployments/{arguments.id}"
    with connected(arguments) as client:
        _, etag = client.seen(path)
        row = client.post(f"{path}/retire", {}, etag=etag)
    if arguments.json:
        machine(row)
    else:
        line(f"{row['id']} is {row['state']}")
    return Status.OK


def card(arguments: argparse.Namespace) -> int:
    """Read the model card."""
    return _document(arguments, "card")


def transparency(arguments: argparse.Namespace) -> int:
    """Read the transparency record."""
    return _document(arguments, "transparency")


def ask(arguments: argparse.Namespace) -> int:
    """Ask the deployed model a question; the answer comes with its disclosure."""
    messages = [{"role": "user", "content": arguments.question}]
    with connected(arguments) as client:
        answer = client.ask(arguments.id, messages, max_tokens=arguments.max_tokens)
    try:
        text = str(answer.json()["choices"][0]["message"]["content"])
    except (ValueError, LookupError, TypeError) as error:
        raise CommandError("the model's answer has no text; try again") from error
    told = {
        "answer": text,
        "disclosure": answer.headers.get("ai-disclosure", ""),
        "transparency": answer.links.get("transparency", {}).get("url", ""),
        "artefacts": answer.headers.get("placet-artefacts", ""),
    }
    if arguments.json:
        machine(told)
        return Status.OK
    for each in text.splitlines() or [""]:
        line(each)
    line()
    line(f"{told['disclosure']} Its transparency record: {told['transparency']}")
    return Status.OK


def show(row: dict[str, Any], *, as_json: bool) -> None:
    """Print a deployment."""
    if as_json:
        machine(row)
        return
    decision = row["decision"]
    line(f"{row['id']}  {row['state']}")
    facts = {
        "name": row["name"],
        "team": row["team"],
        "requested by": row["requested_by"],
        "model version": row["model_version"],
        "artefacts": row["artefacts_digest"],
        "document": row["document_digest"],
        "model card": row["card_digest"],
        "transparency": row["transparency_digest"],
        "reason": row["reason_code"],
    }
    if decision is not None:
        facts |= {"decision": decision["id"], "record": decision["record_digest"]}
        facts["verdict"] = verdict_of(decision)
    fields({name: value for name, value in facts.items() if value is not None}, indent="  ")
    if decision is not None:
        show_findings(decision)
    following = _NEXT.get(row["state"])
    if following:
        line()
        line(f"next: {following.format(id=row['id'])}")


def _list(arguments: argparse.Namespace, path: str, columns: tuple[str, ...]) -> int:
    with connected(arguments) as client:
        rows = list(client.items(path))
    if arguments.json:
        machine(rows)
    else:
        table(columns, rows)
    return Status.OK


def _document(arguments: argparse.Namespace, kind: str) -> int:
    form = "json" if arguments.json else arguments.form
    with connected(arguments) as client:
        body = client.get_bytes(f"/v1/deployments/{arguments.id}/{kind}.{form}")
    if arguments.out is None:
        sys.stdout.buffer.write(body if body.endswith(b"\n") else body + b"\n")
        sys.stdout.flush()
        return Status.OK
    write_whole(arguments.out, body)
    sys.stderr.write(f"written {arguments.out}\n")
    return Status.OK


def write_whole(path: Path, body: bytes) -> None:
    """Write a file whole or not at all.

    Raises:
        CommandError: it cannot be written.
    """
    staged = path.with_name(path.name + ".part")
    try:
        staged.write_bytes(body)
        staged.replace(path)
    except OSError as error:
        raise CommandError(f"cannot write `{path}`: {error.strerror}", Status.USAGE) from error
    finally:
        staged.unlink(missing_ok=True)
