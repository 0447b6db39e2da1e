"""Self-tests on the real model, before and while it trains; each is a bug that others shipped.

packing_leak       a document's logits are the same packed and alone, and a pass that does leak
                   is told apart, so the test has power
loss_mask          the supervised tokens of a probe conversation are its answers, each with its
                   end, and nothing else
head_rows          the loss through the head's supervised rows is that of the full logits
gradient_coverage  after the first update every B, after the second every A has had a gradient
frozen_base        a sample of every frozen tensor is the same before and after
save_load          the stored adapter, read back, is the trained one
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from trainer.intake import Row
from trainer.loss import Batch, batch_of, hidden_states, summed_loss
from trainer.model import Adapted
from trainer.pack import Pack
from trainer.refusal import Reason, RefusedError
from trainer.render import PROBE, Rendered, Tokenizer, render

LEAK_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5}  # logits; a leak moves them by about 10
LOSS_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}  # relative
TOKENS = 32  # of each of the documents looked at: enough to leak, cheap to run


def check_loss_mask(tokenizer: Tokenizer) -> None:
    """Compare the supervised text of a probe conversation with its answers.

    Raises:
        RefusedError: when they differ.
    """
    rendered = render(Row("probe", "probe", "en", PROBE), tokenizer)
    ids = [i for i, s in zip(rendered.ids, rendered.supervised, strict=True) if s]
    end = tokenizer.decode([tokenizer.eos_token_id])
    answers = [m.content for m in PROBE if m.role == "assistant"]
    turns = tokenizer.decode(ids).split(end)
    if [turn.strip() for turn in turns] != [*answers, ""]:
        _refuse("loss_mask", f"expected {answers} each with its end, got {turns}")


def probe_documents(packs: Sequence[Pack]) -> list[Rendered]:
    """Choose three different documents and cut them short."""
    documents = [document for pack in packs for document in pack.documents]
    step = max(1, len(documents) // 3)
    cut = [
        replace(d, ids=d.ids[:TOKENS], supervised=(True,) * min(TOKENS, len(d.ids)))
        for d in documents[::step][:3]
    ]
    if len(cut) == 1:  # one row only: its reverse is another document
        cut.append(replace(cut[0], ids=cut[0].ids[::-1]))
    return cut


def leak(adapted: Adapted, documents: Sequence[Rendered]) -> tuple[float, float]:
    """Return how far logits move: (packed as in training, laid end to end as one document)."""
    packed = batch_of(Pack(tuple(documents)), adapted.device)
    start, end = (int(border) for border in packed.borders[-2:])
    alone = batch_of(Pack((documents[-1],)), adapted.device)
    joined = _as_one_document(packed)
    with torch.no_grad():
        reference = adapted.head(hidden_states(adapted, alone)).float()
        moved = [
            adapted.head(hidden_states(adapted, batch)[start:end]).float() - reference
            for batch in (packed, joined)
        ]
    return float(moved[0].abs().max()), float(moved[1].abs().max())


def _as_one_document(batch: Batch) -> Batch:
    count = batch.ids.shape[1]
    return replace(
        batch,
        positions=torch.arange(count, device=batch.ids.device)[None],
        borders=torch.tensor([0, count], dtype=torch.int32),
    )


def check_packing_leak(adapted: Adapted, documents: Sequence[Rendered]) -> None:
    """Refuse when packed documents see each other, or when that could not be seen.

    Raises:
        RefusedError: in both cases.
    """
    packed, joined = leak(adapted, documents)
    tolerance = LEAK_TOLERANCE[_dtype(adapted)]
    if packed > tolerance:
        _refuse("packing_leak", f"logits of a packed document move by {packed:.4f}")
    if joined <= tolerance:
        _refuse("packing_leak", "a deliberate leak moved no logit, so the test has no power")


def check_head_rows(adapted: Adapted, documents: Sequence[Rendered]) -> None:
    """Compare our loss with the plain one over all logits of one document.

    Raises:
        RefusedError: when they differ.
    """
    batch = batch_of(Pack((documents[0],)), adapted.device)
    with torch.no_grad():
        ours = float(summed_loss(adapted, batch))
        logits: Tensor = adapted.head(hidden_states(adapted, batch)).float()
        plain = float(cross_entropy(logits[:-1], batch.ids[0, 1:], reduction="sum"))
    if abs(ours - plain) > LOSS_TOLERANCE[_dtype(adapted)] * max(1.0, abs(plain)):
        _refuse("head_rows", f"expected a summed loss of {plain:.6f}, got {ours:.6f}")


def check_gradients(adapted: Adapted, *, step: int) -> None:
    """Refuse when an adapter tensor got no gradient; call it before gradients are cleared.

    B starts at zero, so A's gradient is zero in the first update by construction.

    Args:
        adapted: The model, right after backward.
        step: 1 or 2, the update under way.

    Raises:
        RefusedError: naming a tensor.
    """
    for name, parameter in adapted.trainable():
        grad = parameter.grad
        if grad is None or not bool(torch.isfinite(grad).all()):
            _refuse("gradient_coverage", f"`{name}` has no finite gradient in update {step}")
        elif (step > 1 or ".lora_B." in name) and not bool(grad.any()):
            _refuse("gradient_coverage", f"the gradient of `{name}` is zero in update {step}")


def _dtype(adapted: Adapted) -> torch.dtype:
    return next(adapted.head.parameters()).dtype


def _refuse(name: str, found: str) -> None:
    raise RefusedError(
        Reason.SELFTEST,
        f"self-test {name}: {found}; do not train with this model and these libraries",
    )
