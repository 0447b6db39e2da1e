"""Which policy decides: two maintainers sign, an officer puts it in force, and all of it counts."""

import functools
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from audit.canonical import canonical
from audit.keys import Ed25519Signer, VerifyKey
from audit.signers import Trusted
from audit.verify import verify
from policies.bundle import Bundle, build
from policies.gate import replay
from policies.load import PACKS
from service.archive import load
from service.cli import main
from service.installation import build as wire
from service.keys import KeyFileError
from service.policy_bundles import sign, trusted_keys
from service.tables import StoredDecision

ANA, BEN, EVE = (Ed25519Signer.from_seed(name, bytes([n]) * 32) for n, name in enumerate(
    ("ana", "ben", "eve"), 1
))  # fmt: skip
ANA_AGAIN = Ed25519Signer.from_seed("ana-at-home", b"\x01" * 32)
RULE = "budget-nearly-used.yaml"
REASON = "decided by the house on 30 November"


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "maintainers.txt"
    path.write_text("\n".join(["# who may sign", *(k.vkey for k in (ANA, BEN, ANA_AGAIN))]))
    return path


@pytest.fixture
def world(make_world, keys):
    return make_world(policy_keys=keys)


@functools.cache
def packed(change=""):
    """The shipped packs as an unsigned bundle: as they are, or without a rule, or broken."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        packs = Path(folder) / "packs"
        shutil.copytree(PACKS, packs)
        if change == "less":
            (packs / "eu-baseline" / RULE).unlink()
        return build(packs, number=1, created="2026-11-30T10:00:00Z", effective="2026-11-30")


def bundle(number=1, change="", signers=(ANA, BEN), **manifest):
    made = packed(change)
    made = replace(made, manifest=replace(made.manifest, number=number, **manifest))
    return functools.reduce(sign, signers, made)


def with_file(made, path, text, signers=(ANA, BEN)):
    """Change a file and everything that follows from it but the policy, and sign again."""
    files = {**made.files, path: text}
    document = json.loads(replace(made, files=files, signatures=()).to_bytes())
    from audit.canonical import digest

    document["manifest"]["files"] = [
        {"path": p, "digest": digest(files[p].encode()), "size_bytes": len(files[p].encode())}
        for p in sorted(files)
    ]
    changed = Bundle.from_bytes(canonical(document))
    return functools.reduce(sign, signers, changed)


def body(made, mode="enforce"):
    return {"bundle": json.loads(made.to_bytes()), "mode": mode, "reason": REASON}


def activate(world, made, mode="enforce", who="olaf"):
    return world.post("/v1/policies", who, body(made, mode))


def rejected(world, request_body, who="olaf"):
    """Send what is rejected; nothing of it counts, and the entry and the probes say so."""
    before = world.in_force
    answer = world.ask("POST", "/v1/policies", who, request_body)
    assert answer.status == 422, answer.content
    assert world.in_force == before
    entry = world.entries()[-1]
    assert entry.action == "policy.rejected"
    assert entry.data["still"] == before.policy.digest
    assert entry.data["reason_code"] == answer.problem["reason_code"]
    ready = world.get("/readyz", None) if world.wired.ledger.latest() else None
    assert ready is None or ready["rejected"]["reason_code"] == entry.data["reason_code"]
    return answer.problem["reason_code"]


def replayed(world, job):
    with world.wired.transactions.read() as session:
        row = session.get_one(StoredDecision, job["decision"]["id"])
        names = (row.record_digest, row.policy_digest, row.reference_digest)
        return replay(*(load(session, name) for name in names))


def test_a_bundle_that_two_maintainers_signed_is_in_force_at_once(world):
    old = world.submit()
    made = bundle(change="less")

    done = activate(world, made)

    assert done["policy_digest"] == made.manifest.policy == world.in_force.policy.digest
    assert done["signers"] == ["ana+" + VerifyKey.parse(ANA.vkey).id.hex(),
                               "ben+" + VerifyKey.parse(BEN.vkey).id.hex()]  # fmt: skip
    entry = world.entries()[-1]
    assert entry.action == "policy.activated"
    assert (entry.data["number"], entry.data["bundle"]) == (1, made.digest)
    assert (entry.actor.ref, list(entry.sealed)) == (world.ids["olaf"], ["reason"])
    new = world.submit()
    assert replayed(world, old).identical
    assert replayed(world, new).identical
    assert old["decision"]["policy_digest"] != new["decision"]["policy_digest"]


def test_the_whole_bundle_is_kept_for_auditors(world):
    made = bundle()
    done = activate(world, made)

    with world.wired.transactions.read() as session:
        kept = Bundle.from_bytes(load(session, done["bundle_digest"]))
    assert kept == made
    assert [keyid.partition("+")[0] for keyid, _ in kept.signatures] == ["ana", "ben"]


def test_another_process_takes_a_bundle_at_its_next_transaction(world):
    other = wire(world.wired.settings, clock=world.clock)
    activate(world, bundle(change="less"))

    with other.transactions.read() as session:
        seen = other.gate.current(session)
    other.start()

    other.database.dispose()
    assert seen.policy.digest == packed("less").manifest.policy
    assert world.in_force.policy.digest == seen.policy.digest
    assert world.kinds().count("policy.activated") == 2


def test_an_approval_is_stale_when_the_policy_changes_before_the_dispatch(world):
    job = world.approved_job()
    activate(world, bundle(change="less"))

    world.worker.work()

    again = world.job(job["id"])
    assert (again["state"], again["decision"]["approvals"]) == ("awaiting_approval", [])
    assert not world.engine.runs


@pytest.mark.parametrize("who", ["ada", "vera", "root"])
def test_only_officers_put_a_policy_in_force(world, who):
    answer = world.ask("POST", "/v1/policies", who, body(bundle(change="less")))

    assert answer.status == 403
    assert "policy.rejected" not in world.kinds()
    assert world.in_force.number == 0


@pytest.mark.parametrize(
    ("signers", "code"),
    [
        ((), "quorum"),
        ((ANA,), "quorum"),
        ((ANA, EVE), "quorum"),
        ((ANA, ANA_AGAIN), "quorum"),
    ],
)
def test_too_few_maintainers_signed(world, signers, code):
    assert rejected(world, body(bundle(signers=signers))) == code


def test_a_signature_over_something_else(world):
    other = bundle(number=2)
    forged = replace(bundle(number=3), signatures=other.signatures)
    assert rejected(world, body(forged)) == "signature"


def test_an_installation_that_trusts_nobody(make_world):
    assert rejected(make_world(), body(bundle())) == "no_keys"


def test_a_file_that_is_not_the_signed_one(world):
    request = body(bundle())
    request["bundle"]["files"]["eu-baseline/pack.yaml"] += "\n"
    assert rejected(world, request) == "malformed"


@pytest.mark.parametrize("path", ["../pack.yaml", "/etc/passwd", "a/b/c.yaml", "eu-baseline/.x"])
def test_a_path_that_leads_elsewhere(world, path):
    request = body(bundle())
    request["bundle"]["files"][path] = "x"
    assert rejected(world, request) == "malformed"


def test_packs_that_do_not_load(world):
    broken = with_file(bundle(), f"eu-baseline/{RULE}", "format: placet.rule/1\nid: x\n")
    assert rejected(world, body(broken)) == "lint"


def test_packs_whose_policy_is_not_the_named_one(world):
    assert rejected(world, body(bundle(policy=packed("less").manifest.policy))) == "policy_digest"


def test_packs_whose_own_tests_fail(world):
    path = f"eu-baseline/{RULE}"
    text = packed().files[path]
    assert "expect: violated" in text
    wrong = with_file(bundle(), path, text.replace("expect: violated", "expect: pass"))
    assert rejected(world, body(wrong)) == "tests"


def test_a_bundle_before_its_day_may_only_be_tried(world):
    early = bundle(change="less", effective="2027-01-01")
    assert rejected(world, body(early)) == "not_effective"
    assert activate(world, early, "shadow")["act"] == "shadow"
    world.clock.advance(days=40)
    assert activate(world, early)["act"] == "enforce"


def test_numbers_only_grow_and_what_was_left_comes_back_only_when_it_says_so(world):
    activate(world, bundle(4, "less"))
    assert rejected(world, body(bundle(4, "less"))) == "number"
    assert rejected(world, body(bundle(3))) == "number"
    assert rejected(world, body(bundle(5))) == "rollback"
    assert rejected(world, body(bundle(5, rollback_of=3))) == "rollback"
    activate(world, bundle(5, rollback_of=4))
    assert world.in_force.policy.digest == world.wired.shipped.offer.policy.digest
    assert world.entries()[-1].data["rollback_of"] == 4


def test_what_ships_does_not_take_the_place_of_a_bundle(world):
    activate(world, bundle(change="less"))
    before = world.kinds()

    world.restart(
        policy=replace(world.wired.shipped.offer.policy, rules=world.in_force.policy.rules[1:])
    )

    assert world.kinds() == before


def test_a_rejection_is_no_longer_shown_when_something_else_is_in_force(world):
    rejected(world, body(bundle(signers=())))
    assert world.get("/v1/policies/current")["rejected"]["reason_code"] == "quorum"

    activate(world, bundle(change="less"))

    assert world.get("/v1/policies/current")["rejected"] is None


def test_a_request_that_is_sent_twice_activates_once(world):
    answers = [
        world.ask("POST", "/v1/policies", "olaf", body(bundle(change="less")), key="the-same-key")
        for _ in "ab"
    ]
    assert [one.json for one in answers] == [answers[0].json] * 2
    assert world.counts()["policy_act"] == 2


class TestShadow:
    def test_it_decides_beside_and_changes_nothing(self, world):
        plain = world.submit()
        activate(world, bundle(change="less"), "shadow")

        job = world.submit()

        names = ("state", "findings")
        assert [job.get(n) for n in names] == [plain.get(n) for n in names]
        assert job["decision"]["policy_digest"] == plain["decision"]["policy_digest"]
        entry = world.entries()[-1]
        shadow = entry.data["shadow"]
        assert shadow["policy"] == packed("less").manifest.policy
        with world.wired.transactions.read() as session:
            record = json.loads(load(session, shadow["record"]))
        assert record["policy"] == shadow["policy"]
        assert record["facts"] == json.loads(json.dumps(record["facts"]))

    def test_the_differences_are_listed_by_rule_and_team(self, world):
        activate(world, bundle(change="less"), "shadow")
        world.submit()

        found = world.get("/v1/policies/shadow/differences", "vera")

        assert (found["decisions"], found["changed"], found["number"]) == (1, 0, 1)
        (rule,) = found["rules"]
        assert rule["rule"] == "budget.nearly-used"
        assert rule["outcomes"][0]["after"] == "not_asked"
        assert world.ask("GET", "/v1/policies/shadow/differences", "ada").status == 403

    def test_it_ends_with_whatever_is_enforced_next(self, world):
        activate(world, bundle(1, "less"), "shadow")
        activate(world, bundle(2, "less"))

        world.submit()

        assert "shadow" not in world.entries()[-1].data
        assert world.get("/v1/policies/current")["shadow"] is None


def test_an_export_of_all_this_verifies(world, tmp_path, monkeypatch):
    activate(world, bundle(1, "less"), "shadow")
    rejected(world, body(bundle(signers=())))
    activate(world, bundle(2, "less"))
    world.submit()

    done = world.post("/v1/exports", "vera", {"recipient": "auditor"})
    path = next((world.wired.exports_folder).glob(f"{done['id']}*"))
    vkey = world.wired.ledger.vkeys[0]

    assert main(["verify", str(path), "--vkey", vkey, "--replay"]) == 0


def test_keys_that_cannot_be_trusted_are_refused(tmp_path):
    path = tmp_path / "keys"
    for text in ("nonsense", ANA.vkey[:-2], "ana"):
        path.write_text(text)
        with pytest.raises(KeyFileError, match="line 1"):
            trusted_keys(path)
    with pytest.raises(KeyFileError, match="cannot read"):
        trusted_keys(tmp_path / "nowhere")
    assert trusted_keys(None) == ()


def test_a_maintainer_signs_at_the_command_line(tmp_path, capsys):
    file = tmp_path / "b.json"
    file.write_bytes(packed().to_bytes())
    for name in ("ana", "ben"):
        key = tmp_path / f"{name}.pem"
        assert main(["policy", "sign", str(file), "--key", str(key), "--name", name]) == 2
        assert "openssl genpkey" in capsys.readouterr().err
        from service.keys import ed25519_seed

        ed25519_seed(key)
        assert main(["policy", "sign", str(file), "--key", str(key), "--name", name, "--json"]) == 0
        vkey = json.loads(capsys.readouterr().out)["vkey"]
        assert VerifyKey.parse(vkey).name == name
    assert len(Bundle.from_bytes(file.read_bytes()).signatures) == 2


def test_an_auditor_who_has_the_maintainers_keys_sees_who_signed(world):
    shipped = world.in_force.policy.digest
    activate(world, bundle(change="less"), mode="shadow")
    activate(world, bundle(number=2, change="less"))
    made = world.post("/v1/exports", "vera", {"recipient": "auditor"})
    path = world.folder / "bundle.zip"
    path.write_bytes(world.ask("GET", made["bundle"], "vera").content)

    def told(*signers, policies=(shipped,)):
        trusted = Trusted(tuple(each.key for each in signers), frozenset(policies))
        report = verify(path, world.wired.ledger.vkeys, trusted=trusted)
        assert report.violations == ()
        return str(report.levels[9].outcome), report.exit_code

    assert told(ANA, BEN) == ("pass", 0)
    assert told(ANA, EVE) == ("fail", 3)
    assert told(ANA, BEN, policies=()) == ("not checked", 3)
