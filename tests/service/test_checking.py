"""`placet check`: the exit status is the verdict, and no outage is ever a verdict."""

import copy
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import types
from pathlib import Path

import jsonschema
import pytest
from loopback import answering
from ruamel.yaml import YAML

from policies.facts import schema
from policies.load import PACKS, read_packs
from service import cli
from service.client import Client
from service.commands import checking
from service.requests import DeploymentRequest, JobRequest

ABROAD = {
    "compute__provider": "ovhcloud",
    "compute__service": "ai-training",
    "compute__region": "BHS",
}
ROOT = Path(cli.__file__).parents[1]
SCHEMA = json.loads((ROOT / "tests/policies/data/sarif-schema-2.1.0.json").read_text())


@pytest.fixture(scope="module")
def served(shared_world):
    with answering(shared_world.app) as url:
        yield shared_world, url


@pytest.fixture
def placet(capfd, monkeypatch):
    """Run a command in this process; return its status, output and errors."""
    monkeypatch.setattr(os, "umask", lambda mask: mask)

    def run(*words):
        capfd.readouterr()
        try:
            status = cli.main([str(word) for word in words])
        except SystemExit as ended:
            status = ended.code
        said = capfd.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture
def check(served, placet, monkeypatch):
    """Run `placet check` as somebody, against the served world."""
    world, url = served
    monkeypatch.setenv("PLACET_URL", url)

    def run(*words, who="ada"):
        monkeypatch.setenv("PLACET_TOKEN", world.tokens[who])
        return placet("check", *words)

    return run


def yaml_file(folder, body, name="job.yaml"):
    path, writer = folder / name, YAML()
    writer.representer.add_representer(
        type(None), lambda of, _: of.represent_scalar("tag:yaml.org,2002:null", "null")
    )
    with path.open("w") as file:
        writer.dump(body, file)
    return path


# The exit status is the verdict


def test_it_ends_with_2_when_an_approval_is_needed(served, check, tmp_path):
    world, _ = served
    status, out, _ = check(yaml_file(tmp_path, world.job_body()))

    assert status == 2
    assert "needs approval (still: 1 officer)" in out


def test_it_ends_with_1_when_denied_and_points_at_the_line(served, check, tmp_path):
    world, _ = served
    before = world.get("/v1/jobs")["items"]
    path = yaml_file(tmp_path, world.job_body(**ABROAD))
    status, out, _ = check(path)

    assert status == 1
    assert "DENIED BY  residency.compute" in out
    number = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if "BHS" in text)
    assert f"at      {path}:{number}:3" in out
    assert world.get("/v1/jobs")["items"] == before


def test_the_gravest_of_several_documents_counts(served, check, tmp_path):
    world, _ = served
    fine = yaml_file(tmp_path, world.job_body())
    bad = yaml_file(tmp_path, world.job_body(**ABROAD), "bad.yaml")

    assert check(fine, bad)[0] == check(bad, fine)[0] == 1
    status, out, _ = check(fine, bad, "--json")
    assert status == 1
    assert [(one["verdict"], one["exit"]) for one in json.loads(out)] == [
        ("require_approval", 2),
        ("deny", 1),
    ]


def test_deployments_are_checked_with_deploy(served, check, tmp_path):
    world, _ = served
    model = world.finished_job()["runs"][0]["model_version"]
    body = world.deployment_body(model, oversight_contact="")
    path = yaml_file(tmp_path, body)

    status, out, _ = check("--deploy", path)

    assert status == 1
    number = next(n for n, t in enumerate(path.read_text().splitlines(), 1) if "oversight_c" in t)
    assert f"{path}:{number}:1" in out
    assert check(path)[0] == 64
    assert check("--deploy", yaml_file(tmp_path, world.job_body(), "j.yaml"))[0] == 64


# Whatever is no verdict is 64 or more


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--no-such",),
        ("--format", "html", "x.yaml"),
        ("--language", "tlh", "x.yaml"),
        ("missing.yaml",),
        ("--facts", "missing.yaml"),
        ("--facts", "missing.yaml", "--at", "2026-12-01T00:00:00Z"),
        ("x.yaml", "--at", "2026-12-01T00:00:00Z"),
        ("--facts", "x.yaml", "y.yaml"),
        ("x.yaml", "--output", "/no/such/folder/out.sarif"),
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_64(check, words):
    status, out, err = check(*words)

    assert (status, out) == (64, "")
    assert err


