"""One contract for every store, on a directory and on a real S3 server."""

import contextlib
import hashlib
import os
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seaweed import make_bucket, s3_account  # noqa: F401 — a fixture

from service.objects.files import FileObjects
from service.objects.protocol import (
    ObjectError,
    ObjectExistsError,
    ObjectMismatchError,
    ObjectMissingError,
    ObjectRefusedError,
    Objects,
    ObjectStoreError,
    Source,
    Stored,
)
from service.objects.routed import RoutedObjects
from service.objects.s3 import Abilities, S3Account, S3Objects, probe

HELLO = Stored("sha256:" + hashlib.sha256(b"hello").hexdigest(), 5)


@dataclass(frozen=True)
class World:
    objects: Objects
    base: str


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.s3), "routed"])
def world(request, tmp_path) -> World:
    if request.param == "s3":
        account = request.getfixturevalue("s3_account")
        return World(S3Objects(account), f"s3://ready/{secrets.token_hex(8)}")
    files = FileObjects([tmp_path])
    objects = RoutedObjects({"file": files}) if request.param == "routed" else files
    return World(objects, tmp_path.as_uri())


class TestContract:
    def test_put_returns_the_digest_and_get_the_bytes(self, world):
        uri = f"{world.base}/a/b c.txt" if world.base.startswith("s3") else f"{world.base}/a/b.txt"

        assert world.objects.put(uri, b"hello") == HELLO
        assert world.objects.get(uri) == b"hello"
        assert world.objects.get(uri, expected=HELLO.digest) == b"hello"
        assert world.objects.measure(uri) == HELLO

    def test_put_replaces_and_takes_a_file(self, world, tmp_path_factory):
        source = tmp_path_factory.mktemp("source") / "big"
        source.write_bytes(os.urandom(9_000_001))  # more than one S3 part
        uri = f"{world.base}/big"

        world.objects.put(uri, b"small")
        stored = world.objects.put(uri, source)

        assert stored.size_bytes == 9_000_001
        assert world.objects.get(uri, expected=stored.digest) == source.read_bytes()

    def test_empty_object_is_an_object(self, world):
        assert world.objects.put(f"{world.base}/empty", b"").size_bytes == 0
        assert world.objects.get(f"{world.base}/empty") == b""
        assert [size for _, size in world.objects.list(world.base)] == [0]

    def test_put_if_absent_keeps_the_first_and_accepts_the_same_again(self, world):
        uri = f"{world.base}/once"

        assert world.objects.put_if_absent(uri, b"hello") == HELLO
        assert world.objects.put_if_absent(uri, b"hello") == HELLO
        with pytest.raises(ObjectExistsError, match="other bytes"):
            world.objects.put_if_absent(uri, b"other")
        assert world.objects.get(uri) == b"hello"

    def test_of_eight_writers_one_content_wins(self, world):
        uri = f"{world.base}/race"

        def write(number: int) -> bool:
            with contextlib.suppress(ObjectExistsError):
                world.objects.put_if_absent(uri, f"writer {number}".encode())
                return True
            return False

        with ThreadPoolExecutor(8) as pool:
            wins = list(pool.map(write, range(8)))

        assert wins.count(True) == 1
        assert world.objects.get(uri) == f"writer {wins.index(True)}".encode()

    def test_get_refuses_bytes_with_another_digest(self, world):
        uri = f"{world.base}/changed"
        world.objects.put(uri, b"changed")

        with pytest.raises(ObjectMismatchError, match=r"expected sha256:2cf2.*restore it"):
            world.objects.get(uri, expected=HELLO.digest)

    def test_open_streams(self, world):
        uri = f"{world.base}/stream"
        world.objects.put(uri, b"line 1\nline 2\n")

        with world.objects.open(uri) as stream:
            assert stream.read(3) == b"lin"
            assert list(stream) == [b"e 1\n", b"line 2\n"]
            assert stream.read(1) == b""

    def test_list_gives_the_folder_in_order_and_not_its_neighbours(self, world):
        for name in ("run/b", "run/a/2", "run/a/10", "run2/x", "runner"):
            world.objects.put(f"{world.base}/{name}", name.encode())
        expected = [(f"{world.base}/run/{name}", len(name) + 4) for name in ("a/10", "a/2", "b")]

        assert list(world.objects.list(f"{world.base}/run")) == expected
        assert list(world.objects.list(f"{world.base}/run/")) == expected
        assert list(world.objects.list(f"{world.base}/none")) == []
        assert len(list(world.objects.list(world.base))) == 5

    def test_delete_removes_and_is_repeatable(self, world):
        uri = f"{world.base}/gone"
        world.objects.put(uri, b"hello")

        world.objects.delete(uri)
        world.objects.delete(uri)

        with pytest.raises(ObjectMissingError, match="no object"):
            world.objects.get(uri)

    @pytest.mark.parametrize("method", ["get", "open", "measure"])
    def test_missing_object_is_named(self, world, method):
        with pytest.raises(ObjectMissingError, match="nothing-here"):
            getattr(world.objects, method)(f"{world.base}/nothing-here")

    @pytest.mark.parametrize(
        "tail",
        [
            "/../x",
            "/a/../../x",
            "/a//b",
            "/./a",
            "/a/",
            "/a\\..\\b",
            "/a\n",
            "/a\0",
            "/a?v=1",
            "/a#b",
        ],
    )
    @pytest.mark.parametrize("method", ["get", "open", "measure", "delete", "put", "put_if_absent"])
    def test_odd_paths_are_refused(self, world, method, tail):
        data = (b"x",) if method.startswith("put") else ()

        with pytest.raises(ObjectRefusedError):
            getattr(world.objects, method)(world.base + tail, *data)

    @pytest.mark.parametrize(
        "uri", ["http://host/x", "/etc/passwd", "ftp://a/b", "", "file:", "s3:"]
    )
    def test_other_schemes_are_refused(self, world, uri):
        with pytest.raises(ObjectRefusedError):
            world.objects.get(uri)

    def test_a_source_that_cannot_be_read_is_named(self, world, tmp_path):
        with pytest.raises(ObjectStoreError, match=r"absent\.bin"):
            world.objects.put(f"{world.base}/x", tmp_path / "absent.bin")

    def test_endpoint_is_told(self, world):
        assert world.objects.endpoint_of(f"{world.base}/x").split("://")[0] in {"file", "http"}
        with pytest.raises(ObjectRefusedError):
            world.objects.endpoint_of("gopher://x/y")


