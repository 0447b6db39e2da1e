"""Entries as a table: complete, for spreadsheets, and never run by one."""

import csv
import io
import json

import pytest

from audit.__main__ import main
from audit.bundle import open_bundle
from audit.listing import COLUMNS, write_table
from audit.selection import Selection


@pytest.fixture
def table(tmp_path):
    """Return a function that writes the table of an export: (text, rows)."""

    def made(data):
        path = tmp_path / "export.zip"
        path.write_bytes(data)
        out = io.StringIO(newline="")
        with open_bundle(path) as bundle:
            count = write_table(bundle, out)
        text = out.getvalue()
        rows = list(csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline="")))
        assert count == len(rows) - 1
        return text, rows

    return made


def test_every_entry_is_a_row(world, table):
    entries = world.entries(world.story())

    text, rows = table(world.export(entries))

    assert text.startswith("\ufeffindex,id,at,")
    assert text.count("\r\n") == len(rows) == len(entries) + 1
    assert rows[0] == list(COLUMNS)
    for number, (row, entry) in enumerate(zip(rows[1:], entries, strict=True)):
        told, value = dict(zip(COLUMNS, row, strict=True)), json.loads(entry)
        assert told["index"] == str(number)
        assert (told["action"], told["actor"]) == (value["action"], value["actor"]["ref"])
        assert json.loads(told["data"]) == value["data"]


def test_an_excerpt_lists_what_it_shows(world, table):
    entries = world.entries(world.story())

    _, rows = table(world.export(entries, selection=Selection(first=3, end=5)))

    assert [row[0] for row in rows[1:]] == ["3", "4"]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_is_a_formula(world, table, start):
    """Not even of bytes that are no entry of ours."""
    text, rows = table(world.export([f'{start}cmd|"/c calc"!A1'.encode(), b"\xff{}"]))

    for row in rows[1:]:
        assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in row)
    assert f"'{start}cmd" in text


def test_the_command_writes_a_table_of_what_was_verified(world, tmp_path, capsys):
    export, out = tmp_path / "export.zip", tmp_path / "entries.csv"
    export.write_bytes(world.export_story())
    asked = ["verify", str(export), "--vkey", world.vkey, "--csv", str(out)]

    assert main(asked) == 0
    assert out.read_bytes().startswith(b"\xef\xbb\xbfindex,")
    assert main(asked) == 2
    assert "is there already" in capsys.readouterr().err


def test_no_table_is_written_of_what_was_changed(world, tmp_path, capsys):
    export, out = tmp_path / "export.zip", tmp_path / "entries.csv"
    export.write_bytes(world.export_story())

    status = main(["verify", str(export), "--csv", str(out)])  # nobody's key

    told = capsys.readouterr()
    assert (status, out.exists()) == (3, False)
    assert "no table is written" in told.err
    assert "NOT TRUSTED" in told.out
