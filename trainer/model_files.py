"""Files of a model directory that are read without the model: its tokenizer."""

from pathlib import Path

from transformers import AutoTokenizer

from trainer.render import Tokenizer

WEIGHT_SUFFIXES = (".safetensors", ".safetensors.index.json", ".bin", ".gguf")


def load_tokenizer(directory: Path) -> Tokenizer:
    """Load the tokenizer from local files only, without running code from the directory."""
    tokenizer: Tokenizer = AutoTokenizer.from_pretrained(
        directory, local_files_only=True, trust_remote_code=False
    )
    return tokenizer
