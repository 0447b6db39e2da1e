"""The labelled set for detection: made-up values with valid check digits in hand-written sentences.

`rows(half)` is deterministic: the two halves differ in seed, in sentences and in the values drawn.
Each row is `{"id", "language", "text", "labels": {detector: count}}`; a row without labels is a
hard negative. Values are written plainly or with what hides them from a naive pattern: full-width
digits, zero-width characters, no-break spaces, a space after every character.

    PLACET_GOLDEN=1 pytest tests/service/detection/test_labelled.py     writes the files again
"""

import json
import random
import string
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

FOLDER = Path(__file__).parent / "service" / "detection" / "data"
SEEDS = {"first": 20261201, "held_out": 77001133}
LANGUAGES = ("en", "fr", "de", "es", "pt", "pl")
REPEATS = {"email": 3, "phone": 3, "phone_national": 3, "iban": 4, "card": 4, "date_of_birth": 3}
STATEMENT_DETECTORS = {
    "art9.religion_belief": "religion",
    "art9.political": "politics",
    "art9.trade_union": "trade_union",
    "art9.sexual_orientation": "sexual_orientation",
    "art9.racial_ethnic": "ethnic_origin",
    "art9.genetic": "genetic",
    "art9.biometric_id": "biometric",
    "art9.sex_life": "sex_life",
    "art10.criminal": "criminal",
    "pd.children": "child",
}
# Which module of python-stdnum decides; personal numbers share one with companies in Latvia.
MODULES = {"lv.pk": "lv.pvn"}
_IBANS = {
    "DE": "{18}", "FR": "{10}{11}{2}", "ES": "ES", "PT": "PT", "PL": "{24}", "IT": "IT",
    "NL": "INGB{10}", "IE": "AIBK{14}", "AT": "{16}", "MT": "MALT{5}{18}", "GB": "NWBK{14}",
}  # fmt: skip
_PHONES = {
    "fr": ("+33 6 {2} {2} {2} {2}", "06 {2} {2} {2} {2}"),
    "de": ("+49 151 2{7}", "0151 2{7}"),
    "es": ("+34 61{1} {3} {3}", "61{1} {3} {3}"),
    "pt": ("+351 91{1} {3} {3}", "91{1} {3} {3}"),
    "pl": ("+48 601 {3} {3}", "601 {3} {3}"),
    "en": ("+44 7400 {6}", "07400 {6}"),
}
_MONTHS = {
    "en": "January February March April May June July August September October November December",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre"
    " noviembre diciembre",
    "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro"
    " novembro dezembro",
    "pl": "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października"
    " listopada grudnia",
}


@dataclass
class Score:
    """Hits that were right, wrong and missed, of one detector or category."""

    right: int = 0
    wrong: int = 0
    missed: int = 0

    @property
    def precision(self) -> float:
        return self.right / max(1, self.right + self.wrong)

    @property
    def recall(self) -> float:
        return self.right / max(1, self.right + self.missed)


def scores(
    made: list[dict[str, Any]], counts_of: Callable[[dict[str, Any]], Mapping[str, int]]
) -> dict[str, Score]:
    """Compare what somebody counts in each row with its labels, by detector."""
    found: defaultdict[str, Score] = defaultdict(Score)
    for row in made:
        counts, labels = counts_of(row), row["labels"]
        for name in {*counts, *labels}:
            got, wanted = counts.get(name, 0), labels.get(name, 0)
            found[name].right += min(got, wanted)
            found[name].wrong += max(0, got - wanted)
            found[name].missed += max(0, wanted - got)
    return dict(sorted(found.items()))


def templates() -> dict[str, Any]:
    """Return the sentences."""
    loaded: dict[str, Any] = YAML(typ="safe").load((FOLDER / "templates.yaml").read_text("utf-8"))
    return loaded


def rows(half: str) -> list[dict[str, Any]]:
    """Make one half of the set."""
    chance = random.Random(SEEDS[half])
    made = list(_made(half, chance))
    chance.shuffle(made)
    return [{"id": f"{half}-{number:04}", **row} for number, row in enumerate(made, 1)]


