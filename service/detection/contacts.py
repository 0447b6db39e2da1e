"""E-mail addresses and telephone numbers."""

import functools
import re
from collections.abc import Iterator

import phonenumbers

from service.detection.hits import Hit, Row
from service.detection.lists import other_number, pattern_of, table
from service.detection.result import shape_of

PLUS = re.compile(r"\+ ?\(?[1-9]")
_LOCAL = re.compile(r"[\w.+%'\-]*\Z")
_DOMAIN = re.compile(r"(?:[^\W_](?:[\w\-]{0,61}[^\W_])?\.)+[^\W\d_]{2,24}(?![\w\-])")
_INTERNATIONAL = re.compile(r"\+ ?\(?[1-9](?:[ ().\-/]{0,3}[0-9]){6,14}(?![0-9])")
_NATIONAL = re.compile(r"\(?[0-9](?:[ ().\-/]{0,3}[0-9]){6,13}(?![0-9])")
_DATE = re.compile(r"(?:[0-9]{4}([./-])[0-9]{1,2}\1|[0-9]{1,2}([./-])[0-9]{1,2}\2[0-9]{4})")
_LAST_GROUP = re.compile(r"[ ().\-/]+[0-9]+\Z")
_TAG = "pd.basic"
_MAX_LOCAL = 64


def email_at(text: str, row: Row, at: int) -> Hit | None:
    """Find an address around an `@`; names that RFC 2606 reserves are nobody's."""
    domain = _DOMAIN.match(text, at + 1, min(row.end, at + 256))
    if domain is None:
        return None
    local = _LOCAL.search(text, max(row.start, at - _MAX_LOCAL), at)
    name = local[0].strip(".'-") if local else ""
    lists = _email_lists()
    labels = domain[0].split(".")
    is_reserved = labels[-1] in lists["reserved"] or ".".join(labels[-2:]) in lists["reserved"]
    if not name or name in lists["accounts"] or is_reserved or labels[-1] in lists["not_domains"]:
        return None
    return Hit("email", _TAG, at - len(name), domain.end(), "x…@x….x")


@functools.cache
def _email_lists() -> dict[str, frozenset[str]]:
    section = table("numbers")["email"]
    return {
        name: frozenset(map(str, section[name])) for name in ("reserved", "not_domains", "accounts")
    }


def international_at(text: str, row: Row, start: int) -> Hit | None:
    """Find a telephone number that begins with its country's code at the `+` at `start`."""
    if text[max(row.start, start - 1) : start].isalnum():
        return None
    found = _INTERNATIONAL.match(text, start, row.end)
    if found is None:
        return None
    for written in _shorter(found[0]):
        if _is_number(written, None):
            return Hit("phone", _TAG, start, start + len(written), shape_of(written))
    return None


def national_at(text: str, row: Row, start: int, end: int) -> Hit | None:
    """Find a telephone number without its country, when the words beside it say that it is one."""
    if text[max(row.start, start - 1) : start] == "(":
        start -= 1
    words, regions = _phone_lists()
    before = text[max(row.start, start - 50) : start].rpartition("\n")[2]
    near = before + "\n" + text[end : min(row.end, end + 12)].partition("\n")[0]
    close = text[max(row.start, start - 24) : start]
    if words.search(near) is None or other_number().search(close) or _DATE.match(text, start):
        return None
    found = _NATIONAL.match(text, start, row.end)
    if found is None:
        return None
    for written in _shorter(found[0]):
        if written.startswith("00"):
            is_number = _is_number("+" + written.removeprefix("00"), None)
        else:
            places = regions.get(row.language or "", _everywhere())
            is_number = any(_is_number(written, place) for place in places)
        if is_number:
            return Hit("phone", _TAG, start, start + len(written), shape_of(written))
    return None


def _shorter(written: str) -> Iterator[str]:
    """Yield a number as written, then without its last groups, which may be something else."""
    for _ in range(4):
        yield written
        cut = _LAST_GROUP.search(written)
        if cut is None:
            return
        written = written[: cut.start()]


def _is_number(written: str, region: str | None) -> bool:
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(written, region))
    except phonenumbers.NumberParseException:
        return False


@functools.cache
def _phone_lists() -> tuple[re.Pattern[str], dict[str, tuple[str, ...]]]:
    section = table("numbers")["phone"]
    return pattern_of(section["words"]), {
        language: tuple(places) for language, places in section["regions"].items()
    }


@functools.cache
def _everywhere() -> tuple[str, ...]:
    return tuple(dict.fromkeys(place for each in _phone_lists()[1].values() for place in each))
