"""The verifier accepts what is right and nothing else, and says what it did not check."""

import io
import json
import struct
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from audit.bundle import ENVELOPE, open_bundle
from audit.canonical import digest
from audit.container import ContainerWriter
from audit.dsse import sign_envelope
from audit.event import to_bytes
from audit.keys import ED25519_COSIGNATURE, Ed25519Signer, MlDsa44Signer
from audit.manifest import MANIFEST_TYPE, format_manifest, parse_manifest
from audit.merkle import EMPTY_ROOT, leaf_hash, root
from audit.note import Checkpoint, NoteError, sign_note, split_note
from audit.report import Exit, Outcome, to_json, to_text
from audit.verify import verify


@pytest.fixture
def check(tmp_path):
    """Return a function that verifies the bytes of an export."""

    def run(data, *vkeys, remembered=None):
        path = tmp_path / "export.zip"
        path.write_bytes(data)
        return verify(path, vkeys, remembered=remembered)

    return run


def outcome(report, level):
    return next(each.outcome for each in report.levels if each.id == level)


def rewrite(data, change):
    """Write the export again after `change` altered its list of (name, bytes)."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    out = io.BytesIO()
    writer = ContainerWriter(out)
    for name, content in change(members):
        writer.add(name, [content])
    writer.close()
    return out.getvalue()


def replaced(data, **contents):
    by_name = {name.replace("__", "."): content for name, content in contents.items()}
    return rewrite(data, lambda members: [(n, by_name.get(n, c)) for n, c in members])


class TestAccepts:
    def test_an_allowed_story_is_verified(self, world, check):
        report = check(world.export_story(), world.vkey)

        assert report.exit_code == Exit.VERIFIED, to_text(report)
        passed = {level.id for level in report.levels if level.outcome == Outcome.PASS}
        assert passed == {"L0", "L1", "L2", "L6", "L7"}

    def test_what_was_not_checked_is_never_a_pass(self, world, check):
        report = check(world.export_story(), world.vkey)

        for level in ("L3", "L4", "L5", "L8", "L9", "L10"):
            assert outcome(report, level) == "not checked"

    @pytest.mark.parametrize("size", [0, 1, 2, 255, 256, 257, 600])
    def test_every_shape_of_tree(self, world, check, size):
        entries = world.entries(world.started() for _ in range(size))

        report = check(world.export(entries), world.vkey)

        assert (report.exit_code, report.size) == (Exit.VERIFIED, size)

    def test_a_tree_with_a_full_tile_of_level_one(self, world, check):
        events = [world.started() for _ in range(2)]
        entries = [*world.entries(events)] + [b"{}"] * (65_536 + 254)

        report = check(world.export(entries), world.vkey)

        assert outcome(report, "L1") == "pass"
        assert report.exit_code == Exit.MALFORMED  # `{}` is not an entry

    def test_an_ml_dsa_line_of_the_log_is_enough(self, world, check):
        second = MlDsa44Signer.from_seed(world.origin, b"\x05" * 32)
        entries = world.entries(world.story())
        note = world.checkpoint(entries, signers=[world.signer, second], timestamp=1_800_000_000)
        data = world.export(entries, checkpoint=note, signer=second)

        assert check(data, second.vkey).exit_code == Exit.VERIFIED
        assert check(data, second.vkey, world.vkey).exit_code == Exit.VERIFIED

    def test_the_same_input_gives_the_same_bytes(self, make_world):
        assert make_world().export_story() == make_world().export_story()

    def test_any_zip_tool_reads_an_export(self, world):
        with zipfile.ZipFile(io.BytesIO(world.export_story())) as archive:
            assert archive.testzip() is None
            assert "tile/entries/000.p/20" in archive.namelist()
            lines = archive.read("entries.ndjson").split(b"\n")[:-1]
        assert [json.loads(line)["index"] for line in lines] == list(range(20))


class TestTrust:
    def test_without_a_key_nothing_is_verified(self, world, check):
        report = check(world.export_story())

        assert report.exit_code == Exit.UNTRUSTED
        assert outcome(report, "L2") == "not checked"
        assert report.hinted_keys == (world.vkey,)
        assert "hint only" in to_text(report)

    def test_a_forger_s_own_log_is_not_trusted(self, world, make_world, check):
        forger = make_world(seed=b"\x02")  # the same origin, another key

        report = check(forger.export_story(), world.vkey)

        assert report.exit_code == Exit.UNTRUSTED

    def test_another_log_is_not_trusted(self, world, make_world, check):
        other = make_world(origin="example.com/log/2", seed=b"\x02")

        assert check(other.export_story(), world.vkey).exit_code == Exit.UNTRUSTED

    def test_the_manifest_must_be_signed_by_a_given_key_too(self, world, check):
        entries = world.entries(world.story())
        insider = Ed25519Signer.from_seed(world.origin, b"\x07" * 32)
        data = world.export(entries, checkpoint=world.checkpoint(entries), signer=insider)

        report = check(data, world.vkey)

        assert report.exit_code == Exit.TAMPERED
        assert outcome(report, "L2") == "fail"

    def test_a_bad_line_of_a_trusted_key_spoils_the_checkpoint(self, world, check):
        entries = world.entries(world.story())
        text, (line,) = split_note(world.checkpoint(entries))
        bad = sign_note(text, [_Lying(world.signer, line.signature[:-1] + b"\x00")])

        assert check(world.export(entries, checkpoint=bad), world.vkey).exit_code == Exit.TAMPERED

    def test_malformed_keys_are_an_error(self, world, check):
        with pytest.raises(NoteError):
            check(world.export_story(), world.vkey[:-4])


class _Lying:
    def __init__(self, signer, signature):
        self.name, self.vkey, self._signature = signer.name, signer.vkey, signature

    def sign(self, _):
        return self._signature


class TestWitnesses:
    def signed(self, world, *witnesses):
        entries = world.entries(world.story())
        signers = [world.signer, *witnesses]
        note = world.checkpoint(entries, signers=signers, timestamp=1_800_000_000)
        return world.export(entries, checkpoint=note)

    def test_every_witness_whose_key_is_given_must_have_cosigned(self, world, check):
        first = Ed25519Signer.generate("w1.example", kind=ED25519_COSIGNATURE)
        second = MlDsa44Signer.generate("w2.example")
        absent = Ed25519Signer.generate("w3.example", kind=ED25519_COSIGNATURE)
        data = self.signed(world, first, second)

        both = check(data, world.vkey, first.vkey, second.vkey)
        three = check(data, world.vkey, first.vkey, second.vkey, absent.vkey)
        none = check(data, world.vkey, absent.vkey)

        assert (outcome(both, "L4"), both.exit_code) == ("pass", Exit.VERIFIED)
        assert (outcome(three, "L4"), three.exit_code) == ("fail", Exit.UNTRUSTED)
        assert (outcome(none, "L4"), none.exit_code) == ("fail", Exit.UNTRUSTED)

    def test_the_log_s_own_ml_dsa_line_is_no_witness(self, world, check):
        own = MlDsa44Signer.generate(world.origin)

        report = check(self.signed(world, own), world.vkey, own.vkey)

        assert outcome(report, "L4") == "not checked"


class TestRemembered:
    def head(self, world, entries, size):
        return Checkpoint(world.origin, size, root([leaf_hash(entry) for entry in entries[:size]]))

    @pytest.mark.parametrize("size", [0, 1, 5, 8, 20])
    def test_an_extension_is_consistent(self, world, check, size):
        entries = world.entries(world.story())
        remembered = self.head(world, entries, size)

        report = check(world.export(entries), world.vkey, remembered=remembered)

        assert (outcome(report, "L3"), report.exit_code) == ("pass", Exit.VERIFIED)

    def test_a_cut_tail_is_seen(self, world, check):
        entries = world.entries(world.story())
        remembered = self.head(world, entries, 20)

        report = check(world.export(entries[:19]), world.vkey, remembered=remembered)

        assert (outcome(report, "L3"), report.exit_code) == ("fail", Exit.TAMPERED)

    def test_a_rewritten_past_is_seen(self, world, check):
        entries = world.entries(world.story())
        remembered = self.head(world, entries, 7)
        rewritten = [to_bytes(world.started()), *entries[1:]]

        report = check(world.export(rewritten), world.vkey, remembered=remembered)

        assert (outcome(report, "L3"), report.exit_code) == ("fail", Exit.TAMPERED)

    def test_another_log_is_not_an_extension(self, world, check):
        remembered = Checkpoint("example.com/other", 0, EMPTY_ROOT)

        report = check(world.export_story(), world.vkey, remembered=remembered)

        assert (outcome(report, "L3"), report.exit_code) == ("fail", Exit.TAMPERED)


class TestInsider:
    """Somebody who holds the log's key still cannot make the parts disagree."""

    def resigned(self, world, data, change=None, **fields):
        """Alter members and manifest fields, then sign a manifest that fits them."""

        def edit(members):
            contents = {name: content for name, content in members if "manifest" not in name}
            contents = change(contents) if change else contents
            manifest = parse_manifest(dict(members)["manifest.json"])
            table = {name: (digest(each), len(each)) for name, each in sorted(contents.items())}
            value = format_manifest(replace(manifest, members=table, **fields))
            envelope = sign_envelope(MANIFEST_TYPE, value, world.signer)
            return [*sorted(contents.items()), (ENVELOPE, envelope), ("manifest.json", value)]

        return rewrite(data, edit)

    def test_the_same_parts_signed_again_are_verified(self, world):
        data = world.export_story()

        assert self.resigned(world, data) == data

    def test_entries_ndjson_must_say_what_the_entries_say(self, world, check):
        def change(contents):
            lines = contents["entries.ndjson"].replace(b"radiology", b"oncology_")
            return {**contents, "entries.ndjson": lines}

        report = check(self.resigned(world, world.export_story(), change), world.vkey)

        assert (outcome(report, "L1"), outcome(report, "L2")) == ("fail", "pass")
        assert report.exit_code == Exit.TAMPERED

    @pytest.mark.parametrize("tile", ["tile/0/000.p/20", "tile/entries/000.p/20"])
    def test_tiles_must_lead_to_the_root(self, world, check, tile):
        def change(contents):
            return {**contents, tile: contents[tile][:-1] + b"?"}

        report = check(self.resigned(world, world.export_story(), change), world.vkey)

        assert outcome(report, "L1") == "fail"
        assert report.exit_code != Exit.VERIFIED

    def test_a_bundle_of_entries_that_cannot_be_cut_is_malformed(self, world, check):
        def change(contents):
            tile = "tile/entries/000.p/20"
            return {**contents, tile: b"\xff" + contents[tile][1:]}

        report = check(self.resigned(world, world.export_story(), change), world.vkey)

        assert report.exit_code == Exit.MALFORMED

    def test_the_manifest_must_name_the_missing_documents(self, world, check):
        data = world.export_story(documents={})
        honest = check(data, world.vkey)
        silent = check(self.resigned(world, data, missing=()), world.vkey)
        boasting = self.resigned(world, world.export_story(), missing=("sha256:" + "0" * 64,))

        assert honest.exit_code == Exit.INCOMPLETE
        assert (outcome(silent, "L7"), silent.exit_code) == ("fail", Exit.TAMPERED)
        assert check(boasting, world.vkey).exit_code == Exit.TAMPERED

    def test_the_tree_needs_exactly_its_tiles(self, world, check):
        for change in (
            lambda contents: {**contents, "tile/1/000.p/1": b"\0" * 32},
            lambda contents: {n: c for n, c in contents.items() if n != "tile/0/000.p/20"},
            lambda contents: {n: c for n, c in contents.items() if n != "VERIFY.txt"},
        ):
            report = check(self.resigned(world, world.export_story(), change), world.vkey)
            assert "does not belong to this tree" in report.levels[0].detail

    @pytest.mark.parametrize("content", [b"{}", b"", b'{"format":"placet.keys/1","vkeys":[1]}'])
    def test_hints_have_a_form_too(self, world, check, content):
        data = self.resigned(world, world.export_story(), lambda c: {**c, "keys.json": content})

        assert check(data, world.vkey).exit_code == Exit.MALFORMED

    def test_the_signed_manifest_is_manifest_json(self, world, check):
        data = world.export_story()
        other = self.resigned(world, data, export={"exported_at": "2020-01-01T00:00:00Z"})
        with zipfile.ZipFile(io.BytesIO(other)) as archive:
            envelope = archive.read(ENVELOPE)

        report = check(replaced(data, manifest__dsse__json=envelope), world.vkey)

        assert (outcome(report, "L2"), report.exit_code) == ("fail", Exit.TAMPERED)