def to_jsonl(made: list[dict[str, Any]]) -> bytes:
    """Write rows as the files hold them."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made).encode()


def _made(half: str, chance: random.Random) -> Iterator[dict[str, Any]]:
    texts = templates()
    for language in LANGUAGES:
        own = texts[half][language]
        for kind, repeats in REPEATS.items():
            for sentence in own[kind] * repeats:
                value = hidden(VALUES[kind](chance, language), chance, spread=kind == "iban")
                name = kind.removesuffix("_national")
                yield _row(language, sentence.format(v=value), {name: 1})
        for sentence in own["health"]:
            yield _row(language, sentence, {"health": 1})
        for sentence in own["icd10"] * 2:
            code = chance.choice(["C50.9", "E11.9", "F32.1", "I10", "G40.3", "N18.5", "J45.0"])
            yield _row(language, sentence.format(v=code), {"icd10": 1})
        for tag, sentences in own["statements"].items():
            for sentence in sentences:
                yield _row(language, sentence, {STATEMENT_DETECTORS[tag]: 1})
        for sentence in own["negatives"] * 2:
            yield _row(language, sentence.format(**_figures(chance)), {})
    for name, spoken in texts["names"].items():
        for language, names in spoken.items():
            for sentence in texts[half][language]["identifier"] * 3:
                value = hidden(identifier(name, chance), chance, spread=True)
                text = sentence.format(what=chance.choice(names), v=value)
                yield _row(language, text, {name: 1})


def _row(language: str, text: str, labels: dict[str, int]) -> dict[str, Any]:
    return {"language": language, "text": text, "labels": labels}


def hidden(value: str, chance: random.Random, *, spread: bool) -> str:
    """Write a value so that a naive pattern misses it, in half of the cases."""
    trick = chance.randrange(10)
    if trick == 0:
        return value.translate({48 + d: 0xFF10 + d for d in range(10)})
    if trick == 1:
        cut = chance.randrange(1, len(value))
        return value[:cut] + chance.choice("\u200b\u200d\u2060\ufeff\u00ad") + value[cut:]
    if trick == 2:
        return value.replace(" ", chance.choice("\u00a0\u202f\u2009"))
    if trick == 3 and spread:
        return " ".join(value.replace(" ", ""))
    if trick == 4:
        return value.replace("-", "\u2011")
    return value


def digits(chance: random.Random, count: int) -> str:
    """Draw figures."""
    return "".join(chance.choices(string.digits, k=count))


def filled(shape: str, chance: random.Random) -> str:
    """Replace each `{n}` by n figures."""
    parts = shape.split("{")
    return parts[0] + "".join(
        digits(chance, int(part.partition("}")[0])) + part.partition("}")[2] for part in parts[1:]
    )


def iban(chance: random.Random, _language: str = "en") -> str:
    """Make an account number whose check digits hold, printed in one of three ways."""
    country = chance.choice(sorted(_IBANS))
    shape = _IBANS[country]
    for _ in range(20_000):
        body = filled({"ES": "{20}", "PT": "{21}", "IT": "X{10}{12}"}.get(shape, shape), chance)
        turned = "".join(str(int(char, 36)) for char in f"{body}{country}00")
        made = f"{country}{98 - int(turned) % 97:02}{body}"
        if import_module("stdnum.iban").is_valid(made):
            grouped = " ".join(made[at : at + 4] for at in range(0, len(made), 4))
            return chance.choice([made, grouped, grouped])
    raise AssertionError(country)


def card(chance: random.Random, _language: str = "en") -> str:
    """Make a card number that passes Luhn's check, in a range that issuers use."""
    start, length = chance.choice([("4", 16), ("51", 16), ("55", 16), ("2221", 16), ("37", 15)])
    body = start + digits(chance, length - len(start) - 1)
    made = body + str(import_module("stdnum.luhn").calc_check_digit(body))
    groups = [4, 6, 5] if length == 15 else [4, 4, 4, 4]
    spaced, at = [], 0
    for size in groups:
        spaced.append(made[at : at + size])
        at += size
    return chance.choice([made, " ".join(spaced), "-".join(spaced)])


def _birthday(chance: random.Random) -> date:
    return date(1930, 1, 1) + timedelta(days=chance.randrange(25_500))


def _date_of_birth(chance: random.Random, language: str) -> str:
    day = _birthday(chance)
    month = _MONTHS[language].split()[day.month - 1]
    written = {"en": f"{day.day} {month} {day.year}", "de": f"{day.day}. {month} {day.year}"}
    spoken = written.get(language, f"{day.day} {month} {day.year}")
    if language in {"es", "pt"}:
        spoken = f"{day.day} de {month} de {day.year}"
    return chance.choice(
        [f"{day:%d/%m/%Y}", f"{day:%d.%m.%Y}", f"{day:%Y-%m-%d}", f"{day:%d-%m-%Y}", spoken]
    )


def _email(chance: random.Random, _language: str) -> str:
    first = chance.choice(["jana.nowicka", "l.moreau", "tim-otto", "ines_prado", "k.o.brien+work"])
    host = chance.choice(["posteo.de", "wanadoo.fr", "klinik-mitte.de", "sapo.pt", "wp.pl"])
    return f"{first}{chance.randrange(100)}@{host}"


def phone(chance: random.Random, language: str, *, national: bool = False) -> str:
    """Make a telephone number that its country's plan allows."""
    numbers = import_module("phonenumbers")
    region = {"en": "GB"}.get(language, language.upper())
    while True:
        made = filled(_PHONES[language][national], chance)
        if numbers.is_valid_number(numbers.parse(made, region)):
            return made


