"""Who may do what: tokens, roles, teams, four eyes, and what is left in the log of a refusal."""

import pytest

from service.principals import Role, create_principal, issue_token, revoke_token
from service.problems import Forbidden, NotFound, Unprocessable
from service.tables import Principal


@pytest.fixture
def database_url(tmp_path):
    """Use SQLite alone: nothing here depends on the database, and other files run on both."""
    return f"sqlite:///{tmp_path / 'placet.db'}"


def refusals(world):
    return [
        (entry.data["problem"], entry.data["route"], entry.actor.ref)
        for entry in world.entries()
        if entry.action == "request.refused"
    ]


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer plc_garbage",
        "Basic YTpi",
        "Bearer plc_" + "x" * 5000,
        b"Bearer \xff\xfe",
        "Bearer a b c",
        "bearer null",
    ],
    ids=range(9),
)
def test_garbage_for_a_token_is_refused(lone_world, header):
    before = lone_world.counts()

    answer = lone_world.ask("GET", "/v1/me", None, headers={"Authorization": header})

    assert (answer.status, answer.slug) == (401, "unauthenticated")
    assert lone_world.counts() == before


def test_a_token_expires(world):
    world.get("/v1/me")
    world.clock.advance(days=301)

    answer = world.ask("GET", "/v1/me")

    assert answer.status == 401
    assert "expired" in answer.problem["detail"]


def test_a_revoked_token_stops_at_once(world):
    with world.wired.transactions.write() as tx:
        revoke_token(tx, token_id=world.token_ids["ada"], clock=world.clock)
        revoke_token(tx, token_id=world.token_ids["ada"], clock=world.clock)

    answer = world.ask("GET", "/v1/me")

    assert answer.status == 401
    assert "revoked" in answer.problem["detail"]
    assert world.kinds().count("token.revoked") == 1


def test_a_disabled_principal_is_locked_out(lone_world):
    lone_world.tamper(
        "principal",
        "UPDATE principal SET disabled_at = '2026-01-01T00:00:00Z' WHERE id = :id",
        id=lone_world.ids["ada"],
    )

    assert lone_world.ask("GET", "/v1/me").status == 401


def test_roles_are_read_again_at_every_request(lone_world):
    lone_world.tamper(
        "principal",
        """UPDATE principal SET roles = '["auditor"]' WHERE id = :id""",
        id=lone_world.ids["ada"],
    )

    assert lone_world.get("/v1/me")["roles"] == ["auditor"]


def test_secrets_are_nowhere_in_the_database(lone_world):
    from sqlalchemy import text

    found = b""
    with lone_world.wired.database.connect() as connection:
        for table in ("token", "audit_entry", "document", "principal", "idempotency_record"):
            for row in connection.execute(text(f"SELECT * FROM {table}")):
                found += repr(tuple(row)).encode()
    for secret in lone_world.tokens.values():
        assert secret.encode() not in found


def test_another_team_sees_nothing(world):
    job = world.submit()
    paths = [
        f"/v1/jobs/{job['id']}",
        f"/v1/jobs/{job['id']}/log",
        f"/v1/jobs/{job['id']}/events",
        f"/v1/decisions/{job['decision']['id']}",
        f"/v1/decisions/{job['decision']['id']}/record",
        f"/v1/datasets/{world.dataset['id']}",
    ]

    for path in paths:
        answer = world.ask("GET", path, "eve")
        assert (answer.status, answer.slug) == (404, "not-found"), path
        assert world.ask("GET", path.removesuffix("/events"), "ada").status == 200
    for kind in ("jobs", "datasets"):
        assert world.get(f"/v1/{kind}", "eve")["items"] == []
        assert len(world.get(f"/v1/{kind}", "vera")["items"]) == 1


def test_another_team_cannot_use_what_is_not_theirs(world):
    body = world.job_body(team="elsewhere")

    answer = world.ask("POST", "/v1/jobs", "eve", body)

    assert answer.status == 422
    assert answer.problem["errors"][0]["pointer"] == "/dataset"


