"""Formats: what a row is, what is refused, and that nothing is skipped in silence."""

import gzip
import io
import json
import tracemalloc

import pyarrow as pa
import pytest
from pyarrow import parquet

from service.detection import reading
from service.detection.reading import Format, FormatError, feed, format_of, inspect_file
from service.detection.scanner import Scanner

NIR = "295109912611193"
IBAN = "DE89370400440532013000"


def read(data, chosen, **settings):
    scanner = Scanner(**settings)
    feed(io.BytesIO(data), scanner, chosen)
    return scanner.result()


def test_jsonl_rows_are_lines_of_any_json():
    data = b'\xef\xbb\xbf{"a":{"b":["x",{"c":"%b"}]}}\n\n"%b"\n[1,2,%b]\n' % (
        IBAN.encode(), NIR.encode(), NIR.encode(),
    )  # fmt: skip

    detection = read(data, Format.JSONL)

    assert detection.counts == {"iban": 1, "fr.nir": 2}
    assert [each.row for each in detection.evidence] == [1, 3, 4]
    assert (detection.rows, detection.bytes_examined) == (4, len(data) - 1)


def test_jsonl_escapes_are_undone():
    data = rb'{"text":"\u0032\u200b95109912611193 and \uff12\uff195109912611193"}'

    assert read(data, Format.JSONL).counts == {"fr.nir": 2}


@pytest.mark.parametrize("line", [b"{", b"\xff", b'{"a":"\xe9"}', b"[" * 100_000, b"nonsense"])
def test_jsonl_that_is_none_is_refused_by_line_without_its_text(line):
    with pytest.raises(FormatError, match=r"^line 2: expected one JSON value in UTF-8") as refused:
        read(b"{}\n" + line, Format.JSONL)
    assert refused.value.__suppress_context__


def test_a_line_that_is_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 100)

    for chosen in (Format.JSONL, Format.CSV):
        with pytest.raises(FormatError, match="line 1: is longer than 100 bytes; split it"):
            read(b'"' + b"a" * 200 + b'"', chosen)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_csv_cells_are_read_under_their_names(separator):
    lines = [["naïve", "téléphone", "date_of_birth"], ["x", "06 12 34 56 78", "1981-03-12"]]
    data = "\r\n".join(separator.join(line) for line in lines).encode()

    detection = read(data, Format.CSV)

    assert detection.counts == {"phone": 1, "date_of_birth": 1}
    assert {each.row for each in detection.evidence} == {2}
    assert detection.bytes_examined == len(data)


def test_csv_without_names_is_read_too_and_its_first_record_once():
    data = f"j@roe.fr,{IBAN}\nx,y\nx,y,z@roe.fr\n".encode()

    assert read(data, Format.CSV).counts == {"email": 2, "iban": 1}


def test_csv_records_may_span_lines():
    detection = read(b'id,note\n1,"first\nsecond j@roe.fr"\n2,b\n', Format.CSV)

    assert (detection.rows, detection.evidence[0].row) == (3, 2)


def test_csv_with_nul_bytes_is_refused():
    with pytest.raises(FormatError, match="line 2: holds NUL bytes"):
        read(b"a,b\n\0,c\n", Format.CSV)


@pytest.mark.parametrize("chosen", [Format.CSV, Format.TEXT])
def test_rows_in_another_encoding_are_read_and_counted(chosen):
    data = f"Elle est née le 12/03/1981\nsécu {NIR}\n".encode("cp1252")

    detection = read(data, chosen)

    assert detection.counts == {"date_of_birth": 1, "fr.nir": 1}
    assert detection.rows_not_utf8 == 2


def test_text_rows_are_lines():
    detection = read(f"a\n{NIR}\n\nb {IBAN}".encode(), Format.TEXT)

    assert detection.rows == 4
    assert [(each.row, each.detector) for each in detection.evidence] == [
        (2, "fr.nir"),
        (4, "iban"),
    ]


