"""Tracking: one contract on an embedded SQLite store and on a real MLflow server."""

import json
import os
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from service.tracking import TrackedDataset, Tracking, TrackingError

AT = datetime(2026, 11, 30, 20, 0, tzinfo=UTC)
TAGS = {"placet.job": "job_1", "placet.decision": "sha256:" + "ab" * 32}
PARAMS = {"adapter.rank": "16", "optimizer.learning_rate": "0.0002"}
DATASET = TrackedDataset("ds_1", "sha256:" + "cd" * 32, "file:///data/manifest.json")
EVENTS = [
    {"seq": 1, "at": "2026-11-30T20:00:00.100Z", "kind": "start", "num_steps": 2},
    {
        "seq": 2,
        "at": "2026-11-30T20:00:01.100Z",
        "kind": "step",
        "step": 1,
        "loss": 2.5,
        "lr": 1e-4,
    },
    {"seq": 3, "at": "2026-11-30T20:00:02.100Z", "kind": "step", "step": 2, "loss": 2.25},
    {"seq": 4, "at": "2026-11-30T20:00:03.100Z", "kind": "eval", "step": 2, "loss": 2.0},
    {"seq": 5, "at": "yesterday", "kind": "step", "step": 3, "loss": 9.0},
    {"seq": 6, "at": "2026-11-30T20:00:04Z", "kind": "step", "step": 3, "loss": float("nan")},
]
SERVER_WITHIN_S = 90.0


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("mlflow")
    return f"sqlite:///{folder / 'mlflow.db'}", str(folder / "artifacts")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow-server")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    uri = f"http://127.0.0.1:{port}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"),
                *("--port", str(port), "--workers", "1"),
                *("--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"),
                *("--artifacts-destination", str(folder / "artifacts")),
            ],
            cwd=folder,
            stdout=log,
            stderr=log,
            env=os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"},
            start_new_session=True,
        )
    try:
        end = time.monotonic() + SERVER_WITHIN_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()[-2000:]
                assert time.monotonic() < end, (folder / "log").read_text()[-2000:]
                time.sleep(0.2)
        yield uri
    finally:
        os.killpg(process.pid, 9)
        process.wait()


@pytest.fixture(params=["sqlite", "server"], scope="module")
def tracking(request) -> Tracking:
    if request.param == "server":
        return Tracking(request.getfixturevalue("server"))
    uri, artifacts = request.getfixturevalue("database")
    return Tracking(uri, artifact_root=artifacts)


def start(tracking: Tracking, run_id: str, **changes) -> str:
    given = {"experiment": "team-a", "tags": TAGS, "params": PARAMS, "dataset": DATASET} | changes
    return tracking.start_run(run_id=run_id, **given)


def quoted(text: str) -> str:
    return text.replace("[", "_").replace("]", "")


