"""Make a base-model directory: convert a GGUF file to safetensors, always to the same bytes.

The model is dequantized and stored in bf16, which halves the file and loses nothing that a 4-bit
file still had. Files are written with sorted members and fixed modes, so that the directory's
files manifest has the same digest wherever the same versions of the libraries convert it.
"""

import shutil
import tempfile
import warnings
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from trainer.contract import digest
from trainer.model_files import be_quiet
from trainer.refusal import Reason, RefusedError


def convert_gguf(gguf_path: Path, out_dir: Path, *, sha256: str | None = None) -> None:
    """Write the safetensors directory of a GGUF file; cost: seconds per gigabyte.

    Args:
        gguf_path: The GGUF file.
        out_dir: A directory that does not exist yet.
        sha256: Hex digest that the file must have; None accepts any.

    Raises:
        RefusedError: when the file has another digest.
        FileExistsError: when `out_dir` exists.
    """
    found = digest(gguf_path.read_bytes()).removeprefix("sha256:")
    if sha256 is not None and found != sha256:
        raise RefusedError(
            Reason.BASE_MODEL_CHANGED, f"expected {sha256}, got {found}; download the file again"
        )
    if out_dir.exists():
        raise FileExistsError(f"expected `{out_dir}` not to exist, got a path; remove it first")
    be_quiet()
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out_dir.parent) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers warns about its own renaming
        staged = Path(folder) / "base"
        tokenizer = AutoTokenizer.from_pretrained(gguf_path.parent, gguf_file=gguf_path.name)
        model = AutoModelForCausalLM.from_pretrained(
            gguf_path.parent,
            gguf_file=gguf_path.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.float32,
        )
        model.to(torch.bfloat16).save_pretrained(staged)
        tokenizer.save_pretrained(staged)
        for path in staged.iterdir():
            path.chmod(0o644)
        shutil.move(staged, out_dir)
