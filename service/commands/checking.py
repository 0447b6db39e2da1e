"""`placet check`: what the gate would say about a document, for people and for pipelines.

The exit status is the verdict: 0 allowed (with or without warnings), 1 denied, 2 needs an approval.
Whatever keeps the question from being answered is 64 or more, so that a pipeline never takes an
outage or a misspelt option for a verdict (`service.cli` sees to that). Of several documents the
gravest verdict counts.
"""

import argparse
import importlib
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from policies.checked import Checked
from policies.junit import junit_text
from policies.positions import positions_of
from policies.sarif import sarif_text
from service.client import Client
from service.commands.connection import connected
from service.commands.documents import read_document
from service.commands.errors import CommandError, Status
from service.commands.findings import show_findings, verdict_of
from service.commands.output import line, machine

EXITS = {"deny": 1, "require_approval": 2, "allow_with_warnings": 0, "allow": 0}
_OFFLINE_ONLY = ("at", "packs", "reference", "site_country")
_GRAVEST = ("deny", "require_approval", "allow_with_warnings", "allow")
_SHARED_PLACES = (
    ("/derived/compute/country", "/compute/region"),
    ("/derived/compute/in_eea", "/compute/region"),
    ("/derived/compute/in_eu", "/compute/region"),
    ("/derived/compute/adequacy", "/compute/region"),
    ("/derived/compute/hds", "/compute/service"),
    ("/derived/compute/us_exposure", "/compute/provider"),
    ("/derived/compute/image_pinned", "/compute/image"),
    ("/derived/compute", "/compute"),
    ("/derived/estimate", "/compute"),
    ("/derived/certificates", "/compute"),
    ("/derived/dora", "/governance"),
)
JOB_PLACES = (
    *_SHARED_PLACES,
    ("/derived/datasets", "/dataset"),
    ("/derived/data", "/dataset"),
    ("/datasets", "/dataset"),
    ("/derived/base_model", "/base_model"),
    ("/derived/budget", "/budget_cents"),
    ("/cost", "/budget_cents"),
    ("/derived/gpai", "/training"),
    ("/derived/purpose", "/purpose"),
    ("/derived/duties", "/purpose"),
    ("/job/max_minutes", "/max_minutes"),
    ("/job/method", "/training/method"),
    ("/job/team", "/team"),
)
DEPLOYMENT_PLACES = (
    *_SHARED_PLACES,
    ("/derived/serving/country", "/compute/region"),
    ("/derived/serving/in_eea", "/compute/region"),
    ("/derived/serving/hds", "/compute/service"),
    ("/derived/serving/us_exposure", "/compute/provider"),
    ("/derived/serving", "/compute"),
    ("/deploy/region", "/compute/region"),
    ("/deploy/provider", "/compute/provider"),
    ("/deploy/service", "/compute/service"),
    ("/deploy/serves_public", "/serves_public"),
    ("/deploy/oversight_contact_present", "/oversight_contact"),
    ("/deploy/art50_texts_present", "/notices"),
    ("/deploy/interacts_with_people", "/interacts_with_people"),
    ("/deploy/marking_present", "/marks_outputs"),
    ("/deploy/bias_report_present", "/bias_report_reference"),
    ("/deploy/leakage_report_present", "/leakage_report_reference"),
    ("/deploy/technical_file_present", "/technical_file_reference"),
    ("/deploy", "/model_version"),
    ("/derived", "/model_version"),
    ("/datasets", "/model_version"),
    ("/base_model", "/model_version"),
    ("/purpose", "/model_version"),
    ("/training", "/model_version"),
    ("/cost", "/model_version"),
)


def check(arguments: argparse.Namespace) -> int:
    """Check documents with the service, or a facts document with the packs on this machine."""
    form = "json" if arguments.json else arguments.format
    out: Path | None = arguments.output
    if out is not None:
        _forget(out)
    checks = _online(arguments) if arguments.facts is None else [_offline(arguments)]
    if out is None:
        _print(checks, form)
    else:
        _write(out, _text(checks, form))
        _print(checks, "text")
    worst = min((checked.verdict for checked in checks), key=_GRAVEST.index)
    return EXITS[worst]


