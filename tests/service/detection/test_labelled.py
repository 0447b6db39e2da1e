"""Precision and recall on the labelled set: the half to adjust to, and the half to measure with."""

import json
import os
import sys
from collections import defaultdict

import labelled
import pytest
from labelled import FOLDER, Score, scores

from service.detection.scanner import Scanner

HALVES = ("first", "held_out")
# What has check digits, a numbering plan or a grammar of its own.
EXACT = {"email", "phone", "iban", "card", "date_of_birth", *labelled.templates()["names"]}


def counted(row):
    scanner = Scanner()
    scanner.feed(1, row["text"], size_bytes=len(row["text"]), language=row["language"])
    return scanner.result().counts


def read(half):
    lines = (FOLDER / f"{half}.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


@pytest.mark.parametrize("half", HALVES)
def test_the_files_are_what_the_generator_makes(half):
    made = labelled.to_jsonl(labelled.rows(half))
    if os.environ.get("PLACET_GOLDEN") == "1":
        (FOLDER / f"{half}.jsonl").write_bytes(made)

    assert (FOLDER / f"{half}.jsonl").read_bytes() == made


def test_the_halves_share_no_sentence_and_no_account():
    texts = labelled.templates()
    for language in labelled.LANGUAGES:
        first, held_out = (json.dumps(texts[half][language]) for half in HALVES)
        for sentence in json.loads(first)["negatives"] + json.loads(first)["health"]:
            assert sentence not in json.loads(held_out)["negatives"]
            assert sentence not in json.loads(held_out)["health"]
    assert {row["text"] for row in read("first")}.isdisjoint(
        row["text"] for row in read("held_out")
    )


@pytest.mark.parametrize("half", HALVES)
def test_the_set_has_six_languages_and_hard_negatives(half):
    rows = read(half)

    assert {row["language"] for row in rows} == set(labelled.LANGUAGES)
    assert len(rows) > 600
    assert sum(not row["labels"] for row in rows) > 100


@pytest.mark.parametrize("half", HALVES)
def test_each_number_is_found_and_nothing_else_is_taken_for_it(half, capsys):
    found = scores(read(half), counted)
    table = [f"\n{half:<10} {'detector':<20} precision recall labelled"]
    table += [
        f"{'':<10} {name:<20} {each.precision:9.3f} {each.recall:6.3f} {each.right + each.missed:8}"
        for name, each in found.items()
    ]
    with capsys.disabled():
        sys.stdout.write("\n".join(table) + "\n")

    assert found.keys() >= EXACT
    assert {
        name: (found[name].precision, found[name].recall)
        for name in EXACT
        if min(found[name].precision, found[name].recall) < 0.95
    } == {}


@pytest.mark.parametrize("half", HALVES)
def test_statements_are_found_mostly(half):
    by_kind = defaultdict(Score)
    for name, score in scores(read(half), counted).items():
        whole = by_kind[name in EXACT]
        whole.right += score.right
        whole.wrong += score.wrong
        whole.missed += score.missed

    assert by_kind[False].precision >= 0.95
    assert by_kind[False].recall >= 0.9
