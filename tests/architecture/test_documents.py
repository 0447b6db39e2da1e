"""What the documents say is true: settings, commands, states, dependencies, links."""

import itertools
import os
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from sources import ROOT, check_generated, modules, tracked

from service import cli
from service.lifecycle import DEPLOYMENT, JOB
from service.settings import Settings

README = (ROOT / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
DOCUMENTS = [path for path in tracked() if path.suffix == ".md" and len(path.parts) == 1]
# Set by one process of ours for another; nobody else sets them.
INTERNAL = {"PLACET_RUN_ID", "PLACET_SUPERVISED"}


def shown(default: object) -> str:
    """Render a default as the settings table does."""
    if default in (None, "", ()) or not str(default):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def test_the_readme_lists_every_setting():
    rows = [
        f"| `PLACET_{name.upper()}` | {shown(field.get_default(call_default_factory=True))} |"
        f" {field.description} |\n"
        for name, field in Settings.model_fields.items()
    ]

    table = "".join(["| variable | default | meaning |\n", "|---|---|---|\n", *rows])
    check_generated("README.md", "settings", table)


def test_the_readme_names_every_variable_that_the_code_reads():
    used = {
        found
        for path in modules()
        for found in re.findall(r"\bPLACET_[A-Z0-9_]*[A-Z0-9]\b", (ROOT / path).read_text("utf-8"))
    }

    assert {name for name in used - INTERNAL if f"`{name}`" not in README} == set()


# One call of `placet`, up to what ends it in a shell; quoted text may hold anything.
_CALL = re.compile(r"""\bplacet ((?:[^|;&()<>\n"'`#]|"[^"]*"|'[^']*')+)""")


def calls(text: str) -> list[str]:
    """Return every call of `placet` in the shell blocks and code spans of a document."""
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    spans = re.findall(r"`(placet [a-z][^`\n]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    found = (match[1] for part in [*blocks, *spans] for match in _CALL.finditer(part))
    return sorted({re.sub(r" \d?$", "", call).strip() for call in found})


@pytest.mark.parametrize("path", DOCUMENTS, ids=str)
def test_every_command_in_the_documents_exists(path):
    for call in calls((ROOT / path).read_text(encoding="utf-8")):
        words = shlex.split(call)
        parser = cli._parser(words[0])
        if len(words) == 1:  # named in a sentence, without its arguments
            assert f" {words[0]} " in parser.format_help(), call
            continue
        try:
            parser.parse_args(words)
        except SystemExit:
            pytest.fail(f"{path}: `placet {call}` is no command of ours")


def test_the_quick_start_is_short():
    for name in ("cli", "http"):
        block = re.search(rf"<!-- {name} -->\n```sh\n(.*?)```", README, re.DOTALL)
        assert block is not None
        assert len(block[1].splitlines()) <= 25


def test_every_make_target_in_the_documents_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))

    for path in DOCUMENTS:
        text = (ROOT / path).read_text(encoding="utf-8")
        named = set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE))
        assert named <= targets, path


@pytest.mark.parametrize("path", DOCUMENTS, ids=str)
def test_every_file_named_in_the_documents_exists(path):
    text = re.sub(r"```.*?```", "", (ROOT / path).read_text(encoding="utf-8"), flags=re.DOTALL)
    known = {str(file) for file in tracked()}
    suffixes = "py|md|txt|toml|yml|yaml|json|jsonl"

    named_files = re.findall(rf"`((?:[a-z_.-]+/)*[A-Za-z0-9_.-]+\.(?:{suffixes}))`", text)
    for named in set(named_files) - {"ruamel.yaml"}:  # a package, not a file
        assert any(file == named or file.endswith("/" + named) for file in known), named


@pytest.mark.parametrize(("name", "table"), [("job", JOB), ("deployment", DEPLOYMENT)])
def test_the_life_of_a_job_and_of_a_deployment_is_documented(name, table):
    rows = [
        f"| {state} | {move} | {following} | `{kind}` |\n"
        for (state, move), (following, kind) in table.items()
    ]

    head = ["| state | move | next state | entry |\n", "|---|---|---|---|\n"]
    check_generated("ARCHITECTURE.md", f"lifecycle {name}", "".join([*head, *rows]))


def test_every_dependency_has_its_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = itertools.chain(project["dependencies"], *project["optional-dependencies"].values())
    names = {re.split(r"[\[<>=,]", each)[0] for each in listed} - {"placet"}
    part = re.search(r"^## Dependencies$(.*?)^## ", ARCHITECTURE, re.MULTILINE | re.DOTALL)
    assert part is not None
    reasons = set(re.findall(r"^\| `([^`]+)` \| .{10,} \|$", part[1], re.MULTILINE))

    assert reasons == names


def test_every_direct_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = itertools.chain(project["dependencies"], *project["optional-dependencies"].values())
    pins = {
        re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower()
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }

    for each in listed:
        name = re.sub(r"[-_.]+", "-", re.split(r"[\[<>=,]", each)[0]).lower()
        assert name in pins | {"placet"}, each


def test_pins_are_plain():
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        assert re.fullmatch(r"#.*|[A-Za-z0-9_.-]+==[0-9][0-9A-Za-z.]*", line), line


def test_no_document_claims_conformity():
    claim = re.compile(
        r"\b(is|are|fully|be) (gdpr|ai act|hds|dora|iso)?[- ]?(compliant|conformant|certified)\b",
        re.IGNORECASE,
    )

    for path in DOCUMENTS:
        assert claim.search((ROOT / path).read_text(encoding="utf-8")) is None, path


def test_ci_runs_the_readmes_test_command():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert "exec make test" in script
    assert re.search(r"^make test ", README, re.MULTILINE)


def test_the_gate_document_points_to_its_semantics():
    assert re.search(r"^## The gate$", ARCHITECTURE, re.MULTILINE)
    for outcome in ("unknown", "violated", "waived", "not_applicable", "error"):
        assert f"`{outcome}`" in ARCHITECTURE
    assert Path(ROOT / "policies" / "gate.py").exists()
