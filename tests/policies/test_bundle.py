"""A bundle is the same bytes for the same packs, and is read whole or not at all."""

import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.canonical import canonical, digest
from policies.__main__ import main
from policies.bundle import Bundle, BundleError, build
from policies.load import PACKS, load_policy, read_packs
from policies.rule import RuleError

AT = "2026-11-30T12:00:00Z"
MADE = build(PACKS, number=7, created=AT, effective="2026-12-01")
DATA = MADE.to_bytes()


def changed(change):
    document = json.loads(DATA)
    change(document)
    return canonical(document)


def test_the_same_folder_gives_the_same_bytes(tmp_path):
    shutil.copytree(PACKS, tmp_path / "packs")
    again = build(tmp_path / "packs", number=7, created=AT, effective="2026-12-01")
    assert again.to_bytes() == DATA
    assert Bundle.from_bytes(DATA) == MADE
    assert Bundle.from_bytes(DATA).to_bytes() == DATA


def test_it_names_the_policy_and_gives_it_back(tmp_path):
    assert MADE.manifest.policy == load_policy().digest
    MADE.write_to(tmp_path)
    assert load_policy([tmp_path]).digest == MADE.manifest.policy
    assert len(read_packs([tmp_path])) == len(read_packs([PACKS]))


def test_one_pack_is_a_bundle_too(tmp_path):
    made = build(PACKS / "eu-baseline", number=1, created=AT, effective="2026-12-01")
    assert {path.partition("/")[0] for path in made.files} == {"eu-baseline"}
    made.write_to(tmp_path)
    assert load_policy([tmp_path]).digest == made.manifest.policy


def test_a_signature_changes_the_bundle_and_not_what_is_signed():
    one = MADE.signed("b+01", "c2ln").signed("a+01", "c2ln")
    assert one.manifest.to_bytes() == MADE.manifest.to_bytes()
    assert one.digest != MADE.digest
    assert [keyid for keyid, _ in one.signatures] == ["a+01", "b+01"]
    assert one.signed("a+01", "bmV3").signatures == (("a+01", "bmV3"), ("b+01", "c2ln"))
    assert Bundle.from_bytes(one.to_bytes()) == one


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("signatures"),
        lambda d: d.update(extra=1),
        lambda d: d.update(format="placet.policy-bundle/2"),
        lambda d: d.update(files={}),
        lambda d: d.update(files=[]),
        lambda d: d["files"].update({"eu-baseline/pack.yaml": "other"}),
        lambda d: d["files"].update({"eu-baseline/pack.yaml": 7}),
        lambda d: d["files"].update({"../x": "x"}),
        lambda d: d["files"].update({"a/b/c": "x"}),
        lambda d: d["files"].update({"a/.x": "x"}),
        lambda d: d["files"].pop("eu-baseline/pack.yaml"),
        lambda d: d["manifest"].update(number=0),
        lambda d: d["manifest"].update(number=True),
        lambda d: d["manifest"].update(number="7"),
        lambda d: d["manifest"].update(rollback_of=7),
        lambda d: d["manifest"].update(rollback_of=-1),
        lambda d: d["manifest"].update(policy="sha256:x"),
        lambda d: d["manifest"].update(created="2026-11-30"),
        lambda d: d["manifest"].update(effective="2026-02-30"),
        lambda d: d["manifest"].update(effective="20261201"),
        lambda d: d["manifest"].update(effective=None),
        lambda d: d["manifest"].update(more=1),
        lambda d: d["manifest"].update(files=None),
        lambda d: d["manifest"]["files"].reverse(),
        lambda d: d["manifest"]["files"][0].update(size_bytes=True),
        lambda d: d.update(manifest=[]),
        lambda d: d.update(signatures={}),
        lambda d: d.update(signatures=[{"keyid": "a", "sig": "x", "more": 1}]),
        lambda d: d.update(signatures=[{"keyid": k, "sig": "x"} for k in "ba"]),
        lambda d: d.update(signatures=[{"keyid": "a", "sig": "x"}] * 2),
    ],
)
def test_anything_else_is_refused(change):
    with pytest.raises(BundleError, match="bundle: "):
        Bundle.from_bytes(changed(change))


@given(st.binary(max_size=200))
def test_bytes_that_are_no_bundle_are_refused(data):
    with pytest.raises(BundleError):
        Bundle.from_bytes(data)


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_one_changed_byte_is_refused_or_is_another_bundle(place, change):
    data = bytearray(DATA)
    data[place] ^= change
    try:
        other = Bundle.from_bytes(bytes(data))
    except BundleError:
        return
    assert other.manifest.to_bytes() != MADE.manifest.to_bytes()
    assert other.digest == digest(bytes(data))


def test_packs_that_do_not_load_are_no_bundle(tmp_path):
    with pytest.raises(RuleError):
        build(tmp_path, number=1, created=AT, effective="2026-12-01")


def test_the_commands_build_and_inspect(tmp_path, capsys):
    out = tmp_path / "policy-7.json"
    arguments = ["build", str(PACKS), "--number", "7", "--created", AT, "--out", str(out)]

    assert main([*arguments, "--effective", "2026-12-01", "--json"]) == 0
    assert out.read_bytes() == DATA
    assert json.loads(capsys.readouterr().out)["policy"] == MADE.manifest.policy
    assert main(arguments) == 2  # what is there is not written over
    capsys.readouterr()
    assert main(["inspect", str(out)]) == 0
    assert "nobody yet" in capsys.readouterr().out
    out.write_bytes(DATA + b" ")
    assert main(["inspect", str(out)]) == 2
    assert "canonical" in capsys.readouterr().err
