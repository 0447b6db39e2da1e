"""The `placet` command: what it accepts, how it ends, and what it does to a real service."""

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback import answering
from world import World

from policies.load import PACKS
from service import cli
from service.commands import output, watching
from service.commands.rooms import foreign_rooms

ROOT = Path(cli.__file__).parents[1]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def served(shared_world: World) -> Iterator[tuple[World, str]]:
    with answering(shared_world.app) as url:
        yield shared_world, url


@pytest.fixture
def placet(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process; return its status, output and errors."""
    monkeypatch.setattr(os, "umask", lambda mask: mask)

    def run(*words: object) -> tuple[int, str, str]:
        capfd.readouterr()
        status = cli.main([str(word) for word in words])
        said = capfd.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture
def as_(
    served: tuple[World, str], placet: Run, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Run a command as somebody, against the served world."""
    world, url = served
    monkeypatch.setenv("PLACET_URL", url)

    def run(who: str, *words: object) -> tuple[int, str, str]:
        monkeypatch.setenv("PLACET_TOKEN", world.tokens[who])
        return placet(*words)

    return run


def written(folder: Path, body: Any, name: str = "document.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(body))
    return path


_MOUNTED = [("verify",), ("policy",), ("cost",)]  # their rooms bring them when they are chosen


def every_command() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []

    def walk(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> None:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, inner in action.choices.items():
                    walk(inner, (*words, name))
                return
        found.append(words)

    walk(cli._parser(""), ())
    return [words for words in found if words not in _MOUNTED]


# What it accepts


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
def test_every_command_explains_itself_with_examples(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        cli.main([*words, "--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert "--json" in said
    assert f"examples:\n  placet {' '.join(words)}" in said


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    for words in [*every_command(), *_MOUNTED]:
        assert f"    {words[0]}" in said


@pytest.mark.parametrize(
    "words", [[], ["no-such"], ["job"], ["submit"], ["token"], ["jobs", "--no-such"]]
)
def test_wrong_usage_ends_with_2(words: list[str]):
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2


def test_nothing_heavy_is_imported_before_a_command_is_chosen():
    code = (
        "import sys\nfrom service import cli\ncli._parser('')\n"
        "heavy = {'httpx','sqlmodel','pydantic','cryptography','jsonschema','mlflow','ruamel'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True,
        timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


# The base install: cryptography and nothing else

BLOCKED = """
import sys
BASE = {'audit', 'policies', 'model_cards', 'trainer', 'service', 'cryptography', 'cffi',
        '_cffi_backend', 'pycparser'}
class OnlyBase:
    def find_spec(self, name, path=None, target=None):
        top = name.partition('.')[0]
        if top not in sys.stdlib_module_names and top not in BASE:
            raise ModuleNotFoundError(f'No module named {top!r}', name=top)
sys.meta_path.insert(0, OnlyBase())
from service import cli
raise SystemExit(cli.main(sys.argv[1:]))
"""


def on_base_install(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCKED, *map(str, words)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["serve"], "service"),
        (["demo"], "service"),
        (["migrate"], "service"),
        (["principal", "list"], "service"),
        (["jobs"], "client"),
        (["submit", "job.yaml"], "client"),
        (["policy", "lint"], "policies"),
    ],
    ids=str,
)
def test_a_missing_extra_is_named_in_one_line(words: list[str], extra: str):
    done = on_base_install(*words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"placet: install placet[{extra}] ")
    assert done.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def bundle(served: tuple[World, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Export a log with a denied, an approved and a finished job; return the file and its key."""
    world, _ = served
    world.submit(
        compute__region="BHS", compute__provider="ovhcloud", compute__service="ai-training"
    )
    world.finished_job()
    world.worker.publish()
    row = world.post("/v1/exports", "vera", {"recipient": "auditor"})
    path = tmp_path_factory.mktemp("bundle") / "evidence.zip"
    path.write_bytes(world.ask("GET", row["bundle"], "vera").content)
    return path, world.wired.ledger.vkeys[0]


def test_the_base_install_verifies(bundle: tuple[Path, str]):
    path, vkey = bundle
    done = on_base_install("verify", path, "--vkey", vkey)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("VERIFIED\n")


def test_a_replay_that_cannot_be_made_is_not_green(bundle: tuple[Path, str]):
    path, vkey = bundle
    done = on_base_install("verify", path, "--vkey", vkey, "--replay")
    assert done.returncode == 3
    assert "not checked: install placet[policies]" in done.stdout


def test_a_replay_makes_every_decision_again(bundle: tuple[Path, str], placet: Run):
    path, vkey = bundle
    status, out, _ = placet("--json", "verify", path, "--vkey", vkey, "--replay")
    report = json.loads(out)
    assert (status, report["verdict"]) == (0, "VERIFIED")
    level = next(each for each in report["levels"] if each["id"] == "L8")
    assert level["outcome"] == "pass"
    assert "decisions replayed byte for byte" in level["detail"]


def test_a_decision_that_comes_out_differently_fails_the_replay(
    bundle: tuple[Path, str], placet: Run, monkeypatch: pytest.MonkeyPatch
):
    from policies import gate

    whole = gate.replay

    def differing(*documents: bytes) -> gate.ReplayResult:
        result = whole(*documents)
        return gate.ReplayResult(
            same_inputs=True, same_output=False, same_derived=True, differing=("verdict",),
            verdict=result.verdict,
        )  # fmt: skip

    monkeypatch.setattr(gate, "replay", differing)
    path, vkey = bundle
    status, out, _ = placet("verify", path, "--vkey", vkey, "--replay")
    assert status == 1
    assert "comes out differently: verdict" in out
    assert out.endswith("TAMPERED\n")


def test_a_decision_of_another_derivation_is_not_checked(
    bundle: tuple[Path, str], placet: Run, monkeypatch: pytest.MonkeyPatch
):
    from policies import gate

    whole = gate.replay

    def older(*documents: bytes) -> gate.ReplayResult:
        reason = "derived by 'placet.derive/0'"
        verdict = whole(*documents).verdict
        return gate.ReplayResult(True, True, None, (), verdict, reason)

    monkeypatch.setattr(gate, "replay", older)
    path, vkey = bundle
    status, out, _ = placet("verify", path, "--vkey", vkey, "--replay")
    assert status == 4
    assert "derived by 'placet.derive/0'" in out


def test_a_damaged_bundle_is_malformed_or_tampered(
    bundle: tuple[Path, str], tmp_path: Path, placet: Run
):
    path, vkey = bundle
    damaged = tmp_path / "damaged.zip"
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    damaged.write_bytes(body)
    status, out, _ = placet("verify", damaged, "--vkey", vkey, "--replay")
    assert status in {1, 2}
    assert "replayed byte for byte" not in out


# How it ends


def test_no_token_is_said_in_one_line(placet: Run):
    status, out, err = placet("jobs")
    assert (status, out) == (2, "")
    assert "PLACET_TOKEN" in err
    assert err.count("\n") == 1


def test_a_service_that_is_away_ends_with_1(placet: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PLACET_TOKEN", "plc_any")
    status, _, err = placet("whoami", "--url", "http://127.0.0.1:9")
    assert status == 1
    assert "placet serve" in err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: a\nname: b\n", "duplicate key"),
        ("name: 1.5\n", "ambiguous"),
        ("- a\n", "expected a mapping"),
        ("name: [", "not YAML"),
    ],
)
def test_a_document_that_is_not_strict_ends_with_2(
    text: str, told: str, as_: Callable[..., tuple[int, str, str]], tmp_path: Path
):
    path = tmp_path / "job.yaml"
    path.write_text(text)
    status, _, err = as_("ada", "submit", path)
    assert status == 2
    assert told in err
    assert err.count("\n") == 1


def test_a_file_that_is_not_there_ends_with_2(as_: Callable[..., tuple[int, str, str]]):
    status, _, err = as_("ada", "submit", "no-such-job.yaml")
    assert status == 2
    assert "no-such-job.yaml" in err


def test_wrong_members_are_all_named(
    served: tuple[World, str], as_: Callable[..., tuple[int, str, str]], tmp_path: Path
):
    world, _ = served
    path = written(tmp_path, world.job_body(budget_cents=-1, max_minutes=0))
    status, _, err = as_("ada", "submit", path)
    assert status == 2
    assert "/budget_cents" in err
    assert "/max_minutes" in err


def test_an_interrupt_ends_quietly_with_130(placet: Run, monkeypatch: pytest.MonkeyPatch):
    def interrupted(_: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("service.commands.doctor.doctor", interrupted)
    assert placet("doctor") == (130, "", "")


def test_our_own_bug_is_one_line(placet: Run, monkeypatch: pytest.MonkeyPatch):
    def broken(_: argparse.Namespace) -> int:
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr("service.commands.doctor.doctor", broken)
    status, out, err = placet("doctor")
    assert (status, out) == (1, "")
    assert "RuntimeError: first second" in err
    assert err.count("\n") == 1
    monkeypatch.setenv("PLACET_DEBUG", "1")
    with pytest.raises(RuntimeError):
        cli.main(["doctor"])


# A team, an officer, an auditor


def test_a_denied_job_says_rule_value_law_and_remedy(
    served: tuple[World, str], as_: Callable[..., tuple[int, str, str]], tmp_path: Path
):
    world, _ = served
    body = world.job_body(
        compute__provider="ovhcloud", compute__service="ai-training", compute__region="BHS"
    )
    status, out, _ = as_("ada", "submit", written(tmp_path, body))
    assert status == 1
    assert "DENIED BY  residency.compute" in out
    assert "/derived/compute/in_eea = false" in out
    assert "GDPR Art. 44" in out
    assert "Choose a region in the European Economic Area" in out


def test_a_job_is_submitted_approved_and_cancelled(
    served: tuple[World, str], as_: Callable[..., tuple[int, str, str]], tmp_path: Path
):
    world, _ = served
    path = written(tmp_path, world.job_body())
    status, out, _ = as_("ada", "submit", path, "--json")
    job = json.loads(out)
    assert (status, job["state"]) == (0, "awaiting_approval")

    status, _, err = as_("ada", "approve", job["id"], "--yes")
    assert (status, "officer" in err) == (1, True)
    status, _, err = as_("olaf", "approve", job["id"], "--seen", job["version"] + 7, "--yes")
    assert (status, "look again" in err) == (1, True)
    status, out, _ = as_("olaf", "approve", job["id"], "--seen", job["version"], "--yes")
    assert status == 0
    assert "needs approval" in out
    assert f"approved version {job['version']} of {job['id']}: it is approved now" in out

    status, out, _ = as_("ada", "cancel", job["id"])
    assert (status, out) == (0, f"{job['id']} is cancelled\n")
    status, out, _ = as_("ada", "watch", job["id"])
    assert (status, out) == (1, "cancelled\n")
    status, out, _ = as_("ada", "jobs", "--state", "cancelled")
    assert (status, job["id"] in out) == (0, True)


def test_a_refusal_needs_its_reason(
    served: tuple[World, str], as_: Callable[..., tuple[int, str, str]]
):
    world, _ = served
    job = world.submit()
    with pytest.raises(SystemExit):
        as_("olaf", "refuse", job["id"])
    status, out, _ = as_("olaf", "refuse", job["id"], "--reason", "not this quarter", "--json")
    assert (status, json.loads(out)["state"]) == (0, "refused")


def test_an_officer_at_a_terminal_can_still_say_no(
    served: tuple[World, str],
    as_: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
):
    world, _ = served
    job = world.submit()
    keyboard = io.StringIO("no\n")
    keyboard.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", keyboard)
    status, out, err = as_("olaf", "approve", job["id"])
    assert status == 1
    assert "approve this? [y/N]" in out
    assert "nothing was decided" in err
    assert world.job(job["id"])["state"] == "awaiting_approval"


def test_what_may_be_used_is_registered_from_flags_and_files(
    served: tuple[World, str], as_: Callable[..., tuple[int, str, str]], tmp_path: Path
):
    world, _ = served
    data, base = world.folder / "data" / "helpdesk.jsonl", world.folder / "base"
    flags = ("--name", "again", "--team", "compliance", "--licence", "Apache-2.0")
    status, out, err = as_(
        "ada", "dataset", "register", *flags, "--uri", data, "--category", "public"
    )
    assert status == 0, err
    dataset = out.split()[1]
    assert as_("ada", "dataset", "show", dataset)[0] == 0
    assert dataset in as_("ada", "dataset", "list")[1]

    table = data.with_name("again.csv")
    table.write_text("product,review\nlamp,bright\n")
    shape = ("--uri", table, "--format", "csv")
    status, out, _ = as_("ada", "dataset", "register", *flags, *shape, "--json")
    assert (status, json.loads(out)["format"]) == (0, "csv")

    file = written(tmp_path, {"name": "tiny", "uri": base.as_uri(), "licence": "Apache-2.0"})
    status, out, _ = as_("ada", "base-model", "register", file, "--json")
    model = json.loads(out)
    assert (status, model["name"]) == (0, "tiny")
    assert as_("ada", "base-model", "show", model["id"])[0] == 0
    assert model["id"] in as_("ada", "base-model", "list")[1]

    assert as_("ada", "base-model", "register", file, "--name", "x")[0] == 2
    assert as_("ada", "base-model", "register", "--name", "x")[0] == 2


def test_a_deployment_and_its_documents(
    served: tuple[World, str], as_: Callable[..., tuple[int, str, str]], tmp_path: Path
):
    world, _ = served
    job = world.finished_job()
    version = job["runs"][0]["model_version"]
    assert version in as_("ada", "models")[1]
    assert version in as_("ada", "job", job["id"])[1]
    assert as_("ada", "logs", job["id"])[1] == "hello\n"
    assert as_("ada", "watch", job["id"], "--json")[0] == 0

    body = world.deployment_body(version)
    status, out, _ = as_("ada", "deploy", written(tmp_path, body), "--json")
    deployment = json.loads(out)["id"]
    assert status == 0
    assert as_("omar", "approve", deployment, "--yes")[0] == 0
    world.worker.work()
    world.worker.work()
    status, out, _ = as_("ada", "watch", deployment)
    assert (status, out) == (0, f"{deployment} is active\n")
    assert as_("ada", "card", deployment)[1].startswith("---\n")
    html = tmp_path / "record.html"
    assert as_("ada", "transparency", deployment, "--form", "html", "--out", html)[0] == 0
    assert html.read_bytes().startswith(b"<!")
    assert deployment in as_("ada", "deployments")[1]
    status, _, err = as_("ada", "ask", deployment, "Who?")
    assert (status, "does not answer" in err) == (1, True)
    assert as_("olaf", "retire", deployment)[1] == f"{deployment} is retired\n"
    assert "retired" in as_("ada", "deployment", deployment)[1]


def test_an_auditor_exports_and_never_overwrites(
    served: tuple[World, str], as_: Callable[..., tuple[int, str, str]], tmp_path: Path
):
    world, _ = served
    world.worker.publish()
    out_file = tmp_path / "evidence.zip"
    export = ("export", "--recipient", "auditor", "--out", out_file)
    assert as_("vera", *export)[0] == 0
    before = out_file.read_bytes()
    status, _, err = as_("vera", *export)
    assert (status, "--force" in err) == (2, True)
    assert out_file.read_bytes() == before
    assert as_("vera", *export, "--force", "--json")[0] == 0
    assert as_("ada", "export", "--recipient", "auditor", "--out", tmp_path / "no.zip")[0] == 1
    assert sorted(tmp_path.iterdir()) == [out_file]
    vkey = json.loads(as_("vera", "keys", "--json")[1])["vkeys"][0]
    assert as_("vera", "verify", out_file, "--vkey", vkey, "--replay")[0] == 0


# The operator


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLACET_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("PLACET_SITE_COUNTRY", "FR")
    monkeypatch.setenv("PLACET_SITE_DECLARED_ON", "2026-11-30")
    return tmp_path / "data"


def test_an_operator_starts_an_installation(house: Path, placet: Run):
    status, _, err = placet("principal", "list")
    assert (status, "placet migrate" in err) == (1, True)
    status, out, _ = placet("migrate", "--json")
    assert (status, json.loads(out)["changed"]) == (0, True)
    assert json.loads(placet("--json", "migrate")[1])["changed"] is False

    add = ("principal", "add", "--name", "Zoé Étrange", "--role", "submitter", "--team", "care")
    status, out, _ = placet(*add, "--token-days", "3", "--json")
    added = json.loads(out)
    assert status == 0
    assert added["secret"].startswith("plc_")
    status, out, _ = placet("token", "issue", added["id"])
    assert (status, "shown this once" in out) == (0, True)
    assert added["id"] in placet("principal", "list")[1]
    assert added["token"] in placet("token", "list")[1]
    assert placet("token", "revoke", added["token"])[0] == 0
    assert json.loads(placet("token", "list", "--json")[1])[0]["revoked_at"] is not None

    assert placet("token", "issue", "prn_nobody")[0] == 2
    assert placet("token", "issue", added["id"], "--days", "900")[0] == 2
    assert placet("token", "revoke", "tok_nothing")[0] == 2
    assert added["secret"].encode() not in (house / "placet.db").read_bytes()


def test_the_log_begins_with_its_start(house: Path, placet: Run):
    placet("migrate")
    placet("principal", "add", "--name", "A", "--role", "officer")
    from service.database import open_engine

    engine = open_engine(f"sqlite:///{house / 'placet.db'}")
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT kind FROM audit_entry ORDER BY seq").scalars()
        assert list(rows) == [
            *("log.started", "policy.activated", "reference.recorded"),
            "principal.created",
        ]
    engine.dispose()


def test_a_wrong_setting_is_named(house: Path, placet: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PLACET_SITE_COUNTRY", "France")
    status, _, err = placet("token", "list")
    assert status == 2
    assert err.startswith("placet: PLACET_SITE_COUNTRY: ")


def test_a_key_that_others_can_read_stops_the_operator(house: Path, placet: Run):
    placet("migrate")
    (house / "keys" / "seal.bin").chmod(0o644)
    status, _, err = placet("token", "list")
    assert (status, "chmod 600" in err) == (1, True)
    status, out, _ = placet("doctor")
    assert (status, "failed   keys" in out) == (1, True)


def test_doctor_finds_a_fit_installation_fit(house: Path, placet: Run):
    status, out, _ = placet("doctor", "--json")
    assert (status, json.loads(out)["ok"]) == (1, False)
    placet("migrate")
    status, out, _ = placet("doctor", "--json")
    checks = json.loads(out)["checks"]
    assert status == 0, checks
    assert {check["outcome"] for check in checks} <= {"ok", "warning"}
    assert not list((house / "objects" / "doctor").glob("*"))


def test_doctor_says_whether_anyone_outside_must_cosign(
    house: Path, placet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def check(text: str | None) -> tuple[str, str]:
        if text is not None:
            (tmp_path / "policy.txt").write_text(text)
            monkeypatch.setenv("PLACET_WITNESS_POLICY", str(tmp_path / "policy.txt"))
        _, out, _ = placet("doctor", "--json")
        (found,) = [each for each in json.loads(out)["checks"] if each["name"] == "witnesses"]
        return found["outcome"], found["detail"]

    placet("migrate")

    assert check(None)[0] == "warning"
    assert check("quorum none\n")[0] == "warning"
    outcome, detail = check("quorum\n")
    assert (outcome, "policy line 1" in detail) == ("failed", True)
    assert placet("migrate")[0] == 1
    (tmp_path / "policy.txt").unlink()
    assert check(None)[0] == "failed"


def test_doctor_names_broken_packs_and_what_stays_in_force(
    house: Path, placet: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    folder = tmp_path / "our-packs"
    shutil.copytree(PACKS, folder)
    monkeypatch.setenv("PLACET_POLICY_DIRS", json.dumps([str(folder)]))
    rule = folder / "eu-baseline" / "budget-limit.yaml"
    text = rule.read_text()
    rule.write_text(text.replace("expect: violated", "expect: pass", 1))
    status, _, err = placet("migrate")
    assert (status, err.count("\n")) == (1, 1)
    assert f"nothing in `{folder}` is used (tests)" in err
    rule.write_text(text)
    assert placet("migrate")[0] == 0

    rule.write_text(text.replace("family: budget", "family: 7"))
    status, out, _ = placet("doctor")

    said = {line.split()[1]: line for line in out.splitlines() if line.split()[1] != "keys"}
    assert status == 1
    assert "eu-baseline/budget-limit.yaml" in said["rules"]
    assert said["rules"].startswith("failed")
    assert "number 0" in said["policy"]
    assert "stays in force" in said["policy"]


def test_a_stranger_in_a_room_is_found(placet: Run, monkeypatch: pytest.MonkeyPatch, house: Path):
    owners = {"trainer": ["placet", "trainer"], "audit": ["placet"]}
    monkeypatch.setattr("service.commands.rooms.packages_distributions", lambda: owners)
    wrong = foreign_rooms()
    assert list(wrong) == ["trainer"]
    assert "uninstall that" in wrong["trainer"]
    status, out, _ = placet("doctor")
    assert (status, out.count("\n")) == (1, 1)
    assert placet("migrate")[0] == 1
    assert not house.exists()


def test_serve_refuses_a_database_without_schema(house: Path, placet: Run):
    status, _, err = placet("serve")
    assert (status, "--migrate" in err) == (1, True)


# What it prints


def test_nothing_that_is_printed_steers_a_terminal(capsys: pytest.CaptureFixture[str]):
    output.line("a\x1b[2Jb\r\nc\u202ed é ł")
    said = capsys.readouterr().out
    assert said == "a\\x1b[2Jb\\r\\nc\\u202ed é ł\n"


def test_progress_is_lines_in_a_file_and_a_bar_on_a_terminal():
    step = {"kind": "step", "step": 3, "num_steps": 12, "loss": 2.5, "tokens": 900, "seconds": 61}
    events = [
        {"state": "approved"},
        {"state": "running", "progress": step},
        {"state": "running", "progress": step},
        {"state": "failed", "reason_code": "deadline", "progress": step},
    ]
    plain, terminal = io.StringIO(), io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    for out in (plain, terminal):
        live = watching.Live(out)
        for event in events:
            live.show(event)
        live.close()
    bar = "[######..................] 3/12  loss 2.5000  900 tokens  61 s"
    assert plain.getvalue() == f"approved\n{bar}\nfailed (deadline)\n"
    assert terminal.getvalue() == f"approved\n\r\x1b[K{bar}\nfailed (deadline)\n"