@pytest.mark.parametrize(
    "data", [b"", b"a: 1\na: 2\n", b"\xff", b"- 1", b"a: &x 1\nb: *x\n", b"a: 1.5", b"a: \x00"]
)
def test_a_document_that_cannot_be_read_ends_with_64(check, tmp_path, data):
    path = tmp_path / "job.yaml"
    path.write_bytes(data)

    assert check(path)[0] == 64


def test_a_request_that_the_service_refuses_ends_with_64(served, check, tmp_path):
    world, _ = served
    status, _, err = check(yaml_file(tmp_path, world.job_body(compute__gpus=-1)))

    assert status == 64
    assert "/compute/gpus" in err


@pytest.mark.parametrize("who", ["eve", "root"])
def test_somebody_who_may_not_ask_ends_with_69(served, check, tmp_path, who):
    world, _ = served

    assert check(yaml_file(tmp_path, world.job_body()), who=who)[0] == 69


def test_no_token_ends_with_64_and_a_wrong_one_with_69(served, placet, tmp_path, monkeypatch):
    world, url = served
    path = yaml_file(tmp_path, world.job_body())
    monkeypatch.setenv("PLACET_URL", url)
    monkeypatch.delenv("PLACET_TOKEN", raising=False)
    assert placet("check", path)[0] == 64
    monkeypatch.setenv("PLACET_TOKEN", "plc_wrong")
    assert placet("check", path)[0] == 69


def test_an_outage_ends_with_69_and_leaves_no_older_report(served, placet, tmp_path, monkeypatch):
    world, _ = served
    path, report = yaml_file(tmp_path, world.job_body()), tmp_path / "old.sarif"
    report.write_text("an older report")
    monkeypatch.setenv("PLACET_TOKEN", "plc_x")
    monkeypatch.setenv("PLACET_URL", "http://127.0.0.1:9")

    status, out, err = placet("--json", "check", path, "--format", "sarif", "--output", report)

    assert (status, out) == (69, "")
    assert "no answer" in err
    assert not report.exists()


@pytest.mark.parametrize("answer", [{}, {"verdict": "permit"}, {"verdict": None, "findings": []}])
def test_an_answer_that_is_none_of_ours_is_no_verdict(served, check, tmp_path, monkeypatch, answer):
    world, _ = served
    monkeypatch.setattr(Client, "preview", lambda *_, **__: answer)

    assert check(yaml_file(tmp_path, world.job_body()))[0] == 69


def test_a_missing_extra_ends_with_64():
    code = (
        "import sys\nclass No:\n def find_spec(self, name, path=None, target=None):\n"
        "  if name.partition('.')[0] in ('httpx', 'ruamel'):\n"
        "   raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, No())\n"
        "from service import cli\nraise SystemExit(cli.main(['check', 'x.yaml']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 64
    assert "placet[client]" in done.stderr


# Reports


def test_sarif_goes_to_the_file_and_text_to_the_screen(served, check, tmp_path):
    world, _ = served
    path = yaml_file(tmp_path, world.job_body(**ABROAD))
    report = tmp_path / "placet.sarif"

    status, out, _ = check(path, "--format", "sarif", "--output", report, "--language", "fr")

    assert status == 1
    assert "DENIED BY  residency.compute" in out
    log = json.loads(report.read_text())
    jsonschema.Draft4Validator(SCHEMA).validate(log)
    (run,) = log["runs"]
    assert run["tool"]["driver"]["language"] == "fr"
    found = next(one for one in run["results"] if one["ruleId"] == "residency.compute")
    region = found["locations"][0]["physicalLocation"]["region"]
    assert "BHS" in path.read_text().splitlines()[region["startLine"] - 1]
    assert run["properties"]["checks"][0]["digests"]["policy"].startswith("sha256:")


@pytest.mark.parametrize("form", ["sarif", "junit", "json"])
def test_a_report_on_the_screen_is_nothing_but_the_report(served, check, tmp_path, form):
    world, _ = served
    status, out, err = check(yaml_file(tmp_path, world.job_body()), "--format", form)

    assert (status, err) == (2, "")
    if form == "junit":
        assert out.startswith("<?xml")
        assert "<testcase classname=" in out
    else:
        json.loads(out)


def test_standard_input_is_read_as_well(served, check, monkeypatch, tmp_path):
    world, _ = served
    data = json.dumps(world.job_body()).encode()
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(data)))

    status, out, _ = check("-")

    assert status == 2
    assert out.startswith("stdin: ")


# Offline


@pytest.fixture
def facts():
    """Copy the facts that the packs' own tests start from; nothing but approval is missing."""
    base = next(pack.bases["public"] for pack in read_packs([PACKS]) if "public" in pack.bases)
    return {name: copy.deepcopy(part) for name, part in base.items() if name != "derived"}


