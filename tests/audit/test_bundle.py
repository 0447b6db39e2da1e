"""Writing an export: limits, refusals, and what the writer says is missing."""

import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit import container
from audit.bundle import open_bundle
from audit.canonical import canonical, digest, parse
from audit.container import ContainerError, ContainerWriter, read_chunks, read_members
from audit.dsse import DsseError, open_envelope, read_envelope, sign_envelope
from audit.keys import Ed25519Signer
from audit.manifest import BundleError, format_manifest, parse_manifest
from audit.tiles import build_tiles
from audit.writing import write_bundle


def packed(*members):
    out = io.BytesIO()
    writer = ContainerWriter(out)
    for name, data in members:
        writer.add(name, [data])
    writer.close()
    return out


class TestContainer:
    @given(st.dictionaries(st.from_regex(r"[a-z/]{1,9}", fullmatch=True), st.binary(max_size=50)))
    def test_members_read_back_and_other_tools_agree(self, contents):
        out = packed(*contents.items())

        members = read_members(out, lambda _: 100)

        assert {n: b"".join(read_chunks(out, m)) for n, m in members.items()} == contents
        with zipfile.ZipFile(out) as archive:
            assert {name: archive.read(name) for name in archive.namelist()} == contents

    def test_chunks_make_one_member(self):
        out = io.BytesIO()
        writer = ContainerWriter(out)
        assert writer.add("a", iter([b"12", b"", b"3"])) == (digest(b"123"), 3)
        writer.close()

        assert out.getvalue() == packed(("a", b"123")).getvalue()

    def test_large_members_are_read_in_pieces(self):
        data = b"x" * (container.CHUNK_BYTES + 1)
        out = packed(("a", data))
        (member,) = read_members(out, lambda _: 2**31).values()

        assert [len(chunk) for chunk in read_chunks(out, member)] == [container.CHUNK_BYTES, 1]

    def test_a_file_that_shrinks_while_it_is_read_is_refused(self):
        out = packed(("a", b"x" * 100))
        (member,) = read_members(out, lambda _: 100).values()
        out.truncate(50)
        with pytest.raises(ContainerError, match="cut short"):
            list(read_chunks(out, member))

    def test_other_data_than_the_crc_says_is_refused(self):
        out = packed(("a", b"x" * 100))
        (member,) = read_members(out, lambda _: 100).values()
        out.seek(60)
        out.write(b"y")
        with pytest.raises(ContainerError, match="CRC"):
            list(read_chunks(out, member))

    def test_duplicates_and_limits(self, monkeypatch):
        with pytest.raises(ContainerError, match="duplicate"):
            read_members(packed(("a", b""), ("a", b"")), lambda _: 1)
        monkeypatch.setattr(container, "MAX_MEMBERS", 2)
        many = packed(("a", b""), ("b", b""))
        read_members(many, lambda _: 1)
        with pytest.raises(ContainerError, match="too large"):
            packed(("a", b""), ("b", b""), ("c", b""))
        monkeypatch.setattr(container, "MAX_MEMBERS", 1)
        with pytest.raises(ContainerError, match="more than 1 members"):
            read_members(many, lambda _: 1)

    def test_four_gib_are_refused(self, monkeypatch):
        whole = packed(("a", b"x" * 100))
        size = len(whole.getvalue())
        monkeypatch.setattr(container, "MAX_BYTES", size)
        read_members(whole, lambda _: 100)
        monkeypatch.setattr(container, "MAX_BYTES", size - 1)
        with pytest.raises(ContainerError, match="4 GiB"):
            read_members(whole, lambda _: 100)
        with pytest.raises(ContainerError, match="4 GiB"):
            packed(("a", b"x" * 100))
        monkeypatch.setattr(container, "MAX_BYTES", 100)
        with pytest.raises(ContainerError, match="too large"):
            packed(("a", b"x" * 100))


