"""Whose policies decide: each bundle says what its entry says, and given keys signed it, or not."""

import json
from dataclasses import replace

import pytest

from audit.__main__ import main
from audit.canonical import canonical, digest
from audit.dsse import keyid_of, pae
from audit.event import Actor
from audit.keys import Ed25519Signer, encode_base64
from audit.report import Exit, to_text
from audit.signers import POLICY_MANIFEST_TYPE, Trusted
from audit.verify import verify

MAINTAINERS = [
    Ed25519Signer.from_seed(f"maintainer-{n}", bytes([n]) * 32, kind=1) for n in (21, 22, 23)
]
KEYS = tuple(signer.key for signer in MAINTAINERS)
OTHER = "sha256:" + "0" * 64


class House:
    """Puts bundles in force as an officer does, in a world that has a shipped policy."""

    def __init__(self, world):
        self.world = world
        self.new = world.policy(version="2.0.0")
        self.shipped = world.document("policy")

    def manifest(self, texts, **changes):
        listed = [
            {"path": path, "digest": digest(text.encode()), "size_bytes": len(text.encode())}
            for path, text in sorted(texts.items())
        ]
        said = {
            "number": 1,
            "policy": self.world.document(self.new),
            "created": "2026-11-29T12:00:00Z",
            "effective": "2026-11-30",
            "rollback_of": None,
            "files": listed,
        }
        return {**said, **changes}

    def bundle(self, *signers, changes=None, **said):
        """Return the text of a bundle whose manifest these signed; changed after the signing."""
        files = {"eu/pack.yaml": "format: placet.pack/1"}
        manifest = self.manifest(files, **said)
        message = pae(POLICY_MANIFEST_TYPE, canonical(manifest))
        signatures = [
            {"keyid": keyid_of(one.key), "sig": encode_base64(one.sign(message))} for one in signers
        ]
        bundle = {
            "format": "placet.policy-bundle/1",
            "manifest": manifest,
            "files": files,
            "signatures": signatures,
        }
        return canonical(bundle | (changes or {})).decode()

    def activated(self, bundle, signers=MAINTAINERS[:2], **changes):
        data = {
            "bundle": self.world.document(bundle),
            "number": 1,
            "signers": [keyid_of(one.key) for one in signers],
        }
        event = self.world.enforced(self.new, **data | changes)
        return replace(event, actor=Actor("human", self.world.officer, "token"))

    def events(self, *events):
        return [*self.world.prologue(), *events]


@pytest.fixture
def house(world):
    return House(world)


@pytest.fixture
def rules(house, told):
    """Return a function that reads one act after the prologue and gives the broken rules."""
    return lambda *events: [each.rule for each in told(house.events(*events)).violations]


@pytest.fixture
def level(world, house, tmp_path):
    """Return a function that verifies events with trusted keys: (L9's outcome, status, detail)."""

    def run(*events, keys=KEYS, policies=None, without=()):
        policies = {house.shipped} if policies is None else policies
        entries = world.entries(house.events(*events))
        documents = {k: v for k, v in world.documents.items() if k not in without}
        path = tmp_path / "export.zip"
        path.write_bytes(world.export(entries, documents=documents))
        report = verify(path, [world.vkey], trusted=Trusted(tuple(keys), frozenset(policies)))
        found = report.levels[9]
        assert found.id == "L9", to_text(report)
        return str(found.outcome), report.exit_code, found.detail

    return run


class TestBundle:
    """Level L6: what the bundle says is what the entry says, without any key."""

    def test_an_honest_one_breaks_no_rule(self, house, rules):
        assert rules(house.activated(house.bundle(*MAINTAINERS[:2]))) == []

    @pytest.mark.parametrize(
        "said",
        [
            {"policy": OTHER},
            {"number": 2},
            {"rollback_of": 0},
            {"effective": "2026-12-01"},
            {"effective": None},
            {"files": []},
        ],
    )
    def test_a_manifest_that_says_something_else(self, house, rules, said):
        bundle = house.bundle(*MAINTAINERS[:2], **said)
        assert rules(house.activated(bundle)) == ["policy-binds-bundle"]

    def test_files_that_are_not_the_listed_ones(self, house, rules):
        bundle = house.bundle(*MAINTAINERS[:2], changes={"files": {"eu/pack.yaml": "milder"}})
        assert rules(house.activated(bundle)) == ["policy-binds-bundle"]

    def test_signers_who_did_not_sign(self, house, rules):
        event = house.activated(house.bundle(MAINTAINERS[0]))
        assert rules(event) == ["policy-binds-bundle"]

    def test_a_shadow_may_try_it_before_its_day(self, house, rules):
        bundle = house.bundle(*MAINTAINERS[:2], effective="2027-01-01")
        assert rules(house.activated(bundle, mode="shadow")) == []

    @pytest.mark.parametrize(
        "changes",
        [
            {"format": "placet.policy-bundle/2"},
            {"manifest": None},
            {"files": {"a": 1}},
            {"files": []},
            {"signatures": None},
            {"signatures": [{"keyid": 1, "sig": ""}]},
        ],
    )
    def test_one_that_cannot_be_read(self, house, rules, changes):
        event = house.activated(house.bundle(*MAINTAINERS[:2], changes=changes))
        assert rules(event) == ["policy-bundle-readable"]

    def test_a_shipped_policy_that_a_person_put_in_force(self, house, rules, world):
        event = world.enforced(house.new)
        event = replace(event, actor=Actor("human", world.officer, "token"))
        assert rules(event) == ["policy-ships-by-service"]

    def test_one_that_is_not_enclosed_is_missing(self, house, told):
        event = house.activated(house.bundle(*MAINTAINERS[:2]))
        del house.world.documents[event.data["bundle"]]
        invariants = told(house.events(event))
        assert (invariants.violations, invariants.missing) == ([], {event.data["bundle"]})