class TestFiles:
    @pytest.mark.parametrize(
        "uri", ["file:///etc/passwd", "file://host/tmp/x", "file:///", "file:///%74mp/x"]
    )
    def test_outside_the_root_is_refused(self, tmp_path, uri):
        with pytest.raises(ObjectRefusedError):
            FileObjects([tmp_path]).get(uri)

    def test_encoded_traversal_is_refused(self, tmp_path):
        with pytest.raises(ObjectRefusedError, match=r"`\.\.` segment"):
            FileObjects([tmp_path]).get(f"{tmp_path.as_uri()}/%2e%2e/x")

    def test_symbolic_links_do_not_lead_out(self, tmp_path):
        root, outside = tmp_path / "root", tmp_path / "outside"
        root.mkdir()
        outside.mkdir()
        (outside / "secret").write_text("secret")
        (root / "folder").symlink_to(outside)
        (root / "file").symlink_to(outside / "secret")
        objects = FileObjects([root])

        with pytest.raises(ObjectRefusedError, match="outside"):
            objects.get(f"{root.as_uri()}/folder/secret")
        with pytest.raises(ObjectStoreError):
            objects.get(f"{root.as_uri()}/file")
        assert list(objects.list(root.as_uri())) == []

    def test_a_failed_write_leaves_the_old_bytes_and_no_temporary(self, tmp_path, monkeypatch):
        objects = FileObjects([tmp_path])
        uri = f"{tmp_path.as_uri()}/kept"
        objects.put(uri, b"old")

        def full(_descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(ObjectStoreError, match="No space left"):
            objects.put(uri, b"new")

        assert objects.get(uri) == b"old"
        assert [path.name for path in tmp_path.iterdir()] == ["kept"]

    def test_leftover_temporaries_are_not_listed(self, tmp_path):
        (tmp_path / ".placet-0011").write_bytes(b"half")

        assert list(FileObjects([tmp_path]).list(tmp_path.as_uri())) == []

    def test_an_object_is_not_a_folder(self, tmp_path):
        objects = FileObjects([tmp_path])
        objects.put(f"{tmp_path.as_uri()}/a", b"x")

        with pytest.raises(ObjectRefusedError, match="below another object"):
            objects.put(f"{tmp_path.as_uri()}/a/b", b"x")
        with pytest.raises(ObjectMissingError):
            objects.get(f"{tmp_path.as_uri()}/a/b")

    def test_a_folder_is_not_an_object(self, tmp_path):
        (tmp_path / "folder").mkdir()
        objects = FileObjects([tmp_path])

        for call in (objects.get, objects.delete, objects.measure):
            with pytest.raises(ObjectError):
                call(f"{tmp_path.as_uri()}/folder")
        with pytest.raises(ObjectError):
            objects.put(f"{tmp_path.as_uri()}/folder", b"x")

    def test_a_missing_root_is_refused(self, tmp_path):
        with pytest.raises(ObjectRefusedError, match="create it first"):
            FileObjects([tmp_path / "absent"])
        with pytest.raises(ObjectRefusedError, match="no root"):
            FileObjects([])

    @given(name=st.text(min_size=1, max_size=20))
    def test_any_name_is_stored_under_itself_or_refused(self, tmp_path_factory, name):
        root = tmp_path_factory.mktemp("names")
        objects = FileObjects([root])
        try:
            uri = (root / "d" / name).as_uri() if "/" not in name else f"{root.as_uri()}/d/{name}"
            objects.put(uri, b"x")
        except (ObjectRefusedError, ObjectStoreError, UnicodeEncodeError):
            assert [path for path in root.rglob("*") if path.is_file()] == []
            return
        assert [uri for uri, _ in objects.list(root.as_uri())] == [uri]
        assert objects.get(uri) == b"x"


class _Lying(BaseHTTPRequestHandler):
    """An S3 server with chosen faults, in memory."""

    protocol_version = "HTTP/1.1"
    store: dict[str, bytes]
    refuses_trailers = False
    stores_other_bytes = False
    is_busy = False

    def do_PUT(self):
        body = self._body()
        if self.refuses_trailers and "x-amz-sdk-checksum-algorithm" in self.headers:
            return self._answer(400, b"<Error><Code>InvalidArgument</Code></Error>")
        if self.is_busy:
            return self._answer(409, b"<Error><Code>ConditionalRequestConflict</Code></Error>")
        self.store[self.path] = body[:-1] if self.stores_other_bytes else body
        return self._answer(200, b"")

    def do_GET(self):
        if self.path not in self.store:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        return self._answer(200, self.store[self.path])

    def do_DELETE(self):
        self.store.pop(self.path, None)
        self._answer(204, b"")

    def _body(self) -> bytes:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return raw
        size, _, rest = raw.partition(b"\r\n")
        return rest[: int(size.split(b";")[0], 16)]

    def _answer(self, status: int, body: bytes):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        return


@contextlib.contextmanager
def lying(**faults: bool) -> Iterator[S3Account]:
    handler = type("Handler", (_Lying,), {"store": {}, **faults})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield S3Account(f"http://127.0.0.1:{server.server_port}", "us-east-1", "key", "secret")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class TestS3:
    @pytest.mark.s3
    def test_a_conforming_server_is_probed_as_such(self, s3_account):  # noqa: F811
        bucket = make_bucket(s3_account)

        assert probe(s3_account, bucket) == Abilities("when_supported", conditional_put=True)
        assert list(S3Objects(s3_account).list(f"s3://{bucket}")) == []

    def test_a_server_that_refuses_checksum_headers_gets_none(self):
        with lying(refuses_trailers=True) as account:
            abilities = probe(account, "bucket")
            stored = S3Objects(account, abilities).put("s3://bucket/x", b"hello")

        assert abilities == Abilities("when_required", conditional_put=False)
        assert stored == HELLO

    def test_a_server_that_ignores_conditions_cannot_hold_evidence(self):
        with lying() as account:
            objects = S3Objects(account, probe(account, "bucket"))
            with pytest.raises(ObjectRefusedError, match="ignores `If-None-Match`"):
                objects.put_if_absent("s3://bucket/x", b"x")

    def test_a_server_that_stores_other_bytes_is_caught(self):
        with lying(stores_other_bytes=True) as account:
            with pytest.raises(ObjectMismatchError, match="reads back as"):
                S3Objects(account).put("s3://bucket/x", b"hello")
            with pytest.raises(ObjectMismatchError):
                probe(account, "bucket")

    def test_an_unfinished_write_of_another_is_a_reason_to_try_again(self):
        with lying(is_busy=True) as account, pytest.raises(ObjectStoreError, match="try again"):
            S3Objects(account).put_if_absent("s3://bucket/x", b"x")

    @pytest.mark.s3
    def test_a_wrong_secret_is_explained_without_showing_it(self, s3_account):  # noqa: F811
        wrong = replace(s3_account, secret_key="wrong-secret")

        with pytest.raises(ObjectStoreError, match="check the key pair") as caught:
            S3Objects(wrong).get("s3://ready/ready")
        assert "wrong-secret" not in repr(wrong) + str(caught.value)

    @pytest.mark.s3
    def test_a_missing_bucket_is_a_missing_object(self, s3_account):  # noqa: F811
        objects = S3Objects(s3_account)

        with pytest.raises(ObjectMissingError):
            objects.get("s3://placet-no-such-bucket/x")

    def test_an_unreachable_server_is_a_store_error(self):
        account = S3Account("http://127.0.0.1:9", "us-east-1", "k", "s")

        with pytest.raises(ObjectStoreError, match="cannot reach"):
            S3Objects(account).get("s3://bucket/x")

    def test_only_permitted_buckets_are_used(self):
        account = S3Account(
            "http://127.0.0.1:9", "us-east-1", "k", "s", buckets=frozenset({"evidence"})
        )

        with pytest.raises(ObjectRefusedError, match="not among those permitted"):
            S3Objects(account).put("s3://other/x", b"x")

    @pytest.mark.parametrize("endpoint", ["s3.example.eu", "ftp://x", "https://x/path", ""])
    def test_an_endpoint_is_a_plain_url(self, endpoint):
        with pytest.raises(ObjectRefusedError, match="expected `https://host"):
            S3Objects(S3Account(endpoint, "r", "k", "s"))


def test_a_source_is_measured_from_memory_and_from_disk_alike(tmp_path):
    (tmp_path / "x").write_bytes(b"hello")

    assert Source.of(b"hello").stored == Source.of(tmp_path / "x").stored == HELLO
