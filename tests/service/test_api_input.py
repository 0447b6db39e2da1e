"""What callers send wrongly: each is a named problem with a way out, and nothing changes."""

import json
import re

import pytest
from pydantic import ValidationError
from world import write_base_model

from service.app import DECIDED_HERE
from service.ids import Prefix, new_id
from service.requests import REFERENCE_PATTERN, STORED, Governance

LIMIT = 1_048_576


@pytest.fixture(scope="module")
def world(shared_world):
    return shared_world


@pytest.fixture
def unchanged(world):
    """Assert that the test changed no row but entries of refusals."""
    _ = world.dataset, world.base_model
    before, kinds = world.counts(), world.kinds()
    yield
    after = world.counts()
    new = world.kinds()[len(kinds) :]
    assert set(new) <= {"request.refused"}
    del before["audit_entry"], after["audit_entry"]
    assert after == before


def job_text(world, **changes):
    return json.dumps(world.job_body(**changes))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "is missing"),
        (b"{", "strict JSON"),
        (b"[]", "object|dictionary"),
        (b"null", "object|dictionary"),
        (b'"text"', "object|dictionary"),
        (b'{"name": "a", "name": "b"}', "duplicate key"),
        (b'{"budget_cents": 10.5}', "strict JSON"),
        (b'{"budget_cents": 1e3}', "strict JSON"),
        (b'{"budget_cents": NaN}', "strict JSON"),
        (b'{"budget_cents": Infinity}', "strict JSON"),
        (b'{"budget_cents": 99999999999999999999}', "strict JSON"),
        (b'{"name": "\xff"}', "strict JSON"),
        (b'{"name": "\\ud800"}', "strict JSON"),
        (b"[" * 100_000, "strict JSON"),
        (b'{"a":' * 10_000, "strict JSON"),
        (b"{} trailing", "strict JSON"),
        (b"\xef\xbb\xbf{}", "strict JSON"),
    ],
    ids=range(17),
)
def test_a_body_that_is_no_strict_json_is_refused(world, unchanged, raw, says):
    answer = world.ask("POST", "/v1/jobs", raw=raw)

    assert answer.status in {400, 422}
    assert re.search(says, answer.problem["detail"]), answer.problem


def test_a_duplicate_key_anywhere_is_refused(world, unchanged):
    text = job_text(world).replace('"seed": 17', '"seed": 17, "seed": 18')

    answer = world.ask("POST", "/v1/jobs", raw=text.encode())

    assert answer.status == 400
    assert "duplicate key" in answer.problem["detail"]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"surprise": 1}, "/surprise"),
        ({"training__surprise": 1}, "/training/surprise"),
        ({"purpose__approved": True}, "/purpose/approved"),
        ({"submitted_by": "prn_x"}, "/submitted_by"),
        ({"name": 7}, "/name"),
        ({"name": "Upper Case"}, "/name"),
        ({"name": ""}, "/name"),
        ({"name": "a" * 64}, "/name"),
        ({"team": "../etc"}, "/team"),
        ({"budget_cents": "1000"}, "/budget_cents"),
        ({"budget_cents": -1}, "/budget_cents"),
        ({"budget_cents": True}, "/budget_cents"),
        ({"budget_cents": None}, "/budget_cents"),
        ({"max_minutes": 0}, "/max_minutes"),
        ({"max_minutes": 10_081}, "/max_minutes"),
        ({"compute__gpus": -1}, "/compute/gpus"),
        ({"compute__gpus": "0"}, "/compute/gpus"),
        ({"compute__image": "debian:latest"}, "/compute/image"),
        ({"compute__region": "si te"}, "/compute/region"),
        ({"compute__region": "\u0000"}, "/compute/region"),
        ({"training__method": "qlora"}, "/training/method"),
        ({"training__seed": -1}, "/training/seed"),
        ({"training__learning_rate": "1e-4"}, "/training/learning_rate"),
        ({"training__learning_rate": "-1"}, "/training/learning_rate"),
        ({"training__learning_rate": "0,1"}, "/training/learning_rate"),
        ({"training__rank": 0}, "/training/rank"),
        ({"training__dropout": "2"}, "/training"),
        ({"purpose__use_codes": []}, "/purpose/use_codes"),
        ({"purpose__use_codes": "helpdesk.internal"}, "/purpose/use_codes"),
        ({"purpose__prohibited_practices": None}, "/purpose/prohibited_practices"),
        ({"dataset": "ds_00000000000000000000000000"}, "/dataset"),
        ({"dataset": "no such"}, "/dataset"),
        ({"base_model": "bm_x"}, "/base_model"),
        ({"training": []}, "/training"),
        ({"training": None}, "/training"),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else value,
)
def test_a_wrong_value_is_named_with_its_field(world, unchanged, changes, pointer):
    answer = world.ask("POST", "/v1/jobs", body=world.job_body(**changes))

    assert answer.status == 422
    assert answer.problem["errors"][0]["pointer"] == pointer
    assert pointer in answer.problem["detail"]


