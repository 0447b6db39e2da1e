"""A bucket's country is its endpoint's, through a real S3 server under OVHcloud's Canadian name."""

from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.config import Config
from seaweed import make_bucket, s3_account  # noqa: F401 — a fixture
from world import HELPDESK, World

from audit.event import EventKind
from service.objects.s3 import S3Account

CANADIAN = "http://s3.bhs.io.cloud.ovh.net"


def _denied(world: World, job: dict[str, Any], rule: str) -> dict[str, Any]:
    """Assert that a job was denied by `rule`, is so in the log, and never reached the engine."""
    world.worker.publish()
    world.worker.work()
    entries = world.get("/v1/audit/entries?limit=200", "vera")["items"]
    decided = [
        item["entry"]
        for item in entries
        if item["entry"]["resource"].startswith(f"job:{job['id']}")
        and item["entry"]["action"] == EventKind.GATE_DECIDED
    ]
    finding = next(f for f in job["decision"]["findings"] if f["rule"] == rule)

    assert job["state"] == "denied"
    assert job["decision"]["verdict"] == "deny"
    assert finding["outcome"] in {"violated", "unknown"}
    assert finding["message"]
    assert finding["law"]
    assert finding["remediation"]
    assert [entry["outcome"] for entry in decided] == ["denied"]
    assert decided[0]["data"]["record"] == job["decision"]["record_digest"]
    assert world.engine.runs == {}
    return finding


@pytest.mark.s3
def test_data_behind_the_canadian_endpoint_is_denied_whatever_its_label(
    make_world: Callable[..., World],
    s3_account: S3Account,  # noqa: F811 — the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The endpoint's name is OVHcloud's in Beauharnois; the way there is this machine's S3 server,
    # as a proxy of the house would be. The label says Gravelines.
    bucket = make_bucket(s3_account)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", s3_account.endpoint)
    monkeypatch.setenv("http_proxy", s3_account.endpoint)
    client = boto3.session.Session().client(
        "s3",
        endpoint_url=CANADIAN,
        region_name="bhs",
        aws_access_key_id=s3_account.access_key,
        aws_secret_access_key=s3_account.secret_key,
        config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
    )
    client.put_object(Bucket=bucket, Key="gra/helpdesk.jsonl", Body=HELPDESK.read_bytes())
    world = make_world(
        s3_endpoint=CANADIAN,
        s3_region="bhs",
        s3_access_key=s3_account.access_key,
        s3_secret_key=s3_account.secret_key,
        source_buckets=(bucket,),
    )
    dataset = world.register_dataset(name="gra-help", uri=f"s3://{bucket}/gra")

    job = world.submit(dataset=dataset["id"])

    assert dataset["place"] == {
        "provider": "ovhcloud",
        "service": "object-storage",
        "region": "bhs",
        "country": "CA",
    }
    finding = _denied(world, job, "residency.datasets")
    assert "Canada" in finding["message"]