class TestContract:
    def test_a_run_is_made_once_and_found_by_our_id(self, tracking):
        first = start(tracking, "run_once")

        assert start(tracking, "run_once") == first
        assert start(tracking, "run_other") != first

        run = tracking._client().get_run(first)
        assert run.data.tags["placet.run_id"] == "run_once"
        assert run.data.tags["placet.job"] == "job_1"
        assert run.data.params == PARAMS
        (entry,) = run.inputs.dataset_inputs
        assert entry.dataset.name == "ds_1"
        assert {tag.key: tag.value for tag in entry.tags} == {"placet.digest": DATASET.digest}

    def test_a_crash_after_the_creation_is_mended(self, tracking):
        bare = start(tracking, "run_bare", params={}, dataset=None)

        assert start(tracking, "run_bare") == bare

        run = tracking._client().get_run(bare)
        assert run.data.params == PARAMS
        assert len(run.inputs.dataset_inputs) == 1

    def test_a_deleted_run_is_not_made_anew(self, tracking):
        first = start(tracking, "run_deleted")
        tracking._client().delete_run(first)

        assert start(tracking, "run_deleted") == first
        with pytest.raises(TrackingError, match="cannot log events"):
            tracking.log_events(first, EVENTS)
        assert json.loads(tracking.snapshot(first))["lifecycle"] == "deleted"

    def test_events_become_curves_and_writing_them_again_changes_nothing(self, tracking):
        run = start(tracking, "run_events")

        assert tracking.log_events(run, EVENTS) == 4
        assert tracking.log_events(run, EVENTS) == 4
        assert tracking.log_events(run, []) == 0

        def history(name):
            found = tracking._client().get_metric_history(run, name)
            return sorted((point.step, point.value) for point in found)

        assert history("loss") == [(1, 2.5), (2, 2.25)]
        assert history("lr") == [(1, 1e-4)]
        assert history("eval_loss") == [(2, 2.0)]

    def test_a_long_curve_goes_in_batches(self, tracking):
        run = start(tracking, "run_long")
        events = [
            {"kind": "step", "at": "2026-11-30T20:00:00Z", "step": step, "loss": 1.0 / (step + 1)}
            for step in range(1200)
        ]

        assert tracking.log_events(run, events) == 1200
        assert len(tracking._client().get_metric_history(run, "loss")) == 1200

    def test_finish_closes_with_figures_and_files(self, tracking, tmp_path):
        (tmp_path / "adapter").mkdir()
        (tmp_path / "adapter" / "config.json").write_text("{}")
        run = start(tracking, "run_finish")

        for _ in range(2):
            tracking.finish(
                run,
                status="FINISHED",
                metrics={"eval_loss_after": "1.250", "perplexity": "3.49"},
                at=AT,
                artefacts=tmp_path,
            )

        stored = tracking._client().get_run(run)
        assert stored.info.status == "FINISHED"
        assert stored.info.end_time == int(AT.timestamp() * 1000)
        assert stored.data.metrics == {"eval_loss_after": 1.25, "perplexity": 3.49}
        assert [item.path for item in tracking._client().list_artifacts(run)] == ["adapter"]

    @pytest.mark.parametrize("source", ["file:///srv/runs/run_1", "s3://ward/runs/run_1"])
    def test_a_model_version_is_registered_once(self, tracking, source):
        scheme = source.partition(":")[0]
        name, run = f"help-desk-{scheme}", start(tracking, f"run_{scheme}")
        tags = {"placet.model_version": "mv_1", "placet.run_id": f"run_{scheme}"}

        first = tracking.register_model(name=name, source=source, mlflow_run_id=run, tags=tags)
        again = tracking.register_model(name=name, source=source, mlflow_run_id=run, tags=tags)
        other = tracking.register_model(
            name=name,
            source=source,
            mlflow_run_id=run,
            tags=tags | {"placet.model_version": "mv_2"},
        )

        assert (first, again, other) == ("1", "1", "2")
        stored = tracking._client().get_model_version(name, "1")
        assert stored.tags == tags | {"placet.source": source}
        assert stored.run_id == run

    def test_a_version_without_our_id_is_refused(self, tracking):
        with pytest.raises(TrackingError, match=r"placet\.model_version"):
            tracking.register_model(name="m", source="s3://b/x", mlflow_run_id="x", tags={})

    @pytest.mark.parametrize(
        "edit",
        [
            lambda client, run: client.set_tag(run, "placet.job", "job_2"),
            lambda client, run: client.set_tag(run, "note", "x"),
            lambda client, run: client.log_metric(run, "eval_loss_after", 0.1, step=9),
            lambda client, run: client.log_param(run, "added", "1"),
            lambda client, run: client.delete_tag(run, "placet.job"),
            lambda client, run: client.set_terminated(run, "FAILED"),
            lambda client, run: client.delete_run(run),
        ],
        ids=["tag", "note", "metric", "param", "untag", "status", "delete"],
    )
    def test_every_edit_changes_the_snapshot(self, tracking, edit, request):
        run = start(tracking, quoted(request.node.name))
        tracking.finish(run, status="FINISHED", metrics={"eval_loss_after": "1.25"}, at=AT)
        before = tracking.snapshot(run)
        assert tracking.snapshot(run) == before

        edit(tracking._client(), run)

        assert tracking.snapshot(run) != before

    def test_a_snapshot_is_canonical_json(self, tracking):
        run = start(tracking, "run_snapshot")
        tracking.finish(run, status="FAILED", metrics={"loss": "0.1"}, at=AT)
        seen = json.loads(tracking.snapshot(run))

        assert seen["format"] == "placet.tracking-snapshot/1"
        assert seen["status"] == "FAILED"
        assert seen["metrics"] == {"loss": "0.1"}
        assert seen["params"] == PARAMS
        assert seen["tags"]["placet.run_id"] == "run_snapshot"

    def test_every_failure_is_a_tracking_error(self, tracking):
        calls = (
            lambda: tracking.snapshot("absent"),
            lambda: tracking.log_events("absent", EVENTS),
            lambda: tracking.finish("absent", status="FINISHED", metrics={}, at=AT),
            lambda: tracking.finish("absent", status="FINISHED", metrics={"a": "many"}, at=AT),
            lambda: start(tracking, "it's"),
            lambda: start(tracking, "run_p", params={"bad\nname": "x"}),
            lambda: tracking.register_model(
                name="it's",
                source="s3://b/x",
                mlflow_run_id="x",
                tags={"placet.model_version": "m"},
            ),
        )
        for call in calls:
            with pytest.raises(TrackingError, match="then try again"):
                call()


@pytest.mark.parametrize(
    "uri",
    ["http://127.0.0.1:9", "sqlite:////proc/nowhere/mlflow.db", "gopher://x"],
)
def test_an_unusable_uri_is_a_tracking_error(uri, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

    with pytest.raises(TrackingError, match="cannot read `x`"):
        Tracking(uri).snapshot("x")


def test_importing_us_does_not_import_mlflow_and_using_it_prints_nothing(tmp_path):
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from service.tracking import Tracking
assert "mlflow" not in sys.modules
tracking = Tracking("sqlite:///{tmp_path}/mlflow.db", artifact_root="{tmp_path}/artifacts")
tracking.start_run(experiment="a", run_id="run_1", tags={{}}, params={{}})
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path
    )

    assert done.stderr == ""
    assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlflow.db"]
