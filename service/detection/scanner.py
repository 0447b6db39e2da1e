"""Looking at rows: in blocks, so that a few passes of compiled code cover many rows at once.

A block is the plain text of some hundred rows. One pass finds runs of figures, one `@`, one `+`,
and one all words of all lists. Only what these find is looked at closely, so the cost of a row
without figures and listed words is that of four scans. Memory is one block and one row.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from service.detection.candidates import RUN, Region, candidates, region
from service.detection.contacts import PLUS, email_at, international_at, national_at
from service.detection.hits import Hit, Row
from service.detection.numbers import iban_at, judge
from service.detection.plain import plain
from service.detection.result import MAX_EVIDENCE, Detection, Evidence
from service.detection.statements import reader

BLOCK_CHARACTERS = 1 << 16
_MIN_FIGURES, _MAX_NATIONAL = 7, 14
_BETWEEN = "\x1e"  # the record separator; text that holds it gets a blank instead
_AT = re.compile("@")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8})?")  # BCP 47; other text is no language
_MASK64 = (1 << 64) - 1


class Scanner:
    """Counts what rows show. Feed rows in order, then ask for the result.

    Args:
        permille: share of rows to draw; 1000 looks at all.
        seed: what the draw depends on besides the number of the row.
    """

    def __init__(self, *, permille: int = 1000, seed: int = 0) -> None:
        if not 1 <= permille <= 1000:
            raise ValueError(f"expected a share of 1 to 1000 permille, got {permille}")
        self._permille, self._seed = permille, seed
        self._texts: list[str] = []
        self._rows: list[tuple[int, str | None]] = []
        self._size = 0
        self.languages: set[str] = set()
        """Languages that rows name themselves, as they write them; nothing is guessed."""
        self._num_rows = self._num_examined = self._num_bytes = self._num_not_utf8 = 0
        self._counts: Counter[str] = Counter()
        self._tags: Counter[str] = Counter()
        self._evidence: list[Evidence] = []
        self._shown: Counter[str] = Counter()

    @property
    def num_rows(self) -> int:
        """Rows so far."""
        return self._num_rows

    @property
    def num_examined(self) -> int:
        """Rows looked at so far."""
        return self._num_examined

    def draws(self, number: int) -> bool:
        """Say whether the row of this number is looked at; the same for the same seed, always."""
        if self._permille >= 1000:
            return True
        mixed = (number * 0x9E3779B97F4A7C15 + self._seed * 0xD1B54A32D192ED03 + 1) & _MASK64
        mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _MASK64
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK64
        return (mixed ^ mixed >> 31) % 1000 < self._permille

    def skip(self) -> None:
        """Count a row that was not drawn."""
        self._num_rows += 1

    def feed(
        self,
        number: int,
        text: str,
        *,
        size_bytes: int,
        language: str | None = None,
        is_utf8: bool = True,
        continues: bool = False,
    ) -> None:
        """Take a row's text.

        Args:
            number: of the row, from 1.
            text: all that the row says, in any form.
            size_bytes: of the row as stored.
            language: that the row's own field names, `fr` or `fr-FR`.
            is_utf8: whether the row could be read as what it should be.
            continues: this is a further piece of a row that is already counted.
        """
        self._num_rows += not continues
        self._num_examined += not continues
        self._num_bytes += size_bytes
        self._num_not_utf8 += not is_utf8
        if language is not None and _LANGUAGE.fullmatch(language):
            self.languages.add(language)
        self._texts.append(text)
        self._rows.append((number, language[:2].lower() if language else None))
        self._size += len(text)
        if self._size >= BLOCK_CHARACTERS:
            self._flush()

    def result(self) -> Detection:
        """Look at what is left and say what was seen."""
        self._flush()
        return Detection(
            counts=dict(self._counts),
            tags=dict(self._tags),
            rows=self._num_rows,
            rows_examined=self._num_examined,
            bytes_examined=self._num_bytes,
            rows_not_utf8=self._num_not_utf8,
            evidence=tuple(self._evidence),
            permille=self._permille,
            seed=self._seed,
        )

    def _flush(self) -> None:
        texts, self._texts = self._texts, []
        numbers, self._rows = self._rows, []
        self._size = 0
        block = _BETWEEN.join([text.lower() if text.isascii() else plain(text) for text in texts])
        if block.count(_BETWEEN) >= max(1, len(texts)):
            block = _BETWEEN.join(plain(text.replace(_BETWEEN, " ")) for text in texts)
        bounds, start = [], 0
        for _, language in numbers:
            end = block.find(_BETWEEN, start)
            end = len(block) if end < 0 else end
            bounds.append(Row(start, end, language))
            start = end + 1
        for place, hit in _once(_hits(block, bounds)):
            self._count(numbers[place][0], hit)

    def _count(self, number: int, hit: Hit) -> None:
        self._counts[hit.detector] += 1
        self._tags[hit.tag] += 1
        if self._shown[hit.detector] < MAX_EVIDENCE:
            self._shown[hit.detector] += 1
            self._evidence.append(Evidence(number, hit.detector, hit.shape))


def _once(found: Iterable[tuple[int, Hit]]) -> Iterator[tuple[int, Hit]]:
    """Drop what two ways led to, and what a row says twice."""
    seen: set[tuple[int, str, int]] = set()
    for place, hit in found:
        at = -1 if hit.shape == "words" else hit.start
        key = (place, hit.detector, at)
        if key not in seen:
            seen.add(key)
            yield place, hit


def _hits(text: str, bounds: list[Row]) -> Iterator[tuple[int, Hit]]:
    """Yield every hit in a block with the place of its row."""
    starts = [row.start for row in bounds]

    def place_of(at: int) -> int:
        return bisect_right(starts, at) - 1

    contacts = list(_contacts(text, bounds, place_of))
    yield from contacts
    taken = sorted((hit.start, hit.end) for _, hit in contacts)
    opened = [start for start, _ in taken]
    done = 0
    for run in RUN.finditer(text):
        start, end = run.span()
        if start < done or (
            end - start < _MIN_FIGURES
            and not text[start - 1 : start].isalpha()
            and not text[end : end + 1].isalpha()
            and " " not in text[start:end]
        ):
            continue
        before = bisect_right(opened, start) - 1
        if before >= 0 and start < taken[before][1]:
            continue
        place = place_of(start)
        for hit in _numbers(text, bounds[place], run):
            done = max(done, hit.end)
            yield place, hit
    words = reader()
    for word, start, end in words.words_in(text):
        place = place_of(start)
        for hit in words.hits(text, bounds[place], word, start, end):
            yield place, hit


def _contacts(
    text: str, bounds: list[Row], place_of: Callable[[int], int]
) -> Iterator[tuple[int, Hit]]:
    for pattern, find in ((_AT, email_at), (PLUS, international_at)):
        for mark in pattern.finditer(text):
            place = place_of(mark.start())
            if hit := find(text, bounds[place], mark.start()):
                yield place, hit


def _numbers(text: str, row: Row, run: re.Match[str]) -> Iterator[Hit]:
    """Yield the numbers in and around a run of figures, none inside another."""
    start, end = run.span()
    if hit := iban_at(text, row, start):
        yield hit
        rest = RUN.search(text, hit.end, max(hit.end, end))
        if rest is not None:
            yield from _numbers(text, row, rest)
        return
    found = region(text, run)
    if found.spread and (hit := _spread_iban(text, row, found)):
        yield hit
        return
    if found.end - found.start < _MIN_FIGURES:
        return
    done = 0
    known = judge()
    words: dict[int, bool] = {}
    for candidate in candidates(text, found, known.by_digits):
        if candidate.start < done:
            continue
        if hit := known.hit(text, row, candidate, words):
            done = hit.end
            yield hit
    if not done and end - start >= _MIN_FIGURES:
        hit = national_at(text, row, start, min(end, start + 2 * _MAX_NATIONAL))
        if hit:
            yield hit


def _spread_iban(text: str, row: Row, found: Region) -> Hit | None:
    for start in range(found.start, min(found.end, found.start + 12)):
        if text[start].isdigit():
            return iban_at(text, row, start)
    return None
