"""Policy files: read strictly, and no note meets one by what does not count."""

import base64
import contextlib
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.keys import ED25519_COSIGNATURE, Ed25519Signer, MlDsa44Signer, VerifyKey
from audit.merkle import EMPTY_ROOT
from audit.note import NoteError, cosign, format_checkpoint, open_note, sign_note
from audit.policy import (
    MAX_POLICY_BYTES,
    WitnessPolicyError,
    evaluate_policy,
    parse_policy,
)
from audit.proof import parse_proof
from audit.single import build
from audit.verify import verify

ROOT = Path(__file__).parents[2]
ORIGIN = "log.example.org/log"
TIME = 1_796_000_000


def witness_signer(number, name=None):
    name = name or f"w{number}.example.net"
    return Ed25519Signer.from_seed(name, bytes([number, 90]) * 16, kind=ED25519_COSIGNATURE)


LOG = Ed25519Signer.from_seed(ORIGIN, b"\xa0" * 32)
LOG_ML_DSA = MlDsa44Signer.from_seed(ORIGIN, b"\xa1" * 32)
W = [witness_signer(number) for number in range(1, 7)]
QUANTUM = MlDsa44Signer.from_seed("q.example.net", b"\xb0" * 32)
TEXT = format_checkpoint(ORIGIN, 0, EMPTY_ROOT)

TWO_LEVELS = (
    f"log {LOG.vkey}\n"
    + "".join(f"witness X{n + 1} {W[n].vkey}\n" for n in range(3))
    + "group X 2 X1 X2 X3\n"
    + "".join(f"witness Y{n - 2} {W[n].vkey} https://w{n}.example.net/\n" for n in range(3, 6))
    + "group Y any Y1 Y2 Y3\n\n# both sites\ngroup both all X Y\nquorum both\n"
)


def parsed(*lines):
    return parse_policy("".join(f"{line}\n" for line in lines).encode())


def note_by(*witnesses, log=LOG, timestamp=TIME):
    note = sign_note(TEXT, [log], timestamp=timestamp)
    return note + "".join(cosign(TEXT, each, timestamp) for each in witnesses).encode()


def forged(note, name):
    """Return the note with a byte of this name's signature changed."""
    lines = note.decode().split("\n")
    at = next(n for n, line in enumerate(lines) if line.startswith(f"\u2014 {name} "))
    head, _, encoded = lines[at].rpartition(" ")
    flipped = "B" if encoded[-12] != "B" else "C"
    lines[at] = f"{head} {encoded[:-12]}{flipped}{encoded[-11:]}"
    return "\n".join(lines).encode()


def test_a_policy_is_read_as_its_standard_shows():
    policy = parse_policy(TWO_LEVELS.encode())

    assert [key.vkey for key in policy.logs] == [LOG.vkey]
    assert [each.shown for each in policy.witnesses] == ["X1", "X2", "X3", "Y1", "Y2", "Y3"]
    assert [(each.name, each.threshold) for each in policy.groups] == [
        (b"X", 2),
        (b"Y", 1),
        (b"both", 2),
    ]
    assert policy.quorum == b"both"
    assert policy.witnesses[0].url == ""
    assert policy.witnesses[3].url == "https://w3.example.net/"


