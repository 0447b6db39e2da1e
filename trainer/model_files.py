"""What is read of a model directory without the model, and quiet libraries."""

from pathlib import Path

from transformers import AutoTokenizer
from transformers.utils import logging

from trainer.render import Tokenizer

WEIGHT_SUFFIXES = (".safetensors", ".safetensors.index.json", ".bin", ".gguf")


def load_tokenizer(directory: Path) -> Tokenizer:
    """Load the tokenizer from local files only, without running code from the directory."""
    tokenizer: Tokenizer = AutoTokenizer.from_pretrained(
        directory, local_files_only=True, trust_remote_code=False
    )
    return tokenizer


def be_quiet() -> None:
    """Keep transformers' progress bars and warnings off our output."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()