class TestDocuments:
    def test_a_long_list_of_missing_documents_is_cut_in_the_text_only(self, world, check, ids):
        events = [
            world.registered_dataset(ids("ds", n), manifest=world.document(f"manifest {n}"))
            for n in range(33)
        ]
        report = check(world.export(world.entries(events), documents={}), world.vkey)

        assert len(report.absent) == 33
        assert "... and 13 more" in to_text(report)
        assert len(json.loads(to_json(report))["absent"]) == 33

    def test_missing_documents_make_it_incomplete_and_are_named(self, world, check):
        entries = world.entries(world.story())
        gone = world.document("card")
        documents = {key: data for key, data in world.documents.items() if key != gone}

        report = check(world.export(entries, documents=documents), world.vkey)

        assert (report.exit_code, report.absent) == (Exit.INCOMPLETE, (gone,))
        assert gone in to_text(report)

    def test_state_and_policy_of_an_entry_count_as_references(self, world, check, change):
        digest = world.document("a state")
        event = change(world.started(), state=digest, policy=digest)
        data = world.export([to_bytes(event)], documents={})

        assert check(data, world.vkey).absent == (digest,)

    def test_a_document_can_be_read_back_for_a_replay(self, world, tmp_path):
        path = tmp_path / "export.zip"
        path.write_bytes(world.export_story())
        with open_bundle(path) as bundle:
            assert (
                bundle.document(world.document("policy"))
                == world.documents[world.document("policy")]
            )
            assert bundle.document("sha256:" + "0" * 64) is None


