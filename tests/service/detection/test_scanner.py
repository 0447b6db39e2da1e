"""What detectors find, what they leave, and that no value is kept."""

import json
import time
import tracemalloc

import pytest
from world import HELPDESK

from service.detection.result import Detection, Evidence, Mode, shape_of
from service.detection.scanner import Scanner
from service.detection.values import said

ZERO_WIDTH = ("\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad")


def detect(*texts, language=None, **settings):
    scanner = Scanner(**settings)
    for number, text in enumerate(texts, 1):
        scanner.feed(number, text, size_bytes=len(text), language=language)
    return scanner.result()


@pytest.mark.parametrize(
    ("text", "counts", "categories"),
    [
        ("write to jane.roe@klinik-mitte.de today", {"email": 1}, {"pd.basic"}),
        ("call +33 1 42 68 53 00 now", {"phone": 1}, {"pd.basic"}),
        ("call 0033 1 42 68 53 00 now", {"phone": 1}, {"pd.basic"}),
        ("pay to DE89 3704 0044 0532 0130 00 please", {"iban": 1}, {"pd.financial"}),
        ("pay to DE89370400440532013000", {"iban": 1}, {"pd.financial"}),
        ("GB29 NWBK 6016 1331 9268 19", {"iban": 1}, {"pd.financial"}),
        ("her card 4111 1111 1111 1111", {}, set()),  # a test number that everybody prints
        ("her card 4539 1488 0343 6467", {"card": 1}, {"pd.financial"}),
        ("NIR 2 95 10 99 126 111 93", {"fr.nir": 1}, {"pd.identifier"}),
        ("295109912611193", {"fr.nir": 1}, {"pd.identifier"}),
        ("RCCMNL83S18D969H", {"it.codicefiscale": 1}, {"pd.identifier"}),
        ("hetu 131052-308T", {"fi.hetu": 1}, {"pd.identifier"}),
        ("PESEL: 44051401359", {"pl.pesel": 1}, {"pd.identifier"}),
        ("DNI 54362315K", {"es.dni": 1}, {"pd.identifier"}),
        ("BSN 1112.22.333", {"nl.bsn": 1}, {"pd.identifier"}),
        ("née le 12/03/1981 à Lyon", {"date_of_birth": 1}, {"pd.basic"}),
        ("geboren am 12.03.1981", {"date_of_birth": 1}, {"pd.basic"}),
        ("the patient has diabetes", {"health": 1}, {"art9.health"}),
        ("diagnosed with E11.9 (ICD-10)", {"icd10": 1}, {"art9.health"}),
        ("my son is 9 years old", {"child": 1}, {"pd.children"}),
        ("she is a trade union member", {"trade_union": 1}, {"art9.trade_union"}),
    ],
)
def test_what_is_found(text, counts, categories):
    detection = detect(text)

    assert detection.counts == counts
    assert set(detection.categories) == categories


@pytest.mark.parametrize(
    "text",
    [
        "",
        "write to someone@example.org, a@b.example or logo@2x.png",
        "pay to DE00 3704 0044 0532 0130 00",
        "295109912611194",
        "PESEL 44051401358",
        "version 1.2.3+4567890 of the handbook",
        "article 12/03 of the law",
        "44051401359",  # eleven figures say nothing by themselves
        "order 54362315K",
        "111222333",
        "be patient: the diagnosis module E11 restarts",
        "diabetes research is expensive",
        "the firm is 9 years old",
        "my son is 19 years old",
        "uuid 550e8400-e29b-41d4-a716-446655440000",
        "2026-11-30T12:00:00Z 192.168.100.200 0.123456789",
        "https://host.test/items/295109912611194?x=44051401358",
    ],
)
def test_what_is_left(text):
    assert detect(text).counts == {}


def test_a_weak_number_counts_in_the_language_of_its_country():
    assert detect("44051401359", language="pl").counts == {"pl.pesel": 1}
    assert detect("44051401359", language="pl-PL").counts == {"pl.pesel": 1}
    assert detect("44051401359", language="fr").counts == {}
    assert detect("faktura 44051401359", language="pl").counts == {}


@pytest.mark.parametrize("mark", ZERO_WIDTH)
@pytest.mark.parametrize(
    ("value", "detector"),
    [
        ("DE89370400440532013000", "iban"),
        ("295109912611193", "fr.nir"),
        ("4539148803436467", "card"),
        ("jane.roe@klinik.de", "email"),
    ],
)
def test_invisible_characters_hide_nothing(mark, value, detector):
    for at in range(1, len(value)):
        assert detect(f"x {value[:at]}{mark}{value[at:]} y").counts == {detector: 1}


@pytest.mark.parametrize("zero", [0xFF10, 0x0660, 0x0966, 0x1D7CE])
def test_figures_of_other_scripts_are_figures(zero):
    def foreign(text):
        return text.translate({48 + figure: zero + figure for figure in range(10)})

    assert detect(foreign("295109912611193")).counts == {"fr.nir": 1}
    assert detect(foreign("DE89 3704 0044 0532 0130 00")).counts == {"iban": 1}


@pytest.mark.parametrize("blank", [" ", "\u00a0", "\u202f", "\u2009", "\u3000"])
def test_a_blank_after_every_character_hides_nothing(blank):
    assert detect(blank.join("DE89370400440532013000")).counts == {"iban": 1}
    assert detect("a " + blank.join("295109912611193") + " b").counts == {"fr.nir": 1}
    assert detect(blank.join("RCCMNL83S18D969H")).counts == {"it.codicefiscale": 1}


