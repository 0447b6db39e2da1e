"""Adapter arithmetic: one autograd function per linear layer, in the type of the base weights.

PEFT makes and stores the adapters; its forward pass upcasts inputs to the adapters' fp32 and keeps
copies for the backward pass. `fuse` replaces that pass where dropout is 0: the product runs in the
type of the base weights, only the input and the inner activation are kept, and the gradients reach
fp32 master weights. The base weight is frozen, so its gradient is never computed: 4 N FLOP per
token instead of 6 N.
"""

from types import MethodType
from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import Tensor

ADAPTER = "default"


class LoraProduct(torch.autograd.Function):
    """y = x Wᵀ + s (x Aᵀ) Bᵀ with x (tokens, in), W (out, in), A (rank, in), B (out, rank)."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Return y (tokens, out) for x, W, A, B and the scale s."""
        x, w, a, b, scale = inputs
        a_low, b_low = a.to(x.dtype), b.to(x.dtype)
        inner = x @ a_low.t()  # (tokens, rank)
        y: Tensor = x @ w.t()  # (tokens, out)
        y.addmm_(inner, b_low.t(), alpha=scale)
        ctx.save_for_backward(x, w, a_low, b_low, inner)
        ctx.scale = scale
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, A and B; A and B get theirs in fp32."""
        (grad,) = grads
        x, w, a, b, inner = ctx.saved_tensors
        grad_inner = grad @ b  # (tokens, rank), without the scale
        grad_a = (grad_inner.t() @ x).float() * ctx.scale
        grad_b = (grad.t() @ inner).float() * ctx.scale
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = grad @ w  # (tokens, in)
            grad_x.addmm_(grad_inner, a, alpha=ctx.scale)
        return grad_x, None, grad_a, grad_b, None


def _forward(self: Any, x: Tensor, *_: Any, **__: Any) -> Tensor:
    flat = x.reshape(-1, x.shape[-1])
    y: Tensor = LoraProduct.apply(  # type: ignore[no-untyped-call]  # torch leaves `apply` untyped
        flat,
        self.base_layer.weight,
        self.lora_A[ADAPTER].weight,
        self.lora_B[ADAPTER].weight,
        self.scaling[ADAPTER],
    )
    return y.view(*x.shape[:-1], y.shape[-1])


def fuse(model: torch.nn.Module) -> int:
    """Use the fused product in every adapted layer without bias; return how many there are."""
    fused = 0
    for module in model.modules():
        if isinstance(module, Linear) and module.base_layer.bias is None:
            module.forward = MethodType(_forward, module)
            fused += 1
    return fused
