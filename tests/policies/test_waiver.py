"""Waivers: whole or not at all, only `violated`, only for a while."""

import pytest

from audit.canonical import digest
from policies.gate import replay
from policies.waiver import Waiver, WaiverError

FINE = {
    "format": "placet.waiver/1",
    "id": "wvr_01",
    "rule": "budget.limit",
    "rule_version": "1.0.0",
    "subject": "job:job_01@1",
    "category": "waiver",
    "reason_digest": digest(b"because"),
    "requester": "prn_a",
    "approvers": ["prn_b", "prn_c"],
    "not_before": "2026-11-30T00:00:00Z",
    "expires_at": "2026-12-07T00:00:00Z",
    "revoked_at": None,
}


@pytest.fixture
def dear(base):
    facts = base("public")
    facts["cost"] = {"estimate_cents": 2000, "budget_cents": 1000}
    return facts


def waiver(**change):
    return Waiver.from_document({**FINE, **change})


def test_a_waiver_turns_one_violated_rule_into_waived(judge, policy, reference, dear):
    decision = judge(dear, waivers=[waiver()])

    assert judge(dear).verdict == "deny"
    assert decision.verdict == "require_approval"
    assert {f.rule: f.outcome for f in decision.findings}["budget.limit"] == "waived"
    assert decision.document["waivers"] == [FINE]
    assert replay(decision.record, policy.to_bytes(), reference.to_bytes()).identical


@pytest.mark.parametrize(
    "change",
    [
        {"subject": "job:job_02@1"},
        {"subject": "job:job_01@2"},
        {"rule_version": "0.9.0"},
        {"rule": "residency.compute"},
        {"not_before": "2026-11-30T12:00:01Z"},
        {"expires_at": "2026-11-30T12:00:00Z"},
        {"revoked_at": "2026-11-30T12:00:00Z"},
    ],
)
def test_a_waiver_for_something_else_counts_for_nothing(judge, dear, change):
    assert judge(dear, waivers=[waiver(**change)]).verdict == "deny"


def test_a_waiver_revoked_later_still_counts_now(judge, dear):
    later = waiver(revoked_at="2026-11-30T12:00:01Z")

    assert judge(dear, waivers=[later]).verdict == "require_approval"


def test_an_unknown_fact_cannot_be_waived(judge, dear):
    dear["cost"]["estimate_cents"] = None

    assert judge(dear, waivers=[waiver()]).verdict == "deny"


def test_a_rule_that_is_not_waivable_stays_violated(judge, base):
    facts = base("public")
    facts["compute"] |= {"provider": "ovhcloud", "region": "BHS"}

    assert judge(facts, waivers=[waiver(rule="residency.compute")]).verdict == "deny"


def test_waivers_are_recorded_in_order(judge, dear):
    first, second = waiver(id="wvr_1", rule="other.rule"), waiver(id="wvr_2", rule="more.rule")

    one, other = judge(dear, waivers=[first, second]), judge(dear, waivers=[second, first])

    assert one.record == other.record


@pytest.mark.parametrize(
    "change",
    [
        {"more": 1},
        {"format": "placet.waiver/2"},
        {"approvers": "prn_b"},
        {"approvers": ["prn_b"]},
        {"approvers": ["prn_b", "prn_b"]},
        {"approvers": ["prn_b", "prn_a"]},
        {"approvers": ["prn_b", 1]},
        {"subject": "job:*"},
        {"subject": "job:job_0?"},
        {"subject": ""},
        {"id": None},
        {"category": "forever"},
        {"reason_digest": "because"},
        {"expires_at": "2026-11-30T00:00:00Z"},
        {"expires_at": "2028-01-01T00:00:00Z"},
        {"expires_at": "2026-12-07"},
        {"expires_at": "2026-12-07T00:00:00"},
        {"expires_at": "20261207T000000Z"},
        {"expires_at": "2026-12-07T00:00:00+00:00"},
        {"expires_at": "2026-W50-1"},
        {"expires_at": None},
        {"revoked_at": "yesterday"},
        {"rule": 7},
    ],
)
def test_a_malformed_waiver_is_refused(change):
    with pytest.raises(WaiverError):
        waiver(**change)


def test_what_is_not_an_object_is_no_waiver():
    with pytest.raises(WaiverError, match="expected exactly"):
        Waiver.from_document([])


def test_a_waiver_writes_what_it_read():
    assert waiver().to_document() == FINE
