"""One contract for the local engine and the fake, then what only real processes can do wrong."""

import importlib.util
import json
import os
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fakes import FakeEngine

from service.engines import process
from service.engines.local import LocalEngine, RunPaths, trainer_command
from service.engines.process import Phase, ProcessError
from service.engines.protocol import (
    EngineError,
    Observation,
    RequestConflictError,
    RunRequest,
    RunState,
    UnknownRunError,
)
from service.permits import Issuer

REQUEST = RunRequest(
    run_id="run_1",
    spec=b'{"format":"placet.train/1"}',
    permit="a.b.c",
    output_uri="file:///srv/out/run_1",
    environment={"AWS_SECRET_ACCESS_KEY": "storage-secret"},
)

# A trainer that counts its starts, obeys a file and leaves a checkpoint on SIGTERM.
TRAINER = """
import json, os, signal, sys, time
scratch = sys.argv[sys.argv.index("--scratch") + 1]
with open(scratch + "/starts", "a") as stream:
    stream.write("x")
if b"deaf" in open(sys.argv[sys.argv.index("--spec") + 1], "rb").read():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
with open(scratch + "/environment.json", "w") as stream:
    json.dump(dict(os.environ), stream)
print("ready", flush=True)
while True:
    try:
        how = open(scratch + "/end").read()
    except FileNotFoundError:
        time.sleep(0.01)
        continue
    if how.startswith("-"):
        os.kill(os.getpid(), int(how[1:]))
    sys.exit(int(how))
"""


def until(look, wanted, within_s=20.0):
    end = time.monotonic() + within_s
    while True:
        seen = look()
        if wanted(seen):
            return seen
        assert time.monotonic() < end, f"still {seen!r}"
        time.sleep(0.01)


