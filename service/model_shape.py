"""The sizes of a base model, read from its own `config.json` at registration.

Estimates of memory rest on them. What the file does not say, or says in a way that no model has,
is left out: unknown, never guessed. Only numbers leave this module.

    {"num_hidden_layers": 30, "hidden_size": 576, …} -> {"layers": 30, "hidden_size": 576, …}
"""

import json

CONFIG = "config.json"
MAX_BYTES = 1_048_576
_MAX_SIZE = 10_000_000
_MEMBERS = {
    "layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "vocabulary_size": "vocab_size",
    "attention_heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
}


def read(data: bytes) -> dict[str, int]:
    """Return the sizes that a `config.json` states, by the names that facts use; {} if none."""
    try:
        config = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(config, dict):
        return {}
    stated = {name: config.get(member) for name, member in _MEMBERS.items()}
    return {
        name: value
        for name, value in stated.items()
        if type(value) is int and 1 <= value <= _MAX_SIZE
    }
