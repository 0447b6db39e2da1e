"""SARIF 2.1.0: findings as code hosts show them, at the line of the file that caused them.

    {"$schema": "…/sarif-schema-2.1.0.json", "version": "2.1.0", "runs": [{"tool": {"driver":
      {"name": "Placet", "rules": [{"id": "residency.compute", "help": {…}, …}]}},
      "results": [{"ruleId": "residency.compute", "level": "error", "message": {"text": "…"},
                   "locations": […], "partialFingerprints": {"placet/v1": "…"}}]}]}

What denies is an `error`, what asks for an approval a `warning`, the rest a `note`; what a waiver
covers is a suppressed result. A fingerprint is of rule, place and file, never of line numbers or
values, so a finding stays the same finding while the file around it changes.

Source: OASIS, SARIF 2.1.0 plus Errata 01 (2023-08-28): §3.11.5 and §3.11.6 (braces and brackets in
messages), §3.27 (result), §3.35 (suppression), §3.49 (rules).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from policies.checked import Checked, Found, weight

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_ROOT = "%SRCROOT%"
_LEVELS = {"deny": "error", "require_approval": "warning", "warn": "note"}
_INERT = str.maketrans({"\\": "\\\\", "[": "\\[", "]": "\\]", "{": "{{", "}": "}}"})


def to_sarif(checks: Sequence[Checked], *, version: str = "0") -> dict[str, Any]:
    """Render checked documents as one log of one run.

    Args:
        checks: all in one language.
        version: of the program that checked.
    """
    findings = [(checked, one) for checked in checks for one in checked.findings]
    rules: dict[str, Found] = {}
    for _, one in findings:
        rules.setdefault(one["rule"], one)
    index = {rule: number for number, rule in enumerate(rules)}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "Placet",
                        "version": version,
                        "language": checks[0].language if checks else "en",
                        "rules": [_rule(one) for one in rules.values()],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {_ROOT: {"description": {"text": "the repository's root"}}},
                "results": [_result(c, one, index[one["rule"]]) for c, one in findings],
                "properties": {"checks": [_summary(checked) for checked in checks]},
            }
        ],
    }


def sarif_text(checks: Sequence[Checked], *, version: str = "0") -> str:
    """Render checked documents as the text of a `.sarif` file; it holds ASCII only."""
    return json.dumps(to_sarif(checks, version=version), indent=1) + "\n"


def _summary(checked: Checked) -> dict[str, Any]:
    return {
        "file": checked.file.encode("utf-8", "replace").decode(),
        "verdict": checked.verdict,
        "evaluatedAt": checked.evaluated_at,
        "approvals": [dict(one) for one in checked.approvals],
        "digests": dict(checked.digests),
        "outcomes": {str(r["rule"]): str(r["outcome"]) for r in checked.results},
    }


def _rule(one: Found) -> dict[str, Any]:
    law = [f"{each['ref']} (since {each['since']}): {each['note']}" for each in one["law"]]
    parts = [str(one["title"]), *law, str(one["remediation"])]
    listed = "".join(f"- {_markdown(each)}\n" for each in law)
    return {
        "id": one["rule"],
        "shortDescription": {"text": one["title"]},
        "fullDescription": {"text": one["title"]},
        "help": {
            "text": "\n".join(parts),
            "markdown": f"{_markdown(one['title'])}\n\n{listed}\n{_markdown(one['remediation'])}\n",
        },
        "defaultConfiguration": {"level": _LEVELS[one["effect"]]},
        "properties": {
            "tags": ["compliance", str(one["rule"]).partition(".")[0]],
            "version": one["version"],
            "effect": one["effect"],
            "severity": one["severity"],
            "law": [dict(each) for each in one["law"]],
        },
    }


def _result(checked: Checked, one: Found, rule_index: int) -> dict[str, Any]:
    place = checked.where(one)
    physical: dict[str, Any] = {"artifactLocation": artifact(checked.file)}
    if place is not None:
        _, position = place
        physical["region"] = {"startLine": position.line, "startColumn": position.column}
    pointer = str(one["pointer"])
    location: dict[str, Any] = {"physicalLocation": physical}
    if pointer:
        location["logicalLocations"] = [{"fullyQualifiedName": pointer, "kind": "member"}]
    result: dict[str, Any] = {
        "ruleId": one["rule"],
        "ruleIndex": rule_index,
        "kind": "fail",
        "level": _LEVELS[weight(one)],
        "message": {"text": f"{one['message']} {one['remediation']}".translate(_INERT)},
        "locations": [location],
        "partialFingerprints": {"placet/v1": fingerprint(checked.file, one)},
        "properties": {"outcome": one["outcome"], "effect": one["effect"], "value": one["value"]},
    }
    if one["outcome"] == "waived":
        result["suppressions"] = [{"kind": "external", "status": "accepted"}]
    return result


def fingerprint(file: str, one: Found) -> str:
    """Name a finding so that it is the same one tomorrow: its rule, the fact and the file."""
    parts = json.dumps([one["rule"], one["pointer"], file], ensure_ascii=True)
    return hashlib.sha256(parts.encode("ascii")).hexdigest()[:32]


def artifact(file: str) -> Mapping[str, str]:
    """Name a file as SARIF does: relative to the repository's root, or by its own URI."""
    path = PurePath(file)
    name = quote(path.as_posix(), errors="replace")
    return {"uri": f"file://{name}"} if path.is_absolute() else {"uri": name, "uriBaseId": _ROOT}


def _markdown(text: Any) -> str:
    """Escape what Markdown would act on: our texts are sentences, not markup."""
    return "".join(f"\\{char}" if char in r"\`*_[]{}<>#|!~&" else char for char in str(text))
