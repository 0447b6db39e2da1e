"""`placet dataset` and `placet base-model`: register, list, show."""

import argparse
from typing import Any

from service.commands.connection import connected
from service.commands.documents import read_document, uri_of
from service.commands.errors import CommandError, Status
from service.commands.output import fields, line, machine, table

_DATASET = {
    "name": "name",
    "team": "team",
    "uri": "uri",
    "format": "format",
    "licence": "licence",
    "categories": "category",
    "legal_basis": "legal_basis",
    "art9_basis": "art9_basis",
    "dpia_reference": "dpia",
    "data_subject_countries": "country",
}
_BASE_MODEL = {
    "name": "name",
    "uri": "uri",
    "licence": "licence",
    "licence_allows_fine_tuning": "allows_fine_tuning",
    "training_flop_1e15": "training_flop_1e15",
    "source": "source",
}


def register_dataset(arguments: argparse.Namespace) -> int:
    """Register a dataset version from a file or from flags."""
    body = _body(arguments, _DATASET)
    if arguments.file is None:
        body.setdefault("categories", [])
        body.setdefault("data_subject_countries", [])
    with connected(arguments) as client:
        return _registered(arguments, client.post("/v1/datasets", body))


def register_base_model(arguments: argparse.Namespace) -> int:
    """Register a base model from a file or from flags."""
    body = _body(arguments, _BASE_MODEL)
    with connected(arguments) as client:
        return _registered(arguments, client.post("/v1/base-models", body))


def list_datasets(arguments: argparse.Namespace) -> int:
    """List dataset versions."""
    columns = ("id", "name", "team", "format", "num_rows", "categories_declared", "created_at")
    return _list(arguments, "/v1/datasets", columns)


def list_base_models(arguments: argparse.Namespace) -> int:
    """List base models."""
    return _list(arguments, "/v1/base-models", ("id", "name", "num_parameters", "created_at"))


def show_dataset(arguments: argparse.Namespace) -> int:
    """Show one dataset version."""
    with connected(arguments) as client:
        return _shown(arguments, client.get(f"/v1/datasets/{arguments.id}"))


def show_base_model(arguments: argparse.Namespace) -> int:
    """Show one base model."""
    with connected(arguments) as client:
        return _shown(arguments, client.get(f"/v1/base-models/{arguments.id}"))


def _body(arguments: argparse.Namespace, names: dict[str, str]) -> dict[str, Any]:
    given = {
        member: value
        for member, flag in names.items()
        if (value := getattr(arguments, flag)) is not None
    }
    if "uri" in given:
        given["uri"] = uri_of(given["uri"])
    if arguments.file is None:
        missing = [name for name in ("name", "uri", "licence") if name not in given]
        if missing:
            needed = ", ".join(f"--{name}" for name in missing)
            raise CommandError(f"give a FILE, or the flags; missing: {needed}", Status.USAGE)
        return given
    if given:
        raise CommandError("give a FILE or flags, not both", Status.USAGE)
    return read_document(arguments.file)


def _registered(arguments: argparse.Namespace, row: dict[str, Any]) -> int:
    if arguments.json:
        machine(row)
        return Status.OK
    line(f"registered {row['id']}")
    if "categories_detected" in row:
        extra = set(row["categories_detected"]) - set(row["categories_declared"])
        if extra:
            line(
                f"detected but not declared: {', '.join(sorted(extra))};"
                " the gate will deny jobs on it, register it again with these categories"
            )
    _fields(row)
    return Status.OK


def _list(arguments: argparse.Namespace, path: str, columns: tuple[str, ...]) -> int:
    with connected(arguments) as client:
        rows = list(client.items(path))
    if arguments.json:
        machine(rows)
    else:
        table(columns, rows)
    return Status.OK


def _shown(arguments: argparse.Namespace, row: dict[str, Any]) -> int:
    if arguments.json:
        machine(row)
    else:
        _fields(row)
    return Status.OK


def _fields(row: dict[str, Any]) -> None:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            flat[name] = value
    fields(flat, indent="  ")
