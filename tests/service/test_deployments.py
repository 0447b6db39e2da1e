"""From a model version to something that answers: gate, approval, documents, gateway."""

import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from audit.canonical import digest
from policies.reference import Reference
from service.serving import ServingState


@pytest.fixture
def database_url(tmp_path):
    """Use SQLite alone: nothing here depends on the database, and other files run on both."""
    return f"sqlite:///{tmp_path / 'placet.db'}"


CHAT = {"messages": [{"role": "user", "content": "hello"}], "temperature": 1}


@pytest.fixture
def answering():
    """Run a model server that keeps what it is asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers["Content-Length"])
            asked.append((self.path, json.loads(self.rfile.read(length))))
            body = json.dumps({"choices": [{"message": {"content": "hi"}}]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.asked = asked
    yield server
    server.shutdown()
    server.server_close()


def chat(world, deployment, who="ada", **options):
    path = f"/v1/deployments/{deployment['id']}/openai/v1/chat/completions"
    return world.ask("POST", path, who, options.pop("body", CHAT), **options)


def read(world, deployment, who="ada"):
    return world.get(f"/v1/deployments/{deployment['id']}", who)


def approved(world, **changes):
    deployment = world.request_deployment(**changes)
    return world.approve_deployment(deployment)


def test_a_deployment_needs_an_officer_who_did_not_ask(world):
    deployment = world.request_deployment()
    assert deployment["state"] == "awaiting_approval"
    world.worker.work()
    assert not world.host.started

    for who, status in (("ada", 403), ("vera", 403), ("eve", 404)):
        answer = world.ask(
            "POST",
            f"/v1/deployments/{deployment['id']}/approvals",
            who,
            {"outcome": "given"},
            seen=deployment["version"],
        )
        assert answer.status == status

    assert world.approve_deployment(deployment)["state"] == "approved"


def test_both_documents_are_issued_by_the_transaction_that_activates(world):
    deployment = world.active_deployment()

    assert world.kinds()[-3:] == ["card.issued", "transparency.issued", "deployment.activated"]
    activated = world.entries()[-1]
    assert activated.data["card"] == deployment["card_digest"]
    assert activated.data["transparency"] == deployment["transparency_digest"]
    for name in ("card", "transparency"):
        body = world.ask("GET", f"/v1/deployments/{deployment['id']}/{name}.json").content
        assert digest(body) == deployment[f"{name}_digest"]


def test_a_failed_activation_issues_nothing(world, monkeypatch):
    from service import documents

    deployment = approved(world)
    world.worker.work()
    before = world.counts()

    def fail(*_args, **_options):
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(documents, "issue", fail)
        world.worker.work()
    after = world.counts()

    assert {k: v for k, v in after.items() if k != "audit_entry"} == {
        k: v for k, v in before.items() if k != "audit_entry"
    }
    assert "card.issued" not in world.kinds()
    assert read(world, deployment)["state"] == "approved"


def test_every_field_of_both_documents_has_a_source_or_is_missing(world):
    deployment = world.active_deployment()

    for name in ("card", "transparency"):
        document = world.get(f"/v1/deployments/{deployment['id']}/{name}.json")
        found = list(_fields(document))
        assert len(found) > 20, document.keys()
        for field in found:
            assert field.get("source") or field.get("missing"), field


def _fields(value):
    if isinstance(value, dict):
        if "value" in value or "missing" in value:
            yield value
            return
        for member in value.values():
            yield from _fields(member)
    elif isinstance(value, list):
        for item in value:
            yield from _fields(item)


@pytest.mark.parametrize("form", ["json", "md", "html"])
def test_the_card_is_there_in_every_form(world, form):
    deployment = world.active_deployment()

    answer = world.ask("GET", f"/v1/deployments/{deployment['id']}/card.{form}")

    assert answer.status == 200
    assert b"helpdesk" in answer.content


def test_the_transparency_page_is_public_and_inert(world):
    deployment = world.active_deployment(
        intended_use="Answers <script>alert(1)</script> questions of staff."
    )

    answer = world.ask("GET", f"/transparency/{deployment['id']}", None)

    assert answer.status == 200
    assert b"<script" not in answer.content
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for unknown in ("dep_x", "%00", deployment["id"].upper()):
        assert world.ask("GET", f"/transparency/{unknown}", None).status in {400, 404}


def test_nothing_is_public_before_the_activation(world):
    deployment = approved(world)

    for path in (
        f"/transparency/{deployment['id']}",
        f"/v1/deployments/{deployment['id']}/card.json",
    ):
        assert world.ask("GET", path).status == 404


def test_only_an_active_deployment_answers(world, answering):
    world.host.port = answering.server_port
    world.host.state = ServingState.STARTING
    deployment = world.request_deployment()
    states = [deployment["state"]]
    refused = [chat(world, deployment)]
    world.approve_deployment(deployment)
    refused.append(chat(world, deployment))
    world.worker.work()
    refused.append(chat(world, deployment))
    assert [answer.status for answer in refused] == [409, 409, 409]
    assert not answering.asked
    world.host.state = ServingState.READY
    world.worker.work()

    answer = chat(world, deployment)

    assert (states, answer.status) == (["awaiting_approval"], 200)
    assert answer.json["choices"][0]["message"]["content"] == "hi"


def test_the_gateway_says_that_it_is_ai_and_names_the_record(world, answering):
    world.host.port = answering.server_port
    deployment = world.active_deployment()

    answer = chat(world, deployment, body=CHAT | {"model": "another/model"})

    assert "AI" in answer.headers["ai-disclosure"]
    assert f"/transparency/{deployment['id']}" in answer.headers["link"]
    assert answer.headers["placet-artefacts"] == deployment["artefacts_digest"]
    assert answering.asked[0][1]["model"] == "helpdesk-live"


def test_the_gateway_takes_the_decimal_numbers_that_chat_clients_send(world, answering):
    world.host.port = answering.server_port
    deployment = world.active_deployment()

    answer = chat(world, deployment, body=CHAT | {"temperature": 0.7, "top_p": 0.95})

    assert answer.status == 200
    assert answering.asked[0][1]["temperature"] == 0.7


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"a":1,"a":2}', b'{"temperature": NaN}', b""])
def test_the_gateway_refuses_what_is_no_chat(world, answering, raw):
    world.host.port = answering.server_port
    deployment = world.active_deployment()

    answer = chat(world, deployment, body=None, raw=raw)

    assert answer.status in {400, 422}
    assert answer.problem["detail"]
    assert not answering.asked


def test_the_gateway_does_not_pretend_to_stream(world, answering):
    world.host.port = answering.server_port
    deployment = world.active_deployment()

    answer = chat(world, deployment, body=CHAT | {"stream": True})

    assert answer.status == 422
    assert "stream" in answer.problem["detail"]


def test_the_gateway_of_another_team_is_not_there(world, answering):
    world.host.port = answering.server_port
    deployment = world.active_deployment()

    assert chat(world, deployment, "eve").status == 404
    assert chat(world, deployment, None).status == 401
    assert not answering.asked


def test_an_endpoint_that_is_away_is_a_problem(world):
    world.host.port = 9
    deployment = world.active_deployment()

    answer = chat(world, deployment)

    assert (answer.status, answer.slug) == (502, "engine-unavailable")


def retire(world, deployment, who="olaf"):
    path = f"/v1/deployments/{deployment['id']}/retire"
    return world.ask("POST", path, who, seen=read(world, deployment)["version"])


def test_a_retired_deployment_stops(world, answering):
    world.host.port = answering.server_port
    deployment = world.active_deployment()

    answer = retire(world, deployment)

    assert answer.json["state"] == "retired"
    assert chat(world, deployment).status == 409
    world.worker.work()
    world.worker.work()
    assert world.host.stopped == [f"fake:{deployment['id']}"]
    assert world.ask("GET", f"/transparency/{deployment['id']}", None).status == 200


def test_retiring_needs_a_role_and_the_version(world):
    deployment = world.active_deployment()

    assert retire(world, deployment, "vera").status == 403
    assert world.ask("POST", f"/v1/deployments/{deployment['id']}/retire", "olaf").status == 428
    stale = world.ask("POST", f"/v1/deployments/{deployment['id']}/retire", "olaf", seen=1)
    assert stale.status == 412
    assert read(world, deployment)["state"] == "active"


def test_an_endpoint_that_dies_fails_the_deployment(world):
    deployment = world.active_deployment()
    world.host.state = ServingState.FAILED

    world.worker.work()

    after = read(world, deployment)
    assert (after["state"], after["reason_code"]) == ("failed", "endpoint_failed")
    assert world.kinds()[-1] == "deployment.failed"
    assert chat(world, deployment).status == 409


def test_an_endpoint_that_cannot_be_told_changes_nothing(world):
    deployment = world.active_deployment()
    world.host.state = ServingState.UNKNOWN

    world.worker.work()

    assert read(world, deployment)["state"] == "active"


def test_altered_artefacts_are_not_deployed(world):
    job = world.finished_job()
    deployment = world.approve_deployment(world.request_deployment(job))
    output = f"{world.wired.runs.outputs}/{job['runs'][0]['id']}"
    world.wired.objects.put(f"{output}/adapter/weights.bin", b"poisoned")

    world.worker.work()

    after = read(world, deployment)
    assert (after["state"], after["reason_code"]) == ("failed", "artefact_differs")
    assert not world.host.started
    assert not world.merge.calls


def test_a_changed_policy_brings_it_back_to_the_officers(world):
    deployment = approved(world)
    policy = world.in_force.policy
    world.restart(policy=replace(policy, rules=tuple(policy.rules[:-1])))

    world.worker.work()

    assert read(world, deployment)["state"] in {"awaiting_approval", "denied"}
    assert not world.host.started


def test_nobody_decides_in_time(world):
    deployment = world.request_deployment()
    world.clock.advance(hours=73)

    world.worker.work()

    assert read(world, deployment)["state"] == "expired"


def test_a_refusal_needs_a_reason_and_keeps_it_out_of_the_log(world):
    deployment = world.request_deployment()
    path = f"/v1/deployments/{deployment['id']}/approvals"
    bare = world.ask("POST", path, "olaf", {"outcome": "refused"}, seen=deployment["version"])
    assert bare.problem["errors"][0]["pointer"] == "/reason"

    refused = world.post(
        path,
        "olaf",
        {"outcome": "refused", "reason": "Ada Quillfeather left"},
        seen=deployment["version"],
    )

    assert refused["state"] == "refused"
    assert b"Quillfeather" not in repr(world.entries()).encode()
    assert list(world.entries()[-1].sealed) == ["reason"]


@pytest.mark.parametrize("model", ["mv_x", "mv_00000000000000000000000000", "bad id"])
def test_an_unknown_model_version_is_named(world, model):
    answer = world.ask("POST", "/v1/deployments", body=world.deployment_body(model))

    assert answer.status == 422
    assert answer.problem["errors"][0]["pointer"] == "/model_version"


def test_a_deployment_without_texts_for_its_users_says_so(world):
    deployment = world.request_deployment(serves_public=True, notices={}, languages=["fr"])

    rules = {finding["rule"] for finding in deployment["decision"]["findings"]}
    assert "deploy.transparency-texts" in rules


def started(world, **changes):
    """Return an approved deployment whose endpoint is up and which is not active yet."""
    deployment = approved(world, **changes)
    world.worker.work()
    assert world.host.started
    return deployment


def test_the_gate_is_asked_again_when_it_activates(world, operator_log):
    deployment = started(world)
    world.clock.advance(hours=26)  # a day more since the model was measured is another fact

    world.worker.work()

    again = read(world, deployment)
    assert again["state"] == "awaiting_approval"
    assert again["decision"]["id"] != deployment["decision"]["id"]
    assert again["decision"]["approvals"] == []
    assert world.kinds()[-1] == "gate.decided"
    assert "deployment.activated" not in world.kinds()
    assert chat(world, deployment).status == 409
    (stale,) = [line for line in operator_log if line["event"] == "approval.stale"]
    assert stale["changed"] == ["facts"]

    world.approve_deployment(again)
    world.worker.work()
    assert read(world, deployment)["state"] == "active"


def test_an_endpoint_that_was_started_stops_when_the_second_answer_is_no(world):
    deployment = started(world)
    world.clock.advance(hours=26)
    world.worker.work()
    again = read(world, deployment)
    world.post(
        f"/v1/deployments/{deployment['id']}/approvals",
        "olaf",
        {"outcome": "refused", "reason": "too old"},
        seen=again["version"],
    )

    world.worker.work()

    assert world.host.stopped == [f"fake:{deployment['id']}"]


def test_an_endpoint_that_was_started_stops_when_the_approval_runs_out(world):
    deployment = started(world)
    world.clock.advance(hours=73)

    world.worker.work()
    world.worker.work()

    assert read(world, deployment)["state"] == "expired"
    assert world.kinds()[-1] == "approval.expired"
    assert world.host.stopped == [f"fake:{deployment['id']}"]


def test_a_certificate_that_ends_between_approval_and_activation_stops_it(world):
    row = {
        "scheme": "hds",
        "provider": "own-site",
        "service": "local",
        "regions": ["site"],
        "status": "attested",
        "framework_version": 2,
        "activities": [1, 2, 3, 4, 5, 6],
        "valid_from": "2026-01-01",
        "valid_until": "2026-12-01",
        "source": "certificate 1234",
        "checked_on": "2026-11-30",
        "confidence": "declared",
    }
    now = world.in_force.reference
    services = now.rows("services")
    own = tuple({**services[0], **one} for one in map(_own_site, ("local", "storage")))
    tables = {
        **now.tables,
        "certificates": (row, row | {"service": "storage"}),
        "services": (*services, *own),
    }
    world.restart(reference=Reference(tables, now.site))
    health = world.register_dataset(
        categories=["health.fr.hds", "synthetic"],
        data_subject_countries=["FR"],
        legal_basis="art6.1.e",
        art9_basis="art9.2.h",
        dpia_reference="dpia-1",
    )
    job = world.finished_job(dataset=health["id"])
    deployment = world.request_deployment(job)
    for who in ("olaf", "omar"):
        if deployment["state"] == "awaiting_approval":
            deployment = world.approve_deployment(deployment, who)
    world.worker.work()
    assert world.host.started
    world.clock.advance(hours=37)  # 2 December, one o'clock

    world.worker.work()

    again = read(world, deployment)
    assert again["state"] == "denied"
    assert ("hds.serving", "violated") in {
        (one["rule"], one["outcome"]) for one in again["decision"]["findings"]
    }
    assert world.kinds()[-1] == "gate.decided"
    world.worker.work()
    assert world.host.stopped == [f"fake:{deployment['id']}"]


def _own_site(service):
    return {"provider": "own-site", "service": service}
