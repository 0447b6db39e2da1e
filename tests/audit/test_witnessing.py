"""The witness's decision: every row of the protocol's table, in its order, and nothing else."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.keys import ED25519_COSIGNATURE, Ed25519Signer, MlDsa44Signer, VerifyKey, encode_base64
from audit.merkle import EMPTY_ROOT, leaf_hash, prove_consistency, root
from audit.note import Checkpoint, NoteError, cosign, open_note, sign_checkpoint, sign_note
from audit.witnessing import (
    MAX_REQUEST_BYTES,
    SIZE_TYPE,
    decide,
    parse_request,
    write_request,
)

ORIGIN = "log.example.org/log"
LEAVES = [leaf_hash(bytes([n])) for n in range(40)]
LOG = Ed25519Signer.from_seed(ORIGIN, b"\xa0" * 32)
LOG_ML_DSA = MlDsa44Signer.from_seed(ORIGIN, b"\xa1" * 32)
WITNESS = Ed25519Signer.from_seed("w.example.net", b"\xb0" * 32, kind=ED25519_COSIGNATURE)
WITNESS_ML_DSA = MlDsa44Signer.from_seed("w.example.net", b"\xb1" * 32)
TIME = 1_796_000_000


class Witness:
    """Plays the caller's part: remembers what it is told to, from one request to the next."""

    def __init__(self, *trusted, signers=(WITNESS, WITNESS_ML_DSA)):
        self.trusted = {ORIGIN: list(trusted or (LOG.key, LOG_ML_DSA.key))}
        self.signers = signers
        self.last = {}

    def __call__(self, body):
        answer = decide(body, remembered=self.last.get, trusted=self.trusted, cosign=self.cosigned)
        if answer.store is not None:
            self.last[answer.store.origin] = answer.store
        assert (answer.status == 200) == (answer.store is not None)
        return answer

    def cosigned(self, text):
        return "".join(cosign(text, signer, TIME) for signer in self.signers)


def tree(size, *, signers=(LOG, LOG_ML_DSA), leaves=LEAVES, origin=ORIGIN):
    return sign_checkpoint(Checkpoint(origin, size, root(leaves[:size])), signers, timestamp=TIME)


def asking(old, size, *, proof=None, **how):
    if proof is None:
        leaves = how.get("leaves", LEAVES)
        proof = prove_consistency(leaves[:size], old) if 0 < old < size else []
    return write_request(old, proof, tree(size, **how))


@pytest.fixture
def witness():
    return Witness()


@pytest.fixture
def at_eight(witness):
    assert witness(asking(0, 8)).status == 200
    return witness


def test_a_growing_log_is_cosigned_step_by_step_with_both_keys(witness):
    sizes = [0, 1, 2, 3, 7, 8, 9, 16, 33, 40]
    for old, size in zip([0, *sizes], sizes, strict=False):
        answer = witness(asking(old, size))
        opened = open_note(tree(size) + answer.body, [WITNESS.key, WITNESS_ML_DSA.key])

        assert answer.status == 200
        assert [line.timestamp for line in opened.verified] == [TIME, TIME]
        assert witness.last[ORIGIN] == Checkpoint(ORIGIN, size, root(LEAVES[:size]))


