"""Serving: a real server over a tiny random model, and over the small real one when it is there."""

import http.client
import json
import time
from pathlib import Path

import pytest

from service.engines import process
from service.serving import LocalServing, ServingError, ServingObservation, ServingState

MESSAGES = [{"role": "user", "content": "May we train on patient letters?"}]


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory) -> Path:
    """Save a two-layer random Llama with a byte tokenizer and a chat template."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("model")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: index for index, text in enumerate([*alphabet, "<s>", "</s>"])}
    raw = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    tokenizer.chat_template = (
        "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}</s>{% endfor %}"
        "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        bos_token_id=vocabulary["<s>"],
        eos_token_id=vocabulary["</s>"],
        pad_token_id=vocabulary["</s>"],
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def serving(tmp_path):
    root = tmp_path / "serving"
    yield LocalServing(root, device="cpu")
    for folder in process.folders(root):
        process.stop(folder, now=1e12, grace_s=0.0)


@pytest.fixture
def sleeping(serving, tmp_path):
    """Serve with a program that never answers: quick, and a server that is still loading."""
    script = tmp_path / "sleeping"
    script.write_text('#!/bin/sh\ncase $3 in *supervisor.py) exec python3 "$@";; esac\nsleep 60\n')
    script.chmod(0o755)
    serving._python = script
    return serving


@pytest.fixture
def model_dir(tmp_path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def until_state(serving, ref: str, wanted: ServingState, within_s: float = 90.0):
    end = time.monotonic() + within_s
    while (seen := serving.observe(ref)).state is not wanted:
        assert time.monotonic() < end, f"{seen}: {serving.logs(ref, 0)[-2000:]!r}"
        assert seen.state is not ServingState.FAILED, serving.logs(ref, 0)[-2000:]
        time.sleep(0.1)
    return seen


def ask(port: int, **members: object) -> tuple[int, dict]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = {"messages": MESSAGES, "max_tokens": 4, **members}
    connection.request(
        "POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
    )
    answer = connection.getresponse()
    members = json.loads(answer.read())
    connection.close()
    return answer.status, members


def check_served(serving: LocalServing, model: Path, root: Path) -> None:
    endpoint = serving.start("dep_1", model, "help-desk-1")
    until_state(serving, endpoint.ref, ServingState.READY)

    status, answer = ask(endpoint.port, model="help-desk-1")
    assert status == 200
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert answer["usage"]["completion_tokens"] == 4
    assert answer["model"] == "help-desk-1"
    assert str(model) not in json.dumps(answer)

    status, answer = ask(endpoint.port, model="another/model")
    assert status == 400
    assert "pinned" in json.dumps(answer)

    adopting = LocalServing(root, device="cpu")  # as after a restart of the service
    assert adopting.find("dep_1") == endpoint
    assert adopting.start("dep_1", model, "help-desk-1") == endpoint
    assert adopting.observe(endpoint.ref) == ServingObservation(ServingState.READY)
    adopting.stop(endpoint.ref)
    until_state(adopting, endpoint.ref, ServingState.STOPPED)
    with pytest.raises(OSError, match="refused"):
        ask(endpoint.port)


@pytest.mark.timeout(180)
def test_a_model_answers_under_its_name_only_until_it_is_stopped(serving, tiny_model, tmp_path):
    check_served(serving, tiny_model, tmp_path / "serving")


@pytest.mark.model
@pytest.mark.timeout(300)
def test_the_small_real_model_answers(serving, real_base_model, tmp_path):
    check_served(serving, real_base_model, tmp_path / "serving")


def test_starting_is_idempotent_while_it_lives(sleeping, model_dir):
    first = sleeping.start("dep_1", model_dir, "m")

    assert sleeping.start("dep_1", model_dir, "m") == first
    assert sleeping.observe(first.ref).state is ServingState.STARTING


def test_another_model_under_the_same_deployment_is_refused(sleeping, model_dir, tmp_path):
    sleeping.start("dep_1", model_dir, "m")

    with pytest.raises(ServingError, match="stop it first"):
        sleeping.start("dep_1", model_dir, "other")


def test_after_a_stop_the_next_start_is_a_new_attempt(sleeping, model_dir):
    first = sleeping.start("dep_1", model_dir, "m")
    sleeping.stop(first.ref)
    until_state(sleeping, first.ref, ServingState.STOPPED)

    second = sleeping.start("dep_1", model_dir, "m")

    assert (first.ref, second.ref) == ("serving:dep_1.1", "serving:dep_1.2")
    assert sleeping.find("dep_1") == second
    assert sleeping.observe(first.ref).state is ServingState.STOPPED


def test_a_server_that_dies_has_failed_and_can_be_started_again(serving, model_dir, tmp_path):
    serving._python = tmp_path / "dying"
    serving._python.write_text(
        '#!/bin/sh\ncase $3 in *supervisor.py) exec python3 "$@";; esac\nexit 3\n'
    )
    serving._python.chmod(0o755)
    endpoint = serving.start("dep_1", model_dir, "m")
    end = time.monotonic() + 20
    while serving.observe(endpoint.ref).state is not ServingState.FAILED:
        assert time.monotonic() < end
        time.sleep(0.02)

    assert serving.observe(endpoint.ref).reason == "exit status 3"
    assert serving.start("dep_1", model_dir, "m").ref == "serving:dep_1.2"


def test_another_program_on_the_port_is_not_taken_for_the_model(sleeping, model_dir, tmp_path):
    import threading
    from http.server import HTTPServer, SimpleHTTPRequestHandler

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_arguments):
            return

    endpoint = sleeping.start("dep_1", model_dir, "m")
    server = HTTPServer(("127.0.0.1", endpoint.port), Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        assert sleeping.observe(endpoint.ref).state is ServingState.STARTING
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("deployment_id", "name"),
    [("../x", "m"), ("", "m"), ("dep_1", "../m"), ("dep_1", ""), ("dep_1", "a/b"), ("a.b", "m")],
)
def test_odd_names_are_refused(serving, model_dir, deployment_id, name):
    with pytest.raises(ServingError):
        serving.start(deployment_id, model_dir, name)


def test_a_folder_without_a_model_is_refused(serving, tmp_path):
    with pytest.raises(ServingError, match="export the model first"):
        serving.start("dep_1", tmp_path, "m")


@pytest.mark.parametrize("ref", ["", "serving:x.1", "serving:../x.1", "local:run_1", "serving:x"])
def test_unknown_references_are_refused(serving, ref):
    for call in (serving.observe, serving.stop, lambda ref: serving.logs(ref, 0)):
        with pytest.raises(ServingError, match="was started here"):
            call(ref)
    assert serving.find("dep_9") is None
