"""Sealed fields: bound to key, entry, field and value; opened only by all four."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.sealed import SealedError, check_commitment, commit, seal, unseal

KEY, OTHER = b"\x01" * 32, b"\x02" * 32
NONCE = b"\x03" * 12
GOLDEN = "4sQf/d0UxcqoHWwsxGaVBPGI2K77fjOfwMM5gl+7Pzc="
PLACE = {"entry_id": "evt_1", "field": "reason"}


def test_a_commitment_is_known_bytes():
    assert commit(KEY, "evt_1", "reason", b"because") == GOLDEN


@given(st.binary(max_size=100))
def test_what_is_sealed_opens_to_the_same_value_and_commitment(value):
    commitment = commit(OTHER, value=value, **PLACE)

    sealed = seal(KEY, NONCE, commit_key=OTHER, value=value, **PLACE)
    commit_key, opened = unseal(KEY, sealed, **PLACE)

    assert opened == value
    check_commitment(commitment, commit_key, "evt_1", "reason", opened)


def test_a_commitment_binds_key_entry_field_and_value():
    choices = list(itertools.product((KEY, OTHER), ("evt_1", "evt_2"), ("a", "b"), (b"", b"x")))
    commitments = [commit(*choice) for choice in choices]

    assert len(set(commitments)) == 16
    for commitment, choice in itertools.product(commitments[:1], choices[1:]):
        with pytest.raises(SealedError, match="not the one"):
            check_commitment(commitment, *choice)


def test_without_the_right_key_entry_and_field_nothing_opens():
    sealed = seal(KEY, NONCE, commit_key=OTHER, value=b"Jane Roe", **PLACE)
    for key, place in (
        (OTHER, PLACE),
        (KEY, {**PLACE, "entry_id": "evt_2"}),
        (KEY, {**PLACE, "field": "name"}),
    ):
        with pytest.raises(SealedError, match="do not open"):
            unseal(key, sealed, **place)
    for position in range(len(sealed)):
        flipped = sealed[:position] + bytes([sealed[position] ^ 1]) + sealed[position + 1 :]
        with pytest.raises(SealedError):
            unseal(KEY, flipped, **PLACE)
    for end in range(len(sealed)):
        with pytest.raises(SealedError):
            unseal(KEY, sealed[:end], **PLACE)


def test_the_value_does_not_show():
    sealed = seal(KEY, NONCE, commit_key=OTHER, value=b"Jane Roe", **PLACE)

    assert b"Jane" not in sealed


@pytest.mark.parametrize("key", [b"", b"\0" * 16, b"\0" * 33])
def test_keys_have_32_bytes(key):
    for call in (
        lambda: commit(key, "e", "f", b""),
        lambda: seal(key, NONCE, commit_key=KEY, value=b"", **PLACE),
        lambda: seal(KEY, NONCE, commit_key=key, value=b"", **PLACE),
        lambda: unseal(key, b"\0" * 60, **PLACE),
    ):
        with pytest.raises(SealedError, match="32 bytes"):
            call()


def test_nonces_have_12_bytes():
    with pytest.raises(SealedError, match="12 bytes"):
        seal(KEY, b"short", commit_key=KEY, value=b"", **PLACE)


def test_a_newline_would_make_places_ambiguous():
    for entry_id, field in (("a\nb", "c"), ("a", "b\nc")):
        with pytest.raises(SealedError, match="newline"):
            commit(KEY, entry_id, field, b"")


def test_a_malformed_commitment_is_refused():
    with pytest.raises(SealedError, match="malformed"):
        check_commitment("???", KEY, "e", "f", b"")