def test_the_same_checkpoint_again_is_cosigned_again(at_eight):
    assert at_eight(asking(8, 8)).status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\n",
        b"old 0\n",
        b"old 0\n\n",
        b"new 0\n\n" + tree(1),
        b"old\n\n" + tree(1),
        b"old  0\n\n" + tree(1),
        b"old 0 \n\n" + tree(1),
        b"old 00\n\n" + tree(1),
        b"old 01\n\n" + tree(1),
        b"old +1\n\n" + tree(1),
        b"old 1_0\n\n" + tree(1),
        "old \u0661\n\n".encode() + tree(1),
        b"old 9223372036854775808\n\n" + tree(1),
        b"old -1\n\n" + tree(1),
        b"old 0\r\n\n" + tree(1),
        b"old 0\nnot base64\n\n" + tree(1),
        b"old 0\n" + encode_base64(b"short").encode() + b"\n\n" + tree(1),
        b"old 0\n" + (encode_base64(bytes(32)).encode() + b"\n") * 64 + b"\n" + tree(1),
        b"old 0\n" + tree(1),
        b"old 0\n\n" + tree(1).replace(b"\n\n", b"\n"),
        b"old 0\n\n" + tree(1).replace(b"\n1\n", b"\n1.0\n"),
        b"old 0\n\n" + tree(1)[:-1],
        b"old 0\n\n" + b"x" * MAX_REQUEST_BYTES,
    ],
)
def test_malformed_is_400(witness, body):
    assert witness(body).status == 400
    assert witness.last == {}


def test_sixty_three_hashes_are_read(witness):
    request = write_request(1, [bytes(32)] * 63, tree(2))

    assert len(parse_request(request).proof) == 63
    assert witness(request).status == 409


def test_an_unknown_origin_is_404_even_with_a_known_key(witness):
    other = sign_note(
        f"other.example.org/log\n0\n{encode_base64(EMPTY_ROOT)}\n", [LOG], timestamp=TIME
    )

    assert witness(write_request(0, [], other)).status == 404


def test_a_checkpoint_that_no_trusted_key_signed_is_403(witness):
    stranger = Ed25519Signer.from_seed(ORIGIN, b"\xcc" * 32)

    assert witness(asking(0, 1, signers=[stranger])).status == 403


def test_a_key_is_trusted_under_the_origin_as_its_name_only():
    misnamed = Ed25519Signer.from_seed("friend.example.org", b"\xcd" * 32)
    witness = Witness(LOG.key, misnamed.key)

    assert witness(asking(0, 1, signers=[misnamed])).status == 403
    assert witness(asking(0, 1, signers=[misnamed, LOG])).status == 200


def test_a_trusted_line_that_does_not_verify_is_403_beside_one_that_does(witness):
    lines = tree(5).decode().split("\n")
    foreign = tree(6).decode().split("\n")

    for at in (4, 5):
        mixed = [*lines[:at], foreign[at], *lines[at + 1 :]]
        assert witness(write_request(0, [], "\n".join(mixed).encode())).status == 403


def test_a_signature_line_that_cannot_be_read_is_403(witness):
    note = tree(5)

    assert witness(write_request(0, [], note + b"no line\n")).status == 403
    assert witness(write_request(0, [], note[:-1] + b"*\n")).status == 403


def test_lines_of_unknown_keys_do_not_matter(witness):
    stranger = Ed25519Signer.from_seed("x.example.net", b"\xce" * 32)

    assert witness(asking(0, 5, signers=[stranger, LOG])).status == 200


def test_an_old_size_above_the_checkpoints_is_400(at_eight):
    assert at_eight(asking(8, 7)).status == 400
    assert at_eight(asking(9, 8)).status == 400


@pytest.mark.parametrize(("old", "size"), [(0, 8), (0, 9), (1, 9), (7, 9), (9, 10), (40, 40)])
def test_another_old_size_than_the_last_is_409_with_the_last(at_eight, old, size):
    answer = at_eight(asking(old, size))

    assert (answer.status, answer.body, answer.content_type) == (409, b"8\n", SIZE_TYPE)


def test_a_log_that_is_new_here_is_409_with_0(witness):
    answer = witness(asking(3, 5))

    assert (answer.status, answer.body, answer.content_type) == (409, b"0\n", SIZE_TYPE)


def test_an_empty_log_with_another_root_is_422():
    witness = Witness(LOG.key)
    text = f"{ORIGIN}\n0\n{encode_base64(bytes(32))}\n"
    note = (text + "\n" + cosign(text, LOG)).encode()

    assert witness(write_request(0, [], note)).status == 422
    assert witness.last == {}


