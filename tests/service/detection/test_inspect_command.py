"""`placet dataset inspect`, and what a registration keeps of what was found."""

import json

import pytest

from service import cli

ROW = {
    "id": "1",
    "group": "g",
    "language": "en",
    "messages": [
        {"role": "user", "content": "pay to DE89 3704 0044 0532 0130 00"},
        {"role": "assistant", "content": "done"},
    ],
}


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW) + "\n")
    return path


def test_it_prints_counts_places_and_the_tags_to_declare(rows, capsys):
    assert cli.main(["dataset", "inspect", str(rows)]) == 0

    printed = capsys.readouterr().out
    assert "1 of 1 looked at (full)" in printed
    assert "DE## #### #### #### ####…" in printed
    assert "declare at least: --category pd.financial" in printed
    assert "3704" not in printed


def test_it_prints_a_document_for_machines(rows, capsys):
    assert cli.main(["dataset", "inspect", str(rows.parent), "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["format"] == "placet.detection/1"
    assert document["files"] == [str(rows)]
    assert document["counts"] == {"iban": 1}


def test_nothing_found_is_no_proof(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("hello")

    assert cli.main(["dataset", "inspect", str(tmp_path / "a.txt")]) == 0
    assert "no proof" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.jsonl"], "cannot read"),
        (["bad.jsonl"], "line 1: expected one JSON value"),
        (["packed.gz"], "is gzip; unpack it first"),
        (["empty"], "holds no file"),
        (["bad.jsonl", "--sample-permille", "0"], "expected 1 to 1000"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_what_to_do(
    tmp_path, monkeypatch, capsys, arguments, says
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.jsonl").write_text("{")
    (tmp_path / "packed.gz").write_bytes(b"\x1f\x8b")
    (tmp_path / "empty").mkdir()

    assert cli.main(["dataset", "inspect", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_registration_keeps_the_document_and_logs_tags_only(world):
    folder = world.folder / "data" / "two"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text(json.dumps({**ROW, "mail": "jane@roe-clinic.de"}) + "\n")
    (folder / "b.jsonl").write_text(json.dumps(ROW) + "\n")

    dataset = world.register_dataset(uri=folder.as_uri())

    detection = dataset["detection"]
    assert detection["format"] == "placet.detection/1"
    assert (detection["mode"], detection["rows_examined"]) == ("full", 2)
    assert detection["counts"] == {"email": 1, "iban": 2}
    assert sorted(each["object"] for each in detection["evidence"]) == [0, 0, 1]
    assert dataset["categories_detected"] == ["pd.basic", "pd.financial"]
    for said in (repr(world.entries()), json.dumps(dataset)):
        assert "roe-clinic" not in said
        assert "3704" not in said