VALUES: dict[str, Callable[[random.Random, str], str]] = {
    "email": _email,
    "phone": phone,
    "phone_national": lambda chance, language: phone(chance, language, national=True),
    "iban": iban,
    "card": card,
    "date_of_birth": _date_of_birth,
}
# {Y} year of two figures, {M} month, {D} day, {n} figures, {L} a letter, {C} a consonant triple.
_SHAPES = {
    "fr.nif": ["1{12}"],
    "de.idnr": ["{11}"],
    "es.dni": ["{8}{L}"],
    "es.nie": ["X{7}{L}", "Y{7}{L}"],
    "pt.nif": ["2{8}", "1{8}"],
    "pt.cc": ["{9}ZY{1}", "{9}ZZ{1}"],
    "pl.pesel": ["{Y}{M}{D}{5}"],
    "it.codicefiscale": ["RSSMRA{Y}{m}{D}H501{L}", "BNCLRA{Y}{m}{D}F205{L}"],
    "be.nn": ["{Y}.{M}.{D}-{3}.{2}", "{Y}{M}{D}{5}"],
    "nl.bsn": ["{9}"],
    "se.personnummer": ["{Y}{M}{D}-{4}", "19{Y}{M}{D}-{4}"],
    "dk.cpr": ["{D}{M}{Y}-1{3}"],
    "fi.hetu": ["{D}{M}{Y}-{3}{H}"],
    "ro.cnp": ["1{Y}{M}{D}40{4}", "2{Y}{M}{D}12{4}"],
    "at.vnr": ["{4} {D}{M}{Y}"],
    "cz.rc": ["{Y}{M}{D}/{4}"],
    "bg.egn": ["{Y}{M}{D}{4}"],
    "hr.oib": ["{11}"],
    "lt.asmens": ["3{Y}{M}{D}{4}", "4{Y}{M}{D}{4}"],
    "lv.pk": ["{D}{M}{Y}-1{4}"],
    "ee.ik": ["3{Y}{M}{D}{4}", "4{Y}{M}{D}{4}"],
    "si.emso": ["{D}{M}9{Y}50{4}"],
    "gr.amka": ["{D}{M}{Y}{5}"],
    "ie.pps": ["{7}{L}", "{7}{L}A"],
}


def identifier(name: str, chance: random.Random) -> str:
    """Make a national identifier that python-stdnum finds valid."""
    if name == "fr.nir":
        return _nir(chance)
    module = import_module(f"stdnum.{MODULES.get(name, name)}")
    shapes = _SHAPES[name]
    for _ in range(200_000):
        day = _birthday(chance)
        shape = chance.choice(shapes)
        for mark, value in (
            ("{Y}", f"{day:%y}"),
            ("{M}", f"{day:%m}"),
            ("{D}", f"{day:%d}"),
            ("{m}", "ABCDEHLMPRST"[day.month - 1]),
            ("{L}", chance.choice(string.ascii_uppercase)),
            ("{H}", chance.choice("0123456789ABCDEFHJKLMNPRSTUVWXY")),
        ):
            shape = shape.replace(mark, value)
        made = filled(shape, chance)
        if module.is_valid(made):
            return made
    raise AssertionError(name)


def _nir(chance: random.Random) -> str:
    body = f"{chance.choice('12')}{digits(chance, 2)}{chance.randrange(1, 13):02}"
    body += (
        f"{chance.randrange(1, 20):02}{chance.randrange(1, 600):03}{chance.randrange(1, 999):03}"
    )
    made = f"{body}{97 - int(body) % 97:02}"
    spaced = f"{made[0]} {made[1:3]} {made[3:5]} {made[5:7]} {made[7:10]} {made[10:13]} {made[13:]}"
    return chance.choice([made, spaced, spaced])


def _figures(chance: random.Random) -> dict[str, str]:
    made = {f"d{size}": digits(chance, size) for size in (4, 8, 9, 10, 11, 12, 14, 16)}
    good = iban(chance).replace(" ", "")
    paid = "".join(filter(str.isdigit, card(chance)))
    stdnum_isbn = import_module("stdnum.ean")
    book = "978" + digits(chance, 9)
    return made | {
        "n": f"{chance.randrange(10, 999)},{digits(chance, 3)}",
        "isbn": book + stdnum_isbn.calc_check_digit(book),
        "stamp": f"2026-{chance.randrange(1, 13):02}-07T{chance.randrange(24):02}:15:42Z",
        "bad_iban": f"{good[:2]}{(int(good[2:4]) % 97 + 3) % 97:02}{good[4:]}",
        "bad_card": paid[:-1] + str((int(paid[-1]) + 3) % 10),
    }
