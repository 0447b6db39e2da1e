"""A decision as an officer would write it; three cases are golden files."""

import os
from pathlib import Path

import pytest

from audit.canonical import digest
from policies.gate import decide
from policies.letter import WIDTH, letter
from policies.policy import Policy
from policies.rule import LANGUAGES
from policies.waiver import Waiver

FINE = {
    "format": "placet.waiver/1",
    "id": "wvr_1",
    "rule": "budget.limit",
    "subject": "job:job_01@1",
    "category": "waiver",
    "reason_digest": digest(b"because"),
    "requester": "prn_a",
    "approvers": ["prn_b", "prn_c"],
    "revoked_at": None,
}
GOLDEN = Path(__file__).parents[1] / "golden" / "policies" / "letters"
NOW = "2026-12-01T09:05:00Z"


def canadian_bucket(base):
    """Personal data, in a bucket that stands in Canada."""
    facts = base("personal")
    facts["datasets"][0] |= {
        "provider": "ovhcloud",
        "service": "object-storage",
        "region": "bhs",
    }
    return facts


def health_without_a_certificate(base):
    """French health data, on services whose certificate is only claimed."""
    return base("health")


def nearly_used_budget(base):
    """An ordinary case: an officer approves, and the budget is nearly used."""
    facts = base("public")
    facts["cost"] = {"estimate_cents": 90_000, "budget_cents": 100_000}
    return facts


CASES = (canadian_bucket, health_without_a_certificate, nearly_used_budget)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.replace("_", "-"))
@pytest.mark.parametrize("language", ["en", "fr"])
def test_the_letter_reads_as_kept(base, judge, policy, reference, case, language):
    decision = judge(case(base), evaluated_at=NOW)
    written = letter(decision, policy, reference, language)
    # The digests stand for whole documents, which other tests hold.
    written = written.replace(decision.digest, "sha256:…")
    path = GOLDEN / f"{case.__name__.replace('_', '-')}.{language}.txt"
    if os.environ.get("PLACET_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(written, encoding="utf-8")

    assert written == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_letter_speaks_in_codes(base, judge, policy, reference, case, language):
    written = letter(judge(case(base), evaluated_at=NOW), policy, reference, language)

    for token in ("/derived", "{", "true", "false", "None", "_eea", "sensitive\n", "[]"):
        assert token not in written.replace("require_approval", ""), token
    assert all(len(line) <= WIDTH for line in written.splitlines())
    assert written.endswith("\n")


def test_an_unknown_fact_is_named_in_words_once(base, judge, policy, reference):
    facts = base("public")
    facts["compute"]["region"] = "nowhere"
    facts["compute"]["provider"] = "ovhcloud"

    written = letter(judge(facts), policy, reference, "fr")

    assert "Non connu : pays (calcul)" in written
    assert "/derived" not in written


def test_a_waived_finding_names_its_waiver(base, judge, policy, reference):
    facts = base("public")
    facts["cost"] = {"estimate_cents": 2000, "budget_cents": 1000}
    rule = next(r for r in policy.rules if r.id == "budget.limit")
    assert rule.waivable
    waiver = Waiver.from_document(
        FINE
        | {
            "rule_version": rule.version,
            "not_before": "2026-11-01T00:00:00Z",
            "expires_at": "2026-12-24T18:00:00Z",
        }
    )
    decision = judge(facts, waivers=[waiver])

    written = letter(decision, policy, reference, "fr")

    assert "wvr_1, jusqu'au 24 décembre 2026 à 18:00 (UTC)" in written


def test_the_same_record_gives_the_same_letter(base, judge, policy, reference):
    decision = judge(canadian_bucket(base))
    again = type(decision).from_record(decision.record)

    assert letter(again, policy, reference, "de") == letter(decision, policy, reference, "de")


def test_without_reference_data_providers_keep_their_ids(base, judge, policy):
    assert "bhs" in letter(judge(canadian_bucket(base)), policy)


def test_an_unknown_language_is_english(base, judge, policy):
    decision = judge(base("public"))

    assert letter(decision, policy, None, "xx") == letter(decision, policy)


def test_nothing_but_printable_characters_reaches_a_terminal(judge, policy):
    broken = judge({"format": "placet.facts/1", "stage": "train", "\x1b[2J": "\u202e"})

    written = letter(broken, policy)

    assert "\x1b" not in written
    assert "\u202e" not in written


def test_an_empty_policy_has_a_letter_too(base, reference):
    empty = Policy((), ())
    decision = decide(empty, reference, base("public"), evaluated_at=NOW, subject="case:x")

    assert letter(decision, empty, reference).startswith("Decision     Refused\nCase         x\n")
