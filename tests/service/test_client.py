"""The HTTP client, against the real application and against transports that misbehave."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from loopback import answering
from world import World

from service import client as client_module
from service.client import Client, ClientError, path_of


@pytest.fixture(scope="module")
def served(shared_world: World) -> Iterator[tuple[World, str]]:
    with answering(shared_world.app) as url:
        yield shared_world, url


def by(handler: Callable[[httpx.Request], httpx.Response]) -> Client:
    return Client("http://service.test", "secret", transport=httpx.MockTransport(handler))


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(client_module, "_RECONNECT_S", (0.0, 0.0))


def test_the_client_imports_nothing_of_ours_but_itself():
    code = (
        "import sys, service.client;"
        "rooms = ('audit', 'policies', 'model_cards', 'trainer', 'service');"
        "print(sorted(m for m in sys.modules if m.partition('.')[0] in rooms))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "['service', 'service.client']"


def test_a_whole_case_goes_through_the_client(served: tuple[World, str], tmp_path: Path):
    world, url = served
    with (
        Client(url, world.tokens["ada"]) as ada,
        Client(url, world.tokens["olaf"]) as olaf,
        Client(url, world.tokens["vera"]) as vera,
    ):
        job = ada.post("/v1/jobs", world.job_body())
        seen, etag = olaf.seen(path_of(job["id"]))
        assert (seen["state"], etag) == ("awaiting_approval", f'"{seen["version"]}"')
        after = olaf.decide(job["id"], outcome="refused", reason="not this quarter", etag=etag)
        assert after["state"] == "refused"
        assert [event["state"] for event in ada.follow(job["id"])] == ["refused"]

        world.worker.publish()
        bundle = tmp_path / "bundle.zip"
        row = vera.post("/v1/exports", {"recipient": "auditor"})
        assert vera.download(row["bundle"], bundle) == bundle.stat().st_size
        assert list(tmp_path.iterdir()) == [bundle]


def test_a_problem_becomes_an_error_with_its_name(served: tuple[World, str]):
    world, url = served
    with Client(url, world.tokens["both"]) as both:
        job = both.post("/v1/jobs", world.job_body())
        _, etag = both.seen(path_of(job["id"]))
        with pytest.raises(ClientError, match="another officer") as caught:
            both.decide(job["id"], outcome="given", reason="", etag=etag)
        assert (caught.value.slug, caught.value.status) == ("self-approval", 403)
        assert not caught.value.is_bad_input
        with pytest.raises(ClientError) as missing:
            both.get("/v1/jobs/job_nothere")
        assert missing.value.is_bad_input


def test_an_old_version_is_refused(served: tuple[World, str]):
    world, url = served
    with Client(url, world.tokens["ada"]) as ada, Client(url, world.tokens["olaf"]) as olaf:
        job = ada.post("/v1/jobs", world.job_body())
        with pytest.raises(ClientError) as caught:
            olaf.decide(job["id"], outcome="given", reason="", etag='"99"')
        assert (caught.value.slug, caught.value.status) == ("stale", 412)


def test_the_same_key_creates_once(served: tuple[World, str]):
    world, url = served
    with Client(url, world.tokens["ada"]) as ada:
        body = world.job_body()
        first = ada.post("/v1/jobs", body, key="one-key-for-both")
        assert ada.post("/v1/jobs", body, key="one-key-for-both")["id"] == first["id"]


def test_lists_follow_every_page(served: tuple[World, str], monkeypatch: pytest.MonkeyPatch):
    world, url = served
    monkeypatch.setattr(client_module, "_PAGE", 1)
    with Client(url, world.tokens["ada"]) as ada:
        made = {ada.post("/v1/jobs", world.job_body())["id"] for _ in range(3)}
        found = [row["id"] for row in ada.items("/v1/jobs")]
        assert made <= set(found)
        assert found == sorted(set(found))


def test_a_refused_download_leaves_no_file(served: tuple[World, str], tmp_path: Path):
    world, url = served
    with Client(url, world.tokens["vera"]) as vera, pytest.raises(ClientError):
        vera.download("/v1/exports/exp_nothere/bundle", tmp_path / "bundle.zip")
    assert not list(tmp_path.iterdir())


def test_a_lost_answer_is_asked_for_again_with_the_same_key():
    keys = []

    def lose_first(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["idempotency-key"])
        if len(keys) == 1:
            raise httpx.ReadError("connection reset", request=request)
        return httpx.Response(201, json={"id": "job_1"})

    with by(lose_first) as client:
        assert client.post("/v1/jobs", {}) == {"id": "job_1"}
    assert len(keys) == 2
    assert keys[0] == keys[1]


def test_a_question_is_not_asked_twice():
    calls = []

    def lose(request: httpx.Request) -> httpx.Response:
        calls.append(request.url.path)
        raise httpx.ReadTimeout("too slow", request=request)

    with by(lose) as client, pytest.raises(ClientError, match="placet serve"):
        client.ask("dep_1", [{"role": "user", "content": "?"}], max_tokens=4)
    assert len(calls) == 1


def test_a_service_that_is_away_is_named():
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with (
        by(away) as client,
        pytest.raises(ClientError, match=r"no answer from http://service\.test"),
    ):
        client.get("/v1/me")


@pytest.mark.parametrize("body", [b"<html>", b"[]", b""])
def test_another_server_is_no_placet_service(body: bytes):
    for status in (200, 404, 502):
        with by(lambda _, s=status: httpx.Response(s, content=body)) as client:
            with pytest.raises(ClientError, match="is this address a Placet service") as caught:
                client.get("/v1/me")
            assert caught.value.status == status


def test_a_broken_stream_is_taken_up_again():
    answers = iter(
        (
            b'event: job\ndata: {"state": "running"}\n\n: a comment\n\ndata: {"st',
            b'data: {"state":\ndata: "succeeded"}\n\n',
        )
    )

    def stream(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=next(answers))

    with by(stream) as client:
        assert [event["state"] for event in client.follow("job_1")] == ["running", "succeeded"]


def test_a_stream_that_never_ends_well_is_given_up():
    silent = by(lambda _: httpx.Response(200, content=b""))
    with silent as client, pytest.raises(ClientError, match="no answer"):
        list(client.follow("job_1"))


def test_a_problem_in_place_of_a_stream_is_raised():
    problem = {"type": "https://placet.dev/problems/not-found", "detail": "no job"}
    answer = httpx.Response(404, content=json.dumps(problem).encode())
    with by(lambda _: answer) as client, pytest.raises(ClientError, match="no job") as caught:
        list(client.follow("job_1"))
    assert caught.value.slug == "not-found"


@pytest.mark.parametrize("subject", ["", "ds_1", "job", "../v1/exports"])
def test_only_jobs_and_deployments_are_decided_on(subject: str):
    with pytest.raises(ClientError) as caught:
        path_of(subject)
    assert caught.value.is_bad_input