class TestWriter:
    def write(self, world, **changes):
        entries = world.entries(world.story())
        arguments = {
            "checkpoint": world.checkpoint(entries),
            "tiles": dict(build_tiles(0, entries, lambda _: b"")).__getitem__,
            "objects": world.documents,
            "signer": world.signer,
            "verifier": b"#",
            "manifest_fields": {},
        }
        out = io.BytesIO()
        return write_bundle(out, **{**arguments, **changes}), out.getvalue()

    def test_the_manifest_names_what_is_missing(self, world):
        full, _ = self.write(world)
        none, _ = self.write(world, objects={})

        assert full.missing == ()
        assert none.missing == tuple(sorted(world.documents))

    def test_a_document_under_a_wrong_digest_is_refused(self, world):
        with pytest.raises(BundleError, match="does not have its digest"):
            self.write(world, objects={"sha256:" + "0" * 64: b"x"})

    def test_only_the_log_s_own_key_signs(self, world):
        with pytest.raises(BundleError, match="not the log's"):
            self.write(world, signer=Ed25519Signer.generate("example.com/other"))

    def test_malformed_input_is_refused(self, world):
        with pytest.raises(BundleError):
            self.write(world, checkpoint=b"nonsense")
        with pytest.raises(BundleError):
            self.write(world, tiles=lambda _: b"")

    def test_hinted_keys_and_statements_are_kept(self, world, tmp_path):
        _, data = self.write(world, hinted_keys=["w+1"], manifest_fields={"export": "exp_1"})
        path = tmp_path / "x.zip"
        path.write_bytes(data)

        with open_bundle(path) as bundle:
            assert bundle.hinted_keys() == (world.vkey, "w+1")
            assert bundle.manifest.export == {"export": "exp_1"}
            assert [first for first, _ in bundle.entry_groups()] == [0]

    def test_a_changed_document_is_not_handed_out(self, world, tmp_path):
        entries = world.entries(world.story())
        data = bytearray(world.export(entries))
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            name = next(name for name in archive.namelist() if name.startswith("objects/"))
        path = tmp_path / "x.zip"
        reference = name.removeprefix("objects/").replace("-", ":")
        members = {}
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {each: archive.read(each) for each in archive.namelist()}
        members[name] = bytes([members[name][0] ^ 1]) + members[name][1:]
        path.write_bytes(packed(*members.items()).getvalue())

        with open_bundle(path) as bundle, pytest.raises(BundleError, match="digest in its name"):
            bundle.document(reference)


class TestManifest:
    @pytest.fixture
    def value(self, world):
        with zipfile.ZipFile(io.BytesIO(world.export_story())) as archive:
            data = archive.read("manifest.json")
        assert format_manifest(parse_manifest(data)) == data
        return parse(data)

    def test_any_other_form_is_refused(self, value):
        member = value["members"][0]
        spoiled = [
            {**value, "note": 1},
            {**value, "format": "placet.manifest/2"},
            {**value, "range": {"first": 1, "end": 18}},
            {**value, "counts": {"entries": 11, "objects": 1}},
            {**value, "members": [{**member, "x": 1}]},
            {**value, "members": [{**member, "digest": "sha256:0"}]},
            {**value, "members": [{**member, "size_bytes": True}]},
            {**value, "members": [member, member]},
            {**value, "members": ["x"]},
            {**value, "members": [{**member, "name": "objects/sha256-" + "0" * 64}]},
            {**value, "missing": ["sha256:0"]},
            {**value, "missing": [1]},
            {**value, "checkpoint": {**value["checkpoint"], "size": True}},
            {**value, "checkpoint": {**value["checkpoint"], "size": -1}},
            {**value, "checkpoint": {**value["checkpoint"], "origin": "a\nb"}},
            {**value, "export": []},
            [],
        ]
        for wrong in spoiled:
            with pytest.raises(BundleError):
                parse_manifest(canonical(wrong))


class TestEnvelope:
    SIGNER = Ed25519Signer.from_seed("example.com/log", b"\x01" * 32)
    TYPE = "application/vnd.placet.manifest+json"

    @given(st.binary(max_size=100))
    def test_an_envelope_opens_to_its_payload(self, payload):
        envelope = sign_envelope(self.TYPE, payload, self.SIGNER)

        assert open_envelope(envelope, self.TYPE, [self.SIGNER.key]) == (payload, self.SIGNER.key)

    def test_every_byte_matters(self):
        envelope = bytearray(sign_envelope(self.TYPE, b"payload", self.SIGNER))
        for position in range(len(envelope)):
            envelope[position] ^= 1
            with pytest.raises(DsseError):
                open_envelope(bytes(envelope), self.TYPE, [self.SIGNER.key])
            envelope[position] ^= 1

    def test_another_type_and_another_key_are_refused(self):
        envelope = sign_envelope(self.TYPE, b"payload", self.SIGNER)
        with pytest.raises(DsseError, match="over `text/plain`"):
            open_envelope(envelope, "text/plain", [self.SIGNER.key])
        with pytest.raises(DsseError, match="trusted"):
            open_envelope(envelope, self.TYPE, [Ed25519Signer.generate("example.com/log").key])

    def test_other_shapes_are_refused(self):
        value = parse(sign_envelope(self.TYPE, b"payload", self.SIGNER))
        (signature,) = value["signatures"]
        for wrong in (
            {**value, "x": 1},
            {**value, "signatures": []},
            {**value, "signatures": [signature, signature]},
            {**value, "signatures": [{**signature, "x": 1}]},
            {**value, "payload": "?"},
            [],
        ):
            with pytest.raises(DsseError):
                read_envelope(canonical(wrong), self.TYPE)
