"""Measure detection: MB/s on one core, precision and recall, beside presidio-analyzer's patterns.

    python tests/bench/detection/bench.py [--megabytes 16] [--json FILE]

Both read the same rows in this process, timed in CPU seconds, best of several. Ours is measured
whole: reading lines, parsing JSON, looking, counting. Presidio's recognisers are called directly,
without its language models, on strings that are parsed already, on the first part of the same file
because they are slower; a country's recognisers run on every row, as they must when nobody says
which language a row is in. Nothing is asserted. Without `placet[bench]` only ours is measured.
"""

import argparse
import io
import itertools
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(_ROOT), str(_ROOT / "tests")]

from labelled import FOLDER, Score, scores

from service.detection.reading import Format, feed
from service.detection.scanner import Scanner

_HELPDESK = _ROOT / "service" / "demo" / "data" / "helpdesk.jsonl"
_HALVES = ("first", "held_out")
_NAMES = {
    "EMAIL_ADDRESS": "email",
    "PHONE_NUMBER": "phone",
    "IBAN_CODE": "iban",
    "CREDIT_CARD": "card",
    "ES_NIF": "es.dni",
    "ES_NIE": "es.nie",
    "IT_FISCAL_CODE": "it.codicefiscale",
    "PL_PESEL": "pl.pesel",
    "FI_PERSONAL_IDENTITY_CODE": "fi.hetu",
    "SE_PERSONNUMMER": "se.personnummer",
    "DE_TAX_ID": "de.idnr",
}
_REGIONS = ["GB", "FR", "DE", "ES", "PT", "PL"]
Found = Callable[[str], Mapping[str, int]]


def labelled_rows(half: str) -> list[dict[str, Any]]:
    """Return one half of the labelled set."""
    lines = (FOLDER / f"{half}.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def chat_rows(languages: frozenset[str], size: int, every: int = 0) -> bytes:
    """Return help-desk rows of a size; one of so many says something personal, or none."""
    shipped = [json.loads(line) for line in _HELPDESK.read_bytes().splitlines()]
    chosen = itertools.cycle(row for row in shipped if row["language"] in languages)
    marked = itertools.cycle(
        row for row in labelled_rows("first") if row["language"] in languages and row["labels"]
    )
    made, total = [], 0
    for number, row in enumerate(chosen):
        messages = list(row["messages"])
        if every and number % every == every - 1:
            messages.insert(0, {"role": "user", "content": next(marked)["text"]})
        line = json.dumps(row | {"messages": messages}, ensure_ascii=False).encode() + b"\n"
        made.append(line)
        total += len(line)
        if total >= size:
            return b"".join(made)
    return b""


def speed(work: Callable[[], object], size: int, repeats: int) -> float:
    """Return MB per CPU second of this process, the best of some repeats."""
    best = float("inf")
    for _ in range(repeats):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return size / 1e6 / best


def ours(data: bytes) -> Mapping[str, int]:
    """Look at JSONL as `placet dataset inspect` does."""
    scanner = Scanner()
    feed(io.BytesIO(data), scanner, Format.JSONL)
    return scanner.result().counts


def ours_in(row: dict[str, Any]) -> Mapping[str, int]:
    """Count in one labelled row."""
    scanner = Scanner()
    scanner.feed(1, row["text"], size_bytes=1, language=row["language"])
    return scanner.result().counts


def presidio() -> Found | None:
    """Return presidio's patterns as a function from text to counts; None if not installed."""
    if find_spec("presidio_analyzer") is None:
        return None
    import tldextract
    from presidio_analyzer import predefined_recognizers as known

    tldextract.extract = tldextract.TLDExtract(suffix_list_urls=())  # its own list, no network
    recognizers = [
        known.EmailRecognizer(),
        known.PhoneRecognizer(supported_regions=_REGIONS),
        known.IbanRecognizer(),
        known.CreditCardRecognizer(),
        known.EsNifRecognizer(),
        known.EsNieRecognizer(),
        known.ItFiscalCodeRecognizer(),
        known.PlPeselRecognizer(),
        known.FiPersonalIdentityCodeRecognizer(),
        known.SePersonnummerRecognizer(),
        known.DeTaxIdRecognizer(),
    ]

    def counts(text: str) -> Mapping[str, int]:
        found: Counter[str] = Counter()
        for recognizer in recognizers:
            results = recognizer.analyze(text, recognizer.supported_entities, nlp_artifacts=None)
            found.update(_NAMES[each.entity_type] for each in results or ())
        return found

    return counts


def texts_of(data: bytes) -> Iterator[str]:
    """Yield what presidio looks at: the messages, parsed."""
    for line in data.splitlines():
        yield "\n".join(message["content"] for message in json.loads(line)["messages"])


def accuracy(counts_of: Callable[[dict[str, Any]], Mapping[str, int]]) -> dict[str, Any]:
    """Return precision and recall by half and detector, of what both can find."""
    return {
        half: {
            name: _rounded(score) for name, score in scores(labelled_rows(half), counts_of).items()
        }
        for half in _HALVES
    }


def _rounded(score: Score) -> dict[str, float]:
    return {"precision": round(score.precision, 3), "recall": round(score.recall, 3)}


def measured(megabytes: int) -> dict[str, Any]:
    """Measure everything."""
    size = megabytes * 1_000_000
    all_languages, english = frozenset(("en", "fr", "de", "es", "pt", "pl")), frozenset(["en"])
    files = {
        "English, plain": chat_rows(english, size),
        "six languages, plain": chat_rows(all_languages, size),
        "one row in 50 personal": chat_rows(all_languages, size, every=50),
    }
    opponent = presidio()
    result: dict[str, Any] = {"python": platform.python_version(), "speed": {}}
    for name, data in files.items():
        ours(data[: data.index(b"\n") + 1])
        row = {"bytes": len(data), "placet": speed(lambda d=data: ours(d), len(data), 5)}
        if opponent is not None:
            part = data[: data.rindex(b"\n", 0, 150_000) + 1]
            texts = list(texts_of(part))
            row["presidio"] = speed(lambda t=texts: list(map(opponent, t)), len(part), 1)
            row["ratio"] = row["placet"] / row["presidio"]
        result["speed"][name] = row
    result["placet"] = accuracy(ours_in)
    if opponent is not None:
        result["presidio"] = accuracy(lambda row: opponent(row["text"]))
    return result


def table(result: dict[str, Any]) -> str:
    """Write the result for reading."""
    lines = [f"{'MB/s per core':<22} {'placet':>10} {'presidio':>10} {'ratio':>8}"]
    for name, row in result["speed"].items():
        other = f"{row['presidio']:10.3f} {row['ratio']:8.0f}" if "presidio" in row else ""
        lines.append(f"{name:<22} {row['placet']:10.1f} {other}")
    for half in _HALVES:
        lines.append(f"\n{half:<22} {'placet P':>10} {'R':>6} {'presidio P':>12} {'R':>6}")
        for name, mine in result["placet"][half].items():
            theirs = result.get("presidio", {}).get(half, {}).get(name)
            shown = name in _NAMES.values() and theirs is not None
            other = f"{theirs['precision']:12.3f} {theirs['recall']:6.3f}" if shown else ""
            lines.append(f"{name:<22} {mine['precision']:10.3f} {mine['recall']:6.3f} {other}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description="Measure detection.")
    parser.add_argument("--megabytes", type=int, default=16, help="size of each file (default 16)")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    arguments = parser.parse_args()
    result = measured(arguments.megabytes)
    sys.stdout.write(table(result))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
