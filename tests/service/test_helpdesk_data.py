"""The demonstration data set: shape, balance, length, and nothing personal."""

import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "service" / "demo" / "data"
LANGUAGES = ("en", "fr", "de", "es", "pt", "pl")
ROWS = [json.loads(line) for line in (DATA / "helpdesk.jsonl").read_text("utf-8").splitlines()]

# A statement that somebody meets the law; a role such as "compliance officer" is not one.
CLAIMS = re.compile(
    r"\b(is|are|fully) compliant\b|\bconforms? to\b|\best conforme\b|\bist konform\b"
    r"|\bgesetzeskonform\b|\bes conforme\b|\bé conforme\b|\bjest zgodn[yae] z (prawem|rodo|aktem)",
    re.IGNORECASE,
)
LAW_NUMBER = re.compile(r"\b(?:20\d{2}/\d{2,4}|R\.1111-9)\b")


def texts(row):
    return [message["content"] for message in row["messages"]]


def test_file_ends_with_a_newline_and_is_valid_utf8():
    data = (DATA / "helpdesk.jsonl").read_bytes()
    assert data.endswith(b"}\n")
    assert b"\r" not in data
    data.decode("utf-8")


def test_there_are_at_least_sixty_topics_in_each_of_six_languages():
    counts = Counter(row["language"] for row in ROWS)
    assert set(counts) == set(LANGUAGES)
    assert len(set(counts.values())) == 1
    assert counts["en"] >= 60


def test_every_topic_has_each_language_once():
    topics = defaultdict(list)
    for row in ROWS:
        topics[row["group"]].append(row["language"])
    assert all(sorted(languages) == sorted(LANGUAGES) for languages in topics.values())


def test_rows_have_the_chat_shape_and_no_other_member():
    for row in ROWS:
        assert set(row) == {"id", "group", "language", "messages"}
        assert [set(message) for message in row["messages"]] == [{"role", "content"}] * 2
        assert [message["role"] for message in row["messages"]] == ["user", "assistant"]


def test_ids_are_unique_and_made_of_group_and_language():
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert re.fullmatch(r"hd-\d{3}", row["group"])
        assert row["id"] == f"{row['group']}-{row['language']}"


def test_questions_and_answers_are_unique():
    for position in (0, 1):
        seen = Counter(texts(row)[position] for row in ROWS)
        assert [text for text, count in seen.items() if count > 1] == []


@pytest.mark.parametrize(("position", "most"), [(0, 20), (1, 45)])
def test_texts_are_short_and_trimmed(position, most):
    for row in ROWS:
        text = texts(row)[position]
        assert 2 <= len(text.split()) <= most, row["id"]
        assert text == text.strip()
        assert "  " not in text
        assert text.isprintable(), row["id"]


def test_questions_end_as_questions_or_instructions_do():
    assert all(re.search(r"[?.]$", texts(row)[0]) for row in ROWS)
    assert all(re.search(r"[.!…]$", texts(row)[1]) for row in ROWS)


def test_nothing_looks_like_an_address_a_phone_number_or_a_link():
    address = re.compile(r"\S+@\S+|https?:|www\.", re.IGNORECASE)
    phone = re.compile(r"\+?\d(?:[ ./()-]?\d){7,}")
    for row in ROWS:
        for text in texts(row):
            assert not address.search(text), row["id"]
            assert not phone.search(LAW_NUMBER.sub("", text)), row["id"]


def test_no_answer_claims_that_anyone_meets_the_law():
    assert [row["id"] for row in ROWS if CLAIMS.search(texts(row)[1])] == []


def test_translations_are_translations_and_not_copies():
    topics = defaultdict(set)
    for row in ROWS:
        topics[row["group"]].update(texts(row))
    assert all(len(found) == 2 * len(LANGUAGES) for found in topics.values())


def test_licence_names_itself_and_says_there_is_no_personal_data():
    licence = (DATA / "LICENSE.md").read_text("utf-8")
    assert "Apache-2.0" in licence
    assert "no personal data" in licence
    assert f"{len(ROWS)} question and answer pairs" in licence
