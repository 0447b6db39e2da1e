"""The service dies without warning while a job trains; the run does not, and is adopted."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tiny_base import write_tiny_base

from audit.verify import verify
from service.demo.stage import DATA
from service.installation import Installation
from service.principals import Role, create_principal, issue_token

ROOT = Path(__file__).resolve().parents[2]


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def _service(environment: dict[str, str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "service.cli", "serve"],
            cwd=ROOT,
            env=environment,
            stdout=out,
            stderr=out,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _until(what: str, check: Callable[[], Any], *, seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            found = check()
        except httpx.TransportError:
            found = None
        if found:
            return found
        time.sleep(0.1)
    pytest.fail(f"not within {seconds:.0f} s: {what}")


def _token(installation: Installation, role: Role, teams: list[str]) -> str:
    with installation.transactions.write() as tx:
        principal = create_principal(
            tx, name=f"the {role}", kind="human", roles=[role], teams=teams
        )
        _, secret = issue_token(tx, principal_id=principal.id, clock=installation.clock, days=1)
    return secret


class _House:
    """A running service as its three users see it."""

    def __init__(self, port: int, tokens: dict[Role, str]) -> None:
        self._tokens = tokens
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)

    def get(self, who: Role, path: str) -> Any:
        answer = self._http.get(path, headers={"Authorization": f"Bearer {self._tokens[who]}"})
        answer.raise_for_status()
        return answer.json()

    def post(self, who: Role, path: str, body: dict[str, Any], **headers: str) -> Any:
        sent = {
            "Authorization": f"Bearer {self._tokens[who]}",
            "Idempotency-Key": os.urandom(8).hex(),
            **headers,
        }
        answer = self._http.post(path, json=body, headers=sent)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def close(self) -> None:
        self._http.close()

    def is_ready(self) -> bool:
        return self._http.get("/healthz").status_code == 200

    def bundle(self, path: str) -> bytes:
        token = self._tokens[Role.AUDITOR]
        return self._http.get(path, headers={"Authorization": f"Bearer {token}"}).content


def _approved_job(house: _House, folder: Path) -> str:
    """Register, submit and approve a fine-tune of the tiny base that takes some seconds."""
    dataset = house.post(
        Role.SUBMITTER,
        "/v1/datasets",
        {
            "name": "helpdesk",
            "team": "compliance",
            "uri": DATA.as_uri(),
            "licence": "Apache-2.0",
            "categories": ["public"],
            "data_subject_countries": [],
        },
    )
    base = house.post(
        Role.SUBMITTER,
        "/v1/base-models",
        {
            "name": "tiny",
            "uri": (folder / "tiny").as_uri(),
            "licence": "Apache-2.0",
            "licence_allows_fine_tuning": True,
            "training_flop_1e15": 1_000_000,
        },
    )
    job = house.post(
        Role.SUBMITTER,
        "/v1/jobs",
        {
            "name": "helpdesk-lora",
            "team": "compliance",
            "dataset": dataset["id"],
            "base_model": base["id"],
            "purpose": {
                "use_codes": ["helpdesk.internal"],
                "prohibited_practices": [],
                "high_risk_areas": [],
            },
            "compute": {
                "provider": "own-site",
                "service": "local",
                "region": "site",
                "flavor": "cpu",
                "gpus": 0,
            },
            "training": {
                "method": "lora",
                "seed": 17,
                "epochs": 20,
                "max_steps": 400,
                "max_tokens": 512,
                "tokens_per_step": 512,
                "overlong": "drop",
                "eval_permille": 50,
                "rank": 4,
                "alpha": 8,
                "learning_rate": "0.001",
                "precision": "fp32",
                "checkpoint_every_steps": 100,
            },
            "budget_cents": 1000,
            "max_minutes": 20,
        },
    )
    assert job["state"] == "awaiting_approval", job
    house.post(
        Role.OFFICER,
        f"/v1/jobs/{job['id']}/approvals",
        {"outcome": "given"},
        **{"If-Match": f'"{job["version"]}"'},
    )
    return str(job["id"])


@pytest.mark.e2e
def test_a_run_outlives_the_service_and_is_adopted_exactly_once(
    make_installation: Callable[..., Installation], database_url: str, tmp_path: Path
) -> None:
    write_tiny_base(tmp_path / "models" / "tiny")
    port = _free_port()
    declared = {
        "data_dir": tmp_path / "data",
        "object_roots": (str(tmp_path / "models"), str(DATA.parent)),
        "site_price_cents_per_hour": 20,
    }
    installation = make_installation(**declared)
    tokens = {
        Role.SUBMITTER: _token(installation, Role.SUBMITTER, ["compliance"]),
        Role.OFFICER: _token(installation, Role.OFFICER, []),
        Role.AUDITOR: _token(installation, Role.AUDITOR, []),
    }
    environment = {
        "PATH": os.environ["PATH"],
        "PLACET_DATA_DIR": str(tmp_path / "data"),
        "PLACET_DATABASE_URL": database_url,
        "PLACET_OBJECT_ROOTS": f'["{tmp_path / "models"}", "{DATA.parent}"]',
        "PLACET_PORT": str(port),
        "PLACET_SITE_COUNTRY": "FR",
        "PLACET_SITE_DECLARED_ON": "2026-11-30",
        "PLACET_SITE_PRICE_CENTS_PER_HOUR": "20",
        "PLACET_TRAINER_THREADS": "1",
        "PLACET_WORKER_INTERVAL_S": "0.2",
    }
    house = _House(port, tokens)
    with closing(house), _service(environment, tmp_path / "service.log") as first:
        _until("the service answers", house.is_ready)
        job_id = _approved_job(house, tmp_path / "models")

        def trains() -> bool:
            # From the trainer's own file: the service shows it later, once MLflow took it.
            files = (tmp_path / "data" / "runs").glob("run_*/scratch/events.jsonl")
            return any('"kind":"step"' in file.read_text() for file in files)

        _until("the job trains", trains)
        first.send_signal(signal.SIGKILL)
        first.wait()
    house = _House(port, tokens)
    with closing(house), _service(environment, tmp_path / "service.log"):
        _until("the service answers again", house.is_ready)
        job = _until(
            "the run finishes",
            lambda: (
                (found := house.get(Role.SUBMITTER, f"/v1/jobs/{job_id}"))["state"]
                in {"succeeded", "failed"}
                and found
            ),
        )
        _until(
            "its model version is there",
            lambda: house.get(Role.SUBMITTER, f"/v1/jobs/{job_id}")["runs"][0]["model_version"],
        )
        export = house.post(Role.AUDITOR, "/v1/exports", {"recipient": "auditor"})
        entries = house.get(Role.AUDITOR, "/v1/audit/entries?limit=200")["items"]
        bundle = tmp_path / "evidence.zip"
        bundle.write_bytes(house.bundle(export["bundle"]))

    report = verify(bundle, installation.ledger.vkeys)
    actions = [item["entry"]["action"] for item in entries]
    assert job["state"] == "succeeded", (tmp_path / "service.log").read_text()[-2000:]
    assert len(job["runs"]) == 1
    assert len(list((tmp_path / "data" / "runs").glob("run_*"))) == 1
    assert [item["index"] for item in entries] == list(range(len(entries)))
    assert [actions.count(kind) for kind in ("run.dispatching", "run.started", "run.finished")] == [
        1,
        1,
        1,
    ]
    assert report.exit_code == 0, report.to_text()
