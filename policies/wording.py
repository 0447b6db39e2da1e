"""Facts in the words of their readers: labels, codes, numbers, dates, countries, laws.

What can be said by rule of the language comes from CLDR (by Babel): names of countries, how a
number, a date or an amount is written. What only this product says is in `words.yaml`. Nothing of
this is digested or decided on; a record holds codes only.

Source: Unicode CLDR, as shipped with Babel.
"""

import datetime as dt
import functools
import re
from collections.abc import Mapping
from decimal import Decimal
from importlib import resources
from typing import Any

from babel import Locale, UnknownLocaleError
from babel.dates import format_date, format_time
from babel.numbers import format_currency, format_decimal, format_percent

from policies.decision import parse_instant
from policies.facts import catalogue
from policies.lint import described
from policies.pointers import get, pattern_of, split
from policies.reference import Reference
from policies.strict import parse_yaml

MAX_TEXT_CHARS = 200
_MIB_PER_GIB = 1024
_HOLE = re.compile(r"\{([a-z_]+)\}")
_ANNEX = re.compile(r"annex([0-9]+)((?:\.[0-9a-z]+)+)\Z")
_ARTICLE = re.compile(r"art([0-9]+)\.([0-9]+)((?:\.[a-z]+)*)\Z")
_ISO_DAY = re.compile(r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}\b")
_ROMAN = {"1": "I", "3": "III"}


@functools.cache
def words() -> Any:
    """Return `words.yaml`: section → name → language → text."""
    return parse_yaml(resources.files("policies").joinpath("words.yaml").read_bytes())


def phrase(name: str, language: str, holes: Mapping[str, str] | None = None) -> str:
    """Return a phrase of letters, with `{name}` replaced once by the values given."""
    return filled(words()["letter"][name][language], holes or {})


def filled(template: str, holes: Mapping[str, str]) -> str:
    """Replace `{name}` by the value given; what has no value stays as it is written."""
    return _HOLE.sub(lambda m: holes.get(m.group(1), m.group(0)), template)


def code(value: str, language: str) -> str:
    """Say what a code means; a code without words is shown as it is."""
    found: Mapping[str, str] = words()["codes"].get(value, {})
    return found.get(language, value)


def label(pointer: str, seen: Mapping[str, Any], language: str) -> str:
    """Name a fact: `/derived/storage/2/hds/status` is "HDS certificate (output)".

    A fact that has no words is named by its pointer.
    """
    parts = [part for part in split(pattern_of(pointer)) if part not in ("derived", "*")]
    texts = words()["facts"].get(parts[-1]) if parts else None
    if texts is None:
        return pointer
    schemes = [words()["schemes"][part] for part in parts[1:-1] if part in words()["schemes"]]
    name = filled(texts[language], {"scheme": " ".join(schemes)})
    subject = words()["subjects"].get(parts[0]) if len(parts) > 1 else None
    if subject is None:
        return name
    holes = {}
    if (place := re.match(r"(?:/derived)?(/(?:datasets|storage)/[0-9]+)", pointer)) is not None:
        at = get(seen, place.group(1))
        known = at if isinstance(at, dict) else {}
        holes["id"] = str(known.get("id") or code("unknown", language))
        holes["role"] = code(str(known.get("role") or "unknown"), language)
    text = filled(subject[language], {"id": "*", "role": "*", **holes})
    return name if text == name else f"{name} ({text})"


def value(pattern: str, found: Any, language: str, reference: Reference | None = None) -> str:
    """Write the fact at a path for reading; unknown is said in words.

    `reference` gives providers their names; without it they are shown by id.
    """
    if found is None:
        return code("unknown", language)
    if isinstance(found, list):
        items = [value(f"{pattern}/*", item, language, reference) for item in found]
        text = ", ".join(dict.fromkeys(items)) or code("nothing", language)
    elif isinstance(found, bool):
        text = code("true" if found else "false", language)
    elif isinstance(found, int):
        text = number(pattern, found, language)
    elif isinstance(found, dict):
        text = "{…}"
    else:
        text = _string(pattern, str(found), language, reference)
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…"