def test_facts_are_decided_offline(placet, facts, tmp_path):
    path = yaml_file(tmp_path, facts, "facts.yaml")
    words = ("check", "--facts", path, "--at", "2026-11-30T12:00:00Z")

    assert placet(*words, "--site-country", "FR")[0] == 2
    status, out, _ = placet(*words)
    assert status == 1
    assert "residency.compute" in out
    facts["compute"]["region"] = "BHS"
    facts["compute"]["provider"] = "ovhcloud"
    path = yaml_file(tmp_path, facts, "abroad.yaml")
    status, out, _ = placet(
        "check", "--facts", path, "--at", "2026-11-30T12:00:00Z", "--format", "sarif"
    )
    assert status == 1
    log = json.loads(out)
    jsonschema.Draft4Validator(SCHEMA).validate(log)
    found = next(r for r in log["runs"][0]["results"] if r["ruleId"] == "residency.compute")
    line = found["locations"][0]["physicalLocation"]["region"]["startLine"]
    assert path.read_text().splitlines()[line - 1].strip().startswith("compute")


@pytest.mark.parametrize("verdict", ["allow", "allow_with_warnings"])
def test_it_ends_with_0_when_allowed_by_a_house_of_its_own_rules(placet, facts, tmp_path, verdict):
    """The shipped packs ask a person about every job; a house may decide otherwise."""
    packs = Path(shutil.copytree(PACKS, tmp_path / "packs"))
    for path in packs.glob("*/approval-*.yaml"):
        path.unlink()
    pack = packs / "eu-baseline" / "pack.yaml"
    lines = [line for line in pack.read_text().splitlines() if "family: approval" not in line]
    pack.write_text("\n".join(lines) + "\n")
    if verdict == "allow_with_warnings":
        facts["cost"] = {"estimate_cents": 95, "budget_cents": 100}
    path = yaml_file(tmp_path, facts, "facts.yaml")
    words = ("--at", "2026-11-30T12:00:00Z", "--site-country", "FR", "--packs", packs)

    status, out, _ = placet("check", "--facts", path, *words, "--json")

    assert json.loads(out)[0]["verdict"] == verdict, out
    assert status == 0


@pytest.mark.parametrize("at", ["2026-12-01", "now", "2026-13-01T00:00:00Z"])
def test_an_instant_that_is_none_ends_with_64(placet, facts, tmp_path, at):
    path = yaml_file(tmp_path, facts, "facts.yaml")

    assert placet("check", "--facts", path, "--at", at)[0] == 64


def test_packs_that_cannot_be_used_end_with_64(placet, facts, tmp_path):
    path = yaml_file(tmp_path, facts, "facts.yaml")
    words = ("check", "--facts", path, "--at", "2026-11-30T12:00:00Z")

    assert placet(*words, "--packs", tmp_path)[0] == 64
    assert placet(*words, "--reference", tmp_path / "no")[0] == 1


def test_the_pipeline_in_the_readme_is_one(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(jobs:.*?)```", text, re.DOTALL)
    steps = YAML(typ="safe").load(block)["jobs"]["placet"]["steps"]
    (line,) = [step["run"] for step in steps if "placet check" in step.get("run", "")]
    words = shlex.split(line.partition("||")[0])

    arguments = cli._parser("check").parse_args(words[1:])

    assert (arguments.format, arguments.output) == ("sarif", Path("placet.sarif"))
    assert steps[-1]["with"]["sarif_file"] == "placet.sarif"
    assert steps[-1]["if"] == "always()"
    for verdict, status in (("allow", 0), ("deny", 1), ("require_approval", 0)):
        shell = f"placet() {{ return {checking.EXITS[verdict]}; }}; {line}"
        done = subprocess.run(["bash", "-ec", shell], cwd=tmp_path, check=False)
        assert done.returncode == status, verdict
    done = subprocess.run(["bash", "-ec", f"placet() {{ return 69; }}; {line}"], check=False)
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("places", "request_type"),
    [(checking.JOB_PLACES, JobRequest), (checking.DEPLOYMENT_PLACES, DeploymentRequest)],
)
def test_facts_are_sought_in_members_that_documents_have(places, request_type):
    for fact, member in places:
        model = request_type
        for name in member.split("/")[1:]:
            assert name in model.model_fields, member
            model = model.model_fields[name].annotation
        shown = schema("facts")["properties"] | {"derived": schema("derived")}
        for name in fact.split("/")[1:]:
            assert name in shown, fact
            shown = shown[name].get("properties", shown[name].get("items", {}))
