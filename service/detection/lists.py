"""The word lists and tables that detectors go by: dated data files, read once.

Each file in `data/` names its format and, in `defaults`, when it was checked, against what and how
sure that is; a row or section may say otherwise.
"""

import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from service.detection.plain import plain, without_accents

_FOLDER = Path(__file__).parent / "data"
_SAID = frozenset({"source", "checked_on", "confidence"})


class DetectionDataError(ValueError):
    """Raised for a data file that does not have the expected shape."""


@functools.cache
def table(name: str) -> Mapping[str, Any]:
    """Read a data file.

    Raises:
        DetectionDataError: another format, or rows that do not say where they come from.
    """
    document = YAML(typ="safe").load((_FOLDER / f"{name}.yaml").read_text("utf-8"))
    expected = f"placet.detection-{name}/1"
    if not isinstance(document, dict) or document.get("format") != expected:
        raise DetectionDataError(f"{name}.yaml: expected the format `{expected}`")
    defaults = document.get("defaults", {})
    for name_of_section, section in document.items():
        if name_of_section == "defaults":
            continue
        rows = section if isinstance(section, list) else [section]
        for row in rows:
            if isinstance(row, dict) and not (defaults | row).keys() >= _SAID:
                raise DetectionDataError(f"{name}.yaml: a row has no source, date or confidence")
    return document


def rows(name: str, member: str = "rows") -> list[dict[str, Any]]:
    """Return the rows of a data file with the defaults filled in."""
    document = table(name)
    return [document["defaults"] | row for row in document[member]]


def words(name: str, *path: str) -> tuple[str, ...]:
    """Return all words under a place in a data file, of all languages, each once."""
    found: Any = table(name)
    for step in path:
        found = found[step]
    if isinstance(found, dict):
        found = [word for key, part in found.items() if key not in _SAID for word in part]
    return tuple(dict.fromkeys(str(word) for word in found))


def spellings(listed: Iterable[str]) -> tuple[str, ...]:
    """Return words in plain spelling, with those that leave out accents."""
    made = [plain(word) for word in listed]
    return tuple(dict.fromkeys(made + [without_accents(word) for word in made]))


def pattern_of(listed: Iterable[str]) -> re.Pattern[str]:
    """Compile words into one pattern over plain text; `*` at the end stands for any ending."""
    parts = sorted(spellings(listed), key=len, reverse=True)
    inner = "|".join(
        re.escape(part.removesuffix("*")) + ("" if part.endswith("*") else r"(?![^\W_])")
        for part in parts
    )
    return re.compile(rf"(?<![^\W_])(?:{inner})")


@functools.cache
def other_number() -> re.Pattern[str]:
    """Return the words that, just before a figure, say that it is nobody's number."""
    return pattern_of(words("numbers", "other_number"))