@pytest.mark.parametrize("chosen", range(64))
def test_every_set_of_witnesses_is_judged_as_the_groups_say(chosen):
    policy = parse_policy(TWO_LEVELS.encode())
    cosigned = [n for n in range(6) if chosen >> n & 1]

    standing = evaluate_policy(policy, note_by(*(W[n] for n in cosigned)))

    enough = sum(n < 3 for n in cosigned) >= 2 and any(n >= 3 for n in cosigned)
    assert standing.is_met is enough
    assert len(standing.cosigned) == len(cosigned)
    assert len(standing.absent) == 6 - len(cosigned)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["quorum nobody"], "not defined"),
        (["quorum none", "quorum none"], "one `quorum"),
        (["quorum"], "one `quorum"),
        (["quorum none none"], "one `quorum"),
        (["# quorum none"], "no quorum line"),
        (["log", "quorum none"], "log <vkey>"),
        ([f"log {LOG.vkey} https://a b", "quorum none"], "log <vkey>"),
        ([f"log {W[0].vkey}", "quorum none"], "as logs sign"),
        ([f"log {LOG.vkey}", f"log {LOG.vkey}", "quorum none"], "line 2: the public key"),
        ([f"witness a {LOG.vkey}", "quorum none"], "as witnesses cosign"),
        ([f"witness {W[0].vkey}", "quorum none"], "witness <name>"),
        ([f"witness none {W[0].vkey}", "quorum none"], "is taken"),
        ([f"witness a {W[0].vkey}", f"witness a {W[1].vkey}", "quorum a"], "is taken"),
        ([f"witness a {W[0].vkey}", f"witness b {W[0].vkey}", "quorum a"], "the public key"),
        (
            [f"witness a {W[0].vkey}", f"witness b {witness_signer(1, 'other').vkey}", "quorum a"],
            "the public key of `other`",
        ),
        (
            [
                f"log {LOG.vkey}",
                "witness a "
                + Ed25519Signer.from_seed("x", LOG.seed, kind=ED25519_COSIGNATURE).vkey,
                "quorum a",
            ],
            "the public key",
        ),
        (["witness a not+a+vkey", "quorum a"], "line 1"),
        ([f"witness a {W[0].vkey}", "group g 0 a", "quorum g"], "1 to 1"),
        ([f"witness a {W[0].vkey}", "group g 2 a", "quorum g"], "1 to 1"),
        ([f"witness a {W[0].vkey}", "group g 01 a", "quorum g"], "leading zero"),
        ([f"witness a {W[0].vkey}", "group g 1_ a", "quorum g"], "decimal"),
        ([f"witness a {W[0].vkey}", "group g +1 a", "quorum g"], "decimal"),
        ([f"witness a {W[0].vkey}", "group g \u0661 a", "quorum g"], "decimal"),
        ([f"witness a {W[0].vkey}", "group g most a", "quorum g"], "decimal"),
        ([f"witness a {W[0].vkey}", "group g any", "quorum g"], "group <name>"),
        ([f"witness a {W[0].vkey}", "group g any a a", "quorum g"], "member of a group already"),
        ([f"witness a {W[0].vkey}", "group g any g", "quorum g"], "not defined"),
        (["group g any none", "quorum g"], "not defined"),
        (["group g any a", f"witness a {W[0].vkey}", "quorum g"], "not defined"),
        (["quorum a", f"witness a {W[0].vkey}"], "not defined"),
        (
            [f"witness a {W[0].vkey}", "group g any a", "group h any a", "quorum g"],
            "member of a group already",
        ),
        ([f"witness a {W[0].vkey}", "group a any a", "quorum a"], "is taken"),
        (["Quorum none"], "expected log, witness"),
        (["threshold 1", "quorum none"], "expected log, witness"),
        ([f"witness a {W[0].vkey}", "quorum A"], "not defined"),
        ([f"witness K {W[0].vkey}", "quorum \u212a"], "not defined"),
        ([f"witness a\u00a0{W[0].vkey}", "quorum a"], "witness <name>"),
    ],
)
def test_what_the_format_does_not_allow_is_refused(lines, says):
    with pytest.raises(WitnessPolicyError) as caught:
        parsed(*lines)

    assert says in str(caught.value)


@pytest.mark.parametrize("octet", [*range(9), *range(11, 32), 0x7F])
def test_control_characters_are_refused_even_in_comments(octet):
    with pytest.raises(WitnessPolicyError, match="control"):
        parse_policy(b"# " + bytes([octet]) + b"\nquorum none\n")


@pytest.mark.parametrize("octet", [9, 0x20, 0x7E, 0x80, 0xFF])
def test_every_other_octet_may_stand_in_a_comment(octet):
    assert parse_policy(b"# " + bytes([octet]) + b"\nquorum none\n").quorum is None


def test_a_file_that_was_cut_off_or_is_huge_is_refused():
    whole = TWO_LEVELS.encode()

    for size in range(len(whole)):
        if whole[size - 1 : size] != b"\n" or size == 0:
            with pytest.raises(WitnessPolicyError):
                parse_policy(whole[:size])
    with pytest.raises(WitnessPolicyError, match="at most"):
        parse_policy(b"#" * MAX_POLICY_BYTES + b"\n")


