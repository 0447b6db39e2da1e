"""What text says about a person: health, beliefs, convictions, dates of birth, age under 18.

One automaton finds all words of all languages in one pass (Aho-Corasick); what it finds counts only
when it stands beside what makes it a statement: a person in the same sentence, a date, a code.
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from ahocorasick_rs import AhoCorasick, Implementation

from service.detection.hits import Hit, Row, sentence
from service.detection.lists import pattern_of, rows, spellings, table, words
from service.detection.result import shape_of

_CODE = re.compile(r"(?<![\w.\-])[a-tv-z][0-9][0-9ab](?:\.[0-9]{1,4})?(?![\w\-])")
_AGE = re.compile(r"(?<![\w.,])(?:1[0-7]|[1-9])\Z")
_DATE_REACH = 32


class _Use(Enum):
    TERM = auto()  # counts when a subject is in the sentence
    PHRASE = auto()
    BIRTH = auto()
    CODE = auto()
    AGE = auto()


@dataclass(frozen=True)
class _Word:
    use: _Use
    detector: str
    tag: str
    length: int
    any_ending: bool


@dataclass(frozen=True)
class Reader:
    """Finds statements in a block of plain text."""

    automaton: AhoCorasick
    listed: tuple[tuple[_Word, ...], ...]
    subjects: re.Pattern[str]
    young: re.Pattern[str]
    dates: re.Pattern[str]

    def words_in(self, text: str) -> Iterator[tuple[_Word, int, int]]:
        """Yield each listed word that stands alone, with its place; one pass over the text."""
        for number, start, end in self.automaton.find_matches_as_indexes(text, overlapping=True):
            if start and text[start].isalnum() and text[start - 1].isalnum():
                continue
            for word in self.listed[number]:
                if word.any_ending or not (
                    text[end - 1].isalnum() and text[end : end + 1].isalnum()
                ):
                    yield word, start, end

    def hits(self, text: str, row: Row, word: _Word, start: int, end: int) -> Iterator[Hit]:
        """Yield what a word says, if its surroundings make it a statement."""
        if word.use is _Use.PHRASE:
            yield Hit(word.detector, word.tag, start, end, "words")
        elif word.use is _Use.BIRTH:
            yield from self._birth(text, row, start, end)
        else:
            first, last = sentence(text, row, start, end)
            if word.use is _Use.AGE:
                if _AGE.search(text, max(first, start - 3), start) and self.young.search(
                    text, first, last
                ):
                    yield Hit(word.detector, word.tag, start, end, "words")
            elif self.subjects.search(text, first, last):
                if word.use is _Use.TERM:
                    yield Hit(word.detector, word.tag, start, end, "words")
                else:
                    yield from codes(word, text, first, last)

    def _birth(self, text: str, row: Row, start: int, end: int) -> Iterator[Hit]:
        after = self.dates.search(text, end, min(row.end, end + _DATE_REACH))
        before = list(self.dates.finditer(text, max(row.start, start - _DATE_REACH), start))
        found = after or (before[-1] if before else None)
        if found is not None:
            shape = shape_of(found[0])
            yield Hit("date_of_birth", "pd.basic", found.start(), found.end(), shape)


def codes(word: _Word, text: str, first: int, last: int) -> Iterator[Hit]:
    """Yield the codes of diagnoses in a sentence."""
    for code in _CODE.finditer(text, first, last):
        yield Hit(word.detector, word.tag, code.start(), code.end(), shape_of(code[0]))


def _dates() -> re.Pattern[str]:
    months = "|".join(
        sorted(map(re.escape, spellings(words("statements", "months"))), key=len)[::-1]
    )
    year = r"(?:1[89]|20)[0-9]{2}"
    return re.compile(
        rf"(?<![0-9])(?:{year}[./\- ]{{1,2}}[0-9]{{1,2}}[./\- ]{{1,2}}[0-9]{{1,2}}"
        rf"|[0-9]{{1,2}}[./\- ]{{1,2}}[0-9]{{1,2}}[./\- ]{{1,2}}(?:{year}|[0-9]{{2}})"
        rf"|[0-9]{{1,2}}(?:st|nd|rd|th|er|\.|º)?,? (?:de |of )?(?:{months})\.?,? (?:de )?{year}"
        rf"|(?:{months})\.? [0-9]{{1,2}}(?:st|nd|rd|th)?,? {year})(?![0-9])"
    )


@functools.cache
def reader() -> Reader:
    """Build the automaton from the lists; tens of milliseconds, once a process."""
    found: dict[str, list[_Word]] = {}

    def add(use: _Use, detector: str, tag: str, listed: tuple[str, ...]) -> None:
        for spelling in spellings(listed):
            bare = spelling.removesuffix("*")
            word = _Word(use, detector, tag, len(bare), spelling.endswith("*"))
            known = found.setdefault(bare, [])
            if word not in known:
                known.append(word)

    for row in rows("statements", "statements"):
        add(_Use.TERM, row["detector"], row["tag"], tuple(row.get("terms", ())))
        add(_Use.PHRASE, row["detector"], row["tag"], tuple(row.get("phrases", ())))
    section = table("statements")
    add(_Use.BIRTH, "date_of_birth", "pd.basic", words("statements", "birth"))
    add(_Use.CODE, "icd10", section["icd10"]["tag"], words("statements", "icd10", "words"))
    ages = words("statements", "child", "ages")
    beside = tuple(mark + age for age in ages for mark in (" ", "-"))
    add(_Use.AGE, "child", section["child"]["tag"], beside)
    return Reader(
        automaton=AhoCorasick(list(found), implementation=Implementation.DFA),
        listed=tuple(tuple(each) for each in found.values()),
        subjects=pattern_of(words("statements", "subjects")),
        young=pattern_of(words("statements", "child", "persons")),
        dates=_dates(),
    )
