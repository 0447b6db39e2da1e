"""The record: canonical, readable, replayable, and stable between releases."""

import json
import os
from pathlib import Path

import pytest

from audit.canonical import canonical, digest, parse
from policies.cases import CASE_SITE
from policies.decision import Decision, GateError
from policies.evaluator import PythonEvaluator, RustEvaluator
from policies.gate import replay
from policies.load import load_reference
from policies.policy import Policy

GOLDEN = Path(__file__).parent.parent / "golden" / "policies"
BASES = ("public", "personal", "special", "health", "claimed", "deploy", "serving")
PYTHON, RUST = PythonEvaluator(), RustEvaluator()


def test_the_record_is_the_canonical_form_of_its_document(judge, base):
    for name in BASES:
        decision = judge(base(name))

        assert decision.record == canonical(decision.document)
        assert parse(decision.record) == decision.document
        assert decision.digest == digest(decision.record)
        assert decision.facts_digest == digest(canonical(base(name)))


def test_a_record_reads_back(judge, base):
    made = judge(base("claimed"))

    assert Decision.from_record(made.record) == made


def test_a_changed_record_policy_or_reference_is_noticed(judge, policy, reference, base):
    record = judge(base("public")).record
    softer = canonical({**parse(record), "verdict": "allow"})
    derived = parse(record)
    derived["derived"]["compute"]["country"] = "CA"
    other = Policy(policy.packs, policy.rules[:-1])
    elsewhere = load_reference(site={**CASE_SITE, "country": "CA"})
    kept, rows = policy.to_bytes(), reference.to_bytes()

    assert replay(softer, kept, rows).differing == ("verdict",)
    assert not replay(canonical(derived), kept, rows).same_derived
    assert not replay(record, other.to_bytes(), rows).same_inputs
    moved = replay(record, kept, elsewhere.to_bytes())
    assert (moved.identical, moved.same_output, moved.same_derived) == (False, False, False)
    assert moved.verdict == "deny"


@pytest.mark.parametrize(
    "change",
    [
        {"format": "placet.decision/2"},
        {"waivers": [{}]},
        {"waivers": 1},
        {"results": [1]},
        {"derived": []},
        {"subject": None},
        {"evaluated_at": "now"},
    ],
)
def test_a_misshapen_record_is_refused(judge, policy, reference, base, change):
    document = {**judge(base("public")).document, **change}

    with pytest.raises(GateError):
        replay(canonical(document), policy.to_bytes(), reference.to_bytes())


@pytest.mark.parametrize("record", [b"", b"{}", b"[]", b'{"format":1.5}', b'{"a":1, "b":2}'])
def test_what_is_not_a_record_is_refused(record):
    with pytest.raises(GateError, match="decision record"):
        Decision.from_record(record)


@pytest.mark.parametrize("name", ["public", "claimed", "deploy"])
def test_the_golden_decisions_stay_as_they_are(judge, base, name):
    """A change here is a change of a stored format, of a shipped rule, or of a derived fact."""
    document = {**judge(base(name)).document, "policy": "-", "reference": "-"}
    made = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    path = GOLDEN / f"decision-{name}.json"
    if os.environ.get("PLACET_GOLDEN") == "1":
        path.write_text(made, "utf-8")

    assert path.read_text("utf-8") == made