def test_every_missing_member_is_named_at_once(world, unchanged):
    body = world.job_body()
    del body["purpose"], body["budget_cents"], body["training"]["seed"]

    answer = world.ask("POST", "/v1/jobs", body=body)

    pointers = [error["pointer"] for error in answer.problem["errors"]]
    assert pointers == ["/purpose", "/training/seed", "/budget_cents"]


def test_a_problem_shows_what_it_got_but_not_all_of_it(world, unchanged):
    answer = world.ask("POST", "/v1/jobs", body=world.job_body(name="x" * 5000))

    assert "got 'xxx" in answer.problem["detail"]
    assert len(answer.content) < 2000


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/json"]
)
def test_another_media_type_is_refused(world, unchanged, kind):
    answer = world.ask(
        "POST", "/v1/jobs", raw=job_text(world).encode(), headers={"Content-Type": kind}
    )

    assert answer.status == 415
    assert kind in answer.problem["detail"]
    assert "application/json" in answer.problem["detail"]


def test_a_media_type_with_a_parameter_is_accepted(world):
    answer = world.ask(
        "POST",
        "/v1/jobs",
        raw=job_text(world).encode(),
        headers={"Content-Type": "Application/JSON; charset=utf-8"},
    )

    assert answer.status == 201


def test_a_body_without_a_media_type_is_read_as_json_or_refused(world, unchanged):
    answer = world.ask("POST", "/v1/jobs", raw=b"{}", headers={"Content-Type": ""})

    assert answer.status in {415, 422}
    assert answer.problem["detail"]


def test_a_declared_length_over_the_limit_is_refused_before_reading(world, unchanged):
    answer = world.ask("POST", "/v1/jobs", raw=b"{}", headers={"Content-Length": str(LIMIT + 1)})

    assert answer.status == 413
    assert str(LIMIT) in answer.problem["detail"]


@pytest.mark.parametrize("length", ["-1", "1e9", "٣", "x", "1, 2"])
def test_a_strange_length_is_refused(world, unchanged, length):
    answer = world.ask("POST", "/v1/jobs", raw=b"{}", headers={"Content-Length": length.encode()})

    assert answer.status in {400, 413}
    assert answer.problem["detail"]


def test_a_chunked_body_over_the_limit_is_refused(world, unchanged):
    sent = []

    async def chunks():
        for _ in range(64):
            sent.append(1)
            yield b" " * 65_536

    answer = world.ask("POST", "/v1/jobs", raw=chunks)

    assert answer.status == 413
    assert str(LIMIT) in answer.problem["detail"]


def test_a_body_under_a_wrong_length_is_still_limited(world, unchanged):
    answer = world.ask(
        "POST", "/v1/jobs", raw=b" " * (LIMIT + 10), headers={"Content-Length": "10"}
    )

    assert answer.status == 413


@pytest.mark.parametrize(
    "key", [None, "short", "with blank in it", "x" * 129, "ünïcödé-key".encode()]
)
def test_a_creating_request_needs_an_idempotency_key(world, unchanged, key):
    headers = {"Idempotency-Key": key} if isinstance(key, bytes) else None
    answer = world.ask(
        "POST", "/v1/jobs", body=world.job_body(), key=None if headers else key, headers=headers
    )

    assert answer.status == 428
    assert "Idempotency-Key" in answer.problem["detail"]


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("file:///etc/passwd", "root|outside|refus|folder"),
        ("file:///nowhere/x.jsonl", "root|outside|refus|folder"),
        ("s3://bucket/key", "s3|scheme|store|config"),
    ],
)
def test_a_dataset_outside_the_declared_folders_is_refused(world, unchanged, uri, says):
    answer = world.ask("POST", "/v1/datasets", body=world.dataset_body(uri=uri))

    assert answer.status == 422
    assert answer.problem["errors"][0]["pointer"] == "/uri"
    assert re.search(says, answer.problem["detail"])
    assert "root:" not in answer.content.decode()


@pytest.mark.parametrize(
    "uri", ["https://evil.example/x", "/etc/passwd", "file://host/x", "s3://a b"]
)
def test_a_dataset_uri_of_another_form_is_refused(world, unchanged, uri):
    answer = world.ask("POST", "/v1/datasets", body=world.dataset_body(uri=uri))

    assert answer.status == 422
    assert answer.problem["errors"][0]["pointer"] == "/uri"


