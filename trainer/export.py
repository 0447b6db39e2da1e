"""Merge an adapter into its base, and refuse when the merged model says something else.

The product B A is added in fp32 and rounded once to the type of the base's files unless another is
asked for: a server then needs no adapter code, and the directory stays as small as the base. A
small adapter can vanish in that rounding, so the merged directory is loaded again and compared with
the adapter on prompts: the mean KL divergence of the next-token distributions, in nats, must be
below `MAX_KL` and below a tenth of what the adapter itself changes, or nothing is left behind.
Tokenizer files are copied byte for byte.
"""

import json
import shutil
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path

import torch
from peft import PeftModel
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax
from transformers import AutoModelForCausalLM

from trainer.model_files import WEIGHT_SUFFIXES, be_quiet, load_tokenizer
from trainer.refusal import Reason, RefusedError
from trainer.strict import JsonValue, as_json, decimal_text

MAX_KL = 1e-2
MAX_SHARE = 0.1
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
PROMPTS = (
    "What must be recorded before a model is deployed?",
    "Quelles données personnelles sont traitées ?",
    "Wer darf diese Entscheidung genehmigen?",
    "¿Dónde se almacenan los datos del hospital?",
    "Quem responde pelo sistema?",
    "Kto prowadzi rejestr czynności?",
    "List three risks of this system.",
    "Summarise the decision in one sentence.",
)


@dataclass(frozen=True, slots=True)
class MergeReport:
    """KL divergences in nats per position: adapter from merged, and adapter from base."""

    kl_merged: Decimal
    kl_adapter: Decimal
    dtype: str
    num_positions: int

    def to_json(self) -> JsonValue:
        """Return the report as JSON members."""
        members = asdict(self)
        members |= {"kl_merged": f"{self.kl_merged:f}", "kl_adapter": f"{self.kl_adapter:f}"}
        return as_json(members)


def export_merged(base_dir: Path, adapter_dir: Path, out_dir: Path, *, dtype: str) -> MergeReport:
    """Write the merged directory; cost: two loads of the model and a few hundred tokens.

    Args:
        base_dir: The base model that the adapter was trained on.
        adapter_dir: `adapter_config.json` and `adapter_model.safetensors`.
        out_dir: A directory that does not exist yet.
        dtype: `fp32` or `bf16`, of the merged files.

    Raises:
        RefusedError: when the merged model differs from the adapter; `out_dir` is removed.
        FileExistsError: when `out_dir` exists.
    """
    if out_dir.exists():
        raise FileExistsError(f"expected `{out_dir}` not to exist, got a path; remove it first")
    be_quiet()
    tokenizer = load_tokenizer(base_dir)
    prompts = [
        torch.tensor(
            [
                tokenizer.encode(
                    tokenizer.apply_chat_template(
                        [{"role": "user", "content": prompt}],
                        tokenize=False,
                        add_generation_prompt=True,
                    ),
                    add_special_tokens=False,
                )
            ]
        )
        for prompt in PROMPTS
    ]
    base = _load(base_dir)
    before = _log_probabilities(base, prompts)
    adapted = PeftModel.from_pretrained(base, str(adapter_dir), local_files_only=True)
    adapter = _log_probabilities(adapted, prompts)
    merged = adapted.merge_and_unload()
    merged.to(DTYPES[dtype]).save_pretrained(out_dir)
    _copy_tokenizer(base_dir, out_dir)
    after = _log_probabilities(_load(out_dir), prompts)
    report = MergeReport(
        kl_merged=_kl(adapter, after),
        kl_adapter=_kl(adapter, before),
        dtype=dtype,
        num_positions=len(adapter),
    )
    if report.kl_merged > MAX_KL or report.kl_merged > Decimal(MAX_SHARE) * report.kl_adapter:
        shutil.rmtree(out_dir)
        raise RefusedError(
            Reason.MERGE,
            f"the merged model differs from the adapter by {report.kl_merged} nats, the adapter "
            f"from the base by {report.kl_adapter}; use --dtype fp32, or serve the adapter itself",
        )
    return report


def _load(directory: Path) -> torch.nn.Module:
    model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(
        directory,
        dtype=torch.float32,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
    )
    return model.eval()


def _log_probabilities(model: torch.nn.Module, prompts: list[Tensor]) -> Tensor:
    """Return (positions of all prompts, vocabulary)."""
    with torch.no_grad():
        return torch.cat(
            [
                log_softmax(model(input_ids=ids, use_cache=False).logits[0], dim=-1)
                for ids in prompts
            ]
        )


def _kl(reference: Tensor, other: Tensor) -> Decimal:
    """Return the mean KL(reference || other) in nats; rounding below zero counts as zero."""
    value = float(kl_div(other, reference, log_target=True, reduction="batchmean"))
    return Decimal(decimal_text(max(0.0, value), 9))


def _copy_tokenizer(base_dir: Path, out_dir: Path) -> None:
    """Copy what is not a weight, the config or an index of weights."""
    for path in sorted(base_dir.iterdir()):
        is_weight = path.name.endswith(WEIGHT_SUFFIXES)
        if path.is_file() and not is_weight and path.name != "config.json":
            shutil.copyfile(path, out_dir / path.name)
    for path in out_dir.iterdir():
        path.chmod(0o644)


def stored_dtype(base_dir: Path) -> str:
    """Return `bf16` or `fp32`, the type of the base's files (fp32 unless the config says bf16)."""
    config = json.loads((base_dir / "config.json").read_text(encoding="utf-8"))
    name = config.get("dtype") or config.get("torch_dtype")
    return "bf16" if name == "bfloat16" else "fp32"
