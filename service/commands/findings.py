"""A decision for people: each finding with the value seen, the law and what to change."""

from collections.abc import Mapping
from typing import Any

from service.commands.output import line

_VERDICTS = {
    "allow": "allowed",
    "allow_with_warnings": "allowed, with warnings",
    "require_approval": "needs approval",
    "deny": "denied",
}
_HEADS = {
    "deny": "DENIED BY",
    "require_approval": "APPROVAL FOR",
    "warn": "WARNING",
}


def verdict_of(decision: Mapping[str, Any]) -> str:
    """Say the verdict in words, with who must still approve."""
    words = _VERDICTS.get(decision["verdict"], str(decision["verdict"]))
    missing = [f"{item['count']} {item['role']}" for item in decision["approvals_missing"]]
    return f"{words} (still: {', '.join(missing)})" if missing else words


def show_findings(decision: Mapping[str, Any]) -> None:
    """Print every finding, the gravest first."""
    for found in decision["findings"]:
        is_closed = found["effect"] != "warn" and found["outcome"] in {"unknown", "error"}
        head = "DENIED BY" if is_closed else _HEADS.get(found["effect"], found["effect"])
        if found["outcome"] == "waived":
            head = "WAIVED"
        line()
        line(f"  {head}  {found['rule']}: {found['title']}")
        if found.get("at"):
            line(f"    at      {found['at']}")
        if found["pointer"]:
            value = "not known" if found["value"] is None else found["value"]
            line(f"    saw     {found['pointer']} = {value}")
        line(f"    so      {found['message']}")
        for law in found["law"]:
            line(f"    law     {law['ref']} (since {law['since']}): {law['note']}")
        line(f"    change  {found['remediation']}")
