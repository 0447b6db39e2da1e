"""The `placet policy` commands."""

import argparse
import json
import runpy
import subprocess
import sys

import pytest

from policies.__main__ import add_commands, main
from policies.load import PACKS


def test_the_shipped_rules_pass_their_tests(capsys):
    assert main(["test"]) == 0
    assert "0 failures" in capsys.readouterr().out


def test_lint_prints_digests(capsys, policy):
    assert main(["lint", "--packs", str(PACKS)]) == 0
    assert policy.digest in capsys.readouterr().out
    assert main(["lint", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["policy"] == policy.digest


def test_show_lists_and_shows(capsys, policy):
    assert main(["show", "--language", "fr"]) == 0
    assert "Quatre GPU au plus" in capsys.readouterr().out
    assert main(["show", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(policy.rules)
    assert main(["show", "scope.gpus"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "scope.gpus"
    assert main(["show", "none"]) == 2
    assert "no rule `none`" in capsys.readouterr().err


def test_decide_explains(capsys, tmp_path, base):
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(base("public")), "utf-8")
    at = ["--at", "2026-11-30T12:00:00Z"]

    assert main(["decide", str(path), *at, "--site-country", "FR"]) == 0
    assert capsys.readouterr().out.startswith("require_approval (1 officer)\n")
    assert main(["decide", str(path), *at, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "deny"
    letter = ["--letter", "--language", "fr", "--site-country", "FR"]
    assert main(["decide", str(path), *at, *letter]) == 0
    assert capsys.readouterr().out.startswith("Décision          Approbation requise\n")


def test_decide_reads_yaml_and_refuses_what_is_not(capsys, tmp_path):
    path = tmp_path / "facts.yaml"
    path.write_text("format: placet.facts/1\nstage: train\n", "utf-8")

    assert main(["decide", str(path), "--at", "2026-11-30T12:00:00Z"]) == 0
    assert capsys.readouterr().out.startswith("deny\n")
    assert main(["decide", str(path), "--at", "today"]) == 2
    assert main(["decide", str(tmp_path / "none.yaml"), "--at", "2026-11-30T12:00:00Z"]) == 2


@pytest.fixture
def own_pack(tmp_path):
    for name in ("pack.yaml", "bases.yaml", "scope-gpus.yaml"):
        (tmp_path / name).write_bytes((PACKS / "eu-baseline" / name).read_bytes())
    return tmp_path


def test_a_failing_or_missing_test_fails_the_command(capsys, own_pack):
    path = own_pack / "scope-gpus.yaml"
    text = path.read_text("utf-8")
    path.write_text(text.replace('"/compute/gpus": 4}', '"/compute/gpus": 5}'), "utf-8")

    assert main(["test", "--packs", str(own_pack)]) == 1
    assert "FAIL  scope.gpus  four: expected pass, got violated" in capsys.readouterr().out

    lines = [line for line in text.splitlines() if "expect: unknown" not in line]
    path.write_text("\n".join(lines), "utf-8")
    assert main(["test", "--packs", str(own_pack), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["uncovered"] == [["scope.gpus", "unknown"]]
    assert main(["test", "--packs", str(own_pack)]) == 1
    assert "no test expects `unknown`" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "detail"),
    [
        ('at: ["/compute/gpus"]', 'at: ["/compute"]', "failed at"),
        ('remove: ["/compute/gpus"]', 'remove: ["/nowhere/x"]', "malformed"),
        ('"/compute/gpus": 4}', '"/compute/gpus": "4"}', "break the contract"),
        ('"/compute/gpus": 4}', '"/compute/x/y": 4}', "malformed"),
    ],
)
def test_a_wrong_case_says_what_is_wrong(capsys, own_pack, old, new, detail):
    path = own_pack / "scope-gpus.yaml"
    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")

    assert main(["test", "--packs", str(own_pack)]) == 1
    assert detail in capsys.readouterr().out


def test_a_pack_without_any_test_fails(capsys, own_pack):
    path = own_pack / "scope-gpus.yaml"
    path.write_text(path.read_text("utf-8").partition("tests:")[0] + "tests: []\n", "utf-8")

    assert main(["test", "--packs", str(own_pack)]) == 1
    assert "0 cases" in capsys.readouterr().out


def test_a_refused_file_is_named(capsys, own_pack):
    (own_pack / "scope-gpus.yaml").write_text("a: &x 1", "utf-8")

    assert main(["lint", "--packs", str(own_pack)]) == 2
    assert "scope-gpus.yaml: line 1: anchor" in capsys.readouterr().err


def test_the_commands_mount_in_a_larger_one(capsys):
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())

    arguments = parser.parse_args(["policy", "show", "scope.gpus"])

    assert arguments.handler(arguments) == 0


def test_the_module_runs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["policies", "show", "scope.gpus"])
    monkeypatch.delitem(sys.modules, "policies.__main__")

    with pytest.raises(SystemExit) as ended:
        runpy.run_module("policies", run_name="__main__")

    assert ended.value.code == 0


def test_the_gate_loads_nothing_of_the_service():
    text = (
        "import sys, policies.gate, policies.load, policies.render;"
        "print([m for m in ('service', 'trainer', 'model_cards', 'audit.verify', 'cryptography',"
        " 'sqlmodel', 'fastapi', 'torch') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
