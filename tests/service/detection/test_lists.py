"""Word lists and tables: where they come from, and that they fit the gate's vocabulary."""

from importlib import import_module

import pytest

from policies.load import load_reference
from service.detection import lists
from service.detection.lists import DetectionDataError, pattern_of, rows, table, words

FILES = ("identifiers", "numbers", "statements")
OWN_TAGS = {"pd.basic", "pd.financial"}  # of e-mail, telephone, date of birth; of IBAN and card


def emitted():
    section = table("statements")
    listed = {row["tag"] for row in rows("identifiers")}
    listed |= {row["tag"] for row in rows("statements", "statements")}
    return listed | OWN_TAGS | {section["icd10"]["tag"], section["child"]["tag"]}


def test_every_tag_is_one_that_the_gate_knows():
    categories = load_reference().categories

    assert emitted() <= categories.keys()
    assert all(categories[tag]["same_as"] is None for tag in emitted())


def test_every_row_says_where_it_comes_from():
    for row in (*rows("identifiers"), *rows("statements", "statements")):
        assert row["source"]
        assert row["checked_on"] >= "2026-11-30"
        assert row["confidence"]


@pytest.mark.parametrize("row", rows("identifiers"), ids=lambda row: row["detector"])
def test_every_identifier_has_a_validator_and_words(row):
    assert callable(import_module(f"stdnum.{row['stdnum']}").is_valid)
    assert row["words"]
    assert row["digits"]


@pytest.mark.parametrize("language", ["en", "fr", "de", "es", "pt", "pl"])
def test_every_statement_is_listed_in_each_of_six_languages(language):
    listed = rows("statements", "statements")
    detectors = {row["detector"] for row in listed}

    assert {row["detector"] for row in listed if row["language"] == language} == detectors
    for section in ("birth", "subjects", "months"):
        assert table("statements")[section][language]


def test_a_list_of_another_format_or_without_a_source_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(lists, "_FOLDER", tmp_path)
    read = lists.table.__wrapped__
    (tmp_path / "own.yaml").write_text("format: other/1\n")
    with pytest.raises(DetectionDataError, match=r"expected the format `placet.detection-own/1`"):
        read("own")
    (tmp_path / "own.yaml").write_text("format: placet.detection-own/1\nrows: [{a: 1}]\n")
    with pytest.raises(DetectionDataError, match="no source, date or confidence"):
        read("own")


def test_words_are_whole_words_and_a_star_is_any_ending():
    pattern = pattern_of(["sécu", "steuer*"])

    assert [found[0] for found in pattern.finditer("sécu secu sécurité steuernummer xsteuer")] == [
        "sécu",
        "secu",
        "steuer",
    ]
    assert "fr" not in words("numbers", "phone", "words")
