"""Load a base model, freeze it, and put adapters beside its linear layers."""

import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save
from torch import Tensor
from transformers import AutoModelForCausalLM

from trainer import attention
from trainer.contract import AdapterSpec
from trainer.lora import ADAPTER, fuse
from trainer.model_files import be_quiet

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Adapted:
    """A frozen base model with trainable adapters.

    Attributes:
        peft: The whole, for saving and merging.
        body: The decoder without its head: ids to hidden states.
        head: The output projection, (vocabulary, hidden) weight.
        device: Where it is.
    """

    peft: PeftModel
    body: torch.nn.Module
    head: torch.nn.Module
    device: torch.device

    def trainable(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Yield the adapter's parameters by name, in the model's order."""
        for name, parameter in self.peft.named_parameters():
            if parameter.requires_grad:
                yield name, parameter

    def num_adapter_parameters(self) -> int:
        """Count the trained parameters."""
        return sum(parameter.numel() for _, parameter in self.trainable())

    def num_multiplied(self) -> tuple[int, int]:
        """Count the base's multiplied parameters: (linear layers of the body, head)."""
        body = sum(
            parameter.numel()
            for name, parameter in self.body.named_parameters()
            if name.endswith("base_layer.weight")
        )
        return body, sum(parameter.numel() for parameter in self.head.parameters())

    def num_parameters(self) -> int:
        """Count all distinct parameters of the base."""
        return sum(p.numel() for p in self.peft.parameters() if not p.requires_grad)


def load_base(directory: Path, *, precision: str, device: torch.device) -> torch.nn.Module:
    """Load the base model's safetensors, without running code from its directory.

    Args:
        directory: Local directory that was verified.
        precision: `fp32` or `bf16`.
        device: Where to put it.
    """
    be_quiet()
    attention.register()
    model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(
        directory,
        dtype=DTYPES[precision],
        attn_implementation=attention.NAME,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
    )
    return model.to(device).requires_grad_(requires_grad=False)


def adapt(base: torch.nn.Module, spec: AdapterSpec, *, seed: int) -> Adapted:
    """Add adapters; their initial weights depend on `seed` and nothing else.

    Args:
        base: A frozen causal language model.
        spec: Rank, scale and dropout.
        seed: Set right before the adapters are made.
    """
    model: Any = base
    config = LoraConfig(
        r=spec.rank,
        lora_alpha=spec.alpha,
        lora_dropout=float(spec.dropout),
        target_modules=spec.targets,
        task_type="CAUSAL_LM",
    )
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers warns about its own renaming
        peft = get_peft_model(model, config, adapter_name=ADAPTER)
    if spec.dropout == 0:
        fuse(peft)
    body, head = model.get_decoder(), model.get_output_embeddings()
    return Adapted(peft=peft, body=body, head=head, device=head.weight.device)


def adapter_tensors(adapted: Adapted) -> dict[str, Tensor]:
    """Return copies of the adapter's weights on the CPU, by parameter name."""
    return {name: p.detach().to("cpu", copy=True) for name, p in adapted.trainable()}


def load_adapter_tensors(adapted: Adapted, tensors: dict[str, Tensor]) -> None:
    """Put stored adapter weights back.

    Raises:
        ValueError: when a name or a shape does not fit.
    """
    own = dict(adapted.trainable())
    if own.keys() != tensors.keys():
        raise ValueError("expected the adapter's own tensors, got others")
    with torch.no_grad():
        for name, parameter in own.items():
            if parameter.shape != tensors[name].shape:
                raise ValueError(f"expected `{name}` of shape {tuple(parameter.shape)}")
            parameter.copy_(tensors[name])


def tensors_digest(tensors: dict[str, Tensor]) -> str:
    """Return the digest of tensors as canonical safetensors bytes."""
    return "sha256:" + hashlib.sha256(save({k: tensors[k] for k in sorted(tensors)})).hexdigest()


def frozen_digest(adapted: Adapted) -> str:
    """Return a digest over a sample of every frozen tensor: its first 64 and last 64 values."""
    hasher = hashlib.sha256()
    for name, parameter in adapted.peft.named_parameters():
        if not parameter.requires_grad:
            flat = parameter.detach().flatten()
            sample = torch.cat([flat[:64], flat[-64:]]).float().cpu()
            hasher.update(name.encode() + sample.numpy().tobytes())
    return "sha256:" + hasher.hexdigest()
