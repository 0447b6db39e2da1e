"""What the product exists to stop: each denial names rule, value, law and way out."""

import json
from dataclasses import replace

import pytest

from policies.decision import Decision
from service.app import create_app
from service.places import Places


@pytest.fixture
def database_url(tmp_path):
    """Use SQLite alone: nothing here depends on the database, and other files run on both."""
    return f"sqlite:///{tmp_path / 'placet.db'}"


BHS = "http://s3.bhs.io.cloud.ovh.net"


class ElsewhereObjects:
    """The same objects, served by another endpoint as far as anybody can tell."""

    def __init__(self, inner, endpoint):
        self._inner = inner
        self._endpoint = endpoint

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def endpoint_of(self, uri):
        return self._endpoint


def stored_at(world, endpoint):
    """Move the team's data to another endpoint."""
    world.wired = replace(world.wired, sources=ElsewhereObjects(world.wired.sources, endpoint))
    world.app = create_app(world.wired)


def denied(world, job, rule):
    """Check that a job is denied by `rule` in the answer and in the log; return the finding."""
    assert job["state"] == "denied"
    world.worker.work()
    assert not world.engine.runs
    found = [finding for finding in job["decision"]["findings"] if finding["rule"] == rule]
    assert found, [finding["rule"] for finding in job["decision"]["findings"]]
    finding = found[0]
    assert finding["effect"] == "deny"
    assert finding["message"]
    assert finding["remediation"]
    assert finding["law"]
    assert all(law["ref"] for law in finding["law"])
    entry = world.entries()[-1]
    assert (entry.action, entry.outcome) == ("gate.decided", "denied")
    assert entry.data["verdict"] == "deny"
    assert entry.data["record"] == job["decision"]["record_digest"]
    record = world.ask("GET", f"/v1/decisions/{job['decision']['id']}/record").content
    logged = Decision.from_record(record)
    assert rule in {one.rule for one in logged.findings}
    assert json.loads(record)["verdict"] == "deny"
    refused = world.ask(
        "POST",
        f"/v1/jobs/{job['id']}/approvals",
        "olaf",
        {"outcome": "given"},
        seen=job["version"],
    )
    assert (refused.status, refused.slug) == (409, "illegal-state")
    return finding


def test_data_in_canada_is_denied(world):
    stored_at(world, BHS)
    dataset = world.register_dataset()
    assert (dataset["place"]["region"].lower(), dataset["place"]["country"]) == ("bhs", "CA")

    finding = denied(world, world.submit(dataset=dataset["id"]), "residency.datasets")

    assert "CA" in finding["message"] or "Canada" in finding["message"]
    assert any("GDPR" in law["ref"] for law in finding["law"])


def test_data_behind_an_unknown_endpoint_is_denied(world):
    stored_at(world, "https://s3.somewhere.example")
    dataset = world.register_dataset()
    assert dataset["place"]["country"] is None

    denied(world, world.submit(dataset=dataset["id"]), "residency.datasets")


@pytest.mark.parametrize("region", ["NOWHERE", "BHS", "gra9999", "GRAx"])
def test_compute_in_an_unknown_or_foreign_region_is_denied(world, region):
    job = world.submit(
        compute__provider="ovhcloud", compute__service="ai-training", compute__region=region
    )

    denied(world, job, "residency.compute")


def test_a_site_without_a_declared_country_is_denied(make_world):
    world = make_world(site_country=None, site_declared_on=None)

    denied(world, world.submit(), "residency.compute")


def test_untagged_data_is_denied(world):
    dataset = world.register_dataset(categories=[])

    denied(world, world.submit(dataset=dataset["id"]), "tagging.present")


def test_personal_data_that_was_not_declared_is_denied(world):
    row = {
        "id": "1",
        "group": "g",
        "language": "en",
        "messages": [
            {"role": "user", "content": "write to jane.roe@hospital-berlin.de"},
            {"role": "assistant", "content": "done"},
        ],
    }
    path = world.folder / "data" / "mail.jsonl"
    path.write_text(json.dumps(row) + "\n")
    dataset = world.register_dataset(uri=path.as_uri())
    assert dataset["categories_detected"] == ["pd.basic"]

    denied(world, world.submit(dataset=dataset["id"]), "gdpr.legal-basis")
    assert b"jane.roe" not in repr(world.entries()).encode()


def test_health_data_on_a_service_without_a_certificate_is_denied(world):
    dataset = world.register_dataset(
        categories=["health", "personal"],
        legal_basis="art6.1.e",
        art9_basis="art9.2.h",
        dpia_reference="DPIA-2026-7",
        data_subject_countries=["FR"],
    )

    finding = denied(world, world.submit(dataset=dataset["id"]), "hds.certificate")

    assert any("1111-8" in law["ref"] for law in finding["law"])


def test_a_budget_below_the_estimate_is_denied(world):
    denied(world, world.submit(budget_cents=0), "budget.limit")


def test_a_prohibited_practice_is_denied(world):
    job = world.submit(purpose__prohibited_practices=["art5.1.a"])

    denied(world, job, "use.prohibited")


def test_an_allowed_place_without_an_engine_is_refused_with_what_is_configured(world):
    _ = world.dataset, world.base_model
    before = world.counts()
    answer = world.ask(
        "POST",
        "/v1/jobs",
        body=world.job_body(
            compute={
                "provider": "ovhcloud",
                "service": "ai-training",
                "region": "GRA",
                "flavor": "ai1-1-gpu",
                "gpus": 1,
                "image": "placet/trainer@sha256:" + "0" * 64,
            },
            budget_cents=10**6,
        ),
    )

    if answer.status == 422:
        assert "own-site" in answer.problem["detail"]
        assert world.counts() == before
    else:
        assert answer.json["state"] == "denied"


def test_a_label_in_the_bucket_name_moves_nothing():
    places = Places(
        endpoints={"s3.bhs.io.cloud.ovh.net": ("ovhcloud", "object-storage", "bhs")},
        countries={("ovhcloud", "bhs"): "CA", ("ovhcloud", "gra"): "FR"},
        site_hosts=frozenset({"minio.ward.example"}),
    )

    assert places.of("https://s3.bhs.io.cloud.ovh.net/gra").country == "CA"
    assert places.of("https://s3.bhs.io.cloud.ovh.net.evil.example").country is None
    assert places.of("https://gra@s3.bhs.io.cloud.ovh.net").country == "CA"
    assert places.of("https://S3.BHS.io.cloud.ovh.net").country == "CA"
    assert places.of("https://minio.ward.example").provider == "own-site"
    assert places.of("not a url").country is None


def test_a_decision_explains_itself_in_six_languages(world):
    job = world.submit(budget_cents=0)
    texts = {
        language: world.get(f"/v1/decisions/{job['decision']['id']}?language={language}")[
            "findings"
        ][0]["message"]
        for language in ("en", "fr", "de", "es", "pt", "pl")
    }

    assert len(set(texts.values())) == 6