@pytest.mark.parametrize("filling", ["word ", "wörter ", "x", "é", "12 "])
@pytest.mark.parametrize("before", range(-40, 41, 16))
def test_a_value_on_the_edge_of_a_piece_is_found(filling, before):
    value = f" IBAN DE89 3704 0044 0532 0130 00 {NIR} "
    size = reading.PIECE_BYTES + before
    head = (filling * size).encode()[:size].decode("utf-8", "ignore")
    if filling == "12 ":
        head = head[:-1] + "\u3000x"

    detection = read(f"{head}{value}{filling * 1000}".encode(), Format.TEXT)

    assert detection.counts["iban"] >= 1
    assert detection.counts["fr.nir"] >= 1
    assert detection.rows == 1
    assert detection.rows_not_utf8 == 0


def test_text_of_one_endless_line_is_read_in_bounded_memory():
    class Endless(io.RawIOBase):
        left = 6_000_000

        def readable(self):
            return True

        def readinto(self, into):
            size = min(len(into), self.left)
            into[:size] = (b"some words and 12 figures " * (size // 26 + 1))[:size]
            self.left -= size
            return size

    scanner = Scanner()
    tracemalloc.start()
    feed(io.BufferedReader(Endless()), scanner, Format.TEXT)
    highest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert scanner.result().bytes_examined == 6_000_000
    assert highest < 4_000_000


def test_binary_is_no_text():
    with pytest.raises(FormatError, match="line 2: holds NUL bytes"):
        read(b"a\n\x00\x01", Format.TEXT)


def test_parquet_rows_are_read_with_nested_columns(tmp_path):
    rows = [
        {"who": "x", "number": 1, "messages": [{"content": "hello"}], "raw": b"\xff"},
        {"who": "j@roe.fr", "number": int(NIR), "messages": [{"content": IBAN}], "raw": b"a"},
    ]
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), path)

    detection = inspect_file(path)

    assert detection.counts == {"email": 1, "fr.nir": 1, "iban": 1}
    assert {each.row for each in detection.evidence} == {2}
    assert detection.rows == 2


def test_parquet_that_is_none_is_refused():
    with pytest.raises(FormatError, match="is no readable Parquet"):
        read(b"PAR1 and then nothing", Format.PARQUET)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (gzip.compress(b"x", mtime=0), "is gzip; unpack it first"),
        (b"PK\x03\x04....", "is zip"),
        (b"BZh9", "is bzip2"),
        (b"\xfd7zXZ\0", "is xz"),
        (b"\x28\xb5\x2f\xfd", "is zstandard"),
        (b"PARE....", "is encrypted Parquet"),
        ("x".encode("utf-16"), "is UTF-16; write it again as UTF-8"),
    ],
)
def test_what_cannot_be_read_is_refused_whatever_its_name(tmp_path, data, says):
    for name in ("rows.jsonl", "rows.txt", "rows.parquet"):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(FormatError, match=says):
            inspect_file(path)


@pytest.mark.parametrize(
    ("name", "head", "stated", "told"),
    [
        ("a.jsonl", b"{", None, Format.JSONL),
        ("a.NDJSON", b"", None, Format.JSONL),
        ("a.csv", b"{", None, Format.CSV),
        ("a.tsv", b"", None, Format.CSV),
        ("a.txt", b"PAR1", None, Format.PARQUET),
        ("a", b'\xef\xbb\xbf {"a"', None, Format.JSONL),
        ("a", b"abc", None, Format.TEXT),
        ("a.csv", b"abc", Format.TEXT, Format.TEXT),
    ],
)
def test_the_format_is_told_by_bytes_then_name(name, head, stated, told):
    assert format_of(name, head, stated) is told


@pytest.mark.parametrize("chosen", [Format.JSONL, Format.CSV, Format.TEXT])
def test_a_sample_looks_at_fewer_rows_and_says_so(chosen):
    data = b"".join(json.dumps({"mail": f"j{n}@roe.fr"}).encode() + b"\n" for n in range(3_000))

    detection = read(data, chosen, permille=100, seed=3)

    assert detection.rows == 3_000
    assert 200 < detection.rows_examined < 400
    assert detection.counts == {"email": detection.rows_examined}


@pytest.mark.parametrize("chosen", [Format.JSONL, Format.CSV, Format.TEXT])
def test_an_empty_file_has_no_rows(chosen):
    assert read(b"", chosen).rows == 0