@pytest.mark.parametrize(
    ("who", "method", "path", "body"),
    [
        ("vera", "POST", "/v1/jobs", "job"),
        ("olaf", "POST", "/v1/jobs", "job"),
        ("eve", "POST", "/v1/jobs", "job"),
        ("eve", "POST", "/v1/datasets", "dataset"),
        ("vera", "POST", "/v1/base-models", "base"),
        ("ada", "POST", "/v1/exports", {"recipient": "auditor"}),
        ("ada", "GET", "/v1/audit/entries", None),
        ("ada", "GET", "/v1/audit/entries/0", None),
        ("ada", "GET", "/v1/audit/entries/0/proof", None),
        ("ada", "GET", "/v1/checkpoints", None),
        ("ada", "GET", "/log/checkpoint", None),
    ],
)
def test_a_role_is_needed_and_its_lack_is_logged(world, who, method, path, body):
    bodies = {
        "job": world.job_body(),
        "dataset": world.dataset_body(),
        "base": {"name": "b", "uri": (world.folder / "base").as_uri(), "licence": "MIT"},
    }
    before = world.counts()

    answer = world.ask(method, path, who, bodies.get(body, body) if isinstance(body, str) else body)

    assert (answer.status, answer.slug) == (403, "forbidden")
    assert answer.problem["detail"]
    assert world.counts() == before | {"audit_entry": before["audit_entry"] + 1}
    problem, route, actor = refusals(world)[-1]
    assert (problem, actor) == ("forbidden", world.ids[who])
    assert route.startswith(f"{method} {path[:5]}")


def test_nobody_approves_their_own_job(world):
    job = world.submit("both")
    before = world.counts()

    answer = world.ask(
        "POST",
        f"/v1/jobs/{job['id']}/approvals",
        "both",
        {"outcome": "given"},
        seen=job["version"],
    )

    assert (answer.status, answer.slug) == (403, "self-approval")
    assert world.counts() == before | {"audit_entry": before["audit_entry"] + 1}
    assert refusals(world)[-1] == (
        "self-approval",
        "POST /v1/jobs/{job_id}/approvals",
        world.ids["both"],
    )
    assert world.job(job["id"])["state"] == "awaiting_approval"


@pytest.mark.parametrize("who", ["ada", "vera", "root"])
def test_only_an_officer_approves(world, who):
    job = world.submit("both")

    answer = world.ask(
        "POST", f"/v1/jobs/{job['id']}/approvals", who, {"outcome": "given"}, seen=job["version"]
    )

    assert (answer.status, answer.slug) == (403, "forbidden")
    assert "officer" in answer.problem["detail"]


def test_a_stale_version_is_refused_and_logged(world):
    job = world.submit()

    for seen in (job["version"] - 1, job["version"] + 1):
        answer = world.ask(
            "POST", f"/v1/jobs/{job['id']}/approvals", "olaf", {"outcome": "given"}, seen=seen
        )
        assert (answer.status, answer.slug) == (412, "stale")
        assert answer.problem["version"] == job["version"]
    assert [problem for problem, _, _ in refusals(world)] == ["stale", "stale"]
    assert world.job(job["id"])["version"] == job["version"]


@pytest.mark.parametrize("etag", [None, "", "*", "2", 'W/"2"', '"x"', '"2", "3"', '"-1"'])
def test_a_decision_needs_the_version_that_was_seen(lone_world, etag):
    job = lone_world.submit()
    headers = {} if etag is None else {"If-Match": etag}

    for act in ("approvals", "cancel"):
        answer = lone_world.ask(
            "POST", f"/v1/jobs/{job['id']}/{act}", "olaf", {"outcome": "given"}, headers=headers
        )
        assert (answer.status, answer.slug) == (428, "precondition-required")
        assert "If-Match" in answer.problem["detail"]


def test_the_etag_of_an_answer_is_what_if_match_wants(world):
    job = world.submit()
    answer = world.ask("GET", f"/v1/jobs/{job['id']}")

    assert answer.headers["etag"] == f'"{job["version"]}"'


def test_principals_and_tokens_are_checked(lone_world):
    world = lone_world
    with world.wired.transactions.write() as tx:
        for wrong in (
            {"name": " "},
            {"kind": "robot"},
            {"roles": []},
            {"teams": ["A team"]},
            {"teams": ["x" * 300]},
        ):
            good = {"name": "N", "kind": "human", "roles": [Role.AUDITOR], "teams": []}
            with pytest.raises(Unprocessable):
                create_principal(tx, **(good | wrong))
        for days in (0, 367, -1):
            with pytest.raises(Unprocessable):
                issue_token(tx, principal_id=world.ids["ada"], clock=world.clock, days=days)
        with pytest.raises(NotFound):
            issue_token(tx, principal_id="prn_x", clock=world.clock, days=1)
        with pytest.raises(NotFound):
            revoke_token(tx, token_id="tok_x", clock=world.clock)


def test_a_name_stays_out_of_the_log(world):
    with world.wired.transactions.read() as session:
        assert session.get_one(Principal, world.ids["ada"]).name == "Ada Quillfeather"
    assert all(b"Quillfeather" not in repr(entry).encode() for entry in world.entries())


def test_what_a_caller_lacks_is_said(lone_world):
    from service.principals import Caller

    caller = Caller("prn_x", "human", frozenset(), frozenset())
    with pytest.raises(Forbidden, match="officer or admin"):
        caller.require(Role.OFFICER, Role.ADMIN)
    with pytest.raises(Forbidden, match="your teams: none"):
        caller.require_team("compliance")