def test_other_figures_beside_a_number_do_not_hide_it():
    for text in ("7 295109912611193 12", "12.295109912611193-4", "3/295109912611193 5 5"):
        assert detect(text).counts == {"fr.nir": 1}


def test_names_of_members_are_read_with_their_values():
    row = {"a": [{"phone_number": "0612345678"}], "n": 295109912611193, "s": '{"mail":"j@roe.fr"}'}

    assert detect(said(row), language="fr").counts == {"email": 1, "fr.nir": 1, "phone": 1}


def test_a_name_of_a_member_may_be_the_value():
    assert detect(said({"jane.roe@klinik.de": 5})).counts == {"email": 1}


def test_half_characters_do_not_stop_it():
    assert detect("\ud800 295109912611193 \udfff", "é\ud800").counts == {"fr.nir": 1}


def test_a_row_that_holds_the_separator_stays_one_row():
    detection = detect("a\x1eb", "\x1e\x1e295109912611193", "j@roe.fr")

    assert [(each.row, each.detector) for each in detection.evidence] == [
        (3, "email"),
        (2, "fr.nir"),
    ]


def test_statements_count_a_row_once():
    assert detect("she has cancer, she has diabetes", "he has cancer").counts == {"health": 2}


def test_evidence_says_where_and_how_it_is_written():
    detection = detect("ok", "pay FR76 3000 6000 0112 3456 7890 189")

    assert detection.evidence == (Evidence(2, "iban", "FR## #### #### #### ####…"),)
    assert detection.to_document()["evidence"] == [
        {"object": 0, "row": 2, "detector": "iban", "shape": "FR## #### #### #### ####…"}
    ]


def test_evidence_is_limited():
    assert len(detect(*["mail j@roe.fr"] * 50).evidence) == 3
    parts = [detect(*["j@roe.fr, DE89370400440532013000"] * 5)] * 60
    assert len(Detection.merged(parts).evidence) == 100


@pytest.mark.parametrize(
    ("text", "shape"),
    [("AB-12/c.", "xx-##/x."), ("é@ü", "x?x"), ("1" * 40, "#" * 24 + "…"), ("", "")],
)
def test_a_shape_keeps_no_character_that_says_something(text, shape):
    assert shape_of(text) == shape


def test_parts_add_up():
    whole = Detection.merged([detect("j@roe.fr"), detect("a", "j@roe.fr she has cancer")])

    assert (whole.rows, whole.counts, whole.tags) == (
        3,
        {"email": 2, "health": 1},
        {"pd.basic": 2, "art9.health": 1},
    )
    assert [each.object for each in whole.evidence] == [0, 1, 1]


def test_parts_drawn_in_different_ways_do_not_add_up():
    with pytest.raises(ValueError, match="drawn in one way"):
        Detection.merged([detect("a"), detect("a", permille=500)])


def test_a_sample_is_the_same_for_the_same_seed_and_states_itself():
    def drawn(**settings):
        scanner = Scanner(**settings)
        return [number for number in range(20_000) if scanner.draws(number)]

    assert drawn(permille=100, seed=1) == drawn(permille=100, seed=1)
    assert drawn(permille=100, seed=1) != drawn(permille=100, seed=2)
    assert 1_800 < len(drawn(permille=100, seed=1)) < 2_200
    document = detect("a", permille=100, seed=7).to_document()
    assert (document["mode"], document["permille"], document["seed"]) == (Mode.SAMPLED, 100, 7)


@pytest.mark.parametrize("permille", [0, 1001, -1])
def test_a_share_out_of_range_is_refused(permille):
    with pytest.raises(ValueError, match="permille"):
        Scanner(permille=permille)


def test_the_shipped_rows_hold_nothing_personal():
    detection = detect(*HELPDESK.read_text("utf-8").splitlines())

    assert detection.categories == ()


@pytest.mark.parametrize(
    "text",
    [
        "a" * 200_000,
        "a@" * 100_000,
        "a." * 50_000 + "@b",
        "+1 " * 70_000,
        "AA00 " * 40_000,
        "DE00 " * 40_000,
        "patient " * 25_000,
        "she has " * 20_000 + "cancer " * 5_000,
        "1" * 200_000,
        "1 " * 100_000,
        "1-2 34 " * 30_000,
        "a 1 " * 50_000,
        "born on " * 25_000,
        "E11 ICD-10 " * 15_000,
        "\u0301" * 100_000,
        "\uff11 \u200b" * 60_000,
    ],
    ids=lambda text: ascii(text[:12]),
)
def test_hostile_rows_do_not_take_long(text):
    started = time.process_time()

    detect(text)

    assert time.process_time() - started < 10


def test_memory_does_not_grow_with_the_rows():
    def peak(num_rows):
        scanner = Scanner()
        tracemalloc.start()
        for number in range(num_rows):
            scanner.feed(number, "mail j@roe.fr, she has cancer " + "word " * 60, size_bytes=1)
        scanner.result()
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    peak(300)
    assert peak(6_000) < 1.5 * peak(1_000) + 1_000_000


def test_the_document_is_json_without_fractions():
    document = detect("j@roe.fr").to_document()

    assert json.loads(json.dumps(document)) == document
    assert not any(isinstance(value, float) for value in document.values())
