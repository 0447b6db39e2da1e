"""The first look for personal data: what is counted, what is not, and that no value is kept."""

import time

import pytest
from world import HELPDESK

from service.detect import detect


@pytest.mark.parametrize(
    ("text", "found", "categories"),
    [
        ("write to jane.roe@klinik-mitte.de today", {"email": 1}, {"personal"}),
        ("call +33 1 42 68 53 00 now", {"phone": 1}, {"personal"}),
        ("pay to DE89 3704 0044 0532 0130 00 please", {"iban": 1}, {"personal"}),
        ("pay to DE89370400440532013000", {"iban": 1}, {"personal"}),
        ("née le 12/03/1981 à Lyon", {"date_of_birth": 1}, {"personal"}),
        ("geboren am 12.03.1981", {"date_of_birth": 1}, {"personal"}),
        (
            "patient with HbA1c of 9, mail a.b@c.de",
            {"email": 1, "patient_statement": 1},
            {"personal", "health"},
        ),
        ("the patient had a diagnosis", {"patient_statement": 1}, set()),
        ("write to someone@example.org or a@b.example", {}, set()),
        ("pay to DE00 3704 0044 0532 0130 00", {}, set()),
        ("version 1.2.3+4567890 of the handbook", {}, set()),
        ("article 12/03 of the law", {}, set()),
        ("", {}, set()),
    ],
)
def test_what_is_found_in_a_row(text, found, categories):
    detection = detect([text])

    assert detection.counts == found
    assert set(detection.categories) == categories
    assert detection.num_rows == 1


def test_the_shipped_rows_hold_nothing_personal():
    detection = detect(HELPDESK.read_text("utf-8").splitlines())

    assert detection.categories == ()


@pytest.mark.parametrize(
    "text",
    [
        "a" * 200_000,
        "a@" * 50_000,
        "+1 " * 50_000,
        "AA00 " * 40_000,
        "patient " * 25_000,
        "1" * 200_000,
    ],
    ids=["letters", "ats", "plusses", "ibans", "patients", "digits"],
)
def test_hostile_rows_do_not_take_long(text):
    started = time.process_time()

    detect([text])

    assert time.process_time() - started < 5
