"""Duties that follow from what a team declares, judged by the law of the day."""

import datetime as dt

import pytest

from policies.cases import CASE_SITE
from policies.derive import certificates, chain, room
from policies.deriving import derive
from policies.duties import duties, purpose, stated
from policies.facts import schema
from policies.load import load_reference
from policies.places import Setting, ownership
from policies.reference import Reference, stale

DAY = dt.date(2026, 12, 1)
ANNEX_3, ANNEX_1 = dt.date(2027, 12, 2), dt.date(2028, 8, 2)


@pytest.fixture(scope="module")
def reference():
    return load_reference(site=CASE_SITE)


def setting(reference, day=DAY, **changes):
    given = {
        "reference": reference,
        "on": day,
        "job_end": day,
        "is_strict": False,
        "needs_hds": False,
        "needs_secnumcloud": False,
        "eu": reference.members("eu", day),
        "eea": reference.members("eea", day),
    }
    return Setting(**{**given, **changes})


def use(reference, day, *, practices=(), areas=(), governance=None, tags=("synthetic",)):
    facts = {
        "purpose": {"prohibited_practices": list(practices), "high_risk_areas": list(areas)},
        "governance": governance or {},
    }
    return purpose(facts, reference, day, {"categories": list(tags)})


def test_every_code_of_the_contract_is_a_row(reference):
    members = schema("facts")["properties"]["purpose"]["properties"]
    codes = {
        code
        for name in ("prohibited_practices", "high_risk_areas")
        for code in members[name]["items"]["enum"]
    }

    assert set(reference.uses) == codes


@pytest.mark.parametrize("code", ["art5.1.ba", "art5.1.bb"])
def test_the_new_prohibitions_start_on_their_day(reference, code):
    before = use(reference, dt.date(2026, 12, 1), practices=[code])
    after = use(reference, dt.date(2026, 12, 2), practices=[code])

    assert (before["prohibited"], before["prohibited_later"]) == (0, 1)
    assert (after["prohibited"], after["prohibited_later"]) == (1, 0)


@pytest.mark.parametrize(
    ("day", "areas", "status"),
    [
        (DAY, [], "none"),
        (DAY, ["annex3.5.b"], "announced"),
        (ANNEX_3 - dt.timedelta(days=1), ["annex3.5.b"], "announced"),
        (ANNEX_3, ["annex3.5.b"], "in_force"),
        (ANNEX_3, ["annex1.a"], "announced"),
        (ANNEX_3, ["annex1.a", "annex3.4.a"], "in_force"),
        (ANNEX_1, ["annex1.a"], "in_force"),
    ],
)
def test_high_risk_duties_follow_the_calendar(reference, day, areas, status):
    assert use(reference, day, areas=areas)["high_risk"] == status


def test_the_exception_is_for_annex_3_and_never_for_profiling(reference):
    claim = {"art6_3_exception_reference": "EXC-1"}

    def status(areas, day=ANNEX_1, tags=("synthetic",)):
        return use(reference, day, areas=areas, governance=claim, tags=tags)["high_risk"]

    assert status(["annex3.4.a"]) == "excepted"
    assert status(["annex1.a"]) == "in_force"
    assert status(["annex1.a", "annex3.4.a"]) == "in_force"
    assert status(["annex3.4.a"], tags=("pd.profiling",)) == "in_force"


def test_an_exception_over_unknown_data_is_unknown(reference):
    facts = {
        "purpose": {"prohibited_practices": [], "high_risk_areas": ["annex3.4.a"]},
        "governance": {"art6_3_exception_reference": "EXC-1"},
    }

    found = purpose(facts, reference, ANNEX_3, {})

    assert found == {"prohibited": 0, "prohibited_later": 0}


@pytest.mark.parametrize(
    ("areas", "given", "fria", "registration"),
    [
        (["annex3.5.b"], None, "missing", "missing"),
        (["annex3.4.a"], None, "missing_if_public", "missing"),
        (["annex3.2"], None, "not_needed", "not_needed"),
        (["annex3.5.c", "annex3.2"], "X-1", "stated", "stated"),
        ([], "X-1", "not_needed", "not_needed"),
    ],
)
def test_who_needs_an_assessment_and_a_registration(reference, areas, given, fria, registration):
    governance = {"fria_reference": given, "eu_database_reference": given}

    found = use(reference, ANNEX_3, areas=areas, governance=governance)

    assert (found["fria"], found["registration"]) == (fria, registration)


def test_what_was_not_answered_stays_unknown(reference):
    assert purpose({}, reference, DAY, {}) == {}
    strange = Reference({**reference.tables, "uses": ()}, reference.site)
    facts = {"purpose": {"prohibited_practices": ["art5.1.a"], "high_risk_areas": ["annex3.2"]}}
    assert purpose(facts, strange, DAY, {}) == {}


def test_papers_are_due_only_where_data_and_third_parties_are(reference):
    given = {"governance": {"processor_contract_reference": "DPA-1"}}

    assert duties({}, {}, third_party=None) == {}
    assert duties({}, {"personal": True}, third_party=None) == {"record_of_processing": "missing"}
    assert duties(given, {"personal": True}, third_party=True)["processor_contract"] == "stated"
    assert duties({}, {"personal": True}, third_party=True)["processor_contract"] == "missing"
    assert duties({}, {"personal": True}, third_party=False)["processor_contract"] == "not_needed"
    assert duties({}, {"personal": False}, third_party=True) == {
        "record_of_processing": "not_needed",
        "processor_contract": "not_needed",
    }
    assert stated(None, is_due=False) == "not_needed"