class LocalWorld:
    """A local engine whose trainer is a small script, with the controls that the fake has."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.root = folder / "runs"
        self.now = 1000.0
        (folder / "issuer.pem").write_bytes(b"public key")
        (folder / "trainer.py").write_text(TRAINER)
        self.folder = folder
        self.engine = self.restart()

    def restart(self) -> LocalEngine:
        self.engine = LocalEngine(
            self.root,
            self.folder / "issuer.pem",
            grace_s=30.0,
            clock=lambda: self.now,
            command=self._command,
        )
        return self.engine

    def _command(self, paths: RunPaths) -> list[str]:
        return [
            *(sys.executable, "-I", "-S", str(self.folder / "trainer.py")),
            *("--spec", str(paths.spec), "--scratch", str(paths.scratch)),
        ]

    def scratch(self, ref: str) -> Path:
        return self.root / ref.removeprefix("local:") / "scratch"

    def wait_ready(self, ref: str) -> None:
        until(lambda: self.engine.logs(ref, 0), lambda log: b"ready" in log)

    def end(self, ref: str, code: int) -> None:
        (self.scratch(ref) / "end.new").write_text(str(code))
        (self.scratch(ref) / "end.new").rename(self.scratch(ref) / "end")

    def write(self, ref: str, *, log: bytes = b"", events: bytes = b"") -> None:
        for path, data in (
            (self.root / ref.removeprefix("local:") / "log.txt", log),
            (self.scratch(ref) / "events.jsonl", events),
        ):
            with path.open("ab") as stream:
                stream.write(data)

    def num_starts(self, ref: str) -> int:
        self.wait_ready(ref)
        return len((self.scratch(ref) / "starts").read_text())

    def kill_all(self) -> None:
        for folder in process.folders(self.root):
            process.stop(folder, now=1e12, grace_s=0.0)


class FakeWorld:
    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.end = self.engine.end
        self.write = self.engine.write

    def restart(self) -> FakeEngine:
        return self.engine

    def wait_ready(self, ref: str) -> None:
        assert self.engine.observe(ref).state is RunState.RUNNING

    def num_starts(self, ref: str) -> int:
        return self.engine.runs[ref.removeprefix("fake:")].num_starts


@pytest.fixture
def local(tmp_path):
    world = LocalWorld(tmp_path)
    yield world
    world.kill_all()


@pytest.fixture(params=["local", "fake"])
def world(request):
    return request.getfixturevalue("local") if request.param == "local" else FakeWorld()


def final(world, ref: str) -> Observation:
    return until(lambda: world.engine.observe(ref), lambda seen: seen.state.is_final)


class TestContract:
    def test_a_run_is_found_only_after_it_was_submitted(self, world):
        assert world.engine.find("run_1") is None

        ref = world.engine.submit(REQUEST)

        assert world.engine.find("run_1") == ref
        assert world.engine.find("run_2") is None
        assert list(world.engine.list_owned()) == [("run_1", ref)]

    def test_a_double_submit_starts_one_run(self, world):
        with ThreadPoolExecutor(6) as pool:
            refs = set(pool.map(world.engine.submit, [REQUEST] * 6))

        assert len(refs) == 1
        assert world.num_starts(refs.pop()) == 1

    @pytest.mark.parametrize(
        "change",
        [{"spec": b"{}"}, {"permit": "x.y.z"}, {"output_uri": "file:///elsewhere"}],
        ids=["spec", "permit", "output"],
    )
    def test_the_same_run_with_other_bytes_is_refused(self, world, change):
        ref = world.engine.submit(REQUEST)

        with pytest.raises(RequestConflictError):
            world.engine.submit(replace(REQUEST, **change))
        assert world.num_starts(ref) == 1

    @pytest.mark.parametrize(
        ("code", "state"), [(0, "succeeded"), (1, "failed"), (2, "refused"), (75, "interrupted")]
    )
    def test_the_exit_status_becomes_a_state(self, world, code, state):
        ref = world.engine.submit(REQUEST)
        world.wait_ready(ref)
        world.end(ref, code)

        assert final(world, ref) == Observation(RunState(state), exit_code=code)

    def test_a_submit_after_the_end_starts_nothing(self, world):
        ref = world.engine.submit(REQUEST)
        world.wait_ready(ref)
        world.end(ref, 0)
        final(world, ref)

        assert world.engine.submit(REQUEST) == ref
        assert world.num_starts(ref) == 1
        assert final(world, ref).state is RunState.SUCCEEDED

    def test_a_cancelled_run_is_cancelled_however_often_it_is_asked(self, world):
        ref = world.engine.submit(REQUEST)
        world.wait_ready(ref)

        world.engine.cancel(ref)
        world.engine.cancel(ref)

        assert final(world, ref).state is RunState.CANCELLED
        world.engine.cancel(ref)
        assert final(world, ref).state is RunState.CANCELLED

    def test_a_run_that_ended_before_the_cancel_keeps_its_end(self, world):
        ref = world.engine.submit(REQUEST)
        world.wait_ready(ref)
        world.end(ref, 0)
        final(world, ref)

        world.engine.cancel(ref)

        assert world.engine.observe(ref).state is RunState.SUCCEEDED

    def test_logs_and_events_are_read_by_offset(self, world):
        ref = world.engine.submit(REQUEST)
        world.wait_ready(ref)
        before = len(world.engine.logs(ref, 0))
        world.write(ref, log=b"one\ntwo\n", events=b'{"seq":1}\n{"se')

        assert world.engine.logs(ref, before) == b"one\ntwo\n"
        assert world.engine.logs(ref, before + 4) == b"two\n"
        assert world.engine.logs(ref, before + 8) == b""
        assert world.engine.events(ref, 0) == b'{"seq":1}\n{"se'
        assert world.engine.events(ref, 10) == b'{"se'

    @pytest.mark.parametrize(
        "ref", ["", "local:run_9", "fake:run_9", "local:../x", "local:", "ovh:1", "local:a/b"]
    )
    def test_unknown_references_are_refused(self, world, ref):
        for call in (
            world.engine.observe,
            world.engine.cancel,
            lambda ref: world.engine.logs(ref, 0),
        ):
            with pytest.raises(UnknownRunError):
                call(ref)

    def test_secrets_do_not_show_in_the_request(self):
        assert "storage-secret" not in repr(REQUEST)
        assert "a.b.c" not in repr(REQUEST)


class TestFakeFaults:
    def test_a_lost_answer_is_mended_by_find(self):
        engine = FakeEngine(loses_next_answer=True)

        with pytest.raises(EngineError, match="find"):
            engine.submit(REQUEST)

        assert engine.find("run_1") == engine.submit(REQUEST) == "fake:run_1"

    def test_a_transport_error_is_unknown_and_not_an_end(self):
        engine = FakeEngine()
        ref = engine.submit(REQUEST)
        engine.is_unreachable = True

        assert engine.observe(ref).state is RunState.UNKNOWN
        assert not engine.observe(ref).state.is_final
        with pytest.raises(EngineError):
            engine.find("run_1")

        engine.is_unreachable = False
        assert engine.observe(ref).state is RunState.RUNNING

    def test_a_deaf_run_goes_on(self):
        engine = FakeEngine()
        ref = engine.submit(REQUEST)
        engine.runs["run_1"].is_deaf = True
        engine.cancel(ref)
        assert engine.observe(ref).state is RunState.RUNNING
        engine.lose(ref)
        assert engine.observe(ref) == Observation(RunState.FAILED, reason="lost")


class TestEnvironment:
    def test_the_trainer_sees_no_secret_of_the_service(self, local, monkeypatch):
        monkeypatch.setenv("PLACET_S3_SECRET_KEY", "service-secret")
        monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
        monkeypatch.setenv("PYTHONPATH", "/planted")

        ref = local.engine.submit(REQUEST)
        local.wait_ready(ref)
        seen = json.loads((local.scratch(ref) / "environment.json").read_text())

        assert "service-secret" not in seen.values()
        assert not {"DATABASE_URL", "PYTHONPATH", "PLACET_S3_SECRET_KEY"} & set(seen)
        assert seen["AWS_SECRET_ACCESS_KEY"] == "storage-secret"
        assert seen["HF_HUB_OFFLINE"] == "1"
        assert seen["PLACET_RUN_ID"] == "run_1"
        assert seen["HOME"] == str(local.scratch(ref))

    def test_nothing_secret_lies_in_the_folder_and_only_its_owner_may_look(self, local):
        ref = local.engine.submit(REQUEST)
        local.wait_ready(ref)
        (local.scratch(ref) / "environment.json").unlink()
        files = [path for path in local.root.rglob("*") if path.is_file()]

        assert not any(b"storage-secret" in path.read_bytes() for path in files)
        assert stat.S_IMODE(local.root.stat().st_mode) == 0o700

    def test_our_own_trainer_is_run_whatever_lies_beside(self, tmp_path):
        (tmp_path / "trainer.py").write_text("raise SystemExit(99)")
        (tmp_path / "json.py").write_text("raise SystemExit(98)")
        paths = RunPaths("run_1", "file:///o", tmp_path, tmp_path, tmp_path, tmp_path)
        command = trainer_command(Path(sys.executable), 1)(paths)
        probe = "print(__import__('importlib.util').util.find_spec('trainer').origin)"
        command = [part.replace("runpy.run_module", "(lambda *_, **__:0)") for part in command[:6]]
        command[4] += f"; {probe}"

        done = subprocess.run(
            command,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": "."},
        )

        assert Path(done.stdout.strip()) == Path(__file__).parents[2] / "trainer" / "__init__.py"


def test_the_real_trainer_refuses_a_permit_that_is_none(tmp_path):
    if importlib.util.find_spec("trainer.__main__") is None:
        pytest.skip("the trainer has no command line here")
    (tmp_path / "issuer.pem").write_bytes(Issuer(Ed25519PrivateKey.generate()).public_pem())
    engine = LocalEngine(tmp_path / "runs", tmp_path / "issuer.pem")
    ref = engine.submit(replace(REQUEST, output_uri=(tmp_path / "out").as_uri()))

    seen = until(lambda: engine.observe(ref), lambda seen: seen.state.is_final, within_s=60)

    assert seen == Observation(RunState.REFUSED, exit_code=2), engine.logs(ref, 0)
    assert b'"kind":"refused"' in engine.events(ref, 0)


class TestProcesses:
    def test_a_signal_is_a_failure_with_its_number(self, local):
        ref = local.engine.submit(REQUEST)
        local.wait_ready(ref)
        local.end(ref, -9)

        assert final(local, ref) == Observation(RunState.FAILED, reason="signal 9")

    def test_another_exit_status_is_a_failure_that_names_it(self, local):
        ref = local.engine.submit(REQUEST)
        local.wait_ready(ref)
        local.end(ref, 42)

        assert final(local, ref) == Observation(
            RunState.FAILED, exit_code=42, reason="exit status 42"
        )

    def test_a_program_that_cannot_start_is_a_failure(self, local, tmp_path):
        local._command = lambda _paths: [str(tmp_path / "absent")]
        ref = local.restart().submit(REQUEST)

        assert final(local, ref) == Observation(RunState.FAILED, reason="No such file or directory")

    def test_a_deaf_run_is_killed_after_the_grace_period_only(self, local):
        ref = local.engine.submit(replace(REQUEST, spec=b"deaf"))
        local.wait_ready(ref)

        local.engine.cancel(ref)
        local.now += 29.0
        local.engine.cancel(ref)
        time.sleep(0.1)
        assert local.engine.observe(ref) == Observation(RunState.RUNNING, reason="stopping")

        local.now += 1.0
        local.restart().cancel(ref)
        assert final(local, ref) == Observation(RunState.CANCELLED, reason="signal 9")

    def test_a_crash_between_folder_and_launch_is_mended_by_submit(self, local, monkeypatch):
        def crash(*_arguments: object, **_named: object) -> None:
            raise ProcessError("power cut")

        with monkeypatch.context() as patch:
            patch.setattr(process, "launch", crash)
            with pytest.raises(EngineError, match="power cut"):
                local.engine.submit(REQUEST)

        assert local.engine.find("run_1") is None
        assert local.engine.observe("local:run_1").state is RunState.QUEUED
        ref = local.restart().submit(REQUEST)
        assert local.num_starts(ref) == 1

    def test_a_crash_before_the_folder_is_complete_leaves_no_run(self, local):
        (local.root / ".new-half").mkdir()

        assert list(local.engine.list_owned()) == []
        assert local.engine.find("run_1") is None

    def test_a_run_cancelled_before_its_launch_never_starts(self, local, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(process, "launch", lambda *_arguments, **_named: None)
            ref = local.engine.submit(REQUEST)
        local.engine.cancel(ref)
        assert local.engine.observe(ref).state is RunState.CANCELLED

        local.engine.submit(REQUEST)

        assert final(local, ref).state is RunState.CANCELLED
        assert not (local.scratch(ref) / "starts").exists()

    def test_a_killed_supervisor_leaves_a_run_that_is_watched_and_then_lost(self, local):
        ref = local.engine.submit(REQUEST)
        local.wait_ready(ref)
        folder = local.root / "run_1"
        os.kill(json.loads((folder / "supervisor.json").read_text())["pid"], signal.SIGKILL)
        time.sleep(0.05)

        assert local.engine.observe(ref).state is RunState.RUNNING
        local.engine.submit(REQUEST)
        assert local.num_starts(ref) == 1

        local.end(ref, 0)
        assert final(local, ref) == Observation(RunState.FAILED, reason="lost")

    def test_an_orphan_can_still_be_cancelled(self, local):
        ref = local.engine.submit(REQUEST)
        local.wait_ready(ref)
        folder = local.root / "run_1"
        os.kill(json.loads((folder / "supervisor.json").read_text())["pid"], signal.SIGKILL)

        local.engine.cancel(ref)

        assert final(local, ref) == Observation(RunState.CANCELLED, reason="lost")

    @pytest.mark.parametrize("change", [{"start_ticks": 1}, {"boot_id": "another boot"}])
    def test_another_process_with_the_same_number_is_not_ours(self, local, change):
        ref = local.engine.submit(REQUEST)
        local.wait_ready(ref)
        local.end(ref, 0)
        final(local, ref)
        folder = local.root / "run_1"
        (folder / "exit.json").unlink()
        alive = subprocess.Popen(["sleep", "60"], start_new_session=True)
        ours = json.loads((folder / "supervisor.json").read_text())
        (folder / "supervisor.json").write_text(json.dumps(ours | {"pid": alive.pid} | change))
        try:
            assert local.engine.observe(ref) == Observation(RunState.FAILED, reason="lost")
            local.now += 1000
            local.engine.cancel(ref)
            assert alive.poll() is None
        finally:
            alive.kill()
            alive.wait()

    def test_what_the_trainer_leaves_behind_ends_with_it(self, local, tmp_path):
        script = tmp_path / "leaver.py"
        script.write_text(
            "import subprocess\nprint(subprocess.Popen(['sleep', '60']).pid, flush=True)"
        )
        local._command = lambda _paths: [sys.executable, "-I", str(script)]
        ref = local.restart().submit(REQUEST)
        assert final(local, ref).state is RunState.SUCCEEDED
        left = int(local.engine.logs(ref, 0))

        until(lambda: process._process(left), lambda found: found is None)

    def test_a_disk_that_is_gone_is_unknown_and_not_an_end(self, local):
        ref = local.engine.submit(REQUEST)
        local.wait_ready(ref)
        away = local.root.rename(local.root.with_name("unmounted"))
        try:
            assert local.engine.observe(ref).state is RunState.UNKNOWN
            for call in (local.engine.find, local.engine.cancel):
                with pytest.raises(EngineError):
                    call(ref.removeprefix("local:") if call == local.engine.find else ref)
        finally:
            away.rename(local.root)
        assert local.engine.observe(ref).state is RunState.RUNNING

    def test_a_torn_state_file_is_unknown_and_not_an_end(self, local):
        ref = local.engine.submit(REQUEST)
        local.wait_ready(ref)
        path = local.root / "run_1" / "supervisor.json"
        whole = path.read_text()
        for torn in ("", "{", "[]", "{}", '{"pid":'):
            path.write_text(torn)
            assert local.engine.observe(ref).state is RunState.UNKNOWN
        path.write_text(whole)
        assert local.engine.observe(ref).state is RunState.RUNNING

    def test_a_run_outlives_the_service_that_was_killed_and_the_next_one_adopts_it(self, local):
        script = f"""