def test_a_proof_from_size_zero_is_422(witness):
    assert witness(asking(0, 5, proof=[bytes(32)])).status == 422


@pytest.mark.parametrize(
    "proof",
    [
        [],
        [bytes(32)],
        prove_consistency(LEAVES[:12], 8)[:-1],
        [*prove_consistency(LEAVES[:12], 8), bytes(32)],
        prove_consistency(LEAVES[:13], 8),
    ],
)
def test_a_proof_that_fails_is_422(at_eight, proof):
    assert at_eight(asking(8, 12, proof=proof)).status == 422
    assert at_eight.last[ORIGIN].size == 8


def test_the_last_size_with_another_root_is_422(at_eight):
    fork = [leaf_hash(b"forged"), *LEAVES[1:]]

    assert at_eight(asking(8, 8, leaves=fork)).status == 422
    assert at_eight(asking(8, 8, proof=[bytes(32)])).status == 422
    assert at_eight(asking(8, 12, leaves=fork)).status == 422


def test_extension_lines_are_cosigned_with_the_text(witness):
    text = f"{ORIGIN}\n1\n{encode_base64(root(LEAVES[:1]))}\nmore\n"

    answer = witness(write_request(0, [], sign_note(text, [LOG])))

    assert answer.status == 200
    assert open_note((text + "\n").encode() + answer.body, [WITNESS.key]).verified


@settings(max_examples=60)
@given(st.data())
def test_whatever_is_asked_in_whatever_order_the_witness_never_goes_back(data):
    witness, last = Witness(LOG.key, signers=(WITNESS,)), 0
    fork = [leaf_hash(b"forged"), *LEAVES[1:]]
    for _ in range(data.draw(st.integers(1, 8))):
        old, size = data.draw(st.integers(0, 12)), data.draw(st.integers(0, 12))
        leaves = data.draw(st.sampled_from([LEAVES, fork]))
        before = witness.last.get(ORIGIN)
        status = witness(asking(old, size, leaves=leaves, signers=[LOG])).status
        if status == 200:
            assert size >= last
            first = witness.last[ORIGIN]
            if before is not None and before.size and before.root != first.root:
                assert size > before.size
            last = size
    cosigned = witness.last.get(ORIGIN)
    if cosigned is not None:
        assert cosigned.root in (root(LEAVES[: cosigned.size]), root(fork[: cosigned.size]))


@given(st.binary(max_size=200))
def test_arbitrary_octets_are_400(raw):
    assert Witness()(raw).status == 400
    assert Witness()(b"old 0\n\n" + raw).status == 400


def test_the_public_sequence_gets_the_statuses_of_the_standard(vector_folder):
    folder = vector_folder("tlog-witness")
    played = json.loads((folder / "add_checkpoint_sequence.json").read_bytes())
    key = VerifyKey.parse(played["log_vkey"])
    witness, statuses, last = Witness(), [], []
    witness.trusted = {key.name: [key]}
    for request in played["requests"]:
        answer = witness(request["body"].encode())
        assert answer.status == request["spec_status"]
        statuses.append(answer.status)
        if answer.status == 409:
            last.append(answer.body)
            assert request["body_assert"] == f"== {answer.body.decode()[:-1]}\\n"
        if answer.status == 200:
            note = request["body"].encode().partition(b"\n\n")[2]
            assert open_note(note + answer.body, [WITNESS.key, WITNESS_ML_DSA.key])
    print(f"tlog-witness: {len(statuses)} requests")  # noqa: T201 — the count is the point
    assert statuses == [200, 403, 404, 422, 422, 200, 409, 200, 409]
    assert last == [b"3\n", b"5\n"]


def test_a_request_that_cannot_be_read_says_why():
    with pytest.raises(NoteError, match="old <size>"):
        parse_request(b"hello\n\n")