class TestSigned:
    """Level L9: two of the keys that the auditor gave signed every policy, or it does not pass."""

    def test_two_given_keys_signed_it(self, house, level):
        event = house.activated(house.bundle(*MAINTAINERS[:2]))
        assert level(event)[:2] == ("pass", Exit.VERIFIED)

    def test_without_keys_it_is_not_checked(self, house, level):
        event = house.activated(house.bundle(*MAINTAINERS[:2]))
        assert level(event, keys=(), policies=())[:2] == ("not checked", Exit.VERIFIED)

    @pytest.mark.parametrize("keys", [KEYS[:1], KEYS[2:]])
    def test_fewer_than_two_given_keys_signed_it(self, house, level, keys):
        event = house.activated(house.bundle(*MAINTAINERS[:2]))
        outcome, status, detail = level(event, keys=keys)
        assert (outcome, status) == ("fail", Exit.UNTRUSTED)
        assert detail.endswith(f"signed by {len(set(keys) & set(KEYS[:2]))} of the given keys")

    def test_an_operator_s_own_keys_are_none_of_the_given(self, house, level):
        forgers = [Ed25519Signer.from_seed(f"maintainer-{n}", bytes([n]) * 32) for n in (31, 32)]
        event = house.activated(house.bundle(*forgers), forgers)
        assert level(event)[:2] == ("fail", Exit.UNTRUSTED)

    def test_one_key_under_two_names_is_one_signer(self, house, level):
        twice = [Ed25519Signer.from_seed(name, b"\x21" * 32) for name in ("a", "b")]
        event = house.activated(house.bundle(*twice), twice)
        outcome, status, _ = level(event, keys=[one.key for one in twice])
        assert (outcome, status) == ("fail", Exit.UNTRUSTED)

    @pytest.mark.parametrize("spoil", [lambda sig: sig[:-4] + "AAA=", lambda _: "no base64"])
    def test_a_given_key_s_signature_that_is_wrong(self, house, level, spoil):
        bundle = json.loads(house.bundle(*MAINTAINERS[:2]))
        bundle["signatures"][0]["sig"] = spoil(bundle["signatures"][0]["sig"])
        event = house.activated(canonical(bundle).decode())
        outcome, status, detail = level(event)
        assert (outcome, status) == ("fail", Exit.TAMPERED)
        assert "does not verify" in detail

    def test_a_manifest_that_was_changed_after_signing(self, house, level):
        bundle = json.loads(house.bundle(*MAINTAINERS[:2]))
        bundle["manifest"]["created"] = "2026-11-30T00:00:00Z"
        event = house.activated(canonical(bundle).decode())
        assert level(event)[:2] == ("fail", Exit.TAMPERED)

    def test_what_ships_is_trusted_only_by_its_digest(self, house, level):
        outcome, status, detail = level(policies=())
        assert (outcome, status) == ("not checked", Exit.UNTRUSTED)
        assert house.shipped in detail
        assert level()[:2] == ("pass", Exit.VERIFIED)

    def test_a_milder_policy_said_to_ship_is_not_the_named_one(self, house, level, world):
        outcome, status, _ = level(world.enforced(house.new))
        assert (outcome, status) == ("not checked", Exit.UNTRUSTED)

    def test_a_bundle_that_is_not_enclosed_is_not_checked(self, house, level):
        event = house.activated(house.bundle(*MAINTAINERS[:2]))
        outcome, status, _ = level(event, without=[event.data["bundle"]])
        assert (outcome, status) == ("not checked", Exit.UNTRUSTED)

    def test_a_log_without_any_policy_is_not_checked(self, world, tmp_path):
        path = tmp_path / "export.zip"
        path.write_bytes(world.export(world.entries([world.started()])))
        found = verify(path, [world.vkey], trusted=Trusted(KEYS)).levels[9]
        assert (found.outcome, found.exit_code) == ("not checked", Exit.UNTRUSTED)

    def test_an_entry_that_cannot_be_read_leaves_it_unchecked(self, world, tmp_path):
        path = tmp_path / "export.zip"
        path.write_bytes(world.export([b"{}"]))
        found = verify(path, [world.vkey], trusted=Trusted(KEYS)).levels[9]
        assert found.outcome == "not checked"


class TestCommand:
    @pytest.fixture
    def run(self, world, house, tmp_path, capsys):
        event = house.activated(house.bundle(*MAINTAINERS[:2]))
        path = tmp_path / "export.zip"
        path.write_bytes(world.export(world.entries(house.events(event))))

        def run(*options):
            status = main(["verify", str(path), "--vkey", world.vkey, *options])
            return status, capsys.readouterr()

        return run

    def test_signers_come_from_options_and_a_file(self, run, house, tmp_path):
        file = tmp_path / "maintainers.txt"
        file.write_text(f"# of the house\n{KEYS[0].vkey}\n")
        one, two = ("--policy-signer-file", str(file)), ("--policy-signer", KEYS[1].vkey)
        status, told = run(*one, *two, "--policy", house.shipped)
        assert (status, "L9 policies     pass" in told.out) == (0, True)
        assert run(*one, "--policy", house.shipped)[0] == Exit.UNTRUSTED

    def test_what_is_no_digest_and_no_key_of_a_signer_is_refused(self, run, world):
        witness = Ed25519Signer.from_seed("w", b"\x09" * 32, kind=4).vkey
        for options in (["--policy", "sha256:1"], ["--policy-signer", witness]):
            status, told = run(*options)
            assert status == Exit.MALFORMED
            assert told.err.startswith("placet verify: ")
