"""One plain spelling for text, so that what is written to be missed is not.

Compatibility forms become plain (NFKC: full-width figures, no-break and thin spaces, ligatures),
invisible characters go (zero-width, soft hyphen, direction marks, variation selectors), every
figure becomes ASCII, every dash a hyphen, and letters are lower case.
"""

import re
import unicodedata

_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]+"
)
_FOREIGN_FIGURE = re.compile(r"(?![0-9])\d")
_SURROGATE = re.compile("[\ud800-\udfff]")
_COMBINING = re.compile("[\u0300-\u036f]")
# Dashes, the quotes that words are written with, and the one letter whose lower case is two.
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_TABLE = dict.fromkeys(map(ord, _DASHES), "-") | {0x0130: "i", 0x2019: "'", 0x02BC: "'"}
# What typography is full of, replaced at the speed of memory. Only then is anything looked at that
# is not Latin: its characters are the ones whose UTF-8 begins with a byte from C9 on.
_COMMON = (
    *((char, " ") for char in "\u00a0\u2009\u202f"),
    *((char, "-") for char in "\u2011\u2013\u2014"),
    *(("\u2019", "'"), ("\u00ad", ""), ("\u0130", "i")),
    *((char, '"') for char in "\u201c\u201d\u201e"),
    *(("\u20ac", "EUR"), ("\u2026", "..."), ("\u2022", "*"), ("\ufb01", "fi")),
)
_LATIN_BYTES = bytes(range(0xC9))
_RARE = re.compile("[^\x00-\u023f]+")


def plain(text: str) -> str:
    """Return the plain spelling; cost linear in the text."""
    if text.isascii():
        return text.lower()
    for common, simple in _COMMON:
        text = text.replace(common, simple)
    if text.encode("utf-8", "surrogatepass").translate(None, _LATIN_BYTES):
        if _COMBINING.search(text):
            text = unicodedata.normalize("NFKC", text)
        text = _RARE.sub(_plain_run, text)
    return text.lower()


def _plain_run(found: re.Match[str]) -> str:
    run = _SURROGATE.sub("\ufffd", _INVISIBLE.sub("", found[0])).translate(_TABLE)
    return _FOREIGN_FIGURE.sub(_ascii_figure, unicodedata.normalize("NFKC", run))


def without_accents(text: str) -> str:
    """Return the spelling of somebody without the keys: `sécu` becomes `secu`."""
    return "".join(
        char for char in unicodedata.normalize("NFD", text) if not unicodedata.combining(char)
    ).translate({ord("ł"): "l"})


def _ascii_figure(found: re.Match[str]) -> str:
    return str(unicodedata.digit(found[0], 0))
