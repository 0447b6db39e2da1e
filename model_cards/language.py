"""The words of the documents in six languages: `locales/<language>.json`, read once.

A locale is a flat object of texts; `{name}` stands for a value. All six have the same keys and
the same placeholders, which a test holds. Labels of fields and sections are in the catalogue.
"""

import json
from functools import cache
from pathlib import Path
from typing import Final

from model_cards.catalogue import LANGUAGES

LOCALES: Final = Path(__file__).parent / "locales"
AUTONYMS: Final = {
    "en": "English",
    "fr": "Français",
    "de": "Deutsch",
    "es": "Español",
    "pt": "Português",
    "pl": "Polski",
}


class LanguageError(ValueError):
    """A language we have no texts for."""


@cache
def words(language: str) -> dict[str, str]:
    """Return the texts of one language.

    Raises:
        LanguageError: not one of en, fr, de, es, pt, pl.
    """
    if language not in LANGUAGES:
        raise LanguageError(f"unknown language {language!a}: expected one of {LANGUAGES}")
    texts: dict[str, str] = json.loads((LOCALES / f"{language}.json").read_text("utf-8"))
    return texts
