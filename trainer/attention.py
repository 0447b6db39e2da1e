"""Attention that cannot look into a neighbouring document of a pack.

Each document is attended on its own, with a causal mask and no other, so there is no mask that
could be wrong and no work for pairs of tokens that must not see each other. `register` makes it
known to transformers as `placet_documents`; the borders come as `cu_seq_lens_q` (documents + 1
offsets, as FlashAttention names them). Without borders the whole sequence is one document.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

NAME = "placet_documents"


def register() -> None:
    """Make the attention known to transformers; to do so again changes nothing."""
    AttentionInterface.register(NAME, attend_documents)
    AttentionMaskInterface.register(NAME, _no_mask)


def attend_documents(
    _module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    cu_seq_lens_q: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend within each document.

    Args:
        _module: The calling layer, which transformers passes first.
        query: (batch, heads, seq, dim).
        key: (batch, key heads, seq, dim).
        value: (batch, key heads, seq, dim).
        attention_mask: Must be None.
        scaling: Factor on the scores.
        cu_seq_lens_q: (documents + 1) offsets, from 0 to seq; None is one document.

    Returns:
        (batch, seq, heads, dim) and None in place of weights.

    Raises:
        ValueError: when a mask is passed, which this attention would ignore.
    """
    if attention_mask is not None:
        raise ValueError("expected no attention mask, got one; documents are given by offsets")
    grouped = key.shape[1] != query.shape[1]
    bounds = [0, query.shape[2]] if cu_seq_lens_q is None else cu_seq_lens_q.tolist()
    parts = [
        scaled_dot_product_attention(
            query[:, :, start:end],
            key[:, :, start:end],
            value[:, :, start:end],
            is_causal=True,
            scale=scaling,
            enable_gqa=grouped,
        )
        for start, end in pairwise(bounds)
    ]
    out = torch.cat(parts, dim=2) if len(parts) > 1 else parts[0]  # (batch, heads, seq, dim)
    return out.transpose(1, 2).contiguous(), None


def _no_mask(*_: Any, **__: Any) -> None:
    """Stand in for the mask that transformers would build."""
