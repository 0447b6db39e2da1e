"""The loss: summed cross-entropy of supervised tokens, through the head for those rows only.

A pack becomes ids, positions that restart at every document, and the documents' borders. Targets
are the supervised tokens but a document's first; the hidden state before each is what predicts it.
The sum is divided by the number of targets of the whole update, so the gradient does not depend on
how an update is cut into packs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from trainer.model import Adapted
from trainer.pack import Pack

HEAD_ROWS = 1024  # rows of logits that exist at a time: 1024 x 128k vocabulary x 4 B = 0.5 GB


@dataclass(frozen=True, slots=True)
class Batch:
    """One pack as tensors.

    Attributes:
        ids: (1, tokens).
        positions: (1, tokens), from 0 in every document.
        borders: (documents + 1), int32 offsets.
        predictors: (targets), the place whose hidden state predicts each target.
        targets: (targets), token ids.
    """

    ids: Tensor
    positions: Tensor
    borders: Tensor
    predictors: Tensor
    targets: Tensor


def batch_of(pack: Pack, device: torch.device) -> Batch:
    """Lay a pack out."""
    ids: list[int] = []
    positions: list[int] = []
    borders, predictors = [0], []
    for document in pack.documents:
        start = len(ids)
        ids += document.ids
        positions += range(len(document.ids))
        borders.append(len(ids))
        predictors += [start + i - 1 for i, s in enumerate(document.supervised) if s and i]
    flat = torch.tensor(ids, device=device)
    places = torch.tensor(predictors, dtype=torch.long, device=device)
    return Batch(
        ids=flat[None],
        positions=torch.tensor(positions, device=device)[None],
        borders=torch.tensor(borders, dtype=torch.int32),
        predictors=places,
        targets=flat[places + 1],
    )


def hidden_states(adapted: Adapted, batch: Batch) -> Tensor:
    """Run the body over a pack, (tokens, hidden); no mask, no cache, documents apart."""
    output = adapted.body(
        input_ids=batch.ids,
        position_ids=batch.positions,
        attention_mask=None,
        use_cache=False,
        cu_seq_lens_q=batch.borders,
        cu_seq_lens_k=batch.borders,
    )
    states: Tensor = output.last_hidden_state[0]
    return states


def summed_loss(adapted: Adapted, batch: Batch) -> Tensor:
    """Return the summed negative log-likelihood of the targets in nats, a scalar in fp32."""
    states = hidden_states(adapted, batch)[batch.predictors]  # (targets, hidden)
    total = torch.zeros((), device=states.device)
    for start in range(0, len(states), HEAD_ROWS):
        logits = adapted.head(states[start : start + HEAD_ROWS])  # (rows, vocabulary)
        targets = batch.targets[start : start + HEAD_ROWS]  # (rows)
        total = total + cross_entropy(logits.float(), targets, reduction="sum")
    return total