def test_white_space_is_spaces_and_tabs_and_names_are_opaque_octets():
    name = b"\xe2\x84\xaa\xff"
    line = b" \t witness\t" + name + b"  " + W[0].vkey.encode() + b" \t\n"

    policy = parse_policy(line + b"\t\n \t# a comment\nquorum " + name + b" \n")

    assert policy.quorum == name
    assert evaluate_policy(policy, note_by(W[0]), [LOG.key]).is_met


def test_as_many_logs_witnesses_and_groups_as_the_standard_asks_for_are_read():
    lines = []
    for n in range(40):
        lines.append(f"log {Ed25519Signer.from_seed(f'l{n}', bytes([n, 1]) * 16).vkey}")
        signer = Ed25519Signer.from_seed(f"w{n}", bytes([n, 2]) * 16, kind=ED25519_COSIGNATURE)
        lines.append(f"witness w{n} {signer.vkey}")
        lines.append(f"group g{n} all w{n}{f' g{n - 1}' if n else ''}")

    policy = parsed(*lines, "quorum g39")

    assert policy.is_met_by({f"w{n}".encode() for n in range(40)})
    assert not policy.is_met_by({f"w{n}".encode() for n in range(1, 40)})


def test_a_line_under_the_logs_own_name_is_no_witness():
    own = Ed25519Signer.from_seed(ORIGIN, b"\xa2" * 32, kind=ED25519_COSIGNATURE)
    for signer in (own, LOG_ML_DSA):
        policy = parsed(f"log {LOG.vkey}", f"witness own {signer.vkey}", "quorum own")
        note = note_by(signer)

        standing = evaluate_policy(policy, note)

        assert open_note(note, [signer.key]).verified  # the line itself is good
        assert standing.is_signed_by_log
        assert not standing.is_met
        assert standing.cosigned == ()


def test_the_logs_key_under_another_name_is_no_witness():
    posing = Ed25519Signer.from_seed("w.example.net", LOG.seed, kind=ED25519_COSIGNATURE)
    policy = parsed(f"witness posing {posing.vkey}", "quorum posing")

    assert not evaluate_policy(policy, note_by(posing), [LOG.key]).is_met


def test_a_cosignature_without_a_time_does_not_count():
    untimed = QUANTUM.sign(
        b"subtree/v1\n\0"
        + bytes([len(QUANTUM.name)])
        + QUANTUM.name.encode()
        + bytes(8)
        + bytes([len(ORIGIN)])
        + ORIGIN.encode()
        + bytes(16)
        + EMPTY_ROOT
    )
    line = base64.b64encode(QUANTUM.key.id + bytes(8) + untimed).decode()
    note = note_by() + f"\u2014 {QUANTUM.name} {line}\n".encode()
    policy = parsed(f"log {LOG.vkey}", f"witness q {QUANTUM.vkey}", "quorum q")

    assert open_note(note, [QUANTUM.key]).verified[0].timestamp == 0
    assert evaluate_policy(policy, note).faulty == (QUANTUM.name,)
    assert not evaluate_policy(policy, note).is_met
    assert evaluate_policy(policy, note_by(QUANTUM)).is_met


def test_a_listed_witness_whose_line_fails_spoils_the_note_and_is_named():
    policy = parsed(
        f"log {LOG.vkey}", f"witness a {W[0].vkey}", f"witness b {W[1].vkey}",
        "group g any a b", "quorum g",
    )  # fmt: skip

    standing = evaluate_policy(policy, forged(note_by(W[0], W[1]), W[1].name))

    assert standing.faulty == (W[1].name,)
    assert standing.is_quorum
    assert not standing.is_met


def test_any_listed_log_may_have_signed_and_no_other():
    other = Ed25519Signer.from_seed("other.example.org/log", b"\xa3" * 32)
    both = parsed(f"log {other.vkey}", f"log {LOG.vkey}", "quorum none")
    only_other = parsed(f"log {other.vkey}", "quorum none")
    unlisted = parsed("quorum none")

    assert evaluate_policy(both, note_by()).is_met
    assert not evaluate_policy(only_other, note_by()).is_met
    assert not evaluate_policy(only_other, note_by(), [LOG.key]).is_met
    assert not evaluate_policy(unlisted, note_by()).is_met
    assert evaluate_policy(unlisted, note_by(), [LOG.key]).is_met


