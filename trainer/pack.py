"""Put rows into packs of bounded length, and account for every token.

A pack is one or more whole documents laid end to end; it is what one forward pass sees. The plan is
best-fit decreasing: rows by length, longest first and then by id, each into the fullest pack that
still has room. No row is cut by packing. The plan depends on the rows and the capacity only.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainer.refusal import Reason, RefusedError
from trainer.render import Rendered


@dataclass(frozen=True, slots=True)
class Pack:
    """Documents that one forward pass sees, in order."""

    documents: tuple[Rendered, ...]

    @property
    def num_tokens(self) -> int:
        """Count all tokens."""
        return sum(len(d.ids) for d in self.documents)

    @property
    def num_targets(self) -> int:
        """Count the supervised tokens that are predicted: all but a document's first token."""
        return sum(sum(d.supervised[1:]) for d in self.documents)


@dataclass(frozen=True, slots=True)
class Fitted:
    """Rows within the length limit, and what it cost to get there.

    Attributes:
        rows: Rows of at most the limit, each with a supervised token.
        rows_dropped: Rows left out.
        rows_truncated: Rows cut at the end.
        tokens_dropped: Tokens of the rows left out.
        tokens_truncated: Tokens cut off.
    """

    rows: tuple[Rendered, ...]
    rows_dropped: int
    rows_truncated: int
    tokens_dropped: int
    tokens_truncated: int


def fit(rows: Sequence[Rendered], *, max_tokens: int, overlong: str) -> Fitted:
    """Apply the policy for overlong rows: `refuse`, `drop` or `truncate`.

    Raises:
        RefusedError: when the policy refuses, or a row has no supervised token to begin with.
    """
    silent = [row.row_id for row in rows if not any(row.supervised[1:])]
    if silent:
        raise RefusedError(
            Reason.DATASET_ROW, f"rows {silent[:5]} teach nothing: no supervised token; remove them"
        )
    long = [row.row_id for row in rows if len(row.ids) > max_tokens]
    if long and overlong == "refuse":
        raise RefusedError(
            Reason.DATASET_OVERLONG,
            f"{len(long)} rows are longer than {max_tokens} tokens ({long[:5]}); raise max_tokens, "
            "shorten them, or choose overlong drop or truncate",
        )
    kept: list[Rendered] = []
    dropped: list[Rendered] = []
    rows_truncated = tokens_truncated = 0
    for row in rows:
        cut = replace(row, ids=row.ids[:max_tokens], supervised=row.supervised[:max_tokens])
        if len(cut.ids) == len(row.ids):
            kept.append(row)
        elif overlong == "drop" or not any(cut.supervised[1:]):
            dropped.append(row)
        else:
            kept.append(cut)
            rows_truncated += 1
            tokens_truncated += len(row.ids) - len(cut.ids)
    return Fitted(
        rows=tuple(kept),
        rows_dropped=len(dropped),
        rows_truncated=rows_truncated,
        tokens_dropped=sum(len(row.ids) for row in dropped),
        tokens_truncated=tokens_truncated,
    )


def capacity(rows: Sequence[Rendered], *, max_tokens: int, tokens_per_step: int) -> int:
    """Return the tokens a pack may hold: no more than a step's, no less than the longest row's."""
    longest = max((len(row.ids) for row in rows), default=1)
    return max(longest, min(max_tokens, tokens_per_step))


def plan_packs(rows: Sequence[Rendered], *, capacity: int) -> list[Pack]:
    """Pack rows best-fit decreasing; cost O(rows log rows) for practical sizes."""
    room: list[tuple[int, int]] = []  # (tokens left, pack number), sorted
    packs: list[list[Rendered]] = []
    for row in sorted(rows, key=lambda row: (-len(row.ids), row.row_id)):
        size = len(row.ids)
        place = bisect.bisect_left(room, (size, -1))
        if place == len(room):
            packs.append([row])
            bisect.insort(room, (capacity - size, len(packs) - 1))
            continue
        left, number = room.pop(place)
        packs[number].append(row)
        bisect.insort(room, (left - size, number))
    return [Pack(tuple(documents)) for documents in packs]


def packs_per_step(packs: Sequence[Pack], *, tokens_per_step: int) -> int:
    """Return how many packs come nearest to `tokens_per_step`, at least one."""
    total = sum(pack.num_tokens for pack in packs)
    return max(1, round(tokens_per_step * len(packs) / total))


def num_tokens(packs: Sequence[Pack]) -> int:
    """Count the tokens of several packs."""
    return sum(pack.num_tokens for pack in packs)


def num_targets(packs: Sequence[Pack]) -> int:
    """Count the supervised tokens of several packs."""
    return sum(pack.num_targets for pack in packs)
