r"""Turn text that a stranger typed into text that does nothing.

`visible` is applied to every value in every output: control characters, invisible format
characters and the marks that reorder text are replaced by their code point, so that a reader sees
that they were there. HTML escaping itself is the template engine's; Markdown is done here.

    visible("a\u202eb")  ->  "a⟨U+202E⟩b"

Source: Unicode 15 general categories Cc, Cf, Zl, Zp, Co, Cn; CommonMark 0.31 §2.4 (backslash
escapes) and §2.5; GitHub Flavored Markdown 0.29 §6.9 (extended autolinks).
"""

import re
import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Co", "Cn", "Cs"})
_PUNCTUATION = re.compile(r"[\\`*_{}\[\]|~$^#]")
_ENTITIES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", "&#64;"), ("://", "&#58;//"))


def visible(text: str) -> str:
    """Return `text` with line breaks as spaces and hidden characters spelled out."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in " ".join(text.splitlines()))


def visible_lines(text: str) -> list[str]:
    """Return the lines of `text`, each as `visible` shows it, without blank ones."""
    return [visible(line) for line in text.splitlines() if line.strip()]


def markdown(text: str) -> str:
    """Return one line of Markdown (CommonMark and GitHub) that shows `text` and no more.

    No markup, HTML, table cell, link, mention, template or formula can come out of it.
    """
    shown = _PUNCTUATION.sub(r"\\\g<0>", visible(text))
    for plain, entity in _ENTITIES:
        shown = shown.replace(plain, entity)
    return re.sub(r"(?i)(www)\.", r"\1&#46;", shown)


def _shown(character: str) -> str:
    if character in "\t\u00a0\u202f":
        return " "
    if unicodedata.category(character) in _HIDDEN:
        return f"⟨U+{ord(character):04X}⟩"
    return character
