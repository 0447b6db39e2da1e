"""Which of our languages a caller reads: `language=fr`, else `Accept-Language`, else English."""

import re
from typing import Annotated

from fastapi import Depends, Header, Query

from policies.rule import LANGUAGES

_RANGE = re.compile(r"([A-Za-z]{1,8}|\*)(?:-[A-Za-z0-9]{1,8})*(?:;q=([01](?:\.[0-9]{1,3})?))?")
DEFAULT = "en"


def preferred(header: str) -> str:
    """Choose from an `Accept-Language` header; what cannot be read counts for nothing.

    Source: RFC 9110, 12.5.4; RFC 4647, 3.4 (look-up, by the primary subtag).
    """
    best, weight = DEFAULT, 0.0
    for part in header[:400].split(","):
        match = _RANGE.fullmatch(part.strip().replace(" ", ""))
        if match is None:
            continue
        name, asked = match[1].lower(), float(match[2] or 1)
        if name in LANGUAGES and asked > weight:
            best, weight = name, asked
    return best


def asked_language(
    language: Annotated[
        str | None, Query(pattern="^[a-z]{2}$", description="Language of messages.")
    ] = None,
    accept_language: Annotated[str, Header(description="Used when `language` is not given.")] = "",
) -> str:
    """Return one of our languages."""
    if language is None:
        return preferred(accept_language)
    return language if language in LANGUAGES else DEFAULT


AskedLanguage = Annotated[str, Depends(asked_language)]