def test_a_log_that_signs_under_another_name_than_the_origin_did_not_sign():
    misnamed = Ed25519Signer.from_seed("other.example.org/log", b"\xa3" * 32)
    policy = parsed(f"log {misnamed.vkey}", "quorum none")

    assert not evaluate_policy(policy, note_by(log=misnamed)).is_met


@given(st.data())
def test_more_cosignatures_never_make_a_policy_fail(data):
    threshold = data.draw(st.integers(1, 4))
    outer = data.draw(st.integers(1, 3))
    policy = parsed(
        *(f"witness w{n} {W[n].vkey}" for n in range(6)),
        f"group a {threshold} w0 w1 w2 w3",
        f"group b {outer} a w4 w5",
        "quorum b",
    )
    names = [f"w{n}".encode() for n in range(6)]
    met = {chosen: policy.is_met_by(chosen) for r in range(7)
           for chosen in map(frozenset, itertools.combinations(names, r))}  # fmt: skip

    assert all(
        met[larger] or not met[smaller] for smaller in met for larger in met if smaller < larger
    )


@given(st.binary(max_size=300))
def test_arbitrary_octets_are_read_or_refused_in_our_words(raw):
    with contextlib.suppress(WitnessPolicyError):
        parse_policy(raw)


@given(st.lists(st.sampled_from(TWO_LEVELS.split("\n")), max_size=15))
def test_shuffled_lines_are_read_or_refused_in_our_words(lines):
    with contextlib.suppress(WitnessPolicyError):
        parsed(*lines)


def test_a_note_that_is_none_is_refused():
    with pytest.raises(NoteError):
        evaluate_policy(parsed("quorum none"), b"nothing")


def test_vectors_of_public_witnesses_meet_the_policies_that_they_should(vector_folder):
    folder, ran = vector_folder("tlog-proof-markovian"), 0
    lines = (folder / "witness_keys.txt").read_text().split("\n")
    log, *witnesses = [VerifyKey.parse(each) for each in lines if each and each[0] != "#"]
    names = [f"w{number}" for number in range(len(witnesses))]
    head = [f"log {log.vkey}"]
    head += [f"witness {n} {key.vkey}" for n, key in zip(names, witnesses, strict=True)]
    checkpoints = (
        parse_proof((folder / "proof_7271.tlog-proof").read_bytes()).checkpoint,
        (folder / "checkpoint_7397.txt").read_bytes(),
    )
    for note in checkpoints:
        everyone = parsed(*head, f"group g all {' '.join(names)}", "quorum g")
        standing = evaluate_policy(everyone, note)
        assert standing.is_met
        assert len(standing.cosigned) == 7
        one_more = parsed(
            *head, f"witness us {W[0].vkey}", f"group g all {' '.join(names)} us", "quorum g"
        )
        assert not evaluate_policy(one_more, note).is_met
        assert [each.shown for each in evaluate_policy(one_more, note).absent] == ["us"]
        ran += 1
    print(f"tlog-proof-markovian: {ran} checkpoints")  # noqa: T201 — the count is the point
    assert ran == 2


def test_vectors_of_sunlight_witnesses_meet_the_policies_that_they_should(vector_folder):
    folder, ran = vector_folder("tlog-cosignature-sunlight"), 0
    for description in sorted(folder.rglob("*.v0.json")):
        (vkey,) = json.loads(description.read_bytes())["verifier_keys"]
        (path,) = description.parent.glob("*/checkpoint")
        policy = parsed(f"witness it {vkey}", f"witness us {W[0].vkey}", "quorum it")
        standing = evaluate_policy(policy, path.read_bytes())
        assert standing.is_quorum
        assert not standing.is_signed_by_log  # its log's key type is not carried
        assert not standing.is_met
        ran += 1
    print(f"tlog-cosignature-sunlight: {ran} checkpoints")  # noqa: T201 — the count is the point
    assert ran == 3


