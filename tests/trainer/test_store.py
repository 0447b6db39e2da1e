"""Objects on files and on S3: a small S3 server stands in for the service, boto3 is real."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlparse

import pytest

from trainer import store
from trainer.refusal import Exit
from trainer.store import FileStore, S3Store, StoreError, get, store_for


class FakeS3(BaseHTTPRequestHandler):
    """GET, PUT with If-None-Match, HEAD, DELETE and ListObjectsV2, path-style, in memory."""

    def answer(self, code, body=b""):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def error(self, code, name):
        self.answer(code, f"<Error><Code>{name}</Code></Error>".encode())

    def key(self):
        return unquote(urlparse(self.path).path)

    def do_GET(self):
        query = parse_qs(urlparse(self.path).query)
        if "list-type" in query:
            bucket, prefix = self.key().rstrip("/"), query["prefix"][0]
            keys = [k.removeprefix(f"{bucket}/") for k in sorted(self.server.objects)]
            items = "".join(
                f"<Contents><Key>{k}</Key></Contents>" for k in keys if k.startswith(prefix)
            )
            page = f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>"
            self.answer(200, page.encode())
        elif self.key() in self.server.objects:
            self.answer(200, self.server.objects[self.key()])
        else:
            self.error(404, "NoSuchKey")

    do_HEAD = do_GET  # noqa: N815 — the base class's name

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("If-None-Match") == "*" and self.key() in self.server.objects:
            self.error(412, "PreconditionFailed")
        else:
            self.server.objects[self.key()] = body
            self.answer(200)

    def do_DELETE(self):
        self.server.objects.pop(self.key(), None)
        self.answer(204)

    def log_message(self, *_):
        """Stay quiet."""


@pytest.fixture
def s3(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeS3)
    server.objects = {}
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("PLACET_S3_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
    store._client.cache_clear()


@pytest.fixture(params=["file", "s3"])
def root(request, tmp_path):
    if request.param == "file":
        return (tmp_path / "root").as_uri()
    request.getfixturevalue("s3")
    return "s3://ward/root"


def test_both_stores_keep_the_same_promises(root):
    uri, objects = f"{root}/a/b.bin", store_for(root)
    with pytest.raises(FileNotFoundError):
        get(uri, max_bytes=10)
    assert objects.list(root) == []

    assert objects.put_if_absent(uri, b"one")
    assert not objects.put_if_absent(uri, b"two")
    assert get(uri, max_bytes=10) == b"one"
    objects.put(uri, b"three")
    objects.put(f"{root}/c", b"")

    assert get(uri, max_bytes=5) == b"three"
    assert objects.list(root) == ["a/b.bin", "c"]
    with pytest.raises(StoreError, match="at most 4 bytes"):
        get(uri, max_bytes=4)
    objects.delete(uri)
    objects.delete(uri)
    assert objects.list(root) == ["c"]


def test_stores_are_chosen_by_scheme():
    assert isinstance(store_for("file:///a"), FileStore)
    with pytest.raises(StoreError):
        store_for("https://a")
    with pytest.raises(StoreError):
        store.path_of("s3://a/b")


def test_another_writer_in_the_same_instant_wins_once(s3):
    objects = store_for("s3://ward/x")
    assert isinstance(objects, S3Store)
    plain = objects._client.head_object

    def late(**arguments):
        try:
            return plain(**arguments)
        finally:
            s3.objects["/ward/x"] = b"other"

    class Client:
        put_object = staticmethod(objects._client.put_object)
        head_object = staticmethod(late)

    assert not S3Store(Client()).put_if_absent("s3://ward/x", b"mine")
    assert s3.objects["/ward/x"] == b"other"


def test_a_run_works_on_s3_throughout(world, s3):
    """Data, base model and output on S3; a file:/// output for the same bytes is not needed."""
    from dataclasses import replace

    from trainer.contract import DatasetManifest, RunReport, digest

    rows = (world.root / "rows.jsonl").read_bytes()
    s3.objects["/ward/rows.jsonl"] = rows
    manifest = DatasetManifest.from_bytes((world.root / "manifest.json").read_bytes())
    moved = replace(
        manifest, objects=(replace(manifest.objects[0], uri="s3://ward/rows.jsonl"),)
    ).to_bytes()
    s3.objects["/ward/manifest.json"] = moved
    for path in world.base.iterdir():
        s3.objects[f"/ward/base/{path.name}"] = path.read_bytes()
    world.change(
        dataset_manifest_uri="s3://ward/manifest.json",
        dataset_digest=digest(moved),
        base_model_uri="s3://ward/base",
    )
    output = "s3://ward/runs/1"

    assert world.train(world.sign(world.claims(output=output)), output=output) == Exit.DONE

    report = RunReport.from_bytes(s3.objects["/ward/runs/1/report.json"])
    for path, artefact in report.artefacts.items():
        assert digest(s3.objects[f"/ward/runs/1/{path}"]) == artefact.digest
    assert any(key.endswith("MANIFEST.json") for key in s3.objects)
    assert "/ward/runs/1/log/events.jsonl" in s3.objects


def test_an_unreachable_store_fails_and_reads_nothing(world, monkeypatch, capfd):
    monkeypatch.setenv("PLACET_S3_ENDPOINT", "http://127.0.0.1:9")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    output = "s3://ward/runs/1"

    code = world.train(world.sign(world.claims(output=output)), output=output)

    assert code == Exit.FAILED
    assert capfd.readouterr().err.startswith("failed: store: ")
    store._client.cache_clear()