def _online(arguments: argparse.Namespace) -> list[Checked]:
    if not arguments.files:
        raise CommandError("name a document, or give --facts with --at", Status.USAGE)
    given = [name for name in _OFFLINE_ONLY if getattr(arguments, name) is not None]
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise CommandError(
            f"{options}: only with --facts; the service decides with what is in force", Status.USAGE
        )
    bodies = [(path, _document(path, is_deployment=arguments.deploy)) for path in arguments.files]
    with connected(arguments) as client:
        return [_asked(client, path, body, arguments) for path, body in bodies]


def _document(path: Path, *, is_deployment: bool) -> dict[str, Any]:
    body = read_document(path)
    if is_deployment and "model_version" not in body:
        raise CommandError(f"`{path}`: no `model_version`, so no deployment", Status.USAGE)
    if not is_deployment and "model_version" in body:
        raise CommandError(f"`{path}`: it asks for a deployment; give --deploy", Status.USAGE)
    return body


def _asked(
    client: Client, path: Path, body: Mapping[str, Any], arguments: argparse.Namespace
) -> Checked:
    answer = client.preview(body, language=arguments.language)
    digests = {n: answer[f"{n}_digest"] for n in ("record", "facts", "policy", "reference")}
    is_file = str(path) != "-"
    return Checked(
        file=str(path) if is_file else "stdin",
        verdict=answer["verdict"],
        findings=answer["findings"],
        results=answer["results"],
        approvals=answer["approvals_needed"],
        evaluated_at=answer["evaluated_at"],
        digests=digests,
        language=answer["language"],
        positions=positions_of(path.read_bytes()) if is_file else {},
        places=DEPLOYMENT_PLACES if arguments.deploy else JOB_PLACES,
    )


def _offline(arguments: argparse.Namespace) -> Checked:
    if arguments.files or arguments.deploy:
        raise CommandError("--facts takes the place of the document and --deploy", Status.USAGE)
    if arguments.at is None:
        raise CommandError("--facts needs --at YYYY-MM-DDThh:mm:ssZ", Status.USAGE)
    try:
        room = importlib.import_module("service.commands.checking_offline")
    except ModuleNotFoundError as error:
        told = f"install placet[policies] (`{error.name}` is missing)"
        raise CommandError(told, Status.USAGE) from error
    found: Checked = room.decided(arguments)
    return found


def _text(checks: Sequence[Checked], form: str) -> str:
    if form == "sarif":
        return sarif_text(checks, version=_version())
    return junit_text(checks)


def _print(checks: Sequence[Checked], form: str) -> None:
    if form == "json":
        machine([_plain(checked) for checked in checks])
        return
    if form != "text":
        for each in _text(checks, form).splitlines():
            line(each)
        return
    for checked in checks:
        decision = {
            "verdict": checked.verdict,
            "approvals_missing": checked.approvals,
            "findings": [{**one, "at": _at(checked, one)} for one in checked.findings],
        }
        line(f"{checked.file}: {verdict_of(decision)}")
        show_findings(decision)


def _plain(checked: Checked) -> dict[str, Any]:
    findings = []
    for one in checked.findings:
        place = checked.where(one)
        spot = None if place is None else {"line": place[1].line, "column": place[1].column}
        findings.append({**one, "position": spot})
    return {
        "file": checked.file,
        "verdict": checked.verdict,
        "exit": EXITS[checked.verdict],
        "findings": findings,
        "results": [dict(one) for one in checked.results],
        "approvals_needed": [dict(one) for one in checked.approvals],
        "evaluated_at": checked.evaluated_at,
        "digests": dict(checked.digests),
        "language": checked.language,
    }


def _at(checked: Checked, one: Mapping[str, Any]) -> str:
    place = checked.where(one)
    return "" if place is None else f"{checked.file}:{place[1].line}:{place[1].column}"


def _forget(out: Path) -> None:
    """Remove an older report, so that none is there when this check cannot be made."""
    try:
        out.unlink(missing_ok=True)
    except OSError as error:
        raise CommandError(f"cannot write `{out}`: {error.strerror}", Status.USAGE) from error


def _write(out: Path, text: str) -> None:
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write `{out}`: {error.strerror}", Status.USAGE) from error


def _version() -> str:
    try:
        return version("placet")
    except PackageNotFoundError:
        return "0+source"
