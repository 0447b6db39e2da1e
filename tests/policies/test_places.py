"""Where something is and whose law reaches it: exact look-ups, dates, certificates."""

import datetime as dt
from dataclasses import replace

import pytest

from policies.cases import CASE_SITE
from policies.derive import (
    licence,
)
from policies.load import load_reference
from policies.places import Setting, hds, location, place, us_exposure
from policies.reference import Reference, in_force

DAY = dt.date(2026, 11, 30)
AT = dt.datetime(2026, 11, 30, 12, 0, tzinfo=dt.UTC)
ROW = {"source": "a test", "checked_on": "2026-11-30", "confidence": "primary"}


@pytest.fixture
def setting(reference):
    return Setting(
        reference=reference,
        on=DAY,
        job_end=DAY,
        is_strict=False,
        needs_hds=False,
        needs_secnumcloud=False,
        eu=reference.members("eu", DAY),
        eea=reference.members("eea", DAY),
    )


def with_rows(reference, **tables):
    return Reference(
        {**reference.tables, **{k: tuple(v) for k, v in tables.items()}}, reference.site
    )


def at(provider, region, service="ai-training"):
    return {"provider": provider, "service": service, "region": region}


@pytest.mark.parametrize(
    ("provider", "region", "expected"),
    [
        ("ovhcloud", "GRA", ("FR", True, True, "eea")),
        ("ovhcloud", "UK1", ("GB", False, False, "general")),
        ("ovhcloud", "BHS", ("CA", False, False, "conditional")),
        ("ovhcloud", "SGP", ("SG", False, False, "none")),
        ("ovhcloud", "VIN", ("US", False, False, "conditional")),
        ("ovhcloud", "EU-WEST-LZ-ZRH", ("CH", False, False, "general")),
        ("own-site", "site", ("FR", True, True, "eea")),
        ("ovhcloud", "gra ", None),
        ("ovhcloud", "Gra", None),
        ("OVHCLOUD", "GRA", None),
        ("own-site", "GRA", None),
        ("aws", "GRA", None),
        (None, None, None),
    ],
)
def test_a_country_is_looked_up_by_exact_id(setting, provider, region, expected):
    found = location(setting, at(provider, region))

    assert found == (
        {}
        if expected is None
        else dict(zip(("country", "in_eu", "in_eea", "adequacy"), expected, strict=True))
    )


def test_membership_is_absent_on_a_day_no_list_covers(setting):
    assert location(replace(setting, eu=frozenset()), at("ovhcloud", "GRA")) == {"country": "FR"}


def test_norway_is_in_the_eea_and_not_in_the_eu(reference, setting):
    rows = [{"provider": "a", "region": "b", "country": "NO", **ROW}]

    found = location(replace(setting, reference=with_rows(reference, regions=rows)), at("a", "b"))

    assert (found["in_eu"], found["in_eea"]) == (False, True)


@pytest.mark.parametrize(("day", "scope"), [("2031-12-27", "general"), ("2031-12-28", "none")])
def test_adequacy_ends_with_its_decision(reference, day, scope):
    assert reference.adequacy("GB", dt.date.fromisoformat(day)) == scope


def test_adequacy_begins_with_its_decision(reference):
    assert reference.adequacy("BR", dt.date(2026, 1, 25)) == "none"
    assert reference.adequacy("BR", dt.date(2026, 1, 26)) == "general"
    assert in_force({"from": None, "until": None}, DAY)


def test_an_unverified_row_is_unknown_for_restricted_data(setting):
    amsterdam = at("azure", "westeurope")
    strict = replace(setting, is_strict=True)

    assert location(setting, amsterdam)["country"] == "NL"
    assert location(strict, amsterdam) == {}
    assert us_exposure(strict, at("lambda", "x")) is None
    assert licence(setting, "llama3.1") == {"licence": "conditional"}
    assert licence(strict, "llama3.1") == {}


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("aws", "exposed"),
        ("coreweave", "exposed"),
        ("ovhcloud", "possible"),
        ("scaleway", "possible"),
        ("own-site", "none_identified"),
        ("verda", None),
        ("unlisted", None),
    ],
)
def test_exposure_follows_seat_parent_and_establishments(setting, provider, expected):
    assert us_exposure(setting, at(provider, "x")) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"establishments": ["DE"]}, "none_identified"),
        ({"establishments": ["US"]}, "possible"),
        ({"parent_country": "US"}, "exposed"),
        ({"parent_country": None}, None),
    ],
)
def test_exposure_of_the_own_site_is_what_the_operator_declares(setting, change, expected):
    site = {k: v for k, v in {**CASE_SITE, **change}.items() if v is not None}

    found = us_exposure(
        replace(setting, reference=load_reference(site=site)), at("own-site", "site")
    )

    assert found == expected


