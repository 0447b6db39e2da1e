"""Hold out whole groups for evaluation, and refuse training rows that repeat a held-out one.

A group is held out when the first 8 bytes of SHA-256 over `<seed>:<group>`, as an integer modulo
1000, are below `eval_permille`; so adding data never moves a group to the other side.
"""

import hashlib
from collections.abc import Sequence

from trainer.intake import Row
from trainer.refusal import Reason, RefusedError


def is_held_out(group: str, *, seed: int, eval_permille: int) -> bool:
    """Say on which side of the split a group stands."""
    hashed = hashlib.sha256(f"{seed}:{group}".encode()).digest()
    return int.from_bytes(hashed[:8], "big") % 1000 < eval_permille


def split(rows: Sequence[Row], *, seed: int, eval_permille: int) -> tuple[list[Row], list[Row]]:
    """Return the training rows and the held-out rows, each in reading order.

    Raises:
        RefusedError: when a side that should have rows is empty, or a held-out conversation also
            stands in the training rows, up to letter case and white space.
    """
    held_out = [r for r in rows if is_held_out(r.group, seed=seed, eval_permille=eval_permille)]
    groups = {row.group for row in held_out}
    train = [row for row in rows if row.group not in groups]
    if not train or (eval_permille and not held_out):
        raise RefusedError(
            Reason.DATASET_SPLIT,
            f"expected rows on both sides of the split, got {len(train)} to train on and "
            f"{len(held_out)} held out; use more groups, another seed or eval_permille",
        )
    seen = {_content_hash(row): row.id for row in train}
    for row in held_out:
        twin = seen.get(_content_hash(row))
        if twin is not None:
            raise RefusedError(
                Reason.DATASET_CONTAMINATED,
                f"held-out row {row.id} is repeated by training row {twin}; "
                "give both rows the same group, or remove one",
            )
    return train, held_out


def _content_hash(row: Row) -> bytes:
    text = "\x1e".join(f"{m.role}\x1f{' '.join(m.content.lower().split())}" for m in row.messages)
    return hashlib.sha256(text.encode()).digest()
