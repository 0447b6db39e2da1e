"""Proof files: one entry, one log, one place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.keys import Ed25519Signer
from audit.merkle import leaf_hash, prove_inclusion, root
from audit.note import Checkpoint, sign_checkpoint, sign_note
from audit.proof import Proof, ProofError, check_proof, parse_proof, write_proof

ORIGIN = "example.com/log"
LOG = Ed25519Signer.from_seed(ORIGIN, b"\x01" * 32)
ENTRIES = [b"entry %d" % n for n in range(13)]
LEAVES = [leaf_hash(entry) for entry in ENTRIES]
NOTE = sign_checkpoint(Checkpoint(ORIGIN, 13, root(LEAVES)), [LOG])


def proof_of(index):
    return write_proof(index, prove_inclusion(LEAVES, index), NOTE)


def test_every_entry_is_proven_to_be_at_its_place_only():
    for index, entry in enumerate(ENTRIES):
        data = proof_of(index)
        assert check_proof(data, entry, ORIGIN, [LOG.key]).size == 13
        for other in ENTRIES:
            if other != entry:
                with pytest.raises(ProofError):
                    check_proof(data, other, ORIGIN, [LOG.key])


def test_every_byte_of_a_proof_matters():
    data = bytearray(proof_of(5))
    for position in range(len(data)):
        data[position] ^= 1
        with pytest.raises(ProofError):
            check_proof(bytes(data), ENTRIES[5], ORIGIN, [LOG.key])
        data[position] ^= 1


def test_every_cut_of_a_proof_is_refused():
    data = proof_of(5)
    for end in range(len(data)):
        with pytest.raises(ProofError):
            check_proof(data[:end], ENTRIES[5], ORIGIN, [LOG.key])


def test_another_log_s_checkpoint_is_refused_though_its_key_is_known():
    note = sign_note(f"other\n13\n{NOTE.decode().split(chr(10))[2]}\n", [LOG])
    data = write_proof(5, prove_inclusion(LEAVES, 5), note)
    with pytest.raises(ProofError, match="another log"):
        check_proof(data, ENTRIES[5], ORIGIN, [LOG.key])


@given(
    st.integers(0, 2**63 - 1),
    st.lists(st.binary(min_size=32, max_size=32), max_size=63),
    st.binary(max_size=50),
)
def test_a_proof_file_reads_back(index, hashes, note):
    assert parse_proof(write_proof(index, hashes, note)) == Proof(index, tuple(hashes), note)


@given(
    st.binary(max_size=100) | st.binary(max_size=60).map(lambda b: b"c2sp.org/tlog-proof@v1\n" + b)
)
def test_parsing_raises_nothing_but_its_own_error(data):
    try:
        parse_proof(data)
    except ProofError:
        return


@pytest.mark.parametrize(
    ("index", "hashes"), [(-1, []), (2**63, []), (0, [b"short"]), (0, [b"\0" * 32] * 64)]
)
def test_impossible_proofs_are_not_written(index, hashes):
    with pytest.raises(ProofError):
        write_proof(index, hashes, NOTE)


def test_extra_data_is_read_but_never_written():
    data = proof_of(3).replace(b"\nindex", b"\nextra aGk=\nindex", 1)

    assert parse_proof(data).extra == b"hi"
    assert check_proof(data, ENTRIES[3], ORIGIN, [LOG.key]).size == 13


@pytest.mark.parametrize("head", [b"c2sp.org/tlog-proof@v1", b"c2sp.org/tlog-proof@v1\nextra aGk="])
def test_a_head_without_an_index_is_refused(head):
    with pytest.raises(ProofError):
        parse_proof(head + b"\n\n" + NOTE)


def test_a_proof_of_absurd_length_is_refused():
    with pytest.raises(ProofError, match="at most"):
        parse_proof(b"x" * 2_000_000)
