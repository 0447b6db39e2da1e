"""Bundles that two maintainers signed and that must not count: refused whole, and recorded."""

import copy
import json

import pytest

from audit.canonical import canonical, digest
from audit.keys import Ed25519Signer
from policies.bundle import Bundle, build
from policies.load import PACKS
from service.policy_bundles import sign

RULE = "eu-baseline/scope-gpus.yaml"
ANN, BEN = (Ed25519Signer.from_seed(name, name.encode() * 8) for name in ("anne", "bent"))
LAUGHS = "a: &a [x,x]\n" + "".join(
    f"{chr(c)}: &{chr(c)} [*{chr(c - 1)},*{chr(c - 1)}]\n" for c in range(98, 123)
)


@pytest.fixture
def database_url(tmp_path):
    """Use SQLite alone: what is refused here touches no lock."""
    return f"sqlite:///{tmp_path / 'placet.db'}"


@pytest.fixture
def house(make_world, tmp_path):
    keys = tmp_path / "maintainers"
    keys.write_text(f"# who may change the rules\n{ANN.vkey}\n{BEN.vkey}\n")
    return make_world(policy_keys=keys)


@pytest.fixture(scope="module")
def good():
    return build(PACKS, number=1, created="2026-11-30T12:00:00Z", effective="2026-11-30")


def listed(document):
    """Make the manifest name the files as they are, as whoever signs would."""
    document["manifest"]["files"] = [
        {"path": path, "digest": digest(text.encode()), "size_bytes": len(text.encode())}
        for path, text in sorted(document["files"].items())
    ]
    return document


def signed(document, *signers):
    bundle = Bundle.from_bytes(canonical(document))
    for signer in signers:
        bundle = sign(bundle, signer)
    return json.loads(bundle.to_bytes())


def send(house, document, **more):
    body = {"bundle": document, "reason": "a test", **more}
    return house.ask("POST", "/v1/policies", "olaf", body)


def text_of(change):
    def changed(document):
        document["files"][RULE] = change(document["files"][RULE])

    return changed


def add(path, text):
    return lambda document: document["files"].__setitem__(path, text)


def moved(path):
    return lambda document: document["files"].__setitem__(path, document["files"].pop(RULE))


def drop(*paths):
    return lambda document: [document["files"].pop(path) for path in paths]


SPOILT = {
    "no tests": (text_of(lambda t: t[: t.index("tests:")] + "tests: []\n"), {"tests", "lint"}),
    "a test that fails": (
        text_of(lambda t: t.replace("expect: pass", "expect: violated", 1)),
        {"tests"},
    ),
    "an outcome without a test": (
        text_of(lambda t: "\n".join(x for x in t.splitlines() if "unknown}" not in x) + "\n"),
        {"tests", "lint"},
    ),
    "a billion laughs": (text_of(lambda _: LAUGHS), {"lint"}),
    "a NUL": (text_of(lambda t: t + "\x00"), {"lint"}),
    "an id that is a path": (
        text_of(lambda t: t.replace("id: scope.gpus", "id: ../x")),
        {"lint"},
    ),
    "a number of 5000 digits": (
        text_of(lambda t: t.replace("maximum: 4", "maximum: " + "9" * 5000)),
        {"lint"},
    ),
    "a year that no calendar has": (
        text_of(lambda t: t.replace('from: "', 'from: "9', 1)),
        {"lint"},
    ),
    "a hidden suffix": (moved("eu-baseline/scope-gpus.yml"), {"lint"}),
    "a folder that is no pack": (moved("own/scope-gpus.yaml"), {"lint"}),
    "a rule twice": (
        lambda d: d["files"].__setitem__("eu-baseline/zz.yaml", d["files"][RULE]),
        {"lint"},
    ),
    "deep nesting": (text_of(lambda _: "[" * 100_000), {"lint"}),
    "other rules than it names": (drop(RULE), {"policy_digest"}),
}


def refused(house, answer, codes):
    """Check that nothing of it counts and that the log says so."""
    assert answer.status == 422, answer.content
    assert answer.problem["reason_code"] in codes, answer.problem
    entry = house.entries()[-1]
    assert entry.action == "policy.rejected"
    assert entry.data["still"] == house.in_force.policy.digest
    assert entry.data["reason_code"] == answer.problem["reason_code"]
    current = house.get("/v1/policies/current", "vera")
    assert (current["policy"], current["number"]) == (entry.data["still"], 0)


@pytest.mark.parametrize(("spoil", "codes"), SPOILT.values(), ids=SPOILT)
def test_a_spoilt_bundle_counts_for_nothing_whoever_signed_it(house, good, spoil, codes):
    before = house.in_force.policy.digest
    document = json.loads(good.to_bytes())
    spoil(document)

    answer = send(house, signed(listed(document), ANN, BEN))

    refused(house, answer, codes)
    assert house.in_force.policy.digest == before
    assert house.submit()["state"] == "awaiting_approval"


@pytest.mark.parametrize(
    ("bend", "codes"),
    [
        (lambda d: d["signatures"].clear(), {"quorum"}),
        (lambda d: d["signatures"].pop(), {"quorum"}),
        (lambda d: d["signatures"][0].__setitem__("sig", d["signatures"][1]["sig"]), {"signature"}),
        (
            lambda d: d["signatures"][0].__setitem__("keyid", "zoe+00000000"),
            {"malformed", "quorum"},
        ),
        (lambda d: d["manifest"].__setitem__("number", 2), {"signature"}),
        (lambda d: d["manifest"].__setitem__("effective", "2026-11-29"), {"signature"}),
        (lambda d: d["files"].__setitem__(RULE, "x"), {"malformed"}),
        (lambda d: d["files"].__setitem__("eu-baseline/../../x.yaml", "x"), {"malformed"}),
        (lambda d: d.__setitem__("extra", 1), {"malformed"}),
        (lambda d: d["manifest"].__setitem__("number", True), {"malformed"}),
        (lambda d: d["signatures"].append(d["signatures"][0]), {"malformed"}),
    ],
    ids=lambda value: None if callable(value) else "/".join(sorted(value)),
)
def test_a_bundle_bent_after_signing_counts_for_nothing(house, good, bend, codes):
    document = copy.deepcopy(signed(json.loads(good.to_bytes()), ANN, BEN))
    bend(document)

    refused(house, send(house, document), codes)


def test_one_person_with_two_names_is_one_person(make_world, tmp_path, good):
    twin = Ed25519Signer.from_seed("annie", b"anne" * 8)
    keys = tmp_path / "maintainers"
    keys.write_text(f"{ANN.vkey}\n{twin.vkey}\n")
    house = make_world(policy_keys=keys)

    refused(house, send(house, signed(json.loads(good.to_bytes()), ANN, twin)), {"quorum"})


def test_the_same_bundle_unspoilt_is_taken(house, good):
    answer = send(house, signed(json.loads(good.to_bytes()), ANN, BEN))

    assert answer.status == 201, answer.content
    assert house.get("/v1/policies/current", "vera")["number"] == 1
    again = send(house, signed(json.loads(good.to_bytes()), ANN, BEN))
    assert again.problem["reason_code"] == "number"