def test_dots_do_not_leave_the_declared_folder(world, unchanged):
    uri = (world.folder / "data").as_uri() + "/../home/keys/log.pem"

    answer = world.ask("POST", "/v1/datasets", body=world.dataset_body(uri=uri))

    assert answer.status == 422


def test_a_link_does_not_leave_the_declared_folder(world, unchanged):
    link = world.folder / "data" / "link.jsonl"
    link.symlink_to(world.folder / "home" / "keys" / "log.pem")
    try:
        answer = world.ask("POST", "/v1/datasets", body=world.dataset_body(uri=link.as_uri()))
    finally:
        link.unlink()

    assert answer.status == 422


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"not json\n", "line 1"),
        (b"\n", "line 1"),
        (b'{"messages": []}\n', "assistant"),
        (b'{"messages": [{"role": "user", "content": "a"}]}\n', "assistant"),
        (b'{"messages": "x"}\n', "line 1"),
        (b'{"messages": [1]}\n', "line 1"),
        (b'{"messages": [{"role": "assistant", "content": null}]}\n', "line 1"),
        (b'{"messages": [{"role": "assistant", "content": 7}]}\n', "line 1"),
        (b"[" * 60_000 + b"\n", "line 1"),
        (b'{"a": "' + b"x" * 1_048_600 + b'"}\n', "longer than"),
        (b"", "no rows"),
    ],
    ids=range(11),
)
def test_rows_that_are_no_chats_are_refused_with_their_line(world, unchanged, text, says):
    path = world.folder / "data" / "bad.jsonl"
    path.write_bytes(text)
    body = world.dataset_body(uri=path.as_uri(), format="chat-jsonl")
    try:
        answer = world.ask("POST", "/v1/datasets", body=body)
    finally:
        path.unlink()

    assert answer.status == 422, answer.content
    assert re.search(says, answer.problem["detail"])


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b"[]",
        b'{"w": {}}',
        b'{"w": {"shape": "x"}}',
        b'{"w": {"shape": [-5]}}',
        b'{"w": {"shape": [1.5]}}',
        b'{"w": {"shape": [true]}}',
        b'{"w": {"shape": ["7"]}}',
        b'{"w": {"shape": [' + b"9" * 40 + b"]}}",
        b'{"w": {"shape": [1e400]}}',
        b"[" * 60_000,
        b"{}",
    ],
    ids=range(12),
)
def test_a_base_model_with_a_hostile_header_is_refused(world, unchanged, header):
    folder = world.folder / "base" / "odd"
    folder.mkdir()
    try:
        write_base_model(folder, header=header)
        answer = world.ask(
            "POST",
            "/v1/base-models",
            body={"name": "odd", "uri": folder.as_uri(), "licence": "MIT"},
        )
    finally:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()

    assert answer.status == 422, answer.content
    assert answer.problem["errors"][0]["pointer"] == "/uri"


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=201",
        "limit=x",
        "after=%21%21",
        "after=" + "a" * 401,
        "after=AA",
        "after=_w",
    ],
)
def test_a_wrong_page_is_a_problem_or_an_empty_page(world, unchanged, query):
    answer = world.ask("GET", f"/v1/jobs?{query}")

    if answer.status != 200:
        assert answer.status in {400, 422}
        assert answer.problem["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/audit/entries?from=99999999999999999999999",
        "/v1/audit/entries?from=-1",
        "/v1/audit/entries/99999999999999999999999",
        "/v1/audit/entries/-1",
        "/v1/audit/entries/-99999999999999999999999",
        "/v1/audit/entries/x",
        "/v1/audit/entries/99999999999999999999999/proof",
        "/v1/checkpoints?after=OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5",
        "/v1/checkpoints?after=eA",
    ],
)
def test_numbers_beyond_all_bounds_are_answered(world, unchanged, path):
    answer = world.ask("GET", path, "vera")

    assert answer.status in {200, 400, 404, 422}, answer.content


@pytest.mark.parametrize(
    "found", ["%00", "%ff", "..%2f..", "%0a", "a" * 3000, "'--", "%F0%9F%92%A9"]
)
def test_strange_ids_are_not_found(world, unchanged, found):
    for kind in ("jobs", "datasets", "base-models", "deployments", "model-versions", "decisions"):
        answer = world.ask("GET", f"/v1/{kind}/{found}")
        assert answer.status in {400, 404}, (kind, answer.content)
        assert answer.problem["detail"]


def operations(world):
    for path, methods in world.app.openapi()["paths"].items():
        for method in methods:
            if path.startswith("/v1/"):
                yield method.upper(), path