class TestStory:
    def test_a_violation_is_tampering_and_is_named(self, world, check):
        entries = world.entries([*world.prologue(), world.submitted(), world.dispatching()])

        report = check(world.export(entries), world.vkey)

        assert report.exit_code == Exit.TAMPERED
        assert [(each.index, each.rule) for each in report.violations] == [
            (9, "dispatch-needs-decision")
        ]
        assert "entry 9: dispatch-needs-decision" in to_text(report)

    def test_a_malformed_entry_is_named(self, world, check):
        entries = [*world.entries([world.started()]), b"not json", b"nor this"]

        report = check(world.export(entries), world.vkey)

        assert report.exit_code == Exit.MALFORMED
        assert "entry 1" in report.levels[0].detail
        assert outcome(report, "L6") == "not checked"


class TestTampering:
    """Every change of the file is seen, whatever it hits. No member is exempt, hints included."""

    def small(self, world):
        return world.export(
            world.entries([world.started()]), documents={}, verifier=b"# the verifier\n"
        )

    def test_each_single_byte_of_the_whole_file(self, world, tmp_path):
        data = bytearray(self.small(world))
        path = tmp_path / "export.zip"
        accepted = []
        for position in range(len(data)):
            for flip in (0x01, 0x80) if position % 16 == 0 else (1 << position % 8,):
                data[position] ^= flip
                path.write_bytes(data)
                if verify(path, [world.vkey]).exit_code == Exit.VERIFIED:
                    accepted.append(position)
                data[position] ^= flip

        assert accepted == []
        path.write_bytes(data)
        assert verify(path, [world.vkey]).exit_code == Exit.VERIFIED

    def test_every_shorter_and_longer_file(self, world, check):
        data = self.small(world)

        codes = {check(data[:end], world.vkey).exit_code for end in range(0, len(data), 37)}
        codes |= {check(data[:-end], world.vkey).exit_code for end in range(1, 40)}
        codes |= {check(extra, world.vkey).exit_code for extra in (data + b"\0", b"\0" + data)}

        assert codes == {Exit.MALFORMED}

    def members(self, data):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return archive.namelist()

    def test_one_byte_of_each_member_with_a_repaired_container(self, world, check):
        data = world.export_story()
        for name in self.members(data):

            def flip(members, name=name):
                return [(n, bytes([c[0] ^ 1]) + c[1:] if n == name else c) for n, c in members]

            assert check(rewrite(data, flip), world.vkey).exit_code != Exit.VERIFIED, name

    def test_each_member_cut_emptied_removed_or_doubled(self, world, check):
        data = world.export_story()
        for name in self.members(data):
            changes = (
                lambda members, name=name: [(n, c[:-1] if n == name else c) for n, c in members],
                lambda members, name=name: [(n, b"" if n == name else c) for n, c in members],
                lambda members, name=name: [(n, c) for n, c in members if n != name],
                lambda members, name=name: [
                    item for item in members for _ in range(1 + (item[0] == name))
                ],
            )
            for change in changes:
                assert check(rewrite(data, change), world.vkey).exit_code != 0, name

    def test_each_pair_of_neighbours_swapped_in_place_or_in_content(self, world, check):
        data = world.export_story()
        count = len(self.members(data))
        for i in range(count - 1):

            def order(members, i=i):
                return [*members[:i], members[i + 1], members[i], *members[i + 2 :]]

            def content(members, i=i):
                (first, one), (second, two) = members[i], members[i + 1]
                return [*members[:i], (first, two), (second, one), *members[i + 2 :]]

            for change in (order, content):
                assert check(rewrite(data, change), world.vkey).exit_code != 0, i

    @pytest.mark.parametrize(
        "name",
        [
            "extra.txt",
            "../../etc/passwd",
            "/etc/passwd",
            "C:\\x",
            "objects/sha256-" + "A" * 64,
            "objects/sha256-" + "0" * 64,
            "tile/0/001",
            "tile/entries/001.p/1",
            "tile/7/000",
            "__main__.py",
            "",
            "checkpoint/",
        ],
    )
    def test_an_unknown_member_is_refused(self, world, check, name):
        data = world.export_story()
        for place in (0, 3, -1, -2):

            def insert(members, place=place):
                members.insert(place, (name, b"x"))
                return members

            assert check(rewrite(data, insert), world.vkey).exit_code == Exit.MALFORMED

    def test_another_checkpoint_of_the_same_log(self, world, check):
        entries = world.entries(world.story())
        data = world.export(entries)
        for size in range(20):
            other = world.checkpoint(entries, size)
            assert check(replaced(data, checkpoint=other), world.vkey).exit_code != 0

    def test_the_same_head_signed_again_with_another_line(self, world, check):
        entries = world.entries(world.story())
        witness = Ed25519Signer.generate("w.example", kind=ED25519_COSIGNATURE)
        note = world.checkpoint(entries, signers=[world.signer, witness], timestamp=1)

        report = check(replaced(world.export(entries), checkpoint=note), world.vkey)

        assert report.exit_code != Exit.VERIFIED

    def test_the_checkpoint_of_another_log(self, world, make_world, check):
        other = make_world(origin="example.com/log/2", seed=b"\x02")
        entries = world.entries(world.story())
        note = other.checkpoint(entries)

        report = check(replaced(world.export(entries), checkpoint=note), world.vkey, other.vkey)

        assert report.exit_code != Exit.VERIFIED

    def test_a_manifest_of_another_export_of_the_same_log(self, world, check):
        entries = world.entries(world.story())
        data, older = world.export(entries), world.export(entries[:19])
        with zipfile.ZipFile(io.BytesIO(older)) as archive:
            swap = {name: archive.read(name) for name in ("manifest.json", ENVELOPE)}

        for names in (["manifest.json"], [ENVELOPE], ["manifest.json", ENVELOPE]):
            parts = {name: swap[name] for name in names}
            altered = rewrite(data, lambda ms, p=parts: [(n, p.get(n, c)) for n, c in ms])
            assert check(altered, world.vkey).exit_code != Exit.VERIFIED

    def test_tampering_is_named_by_level(self, world, check):
        """An operator who signs again with the real key is still caught by what must agree."""
        entries = world.entries(world.story())
        lying = world.checkpoint([*entries[:19], entries[0]])

        report = check(world.export(entries, checkpoint=lying), world.vkey)

        assert (outcome(report, "L1"), report.exit_code) == ("fail", Exit.TAMPERED)
        assert outcome(report, "L7") == "not checked"

    def test_a_broken_tree_is_not_called_an_extension(self, world, check):
        entries = world.entries(world.story())
        lying = world.checkpoint([*entries[:19], entries[0]])
        remembered = Checkpoint(world.origin, 0, EMPTY_ROOT)

        report = check(world.export(entries, checkpoint=lying), world.vkey, remembered=remembered)

        assert outcome(report, "L3") == "not checked"