def test_exposure_is_absent_without_the_watched_country(reference, setting):
    rows = [r for r in reference.rows("thresholds") if r["id"] != "exposure_country"]

    found = us_exposure(
        replace(setting, reference=with_rows(reference, thresholds=rows)), at("ovhcloud", "GRA")
    )

    assert found is None


# --- HDS --------------------------------------------------------------------------------------


def certificate(**change):
    return {
        "scheme": "hds",
        "provider": "ovhcloud",
        "service": "ai-training",
        "regions": ["GRA"],
        "status": "attested",
        "framework_version": 2,
        "activities": [1, 2, 3, 4],
        "valid_from": "2026-01-01",
        "valid_until": "2026-12-31",
        **ROW,
        **change,
    }


def certified(reference, setting, *rows):
    return replace(setting, reference=with_rows(reference, certificates=rows), is_strict=True)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, "valid"),
        ({"valid_from": "2026-11-30", "valid_until": "2026-11-30"}, "valid"),
        ({"valid_until": "2026-11-29"}, "expired"),
        ({"valid_from": "2026-12-01"}, "not_yet_valid"),
        ({"framework_version": 1}, "outdated_framework"),
        ({"status": "claimed"}, "unconfirmed"),
        ({"status": "withdrawn"}, "unconfirmed"),
        ({"confidence": "unverified"}, "unconfirmed"),
        ({"valid_until": None}, "unconfirmed"),
        ({"valid_from": None}, "unconfirmed"),
        ({"service": "ai-deploy"}, "none"),
        ({"regions": ["RBX"]}, "none"),
        ({"provider": "scaleway"}, "none"),
        ({"scheme": "secnumcloud"}, "none"),
    ],
)
def test_a_certificate_speaks_for_its_service_region_and_dates(reference, setting, change, status):
    found = hds(certified(reference, setting, certificate(**change)), at("ovhcloud", "GRA"))

    assert found["status"] == status


def test_the_best_certificate_speaks(reference, setting):
    rows = [
        certificate(status="claimed"),
        certificate(valid_until="2026-11-01"),
        certificate(valid_until="2027-01-31"),
        certificate(valid_until="2026-12-05"),
        certificate(status="claimed", valid_until=None),
    ]

    found = hds(certified(reference, setting, *rows), at("ovhcloud", "GRA"))

    assert (found["status"], found["days_past_job_end"]) == ("valid", 62)


@pytest.mark.parametrize(
    ("end", "past", "short"), [("2026-12-30", 1, 0), ("2026-12-31", 0, 0), ("2027-01-02", -2, 2)]
)
def test_days_are_counted_to_the_end_of_the_job(reference, setting, end, past, short):
    ending = replace(
        certified(reference, setting, certificate()), job_end=dt.date.fromisoformat(end)
    )

    found = hds(ending, at("ovhcloud", "GRA"))

    assert (found["days_past_job_end"], found["days_short"]) == (past, short)


def test_missing_activities_are_counted_and_absent_for_an_unlisted_service(reference, setting):
    few = certified(reference, setting, certificate(activities=[1, 2]))
    odd = certified(reference, setting, certificate(service="odd"))

    assert hds(few, at("ovhcloud", "GRA"))["missing_activities"] == 2
    assert "missing_activities" not in hds(odd, at("ovhcloud", "GRA", "odd"))
    assert "days_short" not in hds(replace(few, job_end=None), at("ovhcloud", "GRA"))


def test_an_unknown_framework_threshold_is_never_met(reference, setting):
    without = with_rows(reference, thresholds=[], certificates=[certificate()])

    found = hds(replace(setting, reference=without), at("ovhcloud", "GRA"))

    assert found["status"] == "outdated_framework"


@pytest.mark.parametrize("name", ["provider", "service", "region"])
def test_a_place_that_is_not_named_has_no_certificate_facts(setting, name):
    assert hds(setting, {**at("ovhcloud", "GRA"), name: None}) == {}


def test_self_hosting_needs_the_operators_word(setting):
    declared = load_reference(site={**CASE_SITE, "hds_self_hosted": True})
    own = at("own-site", "site", "local-process")

    assert hds(setting, own)["status"] == "none"
    assert hds(replace(setting, reference=declared), own) == {
        "status": "exempt",
        "missing_activities": 0,
        "days_short": 0,
    }
    assert hds(replace(setting, reference=declared), at("ovhcloud", "GRA"))["status"] != "exempt"
    assert hds(replace(setting, reference=load_reference()), own)["status"] == "none"


def test_a_place_has_hds_facts_only_where_they_matter(setting):
    assert "hds" not in place(setting, at("ovhcloud", "GRA"))
    assert "hds" in place(replace(setting, needs_hds=True), at("ovhcloud", "GRA"))
