"""The command an auditor types, its exit status, its state file, and the one-file verifier."""

import argparse
import ast
import json
import runpy
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from audit import single
from audit.__main__ import add_commands, main, run_verify
from audit.merkle import EMPTY_ROOT
from audit.note import Checkpoint
from audit.remembered import RememberedError, load_remembered, store_remembered
from audit.report import Outcome, passed

ROOT = Path(__file__).parents[2]
ZEROS = b"A" * 43 + b"="
GOLDEN = ROOT / "tests" / "golden" / "audit"


@pytest.fixture
def export(world, tmp_path):
    """Write the export of the first `size` entries of the world's story; return its path."""
    entries = world.entries(world.story())

    def write(size=20, **options):
        path = tmp_path / f"export-{size}.zip"
        path.write_bytes(world.export(entries[:size], **options))
        return path

    return write


def run(capsys, *argv):
    code = main(["verify", *map(str, argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


class TestExitStatus:
    def test_verified_is_0(self, world, export, capsys):
        code, out, err = run(capsys, export(), "--vkey", world.vkey)

        assert (code, err) == (0, "")
        assert out.endswith("VERIFIED\n")

    def test_a_changed_byte_in_the_file_is_2(self, world, export, capsys):
        path = export()
        data = path.read_bytes()
        at = data.index(b"radiology")
        path.write_bytes(data[:at] + b"R" + data[at + 1 :])

        code, _, _ = run(capsys, path, "--vkey", world.vkey)

        assert code == 2  # no tool of ours wrote this file: the CRC-32 is wrong

    def test_a_broken_rule_is_1(self, world, tmp_path, capsys):
        path = tmp_path / "x.zip"
        path.write_bytes(world.export(world.entries([world.dispatching()])))

        code, out, _ = run(capsys, path, "--vkey", world.vkey)

        assert code == 1
        assert "entry 0: dispatch-needs-decision" in out
        assert out.endswith("TAMPERED\n")

    def test_malformed_is_2(self, world, tmp_path, capsys):
        (tmp_path / "x.zip").write_bytes(b"no zip")

        assert run(capsys, tmp_path / "x.zip", "--vkey", world.vkey)[0] == 2

    def test_no_key_is_3(self, export, capsys):
        assert run(capsys, export())[0] == 3

    def test_missing_documents_are_4(self, world, export, capsys):
        assert run(capsys, export(documents={}), "--vkey", world.vkey)[0] == 4

    @pytest.mark.parametrize(
        "options",
        [
            ["--vkey", "nonsense"],
            ["--vkey-file", "/nonexistent"],
            ["--state", "/dev/null/x"],
        ],
    )
    def test_what_cannot_be_done_as_asked_is_2(self, export, capsys, options):
        code, out, err = run(capsys, export(), *options)

        assert (code, out) == (2, "")
        assert err.startswith("placet verify: ")
        assert err.count("\n") == 1

    def test_an_absent_file_is_2(self, world, tmp_path, capsys):
        assert run(capsys, tmp_path / "absent.zip", "--vkey", world.vkey)[0] == 2
        assert run(capsys, tmp_path, "--vkey", world.vkey)[0] == 2

    def test_usage_is_2(self, capsys):
        with pytest.raises(SystemExit) as caught:
            main(["verify"])
        assert caught.value.code == 2
        assert "usage" in capsys.readouterr().err


class TestOptions:
    def test_keys_come_from_a_file_with_comments(self, world, export, tmp_path, capsys):
        (tmp_path / "keys").write_text(f"# the log\n\n{world.vkey}\r\n")

        assert run(capsys, export(), "--vkey-file", tmp_path / "keys")[0] == 0

    def test_a_key_file_that_is_no_text_is_an_error(self, export, tmp_path, capsys):
        (tmp_path / "keys").write_bytes(b"\xff\xfe")

        assert run(capsys, export(), "--vkey-file", tmp_path / "keys")[0] == 2

    def test_json(self, world, export, capsys):
        code, out, _ = run(capsys, export(), "--vkey", world.vkey, "--json")

        value = json.loads(out)
        assert (value["format"], value["exit_code"], code) == ("placet.verify-report/1", 0, 0)
        assert value["origin"] == world.origin

    def test_help_shows_examples_and_statuses(self, capsys):
        with pytest.raises(SystemExit):
            main(["verify", "--help"])
        text = capsys.readouterr().out
        assert "examples:" in text
        assert "exit status:" in text

    def test_the_text_report_is_golden(self, world, export, capsys, golden):
        _, out, _ = run(capsys, export(), "--vkey", world.vkey)

        golden(GOLDEN / "verify.txt", out.encode())


class TestState:
    def test_each_export_must_extend_the_one_before(self, world, export, tmp_path, capsys):
        state = tmp_path / "state"
        options = ["--vkey", world.vkey, "--state", state]

        assert run(capsys, export(7), *options)[0] == 0
        assert run(capsys, export(9), *options)[0] == 0
        assert load_remembered(state).size == 9
        assert run(capsys, export(9), *options)[0] == 0
        assert run(capsys, export(7), *options)[0] == 1
        assert load_remembered(state).size == 9
        assert run(capsys, export(20), *options)[0] == 0
        assert load_remembered(state).size == 20
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []

    def test_nothing_is_remembered_of_what_is_not_trusted(self, export, tmp_path, capsys):
        assert run(capsys, export(), "--state", tmp_path / "state")[0] == 3
        assert not (tmp_path / "state").exists()

    def test_another_log_is_seen(self, world, export, make_world, tmp_path, capsys):
        other = make_world(origin="example.com/log/2", seed=b"\x02")
        (tmp_path / "other.zip").write_bytes(other.export_story())
        state = ["--state", tmp_path / "state"]

        assert run(capsys, export(), "--vkey", world.vkey, *state)[0] == 0
        assert run(capsys, tmp_path / "other.zip", "--vkey", other.vkey, *state)[0] == 1

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"{}",
            b"\xff",
            b'{"format":"placet.remembered/2","origin":"o","root":"x","size":1}',
            b'{"format":"placet.remembered/1","origin":"o","root":"%s","size":0}' % ZEROS,
            b'{"format":"x","origin":"o","root":"%s","size":1}' % ZEROS,
        ],
    )
    def test_a_malformed_state_is_an_error_not_a_first_use(
        self, content, world, export, tmp_path, capsys
    ):
        state = tmp_path / "state"
        state.write_bytes(content)

        with pytest.raises(RememberedError):
            load_remembered(state)
        assert run(capsys, export(), "--vkey", world.vkey, "--state", state)[0] == 2
        assert state.read_bytes() == content

    def test_a_state_reads_back(self, tmp_path):
        head = Checkpoint("example.com/log", 0, EMPTY_ROOT)
        store_remembered(tmp_path / "state", head)

        assert load_remembered(tmp_path / "state") == head
        assert load_remembered(tmp_path / "absent") is None

    def test_a_failed_write_leaves_nothing_behind(self, tmp_path):
        (tmp_path / "state").mkdir()
        (tmp_path / "state" / "file").touch()
        with pytest.raises(OSError, match=r"state|directory"):
            store_remembered(tmp_path / "state", Checkpoint("o", 0, EMPTY_ROOT))
        assert [path.name for path in tmp_path.iterdir()] == ["state"]

    def test_an_unwritable_state_is_an_error(self, world, export, tmp_path, capsys):
        state = tmp_path / "absent" / "state"

        code, _, err = run(capsys, export(), "--vkey", world.vkey, "--state", state)

        assert code == 2
        assert "state cannot be written" in err


class TestComposition:
    def test_a_larger_command_can_add_a_replay(self, world, export):
        parser = argparse.ArgumentParser()
        verify = add_commands(parser.add_subparsers())
        verify.add_argument("--replay", action="store_true")
        arguments = parser.parse_args(["verify", str(export()), "--vkey", world.vkey, "--replay"])

        report, bundle = run_verify(arguments)
        with bundle:
            policy = bundle.document(world.document("policy"))
        report = report.with_level(passed("L8", "1 decision came out again"))

        assert policy == world.documents[world.document("policy")]
        assert report.levels[8].outcome == Outcome.PASS
        assert report.exit_code == 0

    def test_an_export_that_does_not_open_is_no_bundle(self, tmp_path):
        (tmp_path / "x.zip").write_bytes(b"")
        parser = argparse.ArgumentParser()
        add_commands(parser.add_subparsers())

        report, bundle = run_verify(parser.parse_args(["verify", str(tmp_path / "x.zip")]))

        assert (report.exit_code, bundle) == (2, None)


def loaded_modules(code):
    """Run code under `python -I` with the repository on the path; return top-level modules."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules); {code};"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, check=True)
    return set(done.stdout.decode().split())


# The last two are compiled parts of cryptography.
OURS = {"audit", "cryptography", "_cffi_backend", "_openssl"}


def foreign(modules):
    allowed = set(sys.stdlib_module_names) | OURS
    return {name for name in modules if name not in allowed}


@pytest.mark.parametrize("module", ["verify", "__main__", "single", "proof", "sealed", "bundle"])
def test_the_room_loads_the_standard_library_and_cryptography_only(module):
    assert foreign(loaded_modules(f"import audit.{module}")) == set()


class TestSingle:
    def test_no_name_is_defined_twice(self):
        names = Counter()
        for node in ast.parse(single.build()).body:
            match node:
                case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                    names.update(alias.name for alias in aliases)
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name))
                ):
                    names[name] += 1
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    names[name] += 1
                case ast.Expr() | ast.If():
                    continue
                case _:
                    pytest.fail(f"unexpected statement at line {node.lineno}")
        assert [name for name, count in names.items() if count > 1] == []

    def test_it_is_deterministic_text(self):
        assert single.build() == single.build()
        text = single.build().decode()
        assert "import audit" not in text
        assert "from audit" not in text

    def test_it_carries_every_module_that_the_verifier_loads(self):
        code = "import audit.__main__; sys.modules['audit'] = None"
        program = (
            f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code};"
            "print(*[n[6:] for n in sys.modules if n.startswith('audit.')])"
        )
        done = subprocess.run(
            [sys.executable, "-I", "-c", program], capture_output=True, check=True
        )
        assert set(done.stdout.decode().split()) == set(single.MODULES)

    def test_it_verifies_from_an_evidence_folder_full_of_traps(self, world, tmp_path):
        export = tmp_path / "export.zip"
        export.write_bytes(world.export_story(verifier=single.build()))
        with zipfile.ZipFile(export) as archive:
            archive.extract("placet_verify.py", tmp_path)
        for trap in ("audit.py", "hashlib.py", "json.py", "cryptography.py", "argparse.py"):
            (tmp_path / trap).write_text("raise SystemExit('the planted file ran')")

        def verify(*options):
            return subprocess.run(
                [sys.executable, "-I", "placet_verify.py", "export.zip", *options],
                cwd=tmp_path,
                capture_output=True,
                check=False,
            )

        good = verify("--vkey", world.vkey)
        assert (good.returncode, good.stderr) == (0, b"")
        assert good.stdout.endswith(b"VERIFIED\n")
        assert verify().returncode == 3
        export.write_bytes(export.read_bytes()[:-1])
        assert verify("--vkey", world.vkey).returncode == 2

    def test_it_loads_the_standard_library_and_cryptography_only(self, tmp_path):
        path = tmp_path / "placet_verify.py"
        path.write_bytes(single.build())
        code = f"import runpy; runpy.run_path({str(path)!r}, run_name='x')"
        assert foreign(loaded_modules(code)) == set()
        assert "audit" not in loaded_modules(code)

    def test_it_says_the_same_as_the_package(self, world, tmp_path, capsys):
        export = tmp_path / "export.zip"
        export.write_bytes(world.export_story())
        path = tmp_path / "placet_verify.py"
        path.write_bytes(single.build())

        done = subprocess.run(
            [sys.executable, "-I", path, export, "--vkey", world.vkey, "--json"],
            capture_output=True,
            check=True,
        )
        _, out, _ = run(capsys, export, "--vkey", world.vkey, "--json")

        assert json.loads(done.stdout) == json.loads(out)


def test_the_module_s_own_start_gives_the_exit_status(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["audit", "verify", "/nonexistent"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(ROOT / "audit" / "__main__.py"), run_name="__main__")
    assert caught.value.code == 2
    assert "nonexistent" in capsys.readouterr().err


def test_the_module_runs_with_m(world, tmp_path):
    path = tmp_path / "export.zip"
    path.write_bytes(world.export_story())

    done = subprocess.run(
        [sys.executable, "-m", "audit", "verify", path, "--vkey", world.vkey],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, b"")
