"""Keys, notes, checkpoints and cosignatures: what is written is read back, and nothing else."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.keys import (
    ECDSA,
    ED25519,
    ED25519_COSIGNATURE,
    MLDSA44,
    RFC6962,
    Ed25519Signer,
    MlDsa44Signer,
    NoteError,
    VerifyKey,
    encode_base64,
    is_key_name,
    key_id,
    strict_base64,
)
from audit.merkle import EMPTY_ROOT
from audit.note import (
    Checkpoint,
    cosign,
    format_checkpoint,
    open_note,
    parse_checkpoint,
    parse_size,
    sign_checkpoint,
    sign_note,
    split_note,
)

LOG = Ed25519Signer.from_seed("example.com/log", b"\x01" * 32)
SECOND = MlDsa44Signer.from_seed("example.com/log", b"\x02" * 32)
WITNESS = Ed25519Signer.from_seed("w.example", b"\x03" * 32, kind=ED25519_COSIGNATURE)
PQ_WITNESS = MlDsa44Signer.from_seed("pq.example", b"\x04" * 32)
HEAD = Checkpoint("example.com/log", 7, b"\x07" * 32)
NAMES = st.text(min_size=1, max_size=30).filter(is_key_name)


def keys(*signers):
    return [signer.key for signer in signers]


class TestBase64:
    @given(st.binary(max_size=80))
    def test_one_spelling_for_each_byte_string(self, raw):
        assert strict_base64(encode_base64(raw)) == raw

    @pytest.mark.parametrize(
        "text", ["AB==", "AQ", "A Q=", "AQ==\n", "-_8=", "AQ===", "é", "=", "A"]
    )
    def test_other_spellings_are_refused(self, text):
        with pytest.raises(NoteError):
            strict_base64(text)

    @given(st.text("AQgw=-_ \n+/", max_size=8))
    def test_what_is_accepted_is_the_canonical_spelling(self, text):
        try:
            raw = strict_base64(text)
        except NoteError:
            return
        assert base64.b64encode(raw).decode() == text


class TestKeys:
    @pytest.mark.parametrize("signer", [LOG, SECOND, WITNESS, PQ_WITNESS])
    def test_a_vkey_reads_back(self, signer):
        assert VerifyKey.parse(signer.vkey) == signer.key
        assert VerifyKey.parse(signer.vkey).vkey == signer.vkey

    def test_every_other_text_is_refused(self):
        vkey = LOG.vkey
        for i in range(len(vkey)):
            for text in (vkey[:i], vkey[i:] if i else "", vkey[:i] + vkey[i + 1 :]):
                with pytest.raises(NoteError):
                    VerifyKey.parse(text)

    @pytest.mark.parametrize(
        "name", ["", "a b", "a+b", "a\tb", "a\u00a0b", "\ud800", "x" * 256, "a\x7f"]
    )
    def test_bad_names_are_refused(self, name):
        assert not is_key_name(name)
        with pytest.raises(NoteError):
            Ed25519Signer.from_seed(name, b"\0" * 32)
        with pytest.raises(NoteError):
            MlDsa44Signer.from_seed(name, b"\0" * 32)

    def test_seeds_have_32_bytes(self):
        for make in (Ed25519Signer.from_seed, MlDsa44Signer.from_seed):
            with pytest.raises(NoteError, match="32 bytes"):
                make("n", b"short")

    def test_seeds_and_generated_keys_go_on(self):
        assert Ed25519Signer.from_seed("n", LOG.seed).key.public_key == LOG.key.public_key
        assert MlDsa44Signer.from_seed("n", SECOND.seed).key.public_key == SECOND.key.public_key
        assert Ed25519Signer.generate("n").vkey != Ed25519Signer.generate("n").vkey
        assert MlDsa44Signer.generate("n").vkey != MlDsa44Signer.generate("n").vkey

    def test_an_ed25519_signer_has_an_ed25519_type(self):
        with pytest.raises(NoteError, match="0x06"):
            Ed25519Signer.generate("n", kind=MLDSA44)

    @pytest.mark.parametrize(
        "hexadecimal",
        [
            "00" * 32,
            "00" * 31 + "80",
            "01" + "00" * 31,
            "01" + "00" * 30 + "80",
            "ec" + "ff" * 30 + "7f",
            "ec" + "ff" * 31,
            "ed" + "ff" * 30 + "7f",
            "ee" + "ff" * 31,
            "ff" * 32,
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
        ],
    )
    def test_weak_ed25519_keys_are_refused(self, hexadecimal):
        for kind in (ED25519, ED25519_COSIGNATURE):
            weak = VerifyKey("n", kind, bytes.fromhex(hexadecimal))
            with pytest.raises(NoteError, match="weak"):
                VerifyKey.parse(weak.vkey)

    @pytest.mark.parametrize(
        ("kind", "size"), [(ED25519, 31), (MLDSA44, 1311), (3, 32), (0xFF, 40)]
    )
    def test_wrong_lengths_and_types_are_refused(self, kind, size):
        with pytest.raises(NoteError):
            VerifyKey.parse(VerifyKey("n", kind, b"\x05" * size).vkey)

    @pytest.mark.parametrize("kind", [ECDSA, RFC6962])
    def test_types_that_are_only_named_cannot_verify(self, kind):
        key = VerifyKey.parse(VerifyKey("n", kind, b"some SPKI").vkey)
        with pytest.raises(NoteError, match="not supported"):
            key.verify(b"", b"")

    def test_ml_dsa_without_a_library_for_it_is_an_error_not_a_pass(self, monkeypatch):
        from cryptography.exceptions import UnsupportedAlgorithm

        class Old:
            @staticmethod
            def from_public_bytes(_):
                raise UnsupportedAlgorithm("old")

        monkeypatch.setattr("audit.keys.MLDSA44PublicKey", Old)
        with pytest.raises(NoteError, match="not available"):
            SECOND.key.verify(b"", b"")

    def test_key_ids_depend_on_name_type_and_key(self):
        ids = {key_id(n, k, p) for n in "ab" for k in (1, 4, 5, 6) for p in (b"x", b"y")}
        assert len(ids) == 16
        assert key_id("a", ECDSA, b"x") == key_id("b", ECDSA, b"x")


class TestNotes:
    @given(st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"])), NAMES)
    def test_a_signed_note_opens_to_its_text(self, text, name):
        signer = Ed25519Signer.from_seed(name, b"\x09" * 32)

        opened = open_note(sign_note(text + "\n", [signer]), keys(signer))

        assert opened.text == text + "\n"

    @given(st.binary(max_size=300))
    def test_opening_raises_nothing_but_its_own_error(self, data):
        with pytest.raises(NoteError):
            open_note(data, keys(LOG))

    def test_text_may_hold_empty_lines(self):
        text = "a\n\nb\n\n— not a signature\n\nc\n"

        assert open_note(sign_note(text, [LOG]), keys(LOG)).text == text

    @pytest.mark.parametrize("text", ["no newline", "", "control \x01\n", "carriage\r\n"])
    def test_a_text_that_is_no_note_is_not_signed(self, text):
        with pytest.raises(NoteError):
            sign_note(text, [LOG])

    def test_a_note_needs_a_signer(self):
        with pytest.raises(NoteError):
            sign_note("x\n", [])

    def test_every_byte_of_a_note_matters(self):
        note = bytearray(sign_checkpoint(HEAD, [LOG]))
        for position in range(len(note)):
            for bit in (1, 0x20, 0x80):
                note[position] ^= bit
                with pytest.raises(NoteError):
                    open_note(bytes(note), keys(LOG))
                note[position] ^= bit

    def test_limits(self):
        line = cosign("x\n", LOG)
        assert len(split_note(("x\n\n" + line * 100).encode())[1]) == 100
        with pytest.raises(NoteError, match="101"):
            split_note(("x\n\n" + line * 101).encode())
        with pytest.raises(NoteError, match="at most"):
            split_note(b"x" * (2**20 + 1))

    @pytest.mark.parametrize(
        "line",
        [
            "- n AAAAAAA=",
            "— n",
            "—n AAAAAAA=",
            "— n  AAAAAAA=",
            "— n AAAA",
            "— a+b AAAAAAA=",
            "—  AAAAAAA=",
        ],
    )
    def test_malformed_signature_lines_spoil_the_note(self, line):
        note = "x\n\n" + cosign("x\n", LOG) + line + "\n"
        with pytest.raises(NoteError):
            open_note(note.encode(), keys(LOG))

    def test_the_second_of_two_equal_lines_is_dropped(self):
        note = "x\n\n" + cosign("x\n", LOG) + cosign("y\n", LOG)

        assert len(open_note(note.encode(), keys(LOG)).verified) == 1

    def test_a_key_of_the_same_name_but_another_id_is_unknown(self):
        other = Ed25519Signer.from_seed(LOG.name, b"\x0a" * 32)
        with pytest.raises(NoteError, match="no signature of a trusted key"):
            open_note(sign_note("x\n", [LOG]), keys(other))


class TestCosignatures:
    def test_all_four_kinds_of_line_verify(self):
        signers = [LOG, SECOND, WITNESS, PQ_WITNESS]
        note = sign_checkpoint(HEAD, signers, timestamp=1_800_000_000)

        opened = open_note(note, keys(*signers))

        assert parse_checkpoint(opened.text) == HEAD
        assert [(line.key, line.timestamp) for line in opened.verified] == [
            (LOG.key, None),
            (SECOND.key, 1_800_000_000),
            (WITNESS.key, 1_800_000_000),
            (PQ_WITNESS.key, 1_800_000_000),
        ]

    @pytest.mark.parametrize("signer", [SECOND, WITNESS])
    def test_the_time_is_signed(self, signer):
        note = sign_checkpoint(HEAD, [signer], timestamp=1_800_000_000)
        text, (line,) = split_note(note)
        for time in (b"\0" * 8, b"\x80" + b"\0" * 7, (1_800_000_001).to_bytes(8)):
            raw = encode_base64(line.key_id + time + line.signature[8:])
            with pytest.raises(NoteError):
                open_note(f"{text}\n— {line.name} {raw}\n".encode(), keys(signer))

    def test_a_cosignature_of_a_wrong_length_is_refused(self):
        text, (line,) = split_note(sign_checkpoint(HEAD, [WITNESS], timestamp=1))
        raw = encode_base64(line.key_id + line.signature + b"\0")
        with pytest.raises(NoteError, match="wrong length"):
            open_note(f"{text}\n— {line.name} {raw}\n".encode(), keys(WITNESS))

    @pytest.mark.parametrize("timestamp", [None, 0, -1, 2**63])
    def test_a_time_is_needed(self, timestamp):
        with pytest.raises(NoteError, match="timestamp"):
            sign_checkpoint(HEAD, [WITNESS], timestamp=timestamp)

    def test_ml_dsa_signs_checkpoints_only(self):
        with pytest.raises(NoteError, match="checkpoint"):
            sign_note("not a checkpoint\n", [SECOND], timestamp=1)

    def test_ml_dsa_cannot_name_an_origin_above_255_bytes(self):
        text = f"{'x' * 256}\n0\n{encode_base64(EMPTY_ROOT)}\n"
        with pytest.raises(NoteError, match="255"):
            cosign(text, SECOND, 1)


class TestCheckpoints:
    @given(NAMES, st.integers(1, 2**63 - 1), st.binary(min_size=32, max_size=32))
    def test_a_checkpoint_reads_back(self, origin, size, tree_root):
        text = format_checkpoint(origin, size, tree_root)

        assert parse_checkpoint(text) == Checkpoint(origin, size, tree_root)

    def test_extension_lines_are_kept_and_signed(self):
        text = format_checkpoint("example.com/log", 7, b"\x07" * 32) + "first\nsecond\n"

        opened = open_note(sign_note(text, [LOG]), keys(LOG))

        assert parse_checkpoint(opened.text).extension == ("first", "second")

    def test_an_empty_log_has_one_root(self):
        assert parse_checkpoint(format_checkpoint("o", 0, EMPTY_ROOT)).size == 0
        with pytest.raises(NoteError):
            format_checkpoint("o", 0, b"\1" * 32)

    @pytest.mark.parametrize(
        ("origin", "size", "length"), [("", 1, 32), ("a b", 1, 32), ("a+b", 1, 32)]
    )
    def test_a_bad_origin_is_refused(self, origin, size, length):
        with pytest.raises(NoteError, match="origin"):
            format_checkpoint(origin, size, b"\1" * length)

    @pytest.mark.parametrize(("size", "length"), [(-1, 32), (2**63, 32), (1, 31), (10**19, 32)])
    def test_a_bad_size_or_root_is_refused(self, size, length):
        with pytest.raises(NoteError):
            format_checkpoint("o", size, b"\1" * length)

    @pytest.mark.parametrize(
        "text", ["", "1_0", " 7", "+7", "٣", "007", "-1", "1.0", "9" * 20, "0x1"]
    )
    def test_numbers_have_one_spelling(self, text):
        with pytest.raises(NoteError):
            parse_size(text)

    @given(st.text(max_size=60))
    def test_parsing_raises_nothing_but_its_own_error(self, text):
        try:
            head = parse_checkpoint(text)
        except NoteError:
            return
        assert head.origin
