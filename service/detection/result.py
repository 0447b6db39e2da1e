"""What detection saw: counts, the categories they imply, and evidence that holds no value.

The document, as kept with a data-set version and printed by `placet dataset inspect --json`::

    {"format":"placet.detection/1","detectors":"placet.detectors/2","mode":"full","permille":1000,
     "seed":0,"rows":812,"rows_examined":812,"bytes_examined":190344,"rows_not_utf8":0,
     "counts":{"iban":2},"tags":{"pd.financial":2},"categories":["pd.financial"],
     "evidence":[{"object":0,"row":17,"detector":"iban","shape":"FR## #### #### …"}]}

`counts` are hits by detector; detectors of statements count a row once. `object` is the position in
the manifest, `row` counts from 1. A shape says how a hit is written: `#` for a figure, `x` for a
letter; the country of an account number and nothing else stays. No value, no part of a value and no
hash of a value is kept. What is not listed was not found; it is not thereby absent.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

DETECTORS_VERSION = "placet.detectors/2"
FORMAT = "placet.detection/1"
MAX_EVIDENCE = 3  # hits shown per detector and object
MAX_EVIDENCE_TOTAL = 100
_MAX_SHAPE = 24


class Mode(StrEnum):
    """Whether every row was looked at, or a sample drawn by a stated rule."""

    FULL = "full"
    SAMPLED = "sampled"


@dataclass(frozen=True)
class Evidence:
    """Where a detector hit, and how the hit is written."""

    row: int
    detector: str
    shape: str
    object: int = 0

    def to_json(self) -> dict[str, Any]:
        """Render as a member of the document."""
        return {
            "object": self.object,
            "row": self.row,
            "detector": self.detector,
            "shape": self.shape,
        }


@dataclass(frozen=True)
class Detection:
    """What the detectors counted in one object or in several.

    Attributes:
        counts: hits by detector name.
        tags: hits by category tag.
        rows: rows there are.
        rows_examined: rows looked at; fewer than `rows` only when sampled.
        bytes_examined: bytes of these rows as stored.
        rows_not_utf8: rows of text that were read as Windows-1252 because they are no UTF-8.
        evidence: the first few hits of each detector, without their values.
        permille: share of rows that were to be drawn; 1000 is all.
        seed: what the draw depends on besides the number of the row.
    """

    counts: Mapping[str, int]
    tags: Mapping[str, int]
    rows: int
    rows_examined: int
    bytes_examined: int
    rows_not_utf8: int = 0
    evidence: tuple[Evidence, ...] = ()
    permille: int = 1000
    seed: int = 0

    @property
    def mode(self) -> Mode:
        """Say whether all rows were to be looked at."""
        return Mode.FULL if self.permille >= 1000 else Mode.SAMPLED

    @property
    def categories(self) -> tuple[str, ...]:
        """Return the tags that were found, sorted."""
        return tuple(sorted(self.tags))

    def to_document(self) -> dict[str, Any]:
        """Render the document that this module describes."""
        return {
            "format": FORMAT,
            "detectors": DETECTORS_VERSION,
            "mode": str(self.mode),
            "permille": self.permille,
            "seed": self.seed,
            "rows": self.rows,
            "rows_examined": self.rows_examined,
            "bytes_examined": self.bytes_examined,
            "rows_not_utf8": self.rows_not_utf8,
            "counts": dict(sorted(self.counts.items())),
            "tags": dict(sorted(self.tags.items())),
            "categories": list(self.categories),
            "evidence": [each.to_json() for each in self.evidence],
        }

    @classmethod
    def merged(cls, parts: Iterable[Self]) -> Self:
        """Add up what was seen in several objects, in their order.

        Raises:
            ValueError: no part, or parts that were drawn in different ways.
        """
        listed = list(parts)
        draws = {(part.permille, part.seed) for part in listed}
        if len(draws) != 1:
            raise ValueError(f"expected parts drawn in one way, got {len(draws)}")
        ((permille, seed),) = draws
        counts: Counter[str] = Counter()
        tags: Counter[str] = Counter()
        evidence: list[Evidence] = []
        for number, part in enumerate(listed):
            counts.update(part.counts)
            tags.update(part.tags)
            evidence += [
                Evidence(each.row, each.detector, each.shape, number) for each in part.evidence
            ]
        return cls(
            counts=dict(counts),
            tags=dict(tags),
            rows=sum(part.rows for part in listed),
            rows_examined=sum(part.rows_examined for part in listed),
            bytes_examined=sum(part.bytes_examined for part in listed),
            rows_not_utf8=sum(part.rows_not_utf8 for part in listed),
            evidence=tuple(evidence[:MAX_EVIDENCE_TOTAL]),
            permille=permille,
            seed=seed,
        )


def shape_of(text: str, *, keep: int = 0) -> str:
    """Write how a value is written, without the value: `FR76 3000 6…` becomes `FR## #### #…`.

    Args:
        text: the value.
        keep: how many leading characters stay; 2 for the country of an account number.
    """
    masked = "".join(
        "#" if char.isdigit() else "x" if char.isalpha() else char if char in " .-/+()" else "?"
        for char in text[keep:_MAX_SHAPE]
    )
    return text[:keep].upper() + masked + ("…" if len(text) > _MAX_SHAPE else "")