def number(pattern: str, found: int, language: str) -> str:
    """Write an integer in the unit that its name says: cents, permille, MiB, else as it is."""
    name = split(pattern)[-1] if pattern else ""
    if name.endswith("_cents"):
        return str(format_currency(Decimal(found) / 100, "EUR", locale=language))
    if name.endswith("_permille"):
        tenths = Decimal(found) / 1000
        return str(format_percent(tenths, locale=language, decimal_quantization=False))
    if name.endswith("_mib"):
        gib = (Decimal(found) / _MIB_PER_GIB).quantize(Decimal("0.1"))
        return f"{format_decimal(gib, locale=language)} GiB"
    return str(format_decimal(found, locale=language))


def _string(pattern: str, found: str, language: str, reference: Reference | None) -> str:
    parts = [part for part in split(pattern) if part != "*"]
    name = parts[-1] if parts else ""
    if name == "country" or name.endswith("countries"):
        return country(found, language)
    if name in ("provider", "providers"):
        row = None if reference is None else reference.providers.get(found)
        return (
            code(found, language) if row is None else str(row.get("name") or code(found, language))
        )
    if name in ("high_risk_areas", "prohibited_practices"):
        return provision(found, language)
    if name == "service":
        services = () if reference is None else reference.rows("services")
        return next((str(r["name"]) for r in services if r["service"] == found), found)
    described_as = described(catalogue(), pattern)
    if described_as is None or "enum" not in described_as:
        return found
    of_its_own = code(f"{name}.{found}", language)
    return code(found, language) if of_its_own == f"{name}.{found}" else of_its_own


def country(alpha2: str, language: str) -> str:
    """Name a country by its ISO 3166-1 code; an unknown code is shown as it is."""
    return str(_locale(language).territories.get(alpha2, alpha2))


@functools.cache
def _locale(language: str) -> Locale:
    try:
        return Locale.parse(language)
    except (ValueError, UnknownLocaleError):
        return Locale.parse("en")


def provision(found: str, language: str) -> str:
    """Write `annex3.5.b` as "Annex III, 5(b)" and `art5.1.a` as "Art. 5(1)(a)"."""
    if (annex := _ANNEX.match(found)) is not None:
        number_, *rest = annex.group(2).strip(".").split(".")
        letters = "".join(f"({part})" for part in rest)
        roman = _ROMAN.get(annex.group(1), annex.group(1))
        return law(f"Annex {roman}, {number_}{letters}", language)
    if (article := _ARTICLE.match(found)) is not None:
        letters = "".join(f"({part})" for part in article.group(3).strip(".").split(".") if part)
        return law(f"Art. {article.group(1)}({article.group(2)}){letters}", language)
    return found


def law(ref: str, language: str) -> str:
    """Write a reference to the law as readers of a language cite it."""
    for name, texts in words()["laws"].items():
        ref = ref.replace(name, texts[language])
    return _ISO_DAY.sub(lambda m: day(m.group(0), language), ref)


def day(text: str, language: str) -> str:
    """Write the day of `YYYY-MM-DD…` in full."""
    # A letter in English goes to readers in Europe: 1 December 2026.
    place = "en_GB" if language == "en" else language
    written = str(format_date(dt.date.fromisoformat(text[:10]), "long", locale=place))
    return re.sub(r"^1 ", "1er ", written) if language == "fr" else written  # CLDR has no ordinal


def moment(instant: str, language: str) -> str:
    """Write an instant `YYYY-MM-DDThh:mm:ssZ` as day and time in UTC."""
    at = parse_instant(instant)
    time = str(format_time(at.time(), "HH:mm", locale=language))
    return phrase("on", language, {"date": day(instant, language), "time": time})