import sys
from pathlib import Path
sys.path[:0] = {[str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]!r}
from service.engines.local import LocalEngine
from service.engines.protocol import RunRequest
folder = Path({str(local.folder)!r})
engine = LocalEngine(folder / "runs", folder / "issuer.pem", command=lambda paths: [
    sys.executable, "-I", "-S", str(folder / "trainer.py"),
    "--spec", str(paths.spec), "--scratch", str(paths.scratch)])
print(engine.submit(RunRequest("run_1", {REQUEST.spec!r}, "a.b.c", {REQUEST.output_uri!r})),
      flush=True)
sys.stdin.read()
"""
        service = subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        ref = service.stdout.readline().decode().strip()
        os.killpg(service.pid, signal.SIGKILL)
        service.wait()
        service.stdin.close()
        service.stdout.close()

        adopting = local.restart()

        assert adopting.find("run_1") == ref == "local:run_1"
        assert adopting.observe(ref).state is RunState.RUNNING
        local.wait_ready(ref)
        local.end(ref, 0)
        assert final(local, ref) == Observation(RunState.SUCCEEDED, exit_code=0)

    def test_no_zombie_is_left_to_the_service(self, local):
        ref = local.engine.submit(REQUEST)
        local.wait_ready(ref)
        local.end(ref, 0)
        final(local, ref)

        stats = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/stat") if path.exists()]
        fields = [stat.rpartition(b")")[2].split() for stat in stats]
        ours = [state for state, parent, *_ in fields if int(parent) == os.getpid()]
        assert b"Z" not in ours

    def test_an_id_that_is_a_path_is_refused(self, local):
        for run_id in ("", "../x", "a/b", ".new-1", "a" * 65, "run 1"):
            with pytest.raises(UnknownRunError):
                local.engine.submit(replace(REQUEST, run_id=run_id))

    def test_a_missing_issuer_key_starts_nothing(self, local):
        (local.folder / "issuer.pem").unlink()

        with pytest.raises(EngineError, match="cannot submit"):
            local.engine.submit(REQUEST)
        assert list(local.engine.list_owned()) == []


class TestProcessModule:
    def test_a_folder_is_made_once(self, tmp_path):
        assert process.create(tmp_path / "x", {"a": b"1", "d/b": b"2"})
        assert not process.create(tmp_path / "x", {"a": b"3"})
        assert (tmp_path / "x" / "a").read_bytes() == b"1"
        assert [path.name for path in tmp_path.iterdir()] == ["x"]
        assert process.status(tmp_path / "x").phase is Phase.IDLE

    def test_a_disk_that_refuses_is_an_error(self, tmp_path):
        with pytest.raises(ProcessError):
            process.create(tmp_path / "absent" / "x", {})
        with pytest.raises(ProcessError):
            process.status(tmp_path / "absent")
        with pytest.raises(ProcessError):
            list(process.folders(tmp_path / "absent"))

    def test_a_supervisor_that_cannot_run_is_an_error(self, tmp_path):
        process.create(tmp_path / "x", {})
        for python in ("/nonexistent", "/bin/false"):
            with pytest.raises(ProcessError):
                process.launch(
                    tmp_path / "x", ["x"], directory=tmp_path, environment={}, python=Path(python)
                )
        assert process.status(tmp_path / "x").phase is Phase.IDLE
