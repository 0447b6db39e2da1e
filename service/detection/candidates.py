"""Figures in text that may be a number of a person: where they are, and how they may be cut.

A *region* is a run of figures with the letters that touch it. Numbers are written in groups, and
other figures may stand beside them, so a region is cut into pieces (at blanks, and at marks such as
`-`), and every sequence of neighbouring pieces is a candidate. The number of candidates is linear
in the text.
"""

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import NamedTuple

RUN = re.compile(r"[0-9](?:[ .\-/]{0,2}[0-9])+")
_LETTERS_BEFORE = re.compile(r"[a-z0-9]*\Z")
_LONE_BEFORE = re.compile(r"(?<![^\W_])[a-z][ -]\Z")
_AFTER = re.compile(r"[a-z][a-z0-9]*|[ -](?:[a-z]{1,2}[0-9]?)(?![^\W_])|")
_PIECE = re.compile(r"[0-9a-z]+")
_SPREAD = re.compile(r"[0-9] [0-9](?: [0-9])* ?\Z|[0-9] [0-9]")
_SPREAD_BEFORE = re.compile(r"(?:(?<![0-9a-z])[0-9a-z./\-] )+\Z")
_SPREAD_AFTER = re.compile(r"(?: [0-9a-z./\-](?![0-9a-z]))*")
_LETTERS = "abcdefghijklmnopqrstuvwxyz./-"
_REACH = 24  # characters beside a run that may belong to it
MAX_PIECES = 8
MAX_CHARACTERS = 24


class Candidate(NamedTuple):
    """A stretch of text without its blanks.

    Attributes:
        text: the stretch, blanks taken out.
        start: where it begins in the text.
        end: where it ends in the text.
        digits: how many figures it has.
    """

    text: str
    start: int
    end: int
    digits: int


@dataclass(frozen=True)
class Region:
    """A run of figures with the letters that touch it; `spread`: a blank after every character."""

    start: int
    end: int
    spread: bool


def region(text: str, run: re.Match[str]) -> Region:
    """Find the region around a run of figures."""
    start, end = run.span()
    head = text[start : start + 3]
    if _SPREAD.match(head) is not None:
        before = _SPREAD_BEFORE.search(text, max(0, start - 2 * _REACH), start)
        after = _SPREAD_AFTER.match(text, end, end + 2 * _REACH)
        found = text[before.start() if before else start : after.end() if after else end]
        if len(found.split(" ")) >= 7 and all(len(each) == 1 for each in found.split(" ")[:7]):
            return Region(
                before.start() if before else start, after.end() if after else end, spread=True
            )
    before = _LETTERS_BEFORE.search(text, max(0, start - _REACH), start)
    if before is not None:
        start = before.start()
    if start == run.start():
        before = _LONE_BEFORE.search(text, max(0, start - 2), start)
        start = before.start() if before else start
    after = _AFTER.match(text, end, end + _REACH)
    return Region(start, after.end() if after else end, spread=False)


def candidates(text: str, found: Region, wanted: Container[int]) -> Iterator[Candidate]:
    """Yield every way to read a number in a region, longer ones first at each place.

    Args:
        text: the text.
        found: the region.
        wanted: how many figures a number may have.
    """
    if found.spread:
        yield from _spread(text, found)
        return
    pieces = [
        (*piece.span(), sum(map(str.isdigit, piece[0])))
        for piece in _PIECE.finditer(text, found.start, found.end)
    ]
    for first, (start, _, _) in enumerate(pieces):
        ends: list[tuple[int, int]] = []
        digits = 0
        for _, end, figures in pieces[first : first + MAX_PIECES]:
            digits += figures
            if digits > MAX_CHARACTERS or end - start > MAX_CHARACTERS + MAX_PIECES:
                break
            if digits in wanted:
                ends.append((end, digits))
        for end, digits in reversed(ends):
            packed = text[start:end].replace(" ", "")
            yield Candidate(packed, start, end, digits)


def _spread(text: str, found: Region) -> Iterator[Candidate]:
    # Single letters before the number may be words of their own.
    for skipped in range(0, 6, 2):
        start = found.start + skipped
        whole = text[start : min(found.end, start + 2 * MAX_CHARACTERS - 1)]
        packed = whole.replace(" ", "").rstrip("./-")
        for kept in (packed, packed.rstrip(_LETTERS)):
            digits = sum(map(str.isdigit, kept))
            if digits:
                end = start + 2 * len(kept) - 1
                yield Candidate(kept, start, end, digits)
        if text[start : start + 1].isdigit():
            return


def is_attached(text: str, found: Candidate) -> bool:
    """Say whether letters, figures or marks touch a candidate, as in `v2.4-12345678`."""
    start, end = found.start, found.end
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    return (
        before[-1:].isalnum()
        or after[:1].isalnum()
        or (before[-1:] in ("-", "_", ".", "/", ",", "+", "#", "@") and before[:1].isalnum())
        or (after[:1] in ("-", "_", "/", ".", ",", "@") and after[1:].isalnum())
    )
