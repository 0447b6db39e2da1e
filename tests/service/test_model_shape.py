"""What a base model's own config says about its sizes."""

import json

import pytest

from service.model_shape import read

LLAMA = {
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
}


def test_the_sizes_that_estimates_rest_on_are_read():
    assert read(json.dumps(LLAMA).encode()) == {
        "layers": 30,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "vocabulary_size": 49152,
        "attention_heads": 9,
        "kv_heads": 3,
    }


@pytest.mark.parametrize("value", [None, True, 0, -1, 1.5, "576", 10**12, [576], {}])
def test_a_size_that_no_model_has_is_left_out(value):
    assert "hidden_size" not in read(json.dumps({**LLAMA, "hidden_size": value}).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"\xff", b"{", b"[" * 100_000])
def test_what_is_no_config_has_no_sizes(data):
    assert read(data) == {}