SITE = {"provider": "own-site", "service": "storage", "region": "site"}
CLOUD = {"provider": "ovhcloud", "service": "object-storage", "region": "gra"}


def test_a_used_role_without_a_place_is_counted():
    facts = {
        "job": {"uses": ["output", "judge", "webhook"]},
        "compute": SITE,
        "datasets": [CLOUD],
        "storage": [{"role": "output", **SITE}, {"role": "webhook", **SITE}],
    }

    assert chain(facts) == {"missing_places": 1, "providers": 1, "third_party": True}


@pytest.mark.parametrize("part", ["compute", "datasets", "storage"])
def test_a_chain_with_an_unstated_part_has_no_known_providers(part):
    facts = {"compute": SITE, "datasets": [SITE], "storage": [{"role": "output", **SITE}]}

    assert chain(facts) == {"providers": 0, "third_party": False}
    assert "third_party" not in chain({**facts, part: None})


def test_ownership_is_as_weak_as_its_weakest_country(reference):
    here = setting(reference)

    assert ownership(here, SITE) == {"owner_in_eu": True, "law_reach": "eea"}
    assert ownership(here, CLOUD) == {"owner_in_eu": True, "law_reach": "none"}
    assert ownership(here, {"provider": "scaleway"}) == {
        "owner_in_eu": True,
        "law_reach": "unstated",
    }
    assert ownership(here, {"provider": "aws"}) == {
        "owner_in_eu": False,
        "law_reach": "conditional",
    }
    assert ownership(here, {"provider": "verda"}) == {}
    assert ownership(here, {"provider": "new-cloud"}) == {}


def _certified(reference, days):
    until = (DAY + dt.timedelta(days=days)).isoformat()
    row = {
        "scheme": "hds",
        "provider": "ovhcloud",
        "service": "object-storage",
        "regions": ["gra"],
        "status": "attested",
        "framework_version": 2,
        "activities": [1, 2, 3],
        "valid_from": "2026-01-01",
        "valid_until": until,
        "source": "the certificate",
        "checked_on": "2026-11-30",
        "confidence": "declared",
    }
    return Reference({**reference.tables, "certificates": (row,)}, reference.site)


@pytest.mark.parametrize(("days", "expiring"), [(30, 0), (29, 3), (0, 3)])
def test_certificates_that_end_within_the_period_are_counted(reference, days, expiring):
    facts = {"compute": CLOUD, "datasets": [CLOUD], "storage": [{"role": "output", **CLOUD}]}
    here = setting(_certified(reference, days), needs_hds=True)

    assert certificates(here, facts) == {"relied": 3, "expiring": expiring, "expiring_days": days}


def test_certificates_of_an_unknown_place_are_not_counted(reference):
    facts = {"compute": CLOUD, "datasets": [], "storage": [{"role": "output", **CLOUD}]}
    here = setting(_certified(reference, 1), needs_hds=True)

    assert certificates(here, {**facts, "compute": {**CLOUD, "service": None}}) == {}
    assert certificates(here, {**facts, "storage": None}) == {}
    assert certificates(setting(reference), facts) == {"relied": 0, "expiring": 0}


def test_room_in_budget_and_time_is_what_the_estimate_leaves():
    facts = {"cost": {"budget_cents": 100}, "job": {"max_minutes": 60}}

    assert room(facts, {"cost_cents": 150, "minutes": 10}) == {
        "estimated_headroom_cents": -50,
        "estimated_headroom_minutes": 50,
    }
    assert room(facts, {}) == {}
    assert room({}, {"cost_cents": 1, "minutes": 1}) == {}


def test_a_rented_gpu_is_told_from_the_houses_own(reference):
    at = dt.datetime(2026, 12, 1, tzinfo=dt.UTC)

    assert derive({"compute": CLOUD}, reference, at)["compute"]["rented"] is True
    assert derive({"compute": SITE}, reference, at)["compute"]["rented"] is False
    assert "rented" not in derive({"compute": {"region": "x"}}, reference, at).get("compute", {})


def test_rows_that_nobody_looked_at_are_listed_oldest_first(reference):
    later = dt.date(2027, 6, 1)

    found = stale(reference, later, 180)

    assert [row.checked_on for row in found] == sorted(row.checked_on for row in found)
    assert all(row.checked_on < "2026-12-03" for row in found)
    assert ("regions", "ovhcloud/GRA") in {(row.table, row.key) for row in found}
    assert stale(reference, DAY, 3650) == ()
    assert stale(reference, later, 0)


def test_a_row_checked_on_the_edge_is_not_stale(reference):
    rows = ({"id": "a", "checked_on": "2026-06-04", "confidence": "primary", "source": "law"},)
    one = Reference({"thresholds": rows}, None)

    assert stale(one, DAY, 180) == ()
    assert [row.key for row in stale(one, DAY, 179)] == ["a"]


def test_a_negative_age_is_refused(reference):
    with pytest.raises(ValueError, match="0 days"):
        stale(reference, DAY, -1)