def test_every_operation_answers_problems(world, unchanged):
    found = list(operations(world))
    assert len(found) > 25
    for method, template in found:
        path = template
        for name, value in {"index": "4711", "form": "pdf", "export_id": "exp_x"}.items():
            path = path.replace("{" + name + "}", value)
        path = re.sub(r"\{\w+\}", new_id(Prefix.JOB), path)
        wrong = world.ask("PATCH", path)
        assert (wrong.status, wrong.slug) == (405, "method-not-allowed"), path
        assert method in wrong.headers["allow"] or "{" not in template, path
        if "{" in template and method == "GET":
            missing = world.ask(method, path, "vera")
            assert (missing.status, missing.slug) == (404, "not-found"), path
        if template == "/v1/log/keys":
            continue
        anonymous = world.ask(method, path, None)
        assert (anonymous.status, anonymous.slug) == (401, "unauthenticated"), path
        assert anonymous.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/", "/v2/jobs", "/v1/jobs/x/y", "/admin", "/.env"]
)
def test_unknown_paths_are_problems(world, unchanged, path):
    answer = world.ask("GET", path)

    assert (answer.status, answer.slug) == (404, "not-found")


def test_every_answer_names_its_request(world):
    for answer in (world.ask("GET", "/v1/me"), world.ask("GET", "/v1/nothing")):
        assert answer.headers["request-id"].startswith("req_")
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.problem["instance"] == answer.headers["request-id"]


REFERENCES = sorted(name for name in Governance.model_fields if name.endswith("_reference"))


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("given", ["ana-sousa", "Ana Sousa 7", "ana@house.example", "a1" * 33, ""])
def test_a_reference_is_an_identifier_and_no_name(world, unchanged, name, given):
    answer = world.ask("POST", "/v1/jobs", body=world.job_body(governance={name: given}))

    (error,) = answer.problem["errors"]
    assert (answer.status, error["pointer"]) == (422, f"/governance/{name}")
    assert "expected an identifier such as `GRC-1042`" in error["detail"]


def test_every_reference_of_every_request_is_an_identifier(world):
    schemas = world.app.openapi()["components"]["schemas"]
    named = {
        f"{owner}.{name}": field
        for owner, schema in schemas.items()
        for name, field in schema.get("properties", {}).items()
        if name == "ticket" or name.endswith("_reference")
    }
    assert len(named) == len(REFERENCES) + 5
    for name, field in named.items():
        shapes = [one for one in field.get("anyOf", [field]) if one.get("type") != "null"]
        assert [one["pattern"] for one in shapes] == [REFERENCE_PATTERN], name


@pytest.mark.parametrize("given", ["GRC-1042", "org/repo#12", "2026:7", "DPIA_3.1"])
def test_an_identifier_of_another_system_is_taken(given):
    assert Governance(fria_reference=given).fria_reference == given


def test_what_was_recorded_under_a_wider_shape_is_read_back():
    with pytest.raises(ValidationError):
        Governance.model_validate({"fria_reference": "the-big-file"})
    read = Governance.model_validate({"fria_reference": "the-big-file"}, context=STORED)
    assert read.fria_reference == "the-big-file"


def overreaches(operator_log):
    return [line for line in operator_log if line["event"] == "request.overreach"]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/decisions:preview"])
@pytest.mark.parametrize("member", ["policy", "policy_url", "facts", "derived", "verdict"])
def test_who_sends_what_the_service_decides_is_refused_and_noted(
    world, unchanged, operator_log, path, member
):
    """skypilot#10374: the server's value wins, and the attempt is logged."""
    body = {**world.job_body(), member: "https://secret.example/Ana-Sousa"}

    answer = world.ask("POST", path, "ada", body)

    assert answer.status == 422
    (noted,) = overreaches(operator_log)
    assert noted["members"] == [member]
    assert noted["principal"] == world.ids["ada"]
    assert noted["route"] == f"POST {path}"
    assert "request_id" in noted
    assert "secret" not in repr(operator_log)
    assert "Sousa" not in repr(operator_log)


def test_a_member_inside_another_is_noted_and_other_names_are_not(world, unchanged, operator_log):
    body = world.job_body()
    body["compute"] = {**body["compute"], "country": "FR", "Ana Sousa": 1}

    assert world.ask("POST", "/v1/jobs", "ada", body).status == 422

    (noted,) = overreaches(operator_log)
    assert noted["members"] == ["country"]
    assert "Sousa" not in repr(operator_log)


def test_an_ordinary_mistake_is_not_noted(world, unchanged, operator_log):
    assert world.ask("POST", "/v1/jobs", "ada", {"nmae": "x"}).status == 422
    assert overreaches(operator_log) == []


def test_no_request_has_a_member_that_is_noted(world):
    schemas = world.app.openapi()["components"]["schemas"]
    known = {
        (owner, name)
        for owner, schema in schemas.items()
        if schema.get("additionalProperties") is False
        for name in schema.get("properties", {})
    }
    assert len(known) > 50
    assert {name for _, name in known} & DECIDED_HERE == set()
