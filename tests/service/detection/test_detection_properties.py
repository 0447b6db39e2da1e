"""Whatever surrounds a valid number, it is found; whatever is found, its value is not kept."""

import contextlib
import io
import json
import logging
import random
import string

import labelled
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.detection.reading import Format, FormatError, feed
from service.detection.scanner import Scanner
from service.detection.values import parsed, said

# Text that touches a number without changing it: no letter, figure or mark beside it.
_BESIDE = st.sampled_from(["", " ", "\n", "\t", ", ", "; ", ": ", "(", ")", '"', "'", "!", "? "])
_TEXT = st.text(max_size=60)
# What needs no words around it.
_SURE = ("fr.nir", "it.codicefiscale", "fi.hetu")


def _value(kind, chance):
    if kind == "iban":
        return labelled.iban(chance)
    if kind == "email":
        return labelled.VALUES["email"](chance, "en")
    if kind == "phone":
        return labelled.phone(chance, chance.choice(labelled.LANGUAGES))
    return labelled.identifier(kind, chance)


@pytest.mark.parametrize("kind", [*_SURE, "iban", "email", "phone"])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), before=_TEXT, after=_TEXT, left=_BESIDE, right=_BESIDE)
def test_an_inserted_value_is_found_in_any_text(kind, seed, before, after, left, right):
    value = _value(kind, random.Random(seed))
    text = f"{before}\n{left}{value}{right}\n{after}"

    assert _counts(text).get(kind, 0) >= 1


def _counts(text):
    scanner = Scanner()
    scanner.feed(1, text, size_bytes=len(text))
    return scanner.result().counts


@pytest.mark.parametrize("kind", [*_SURE, "iban", "email", "phone"])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), text=st.text(alphabet=string.ascii_letters + " ", max_size=80))
def test_no_evidence_and_no_log_line_holds_a_value(kind, seed, text):
    value = _value(kind, random.Random(seed))
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    logging.getLogger().addHandler(handler)
    try:
        scanner = Scanner()
        scanner.feed(1, f"{text} {value} {text}", size_bytes=1)
        document = json.dumps(scanner.result().to_document(), ensure_ascii=False)
    finally:
        logging.getLogger().removeHandler(handler)

    parts = [part for part in value.replace("@", " ").replace("-", " ").split() if len(part) > 3]
    shapes = " ".join(each["shape"] for each in json.loads(document)["evidence"])
    assert value.lower() not in (document + written.getvalue()).lower()
    assert not any(part.lower() in shapes.lower() for part in parts)
    assert not any(char.isdigit() for char in shapes)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=200), max_size=8))
def test_every_text_is_looked_at(texts):
    scanner = Scanner()
    for number, text in enumerate(texts, 1):
        scanner.feed(number, text, size_bytes=len(text), language="fr")
    detection = scanner.result()

    assert detection.rows == len(texts)
    assert all(1 <= each.row <= len(texts) for each in detection.evidence)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(_JSON)
def test_every_string_of_a_json_value_is_said(value):
    def strings(item):
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            for each in item:
                yield from strings(each)
        elif isinstance(item, dict):
            for each in item.values():
                yield from strings(each)

    text = said(parsed(json.dumps(value).encode()))

    for string_inside in strings(value):
        if string_inside[:1] not in ("{", "["):
            assert string_inside in text


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(list(Format)))
def test_any_bytes_are_read_or_refused(data, chosen):
    scanner = Scanner()
    with contextlib.suppress(FormatError):
        feed(io.BytesIO(data), scanner, chosen)

    assert scanner.result().rows_examined <= scanner.result().rows