class TestTheVerifier:
    """Level L4 under the auditor's own policy: pass, fail, not checked."""

    @pytest.fixture
    def check(self, world, tmp_path):
        """Export a log that W1, W2 and the log itself cosigned, and verify it under a policy."""
        quantum = MlDsa44Signer.from_seed(world.origin, b"\xc0" * 32)
        entries = world.entries(world.story())
        note = world.checkpoint(
            entries, signers=[world.signer, quantum, W[0], W[1]], timestamp=TIME
        )
        path = tmp_path / "export.zip"

        def run(*lines, vkeys=(world.vkey,), note=note):
            path.write_bytes(world.export(entries, checkpoint=note))
            report = verify(path, vkeys, witness_policy=parsed(*lines))
            return next(each for each in report.levels if each.id == "L4"), report.exit_code

        run.note, run.quantum, run.path = note, quantum, path
        return run

    TWO = (f"witness a {W[0].vkey}", f"witness b {W[1].vkey}")
    THREE = (*TWO, f"witness c {W[2].vkey}")

    def test_passes_when_the_quorum_cosigned(self, check, world):
        level, code = check(*self.THREE, "group g 2 a b c", "quorum g")

        assert (level.outcome, code) == ("pass", 0)
        assert level.detail.endswith("by a, b")
        assert check(f"log {world.vkey}", *self.TWO, "quorum a")[1] == 0

    @pytest.mark.parametrize(
        "lines",
        [
            (*THREE, "group g all a b c", "quorum g"),
            (*THREE, "quorum c"),
            (*THREE, "group g any a b", "group h all g c", "quorum h"),
            (f"log {LOG.vkey}", *TWO, "quorum a"),  # another log
        ],
    )
    def test_fails_when_it_did_not(self, check, lines):
        level, code = check(*lines)

        assert (level.outcome, code) == ("fail", 3)

    def test_fails_when_only_the_log_itself_did(self, check, world):
        own = check.quantum.vkey

        level, code = check(f"witness own {own}", "quorum own")

        assert (level.outcome, code) == ("fail", 3)
        with pytest.raises(WitnessPolicyError):
            parsed(f"log {own}", f"witness own {own}", "quorum own")

    def test_fails_when_a_listed_line_does_not_verify_even_above_the_quorum(self, check):
        level, code = check(
            *self.TWO, "group g any a b", "quorum g", note=forged(check.note, W[1].name)
        )

        assert (level.outcome, code) == ("fail", 3)
        assert W[1].name in level.detail

    def test_checks_nothing_when_the_policy_asks_for_nobody(self, check):
        level, code = check(*self.TWO, "quorum none")

        assert (level.outcome, code) == ("not checked", 0)
        assert "quorum none" in level.detail

    def test_checks_nothing_when_no_key_of_the_log_is_known(self, check):
        level, code = check(*self.TWO, "quorum a", vkeys=())

        assert (level.outcome, code) == ("not checked", 3)

    def test_asks_for_given_keys_beside_the_policy(self, check, world):
        lines = (*self.TWO, "quorum a")

        assert check(*lines, vkeys=(world.vkey, W[1].vkey))[0].outcome == "pass"
        assert check(*lines, vkeys=(world.vkey, W[2].vkey))[0].outcome == "fail"
        assert check(*self.THREE, "quorum c", vkeys=(world.vkey, W[1].vkey))[0].outcome == "fail"

    @pytest.mark.parametrize("program", ["command", "single file"])
    def test_takes_the_policy_from_a_file(self, check, world, tmp_path, program):
        check("quorum none")  # writes the export
        policy, script = tmp_path / "policy.txt", tmp_path / "placet_verify.py"
        script.write_bytes(build())
        start = [script] if program == "single file" else ["-m", "audit", "verify"]

        def run(*lines):
            policy.write_text("".join(f"{line}\n" for line in lines))
            words = [*start, check.path, "--vkey", world.vkey, "--witness-policy", policy]
            done = subprocess.run(
                [sys.executable, *map(str, words)],
                cwd=ROOT, capture_output=True, text=True, check=False,
            )  # fmt: skip
            return done.returncode, done.stdout + done.stderr

        met, said = run(*self.TWO, "group g all a b", "quorum g")
        assert met == 0, said
        assert "the quorum of the witness policy is met, by a, b" in said
        assert run(*self.THREE, "quorum c")[0] == 3
        assert run("quorum")[0] == 2
        assert "policy line 1" in run("quorum")[1]
        assert run()[0] == 2
