"""An answer never leaves before its commit; a request repeated is a request done once."""

import threading

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError
from sqlmodel import Session


@pytest.fixture
def failing_commit(world):
    """Make the commit of whoever recorded something fail, as a full disk would."""
    is_on = []

    def fail(session):
        if is_on and session.info.get("wrote"):
            raise OperationalError("COMMIT", {}, RuntimeError("disk full"))

    def mark(session, _context):
        session.info["wrote"] = True

    event.listen(Session, "before_commit", fail)
    event.listen(Session, "after_flush", mark)
    yield is_on
    event.remove(Session, "before_commit", fail)
    event.remove(Session, "after_flush", mark)


def test_a_failed_commit_is_a_problem_and_stores_nothing(world, failing_commit):
    body = world.job_body()
    before = world.counts()
    failing_commit.append(True)

    answer = world.ask("POST", "/v1/jobs", body=body)

    failing_commit.clear()
    assert (answer.status, answer.slug) == (503, "unavailable")
    assert world.counts() == before


def test_a_failed_commit_of_an_approval_leaves_the_job_waiting(world, failing_commit):
    job = world.submit()
    before = world.counts()
    failing_commit.append(True)

    answer = world.ask(
        "POST",
        f"/v1/jobs/{job['id']}/approvals",
        "olaf",
        {"outcome": "given"},
        seen=job["version"],
    )

    failing_commit.clear()
    assert answer.status == 503
    assert world.counts() == before
    assert world.job(job["id"])["state"] == "awaiting_approval"


def test_the_same_request_again_gets_the_same_answer_and_no_second_job(world):
    body = world.job_body()
    first = world.ask("POST", "/v1/jobs", body=body, key="the-same-key")
    before = world.counts()

    again = world.ask("POST", "/v1/jobs", body=body, key="the-same-key")

    assert (again.status, again.json) == (first.status, first.json) == (201, first.json)
    assert again.headers["idempotency-replayed"] == "true"
    assert world.counts() == before


def test_a_registration_is_repeated_without_reading_again(world):
    files = [
        ("/v1/datasets", world.dataset_body(), world.folder / "data" / "helpdesk.jsonl"),
        (
            "/v1/base-models",
            {"name": "b", "uri": (world.folder / "base").as_uri(), "licence": "MIT"},
            world.folder / "base" / "model.safetensors",
        ),
    ]
    for path, body, file in files:
        first = world.ask("POST", path, body=body, key="the-same-key" + path[-4:])
        file.unlink()

        again = world.ask("POST", path, body=body, key="the-same-key" + path[-4:])

        assert (again.status, again.json) == (201, first.json)


def test_a_used_key_with_another_body_is_refused_and_logged(world):
    world.ask("POST", "/v1/jobs", body=world.job_body(), key="the-same-key")
    before = world.counts()

    other = world.ask("POST", "/v1/jobs", body=world.job_body(budget_cents=7), key="the-same-key")

    assert (other.status, other.slug) == (422, "idempotency-mismatch")
    assert world.counts() == before | {"audit_entry": before["audit_entry"] + 1}
    refused = world.entries()[-1]
    assert refused.data == {"problem": "idempotency-mismatch", "route": "POST /v1/jobs"}
    assert refused.actor.ref == world.ids["ada"]


def test_a_key_belongs_to_one_principal(world):
    world.ask("POST", "/v1/jobs", body=world.job_body(), key="the-same-key")

    other = world.ask("POST", "/v1/jobs", "both", world.job_body(), key="the-same-key")

    assert other.status == 201
    assert other.json["submitted_by"] == world.ids["both"]


def test_a_refused_request_may_be_repeated_with_its_key(world):
    wrong = world.ask("POST", "/v1/jobs", body=world.job_body(dataset="ds_x"), key="the-same-key")
    right = world.ask("POST", "/v1/jobs", body=world.job_body(), key="the-same-key")

    assert (wrong.status, right.status) == (422, 201)


def at_once(count, act):
    answers, start = [], threading.Barrier(count)

    def run():
        start.wait()
        answers.append(act())

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_eight_copies_of_one_request_at_once_make_one_job(world):
    body = world.job_body()

    answers = at_once(8, lambda: world.ask("POST", "/v1/jobs", body=body, key="the-same-key"))

    assert world.counts()["job"] == 1
    assert {answer.status for answer in answers} <= {201, 409}
    made = {answer.json["id"] for answer in answers if answer.status == 201}
    assert len(made) == 1
    for answer in answers:
        if answer.status == 409:
            assert "again" in answer.problem["detail"]


def test_two_officers_at_once_settle_it_once(world):
    job = world.submit()
    officers = iter(("olaf", "omar"))

    def decide():
        return world.ask(
            "POST",
            f"/v1/jobs/{job['id']}/approvals",
            next(officers),
            {"outcome": "given"},
            seen=job["version"],
        )

    answers = at_once(2, decide)

    assert sorted(answer.status for answer in answers) in ([201, 409], [201, 412])
    assert world.counts()["approval"] == 1
    assert world.kinds().count("approval.given") == 1


def test_approve_and_cancel_at_once_do_not_both_win(world):
    job = world.submit()
    acts = iter(
        [
            lambda: world.ask(
                "POST",
                f"/v1/jobs/{job['id']}/approvals",
                "olaf",
                {"outcome": "given"},
                seen=job["version"],
            ),
            lambda: world.ask("POST", f"/v1/jobs/{job['id']}/cancel", seen=job["version"]),
        ]
    )

    answers = at_once(2, lambda: next(acts)())  # noqa: PLW0108 — each thread takes another

    assert sum(answer.status < 300 for answer in answers) == 1
    assert world.job(job["id"])["version"] == job["version"] + 1


@pytest.mark.parametrize("state", ["\x00", "no-such-state"])
def test_a_filter_for_a_strange_state_is_answered(world, state):
    answer = world.ask("GET", f"/v1/jobs?state={'%00' if state == chr(0) else state}")

    assert answer.status in {200, 400}


def test_a_nul_in_a_path_is_a_problem_on_both_databases(world):
    for kind in ("jobs", "datasets", "deployments"):
        answer = world.ask("GET", f"/v1/{kind}/%00")
        assert answer.status in {400, 404}
        assert answer.problem["detail"]


def test_a_nul_in_free_text_does_no_harm(world):
    job = world.submit()

    answer = world.ask(
        "POST",
        f"/v1/jobs/{job['id']}/approvals",
        "olaf",
        {"outcome": "refused", "reason": "no\u0000pe"},
        seen=job["version"],
    )

    assert answer.status in {201, 422}
