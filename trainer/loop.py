"""The training loop: one update after another, in an order that one integer describes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from trainer.contract import OptimizerSpec
from trainer.loss import batch_of, summed_loss
from trainer.model import Adapted
from trainer.order import philox
from trainer.pack import Pack, num_targets, num_tokens
from trainer.selftest import check_gradients

BETAS, EPSILON = (0.9, 0.999), 1e-8


@dataclass(frozen=True, slots=True)
class Update:
    """What one update saw: mean loss (nats per target), gradient norm before clipping, counts."""

    loss: float
    grad_norm: float
    tokens: int
    targets: int


class DivergedError(RuntimeError):
    """A loss or a gradient is not a finite number."""


def make_optimizer(adapted: Adapted, spec: OptimizerSpec) -> torch.optim.AdamW:
    """Make AdamW over the adapter in one group, without reordered sums."""
    return torch.optim.AdamW(
        [parameter for _, parameter in adapted.trainable()],
        lr=float(spec.learning_rate),
        betas=BETAS,
        eps=EPSILON,
        weight_decay=float(spec.weight_decay),
        foreach=False,
        fused=False,
    )


def learning_rate(spec: OptimizerSpec, *, step: int, num_steps: int) -> float:
    """Return the rate of update `step`, counted from 0: linear rise, then cosine to zero."""
    peak = float(spec.learning_rate)
    warmup = -(-num_steps * spec.warmup_permille // 1000)
    if step < warmup:
        return peak * (step + 1) / warmup
    if spec.schedule == "constant":
        return peak
    done = (step - warmup) / max(1, num_steps - warmup)
    return peak * 0.5 * (1 + math.cos(math.pi * done))


def update(
    adapted: Adapted,
    optimizer: torch.optim.AdamW,
    packs: Sequence[Pack],
    *,
    spec: OptimizerSpec,
    step: int,
    num_steps: int,
    seed: int,
    poll: Callable[[], None],
) -> Update:
    """Do update `step` (from 0) on `packs`; nothing has changed if it raises.

    The gradient is that of the summed loss over the update's number of targets, so it does not
    depend on the packing. With dropout, each pack has its own seed, so no random state is kept.

    Raises:
        DivergedError: when the loss or the gradient is not finite.
        StopRequestedError: from `poll`, between packs.
    """
    targets, loss = num_targets(packs), 0.0
    optimizer.zero_grad(set_to_none=True)
    for place, pack in enumerate(packs):
        poll()
        torch.manual_seed(philox((step, place, 0, 1), (seed, 0))[0])
        part = summed_loss(adapted, batch_of(pack, adapted.device)) / targets
        part.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        loss += float(part.detach())
    norm = float(
        clip_grad_norm_([p for _, p in adapted.trainable()], float(spec.clip_norm), foreach=False)
    )
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise DivergedError(
            f"loss {loss} and gradient norm {norm} at update {step + 1}; lower the learning rate"
        )
    if step < 2:
        check_gradients(adapted, step=step + 1)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(spec, step=step, num_steps=num_steps)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return Update(loss=loss, grad_norm=norm, tokens=num_tokens(packs), targets=targets)


def evaluate(adapted: Adapted, packs: Sequence[Pack], poll: Callable[[], None]) -> float:
    """Return the mean loss in nats per supervised token; no gradients, no logits kept.

    Raises:
        DivergedError: when it is not finite, or zero, which only a broken mask gives.
    """
    total = 0.0
    adapted.peft.eval()
    with torch.no_grad():
        for pack in packs:
            poll()
            total += float(summed_loss(adapted, batch_of(pack, adapted.device)))
    adapted.peft.train()
    loss = total / num_targets(packs)
    if not math.isfinite(loss) or loss == 0:
        raise DivergedError(f"expected a finite held-out loss above zero, got {loss}")
    return loss


def optimizer_tensors(adapted: Adapted, optimizer: torch.optim.AdamW) -> dict[str, Tensor]:
    """Return copies of AdamW's moments and counts on the CPU; empty before the first update."""
    tensors = {}
    for name, parameter in adapted.trainable():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{name}|{key}"] = value.detach().to("cpu", copy=True)
    return tensors


def load_optimizer_tensors(
    adapted: Adapted, optimizer: torch.optim.AdamW, tensors: dict[str, Tensor]
) -> None:
    """Put AdamW's stored moments back."""
    for name, parameter in adapted.trainable():
        own = {k.partition("|")[2]: v for k, v in tensors.items() if k.startswith(f"{name}|")}
        if own:
            optimizer.state[parameter] = {
                key: value.clone() if key == "step" else value.to(parameter.device, copy=True)
                for key, value in own.items()
            }


def perplexity(loss: Decimal) -> Decimal:
    """Return e^loss, capped at e^60 where it has lost all meaning."""
    return Decimal(repr(math.exp(min(float(loss), 60.0))))
