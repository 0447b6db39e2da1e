"""What older releases decided must replay for ever."""

import json
from pathlib import Path

import pytest

from audit.canonical import canonical, parse
from policies.decision import Decision, GateError
from policies.derive import VERSION
from policies.evaluator import PythonEvaluator, RustEvaluator
from policies.gate import replay

HISTORY = Path(__file__).parent.parent / "golden" / "policies" / "history"
RELEASES = sorted(path.name for path in HISTORY.iterdir() if path.is_dir())
PYTHON, RUST = PythonEvaluator(), RustEvaluator()


def read(release):
    folder = HISTORY / release
    kept, rows = (folder / "policy.json").read_bytes(), (folder / "reference.json").read_bytes()
    return (folder / "records.ndjson").read_bytes().splitlines(), kept, rows


def test_there_is_a_history():
    assert RELEASES[:2] == ["001", "002"]
    assert sum(len(read(release)[0]) for release in RELEASES) >= 40


@pytest.mark.parametrize("engine", [PYTHON, RUST], ids=lambda e: e.name)
@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_decided_is_decided_again(release, engine):
    records, kept, rows = read(release)
    for record in records:
        result = replay(record, kept, rows, evaluator=engine)

        assert (result.same_inputs, result.same_output, result.differing) == (True, True, ())
        assert result.verdict == parse(record)["verdict"]
        if parse(record)["derivation"] == VERSION:
            assert result.identical
        else:
            assert (result.same_derived, result.identical) == (None, False)
            assert VERSION in result.not_checked


def test_the_history_has_every_outcome_that_rules_can_have():
    outcomes = {
        finding["outcome"]
        for release in RELEASES
        for record in read(release)[0]
        for finding in parse(record)["results"]
    }

    assert outcomes == {"pass", "not_applicable", "violated", "unknown", "waived"}


def test_another_derivation_is_judged_on_its_own_derived_facts(judge, policy, reference, base):
    """Level 1 holds or not; level 2 is not checked, so the replay is never green."""
    document = {**judge(base("public")).document, "derivation": "placet.derive/0"}
    inputs = policy.to_bytes(), reference.to_bytes()
    made = replay(canonical(document), *inputs)
    softer = replay(canonical({**document, "verdict": "allow"}), *inputs)
    moved = json.loads(json.dumps(document))
    moved["derived"]["compute"]["in_eea"] = False
    elsewhere = replay(canonical(moved), *inputs)

    assert (made.same_inputs, made.same_output, made.same_derived) == (True, True, None)
    assert not made.identical
    assert "placet.derive/0" in made.not_checked
    assert (softer.same_output, softer.differing) == (False, ("verdict",))
    assert not elsewhere.same_output
    assert "results" in elsewhere.differing


@pytest.mark.parametrize(
    "change",
    [
        {"facts": None},
        {"facts": []},
        {"facts": {}},
        {"facts": {"stage": []}},
        {"facts": {"stage": {}}},
        {"derived": {"data": []}},
        {"derived": {"data": None}},
        {"derived": None},
        {"derivation": None},
        {"subject": "job"},
        {"evaluated_at": "0001-01-01T00:00:00Z"},
        {"contract_errors": [1]},
    ],
)
@pytest.mark.parametrize("derivation", ["placet.derive/0", VERSION])
def test_a_hostile_record_is_refused_or_differs_and_nothing_else(
    judge, policy, reference, base, change, derivation
):
    document = {**judge(base("public")).document, "derivation": derivation, **change}
    try:
        result = replay(canonical(document), policy.to_bytes(), reference.to_bytes())
    except GateError:
        return

    assert not result.identical


def test_a_record_in_another_spelling_is_refused(judge, policy, reference, base):
    record = judge(base("public")).record
    inputs = policy.to_bytes(), reference.to_bytes()
    document = parse(record)
    last = ',"waivers":[]}'
    spellings = [
        json.dumps(document, sort_keys=True).encode(),
        json.dumps(dict(reversed(document.items())), separators=(",", ":")).encode(),
        record.replace(b',"facts":', b',"facts": '),
        record.replace(last.encode(), (b',"waivers":[],"waivers":[]}')),
        record.replace(b'"gpus":0', b'"gpus":-0').replace(b'"gpus":1', b'"gpus":1.0'),
        record + b"\n",
    ]
    for spelling in spellings:
        assert spelling != record
        with pytest.raises(GateError):
            replay(spelling, *inputs)
        with pytest.raises(GateError):
            Decision.from_record(spelling)
