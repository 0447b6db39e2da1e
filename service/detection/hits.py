"""A hit of a detector, and the stretch of text that a detector may look at around it."""

import re
from dataclasses import dataclass

_SENTENCE_END = re.compile(r"[.!?;] |\n")
_SENTENCE_REACH = 120


@dataclass(frozen=True)
class Hit:
    """What a detector found: where, which tag it implies, and how it is written."""

    detector: str
    tag: str
    start: int
    end: int
    shape: str


@dataclass(frozen=True)
class Row:
    """One row inside a block of text: its bounds, and the language its own field names."""

    start: int
    end: int
    language: str | None


def around(text: str, row: Row, start: int, end: int, *, before: int, after: int) -> str:
    """Return what stands beside a stretch, within its row; the stretch itself is left out."""
    left = text[max(row.start, start - before) : start]
    right = text[end : min(row.end, end + after)]
    return f"{left}\n{right}"


def sentence(text: str, row: Row, start: int, end: int) -> tuple[int, int]:
    """Return the bounds of the sentence that a stretch stands in, within its row and reach."""
    first = max(row.start, start - _SENTENCE_REACH)
    last = min(row.end, end + _SENTENCE_REACH)
    for mark in _SENTENCE_END.finditer(text, first, start):
        first = mark.end()
    closing = _SENTENCE_END.search(text, end, last)
    return first, closing.start() if closing else last
