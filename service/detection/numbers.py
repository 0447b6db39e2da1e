"""Numbers of persons and of their accounts: national identifiers, IBAN, payment cards.

Form and check digits come first (python-stdnum); what is left is judged by the words around it,
as far as the strength of the number asks for that (`data/identifiers.yaml`).
"""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from importlib import import_module

from stdnum import iban, luhn

from service.detection.candidates import Candidate, is_attached
from service.detection.hits import Hit, Row, around
from service.detection.lists import other_number, pattern_of, rows, table
from service.detection.result import shape_of

_BEFORE, _AFTER, _CLOSE_BEFORE = 60, 30, 32
_STRETCH = 32  # at least as long as a candidate
_IBAN_HEAD = re.compile(r"([a-z])[ ]?([a-z])[ \-]?\Z")


class Strength(IntEnum):
    """What a number needs besides its check digits, from most to nothing."""

    NAMED = 0
    WEAK = 1
    MEDIUM = 2
    STRONG = 3


@dataclass(frozen=True)
class Kind:
    """One kind of number."""

    detector: str
    tag: str
    strength: Strength
    languages: frozenset[str]
    form: re.Pattern[str]
    is_valid: Callable[[str], bool]
    named: re.Pattern[str]

    def counts_unnamed(self, language: str | None) -> bool:
        """Say whether it may count where no word names it; cheap, before anything else."""
        return self.strength >= Strength.MEDIUM or (
            self.strength is Strength.WEAK and language in self.languages
        )


@dataclass(frozen=True)
class Judge:
    """Decides which kind of number a candidate is, if any."""

    by_digits: Mapping[int, tuple[Kind, ...]]
    named: re.Pattern[str]
    other: re.Pattern[str]

    def hit(self, text: str, row: Row, found: Candidate, words: dict[int, bool]) -> Hit | None:
        """Return the best kind that a candidate is, or None.

        Args:
            text: the block.
            row: the row that the candidate stands in.
            found: the candidate.
            words: what is known already about the words of this region, by stretch; grows.
        """
        stretch = found.start // _STRETCH
        if stretch not in words:
            first = max(row.start, stretch * _STRETCH - _BEFORE)
            last = min(row.end, (stretch + 2) * _STRETCH + _AFTER)
            words[stretch] = self.named.search(text, first, last) is not None
        kinds = [
            kind
            for kind in self.by_digits.get(found.digits, ())
            if (words[stretch] or kind.counts_unnamed(row.language))
            and kind.form.fullmatch(found.text)
            and kind.is_valid(found.text)
        ]
        if not kinds:
            return None
        near = around(text, row, found.start, found.end, before=_BEFORE, after=_AFTER)
        close = text[max(row.start, found.start - _CLOSE_BEFORE) : found.start]
        is_other = self.other.search(close) is not None or is_attached(text, found)
        best: tuple[int, Kind] | None = None
        for kind in kinds:
            rank = _rank(kind, near, row.language, is_other=is_other)
            if rank and (best is None or rank > best[0]):
                best = rank, kind
        if best is None:
            return None
        kind = best[1]
        shape = shape_of(text[found.start : found.end])
        return Hit(kind.detector, kind.tag, found.start, found.end, shape)


def _rank(kind: Kind, near: str, language: str | None, *, is_other: bool) -> int:
    """Say how well the surroundings speak for a kind; 0 is not enough."""
    if kind.named.search(near):
        return 8 + kind.strength
    if kind.strength is Strength.STRONG:
        return 4 + kind.strength
    if is_other or not kind.counts_unnamed(language):
        return 0
    speaks = language in kind.languages
    return 2 + speaks if kind.strength is Strength.MEDIUM else 1


@functools.cache
def judge() -> Judge:
    """Read the kinds of numbers and the words that speak against them."""
    by_digits: dict[int, list[Kind]] = {}
    for row in rows("identifiers"):
        kind = Kind(
            detector=row["detector"],
            tag=row["tag"],
            strength=Strength[row["strength"].upper()],
            languages=frozenset(row["languages"]),
            form=re.compile("|".join(row["forms"])),
            is_valid=import_module(f"stdnum.{row['stdnum']}").is_valid,
            named=pattern_of(row["words"]),
        )
        for digits in row["digits"]:
            by_digits.setdefault(digits, []).append(kind)
    card = table("numbers")["card"]
    paid = Kind(
        detector="card",
        tag="pd.financial",
        strength=Strength.MEDIUM,
        languages=frozenset(),
        form=re.compile("|".join(card["forms"])),
        is_valid=_is_card,
        named=pattern_of(card["words"]),
    )
    for digits in card["digits"]:
        by_digits.setdefault(digits, []).append(paid)
    return Judge(
        by_digits={digits: tuple(kinds) for digits, kinds in by_digits.items()},
        named=pattern_of(
            [*card["words"], *(w for row in rows("identifiers") for w in row["words"])]
        ),
        other=other_number(),
    )


def _is_card(text: str) -> bool:
    digits = "".join(filter(str.isdigit, text))
    return len(set(digits)) > 2 and luhn.is_valid(digits)


@functools.cache
def _iban_bodies() -> Mapping[str, re.Pattern[str]]:
    lengths = table("numbers")["iban"]["lengths"]
    return {
        country.lower(): re.compile(
            rf"[a-z][ ]?[a-z](?:[ \-.]{{0,2}}[0-9a-z]){{{length - 2}}}(?![0-9a-z])"
        )
        for country, length in lengths.items()
    }


def iban_at(text: str, row: Row, start: int) -> Hit | None:
    """Find an account number whose two check digits begin at `start`.

    Source: ISO 13616 (lengths by country, modulo 97).
    """
    head = _IBAN_HEAD.search(text, max(row.start, start - 4), start)
    if head is None:
        return None
    body = _iban_bodies().get(head[1] + head[2])
    found = body.match(text, head.start(), row.end) if body else None
    if found is None or text[max(row.start, found.start() - 1) : found.start()].isalnum():
        return None
    packed = re.sub(r"[ \-.]", "", found[0])
    if not iban.is_valid(packed, check_country=False):
        return None
    shape = shape_of(found[0], keep=2 if found[0][1] != " " else 3)
    return Hit("iban", "pd.financial", found.start(), found.end(), shape)
