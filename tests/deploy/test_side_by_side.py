"""The processes of docker-compose.yml work together, side by side on one machine.

The commands and the settings are those of the file. Host names become loopback addresses, volumes
become folders, PostgreSQL is reached by its socket; nothing else is changed.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import seaweed
from deploy.compose import SAMPLE, interpolated
from sources import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.postgres, pytest.mark.s3]
READY_WITHIN_S = 180.0


class House:
    """The services of the file, as processes in one folder."""

    def __init__(self, folder: Path, sockets: Path) -> None:
        document = interpolated(SAMPLE)
        self.services = document["services"]
        self.roles = document["configs"]["roles"]["content"]
        self.folder = folder
        self.ports = seaweed._free_ports() | {
            "mlflow": seaweed._free_ports()["s3"],
            "service": seaweed._free_ports()["s3"],
        }
        self._replaced = {
            r"@postgres:5432/(\w+)": rf"@/\1?host={sockets}",
            r"\b(s3|localhost):8333": f"127.0.0.1:{self.ports['s3']}",
            r"\b(mlflow|localhost):5000": f"127.0.0.1:{self.ports['mlflow']}",
            r"localhost:8080": f"127.0.0.1:{self.ports['service']}",
            r'\["s3", "mlflow"\]': '["127.0.0.1"]',
            r"/var/lib/placet": str(folder / "placet"),
            r"=/data$": f"={folder / 'objects'}",
            r"^(-ip)=s3$": r"\1=127.0.0.1",
            r"0\.0\.0\.0": "127.0.0.1",
            r"=8333$": f"={self.ports['s3']}",
            r"=5000$": f"={self.ports['mlflow']}",
            r"=8080$": f"={self.ports['service']}",
        }

    def here(self, text: str) -> str:
        """Rewrite one value of the file for this machine."""
        for pattern, replacement in self._replaced.items():
            text = re.sub(pattern, replacement, text)
        return text

    def command(self, name: str, program: str) -> list[str]:
        """Return a service's command with the program that its image starts."""
        return [
            *program.split(),
            *(self.here(word) for word in self.services[name]["command"]),
        ]

    def environment(self, name: str) -> dict[str, str]:
        """Return a service's environment and nothing of ours."""
        given = {key: self.here(value) for key, value in self.services[name]["environment"].items()}
        return {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.folder),
        } | given

    def run(self, name: str, command: list[str]) -> "subprocess.CompletedProcess[str]":
        """Run a service that ends by itself, or a command beside one that does not."""
        return subprocess.run(
            command,
            env=self.environment(name),
            cwd=self.folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
        )

    @contextlib.contextmanager
    def process(self, name: str, command: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a service that stays."""
        with (self.folder / f"{name}.log").open("wb") as log:
            started = subprocess.Popen(
                command,
                env=self.environment(name),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield started
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGTERM if name != "s3" else signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(30)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()

    def wait_for(self, name: str, url: str, started: "subprocess.Popen[bytes]") -> None:
        """Wait until a service answers its own health check."""
        until = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < until and started.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(url, timeout=5).status_code == httpx.codes.OK:
                    return
            time.sleep(0.25)
        tail = (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]
        pytest.fail(f"`{name}` is not ready:\n{tail}")


def health_url(house: House, name: str) -> str:
    """Return the address that a service's own health check asks."""
    test = " ".join(house.services[name]["healthcheck"]["test"])
    found = re.search(r"http://[^']+", test)
    assert found is not None
    return house.here(found[0])


def ends_well(house: House, name: str, program: str) -> None:
    done = house.run(name, house.command(name, program))
    assert done.returncode == 0, f"{name}: {done.stderr}"


PLACET = f"{sys.executable} -P -m service.cli"


@pytest.fixture(scope="module")
def house(postgres_server, tmp_path_factory) -> Iterator[House]:
    """Start everything in the order that the file says."""
    one = House(tmp_path_factory.mktemp("house"), postgres_server.sockets)
    (one.folder / "objects").mkdir()
    with postgres_server.connect() as connection:
        for statement in one.roles.strip().splitlines():
            connection.execute(statement)
    others = [
        f"-{role}.port={one.ports[role]}" for role in ("master", "volume", "filer")
    ]  # on one machine the default ports may be taken
    with contextlib.ExitStack() as stack:
        store = one.command("s3", seaweed._binary()) + others
        started = {"s3": stack.enter_context(one.process("s3", store))}
        one.wait_for("s3", health_url(one, "s3"), started["s3"])
        ends_well(one, "buckets", f"{sys.executable} -I -c")
        tracking = one.command("mlflow", f"{sys.executable} -P -m mlflow")
        started["mlflow"] = stack.enter_context(one.process("mlflow", tracking))
        ends_well(one, "migrate", PLACET)  # while MLflow makes its own tables
        for name in ("worker", "service"):
            started[name] = stack.enter_context(one.process(name, one.command(name, PLACET)))
        for name in ("mlflow", "service"):
            one.wait_for(name, health_url(one, name), started[name])
        yield one


def test_the_api_says_that_it_can_work(house):
    answer = httpx.get(health_url(house, "service"), timeout=10).json()

    assert answer == {
        "status": "ok",
        "checks": {"database": "ok", "schema": "ok", "log": "ok", "policy": "ok"},
        "rejected": None,
        "refused_packs": None,
    }


def test_the_workers_health_check_passes(house):
    done = house.run(
        "worker", [*PLACET.split(), *house.services["worker"]["healthcheck"]["test"][2:]]
    )

    assert done.returncode == 0, done.stdout + done.stderr
    warned = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("warning")]
    assert warned == ["witnesses"]  # nobody is asked until the operator names them


def test_what_an_operator_does_is_published_to_the_object_store(house):
    add = ["principal", "add", "--name", "A. Auditor", "--role", "auditor", "--token-days", "1"]
    done = house.run("worker", [*PLACET.split(), *add, "--json"])
    assert done.returncode == 0, done.stderr
    base = f"http://127.0.0.1:{house.ports['service']}"
    token = re.search(r'"(plc_[^"]+)"', done.stdout)
    assert token is not None
    headers = {"Authorization": f"Bearer {token[1]}"}

    until = time.monotonic() + 30
    size = 0
    while size < 5 and time.monotonic() < until:
        note = httpx.get(f"{base}/log/checkpoint", headers=headers, timeout=10).text
        size = int(note.splitlines()[1])
        time.sleep(0.25)

    assert note.splitlines()[0] == SAMPLE["PLACET_ORIGIN"]
    # log.started, policy.activated, reference.recorded, principal.created, token.issued
    assert size == 5
    assert not list((house.folder / "placet").rglob("checkpoint"))  # it lies in the object store


def test_tracking_keeps_its_runs_in_postgresql(house, postgres_server):
    url = f"http://127.0.0.1:{house.ports['mlflow']}/api/2.0/mlflow/experiments/create"

    made = httpx.post(url, json={"name": "side-by-side"}, timeout=30)

    assert made.status_code == httpx.codes.OK, made.text
    with postgres_server.connect(database="mlflow") as connection:
        names = connection.execute("SELECT name FROM experiments").fetchall()
    assert ("side-by-side",) in names


def test_tracking_refuses_a_foreign_host_name(house):
    url = f"http://127.0.0.1:{house.ports['mlflow']}/api/2.0/mlflow/experiments/search"

    refused = httpx.post(url, json={"max_results": 1}, headers={"Host": "evil.example"}, timeout=30)

    assert refused.status_code == httpx.codes.FORBIDDEN
