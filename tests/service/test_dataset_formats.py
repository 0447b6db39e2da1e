"""Data sets in every format that the detectors read: registered, hashed, looked through."""

import hashlib
import io
import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from service.archive import load
from service.dataset_scan import scan_dataset
from service.problems import Unprocessable
from trainer.contract import DatasetManifest

IBAN = "FR7630006000011234567890189"
CHAT = {
    "id": "a",
    "group": "a",
    "language": "fr",
    "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}],
}


def lines(*rows) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def columns(**values) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(pa.table(values), sink)
    return sink.getvalue()


FILES = {
    "chat-jsonl": ("rows.jsonl", lines(CHAT, CHAT | {"id": "b", "language": "de"}), ["de", "fr"]),
    "jsonl": (
        "rows.jsonl",
        lines({"text": f"pay {IBAN}", "language": "fr"}, {"text": "x"}),
        ["fr"],
    ),
    "csv": ("rows.csv", f"language;note\nfr;pay {IBAN}\n".encode(), ["fr"]),
    "parquet": ("rows.parquet", columns(note=[f"pay {IBAN}", "x"], language=["fr", None]), ["fr"]),
    "text": ("rows.txt", f"pay {IBAN}\nanother line\n".encode(), []),
}


@pytest.fixture
def world(lone_world):
    return lone_world


def write(world, name: str, data: bytes) -> str:
    path = world.folder / "data" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path.as_uri()


def refused(world, **changes) -> str:
    answer = world.ask("POST", "/v1/datasets", "ada", world.dataset_body(**changes))
    assert answer.status == 422, answer.content
    (error,) = answer.problem["errors"]
    return f"{error['pointer']} {error['detail']}"


@pytest.mark.parametrize("rows_format", FILES)
@pytest.mark.parametrize("is_stated", [True, False])
def test_each_format_is_told_by_the_file_hashed_and_looked_through(world, rows_format, is_stated):
    name, data, languages = FILES[rows_format]
    uri = write(world, name, data)

    made = world.register_dataset(uri=uri, **({"format": rows_format} if is_stated else {}))

    assert made["format"] == rows_format
    assert made["num_rows"] == 2
    assert made["declared"]["languages"] == languages
    assert made["categories_detected"] == ([] if rows_format == "chat-jsonl" else ["pd.financial"])
    with world.wired.transactions.read() as session:
        manifest = DatasetManifest.from_bytes(load(session, made["manifest_digest"]))
    assert manifest.rows_format == rows_format
    (item,) = manifest.objects
    assert item.digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert (item.size_bytes, item.rows) == (len(data), 2)


@pytest.mark.parametrize("rows_format", sorted(FILES.keys() - {"chat-jsonl"}))
def test_a_job_on_rows_that_the_trainer_cannot_read_is_refused_with_the_next_step(
    world, rows_format
):
    name, data, _ = FILES[rows_format]
    made = world.register_dataset(uri=write(world, name, data), categories=["pd.financial"])
    before = world.counts()

    for path in ("/v1/jobs", "/v1/decisions:preview"):
        answer = world.ask("POST", path, "ada", world.job_body(dataset=made["id"]))
        assert answer.status == 422
        (error,) = answer.problem["errors"]
        assert error["pointer"] == "/dataset"
        assert f"`{rows_format}`" in error["detail"]
        assert "write them as `chat-jsonl`, register that" in error["detail"]

    assert world.counts()["job"] == before["job"] == 0


def test_a_version_from_before_formats_is_a_chat(world):
    made = world.dataset
    declared = {k: v for k, v in made["declared"].items() if k != "format"}
    world.tamper(
        "dataset_version", "UPDATE dataset_version SET declared = :d", d=json.dumps(declared)
    )

    assert world.get(f"/v1/datasets/{made['id']}")["format"] == "chat-jsonl"
    assert world.submit()["state"] != "denied"


def test_one_version_has_one_format(world):
    folder = world.folder / "data" / "mixed"
    write(world, "mixed/a.csv", b"a;b\n1;2\n")
    write(world, "mixed/b.txt", b"some text\n")

    said = refused(world, uri=folder.as_uri())

    assert "one version has one format" in said
    assert world.register_dataset(uri=folder.as_uri(), format="text")["num_objects"] == 2


def test_a_format_that_the_bytes_contradict_is_refused_by_its_field(world):
    uri = write(world, "rows.bin", FILES["parquet"][1])
    assert refused(world, uri=uri, format="csv").startswith("/format is `csv`, and")
    uri = write(world, "rows.csv", b"a;b\n")
    assert "is no readable Parquet" in refused(world, uri=uri, format="parquet")
    assert "line 1" in refused(world, uri=uri, format="jsonl")
    assert refused(world, uri=uri, format="xlsx").startswith("/format")


@pytest.mark.parametrize(
    ("data", "says"),
    [(b"\x1f\x8b" + b"x" * 20, "gzip"), (b"\xff\xfea\0", "UTF-16"), (b"\n\n", "no rows")],
)
def test_what_cannot_be_read_is_not_registered(world, data, says):
    assert says in refused(world, uri=write(world, "rows.jsonl", data))


def test_parquet_is_bounded_and_a_broken_footer_is_refused(world):
    _, data, _ = FILES["parquet"]
    uri = write(world, "rows.parquet", data)
    with pytest.raises(Unprocessable, match="split it"):
        scan_dataset(
            world.wired.sources,
            world.wired.places(),
            uri=uri,
            name="x",
            licence="MIT",
            max_parquet_bytes=len(data) - 1,
        )
    assert "Parquet" in refused(world, uri=write(world, "cut.parquet", data[:-3]))


def test_a_small_parquet_file_that_says_very_much_is_refused(world):
    table = pa.table({"note": pa.array(["x" * (17 << 20)] * 3)})
    sink = io.BytesIO()
    parquet.write_table(table, sink, compression="zstd")
    assert len(sink.getvalue()) < 100_000
    assert "longer than" in refused(world, uri=write(world, "bomb.parquet", sink.getvalue()))


def test_a_language_is_a_code_and_no_other_text(world):
    uri = write(
        world, "rows.jsonl", lines({"language": "Ana Sousa", "t": 1}, {"language": "pt-BR"})
    )
    assert world.register_dataset(uri=uri)["declared"]["languages"] == ["pt-BR"]
