"""A preview says what submitting would say, in the reader's language, and leaves no trace."""

from dataclasses import replace

import pytest

from audit.canonical import digest as digest_of
from service.api.language import preferred
from service.app import create_app


@pytest.fixture
def database_url(tmp_path):
    """Use SQLite alone: the statements are those of submitting, which other files run on both."""
    return f"sqlite:///{tmp_path / 'placet.db'}"


PREVIEW = "/v1/decisions:preview"
ABROAD = {
    "compute__provider": "ovhcloud",
    "compute__service": "ai-training",
    "compute__region": "BHS",
}


def preview(world, body, who="ada", path=PREVIEW, **options):
    return world.post(path, who, body, key=None, **options)


def codes(findings):
    return [(one["rule"], one["outcome"], one["pointer"]) for one in findings]


@pytest.mark.parametrize("changes", [{}, ABROAD], ids=["asks for approval", "denied"])
def test_a_preview_and_a_submission_say_the_same(world, changes):
    seen = preview(world, world.job_body(**changes))

    decision = world.submit(**changes)["decision"]

    assert seen["subject"] == "job"
    assert seen["verdict"] == decision["verdict"]
    assert seen["findings"] == decision["findings"]
    assert seen["approvals_needed"] == decision["approvals_needed"]
    assert seen["policy_digest"] == decision["policy_digest"]
    assert seen["reference_digest"] == decision["reference_digest"]
    assert seen["valid_until"] >= decision["expires_at"]


def test_a_preview_of_a_deployment_says_what_asking_for_it_says(world):
    body = world.deployment_body(world.finished_job()["runs"][0]["model_version"])
    for change in ({}, {"oversight_contact": "", "notices": {}}):
        seen = preview(world, body | change)

        decision = world.post("/v1/deployments", "ada", body | change)["decision"]

        assert seen["subject"] == "deployment"
        assert seen["verdict"] == decision["verdict"]
        assert codes(seen["findings"]) == codes(decision["findings"])
        assert seen["approvals_needed"] == decision["approvals_needed"]


def test_a_preview_leaves_no_trace(world):
    body = world.job_body()
    before = world.counts()

    preview(world, body)

    assert world.counts() == before
    assert world.get("/v1/jobs")["items"] == []
    assert world.get("/v1/decisions")["items"] == []


@pytest.mark.parametrize("who", ["ada", "olaf", "vera"])
def test_submitters_officers_and_auditors_may_look(world, who):
    assert preview(world, world.job_body(), who)["verdict"] == "require_approval"


@pytest.mark.parametrize(("who", "status"), [("eve", 403), ("root", 403), (None, 401)])
def test_nobody_else_may_look(world, who, status):
    answer = world.ask("POST", PREVIEW, who, world.job_body())

    assert answer.status == status
    assert answer.problem["detail"]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"compute__gpus": -1}, "/compute/gpus"),
        ({"compute__gpus": True}, "/compute/gpus"),
        ({"waiver": "wvr_1"}, "/waiver"),
        ({"dataset": "ds_nothing"}, "/dataset"),
        ({"base_model": "bm_nothing"}, "/base_model"),
        ({"training__rank": 3, "training__learning_rate": "7"}, "/training"),
    ],
)
def test_what_submitting_refuses_a_preview_refuses_in_the_same_words(world, change, pointer):
    body = world.job_body(**change)
    shown, real = (world.ask("POST", path, "ada", body) for path in (PREVIEW, "/v1/jobs"))

    assert (shown.status, real.status) == (422, 422)
    assert shown.problem["errors"][0]["pointer"] == pointer
    assert shown.problem["errors"] == real.problem["errors"]


def test_a_provider_without_an_engine_is_refused_as_it_would_be(world):
    body = world.job_body()
    no_engine = replace(world.wired.jobs, engines=frozenset())
    world.app = create_app(replace(world.wired, jobs=no_engine))
    shown, real = (world.ask("POST", path, "ada", body) for path in (PREVIEW, "/v1/jobs"))

    assert (shown.status, shown.slug) == (real.status, real.slug) == (422, "unprocessable")
    assert shown.problem["errors"] == real.problem["errors"]
    assert "no engine is configured" in shown.problem["detail"]


def test_an_unknown_member_of_a_deployment_is_named_where_it_stands(world):
    answer = world.ask("POST", PREVIEW, "ada", {"model_version": "mv_1", "nmae": "x"})

    assert "/nmae" in {error["pointer"] for error in answer.problem["errors"]}
    assert "/intended_use" in {error["pointer"] for error in answer.problem["errors"]}


@pytest.mark.parametrize(
    ("path", "header", "language"),
    [
        (PREVIEW, None, "en"),
        (PREVIEW, "fr-CA,fr;q=0.9,en;q=0.5", "fr"),
        (PREVIEW, "pt;q=0.1, de;q=0.2", "de"),
        (PREVIEW + "?language=pl", "fr", "pl"),
        (PREVIEW + "?language=zz", "fr", "en"),
    ],
)
def test_findings_come_in_the_language_that_was_asked_for(world, path, header, language):
    answer = world.ask(
        "POST",
        path,
        "ada",
        world.job_body(**ABROAD),
        headers={} if header is None else {"Accept-Language": header},
    )

    assert answer.headers["content-language"] == answer.json["language"] == language
    titles = {one["rule"]: one["title"] for one in answer.json["findings"]}
    rule = world.in_force.policy.rule("residency.compute")
    assert titles["residency.compute"] == rule.document["title"][language]


@pytest.mark.parametrize(
    ("header", "language"),
    [("", "en"), ("*", "en"), ("xx,yy", "en"), ("FR", "fr"), ("fr;q=0", "en"), ("\x00fr", "en")],
)
def test_a_language_header_that_cannot_be_met_means_english(header, language):
    assert preferred(header) == language


def test_decisions_are_listed_with_what_they_were_made_from(world):
    job = world.submit()
    world.clock.advance(days=2)
    later = world.submit(name="another")

    listed = world.get("/v1/decisions", "vera")["items"]

    assert [one["id"] for one in listed] == [job["decision"]["id"], later["decision"]["id"]]
    assert listed[0]["team"] == "compliance"
    assert listed[0]["subject"] == f"job:{job['id']}"
    since = world.get("/v1/decisions?since=2026-12-02", "vera")["items"]
    assert [one["id"] for one in since] == [later["decision"]["id"]]
    assert world.get("/v1/decisions", "eve")["items"] == []
    one = listed[0]
    for part, digest in (("policy", "policy_digest"), ("reference", "reference_digest")):
        body = world.ask("GET", f"/v1/decisions/{one['id']}/{part}", "vera").content
        assert digest_of(body) == one[digest]
        hidden = world.ask("GET", f"/v1/decisions/{one['id']}/{part}", "eve")
        assert hidden.status == 404
    paged = world.get("/v1/decisions?limit=1", "vera")
    rest = world.get(f"/v1/decisions?limit=1&after={paged['next']}", "vera")
    assert [x["id"] for x in paged["items"] + rest["items"]] == [x["id"] for x in listed]
    assert world.ask("GET", "/v1/decisions?since=yesterday", "vera").status == 422
