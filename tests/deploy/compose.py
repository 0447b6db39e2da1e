"""Reading docker-compose.yml as Compose does, without Compose: YAML, then variables."""

import re
from collections.abc import Mapping
from typing import Any

import yaml
from sources import ROOT

TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
_CODE = "\n".join(line for line in TEXT.splitlines() if not line.lstrip().startswith("#"))
VARIABLE = re.compile(r"\$\{(?P<name>[A-Z0-9_]+)(?P<operator>:[-?])(?P<rest>[^}]*)\}")

# Values such as an operator would choose; each is told apart in what comes out.
SAMPLE = {
    "PLACET_ORIGIN": "placet.example.org/log",
    "PLACET_SITE_COUNTRY": "FR",
    "PLACET_SITE_DECLARED_ON": "2026-11-30",
    "PLACET_DB_ADMIN_PASSWORD": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "PLACET_DB_PASSWORD": "dddddddddddddddddddddddddddddddddddddddddddddddd",
    "PLACET_MLFLOW_DB_PASSWORD": "ffffffffffffffffffffffffffffffffffffffffffffffff",
    "PLACET_S3_ACCESS_KEY": "PLACETKEY",
    "PLACET_S3_SECRET_KEY": "cccccccccccccccccccccccccccccccccccccccccccccccc",
    "PLACET_WITNESS_NAME": "witness.example.org",
}


def variables() -> list[re.Match[str]]:
    """Return every variable that the file asks for."""
    return list(VARIABLE.finditer(_CODE))


def interpolated(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the document with these values; a missing one takes its default."""

    def value(match: re.Match[str]) -> str:
        if match["name"] in values:
            return values[match["name"]]
        assert match["operator"] == ":-", f"{match['name']} is required: {match['rest']}"
        return match["rest"]

    def walk(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: walk(member) for key, member in node.items()}
        if isinstance(node, list):
            return [walk(member) for member in node]
        return VARIABLE.sub(value, node) if isinstance(node, str) else node

    document: dict[str, Any] = walk(yaml.safe_load(TEXT))
    return document