class TestHostileFiles:
    """Whatever lies at the path, the answer is a report."""

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"PK",
            b"PK\x05\x06" + b"\0" * 18,
            b"PK\x03\x04" + b"\xff" * 26,
            b"PK\x03\x04" + b"\0" * 26,
            b"\x1f\x8b" + b"\0" * 100,
            b"not a zip file at all" * 100,
        ],
    )
    def test_not_an_export(self, check, world, data):
        report = check(data, world.vkey)

        assert report.exit_code == Exit.MALFORMED
        assert all(level.outcome != Outcome.PASS for level in report.levels)

    def test_a_compressed_zip_is_refused(self, world, check):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("entries.ndjson", b"\0" * 10_000_000)

        assert check(out.getvalue(), world.vkey).exit_code == Exit.MALFORMED

    def test_an_ordinary_zip_of_the_same_members_is_refused(self, world, check):
        data, out = world.export_story(), io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
            for name in old.namelist():
                new.writestr(name, old.read(name))

        assert check(out.getvalue(), world.vkey).exit_code == Exit.MALFORMED

    def test_a_huge_member_is_refused_before_it_is_read(self, world, check):
        for name, size in (("keys.json", 2**20 + 1), ("checkpoint", 2**32 - 1)):
            header = struct.pack(
                "<4s5H3I2H", b"PK\x03\x04", 20, 0, 0, 0, 0x21, 0, size, size, len(name), 0
            )
            report = check(header + name.encode(), world.vkey)
            assert "too large" in report.levels[0].detail

    def test_a_non_ascii_name_is_refused(self, world, check):
        header = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 0, 0, 0x21, 0, 0, 0, 1, 0)

        assert "ASCII" in check(header + b"\xff", world.vkey).levels[0].detail

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\xff",
            b"[]",
            b"{}",
            b"[" * 100_000,
            b'{"a":1e5}',
            b'{"a":NaN}',
            b'"\\ud800"',
            b"1" * 5000,
        ],
    )
    @pytest.mark.parametrize("name", ["manifest__json", "manifest__dsse__json", "checkpoint"])
    def test_nonsense_where_structure_is_due(self, world, check, name, content):
        data = replaced(world.export_story(), **{name: content})

        assert check(data, world.vkey).exit_code in (Exit.MALFORMED, Exit.TAMPERED)

    def test_a_checkpoint_of_an_impossible_size_costs_nothing(self, world, check):
        head = Checkpoint(world.origin, 2**40, b"\x01" * 32)
        text = f"{world.origin}\n{2**40}\n{'AQEB' * 10}AQE=\n"
        note = sign_note(text, [world.signer])
        data = world.export_story()
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            manifest = json.loads(archive.read("manifest.json"))
        manifest["checkpoint"] |= {"size": head.size, "root": "AQEB" * 10 + "AQE="}
        manifest["counts"]["entries"] = manifest["range"]["end"] = head.size
        content = json.dumps(manifest, separators=(",", ":")).encode()

        report = check(replaced(data, checkpoint=note, manifest__json=content), world.vkey)

        assert report.exit_code == Exit.MALFORMED
        assert "larger than any export" in report.levels[0].detail

    def test_a_missing_file_is_an_error(self, world):
        with pytest.raises(FileNotFoundError):
            verify(Path("/nonexistent/export.zip"), [world.vkey])


class TestReport:
    def test_json_has_every_level_in_order(self, world, check):
        report = check(world.export_story(), world.vkey)

        value = json.loads(to_json(report))

        assert [level["id"] for level in value["levels"]] == [f"L{n}" for n in range(11)]
        assert (value["verdict"], value["exit_code"]) == ("VERIFIED", 0)

    def test_a_hostile_origin_cannot_move_the_terminal(self, make_world, check):
        hostile = make_world(origin="example.com/\u202elog\u009b2J")
        data = hostile.export([], documents={})

        text = to_text(check(data))

        assert text.isascii()
        assert text.replace("\n", "").isprintable()
        assert to_json(check(data)).isascii()

    def test_a_replay_can_replace_its_level(self, world, check):
        report = check(world.export_story(), world.vkey)

        replayed = report.with_level(report.levels[0].__class__("L8", Outcome.PASS, "3 of 3"))

        assert outcome(replayed, "L8") == "pass"
        assert replayed.exit_code == Exit.VERIFIED
