"""Derived facts: each small function, and that nothing is ever guessed."""

import datetime as dt
import json
from dataclasses import replace

import pytest

from policies.cases import CASE_SITE
from policies.derive import (
    budget,
    classes_of,
    closure,
    compute,
    data_classes,
    dataset,
    dataset_tags,
    derive,
    gpai,
    job_end,
    licence,
)
from policies.evaluator import PythonEvaluator
from policies.facts import catalogue, schema
from policies.load import REFERENCE, load_reference
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
    paris = at("aws", "eu-west-3")
    strict = replace(setting, is_strict=True)

    assert location(setting, paris)["country"] == "FR"
    assert location(strict, paris) == {}
    assert us_exposure(strict, at("coreweave", "x")) is None
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


# --- data -------------------------------------------------------------------------------------


def test_tags_are_closed_under_what_they_imply(reference):
    assert closure(["health.fr.hds"], reference) == {"health.fr.hds", "art9.health", "pd.basic"}
    assert closure(["health"], reference) == {"art9.health", "pd.basic"}
    assert closure(["personal"], reference) == closure(["pd.basic"], reference) == {"pd.basic"}
    assert closure(["public", "unlisted"], reference) is None
    assert "restricted" in classes_of(frozenset({"art9.health"}), reference)


@pytest.mark.parametrize(
    ("declared", "detected", "expected"),
    [
        (None, [], None),
        ([], [], None),
        ([], ["personal"], None),
        (["public"], None, None),
        (["public"], [], {"public"}),
        (["public"], ["personal"], {"public", "pd.basic"}),
    ],
)
def test_tags_are_known_only_when_both_halves_are(reference, declared, detected, expected):
    item = {"categories_declared": declared, "categories_detected": detected}

    assert dataset_tags(item, reference) == expected


def _data(reference, *items):
    full = [{"categories_detected": [], **item} for item in items]
    return data_classes({"datasets": full}, reference, DAY)


def test_data_classes_are_absent_while_one_dataset_is_unknown(reference):
    assert _data(reference) == {}
    assert data_classes({}, reference, DAY) == {}
    assert _data(reference, {"categories_declared": ["health"]}, {"categories_declared": []}) == {}


@pytest.mark.parametrize(
    ("tags", "countries", "expected"),
    [
        (["public"], None, False),
        (["health"], ["FR"], True),
        (["health"], ["DE", "RE"], True),
        (["health"], ["DE"], False),
        (["health"], [], None),
        (["health"], None, None),
        (["health.fr.hds"], None, True),
        (["health.fr.snds"], ["DE"], True),
        (["art9.genetic"], ["FR"], True),
        (["pd.basic"], ["FR"], False),
    ],
)
def test_french_health_data_is_told_by_tag_or_origin(reference, tags, countries, expected):
    found = _data(reference, {"categories_declared": tags, "data_subject_countries": countries})

    assert found.get("french_health") is expected


def test_one_french_dataset_is_enough(reference):
    unclear = {"categories_declared": ["health"]}
    french = {"categories_declared": ["health.fr.hds"]}

    assert _data(reference, unclear, french)["french_health"] is True
    assert "french_health" not in _data(reference, unclear, {"categories_declared": ["public"]})


def test_french_health_data_is_unknown_before_the_regime_has_a_territory(reference):
    item = {
        "categories_declared": ["health"],
        "categories_detected": [],
        "data_subject_countries": ["DE"],
    }

    found = data_classes({"datasets": [item]}, reference, dt.date(2017, 1, 1))

    assert "french_health" not in found


def test_a_dataset_says_what_it_needs_and_has(setting):
    special = {
        "categories_declared": ["health"],
        "categories_detected": ["personal", "art9.genetic"],
        "licence": "MIT",
        "art9_basis": "art9.2.a",
    }

    found = dataset(setting, special)

    assert found == {
        "licence": "allowed",
        "undeclared_categories": 1,
        "legal_basis": "missing",
        "art9_basis": "stated",
        "dpia": "missing",
    }
    assert dataset(setting, {}) == {}
    assert dataset(setting, {"categories_declared": [], "categories_detected": ["public"]}) == {
        "undeclared_categories": 1
    }


def test_a_tag_without_a_row_leaves_coverage_unknown(reference, setting):
    rows = [r for r in reference.rows("categories") if r["tag"] != "public"]
    item = {"categories_declared": ["public"], "categories_detected": ["none"]}

    assert dataset(replace(setting, reference=with_rows(reference, categories=rows)), item) == {}


# --- the rest ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "pinned"),
    [
        ("sha256:" + "a" * 64, True),
        ("r.example:5000/a/b@sha256:" + "0" * 64, True),
        ("a:latest", False),
        ("sha256:" + "a" * 63, False),
        ("a@sha256:" + "A" * 64, False),
        ("a@sha256:" + "a" * 64 + "x", False),
    ],
)
def test_an_image_is_pinned_by_a_whole_digest(setting, image, pinned):
    assert compute(setting, {"image": image})["image_pinned"] is pinned
    assert "image_pinned" not in compute(setting, {"image": None})


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (
            {"estimate_cents": 801, "budget_cents": 1000},
            {"headroom_cents": 199, "used_permille": 801},
        ),
        ({"estimate_cents": 1, "budget_cents": 3}, {"headroom_cents": 2, "used_permille": 334}),
        ({"estimate_cents": 5, "budget_cents": 0}, {"headroom_cents": -5}),
        ({"estimate_cents": 0, "budget_cents": 0}, {"headroom_cents": 0, "used_permille": 0}),
        ({"estimate_cents": None, "budget_cents": 1}, {}),
        ({"estimate_cents": 1}, {}),
        ({}, {}),
    ],
)
def test_the_budget_is_counted_in_cents(cost, expected):
    assert budget(cost) == expected


@pytest.mark.parametrize(
    ("flop", "base", "expected"),
    [
        (1, 1_620_000, {"share_permille": 1, "basis": "declared"}),
        (0, 10, {"share_permille": 0, "basis": "declared"}),
        (
            100,
            390,
            {"share_permille": 334, "basis": "declared"},
        ),  # exactly one third with the margin
        (100, 391, {"share_permille": 333, "basis": "declared"}),
        (1, 0, {"share_permille": 1300, "basis": "declared"}),
        (10_000_000, None, {"share_permille": 130, "basis": "fallback"}),
        (None, 5, {}),
    ],
)
def test_the_share_of_compute_is_rounded_against_us(reference, flop, base, expected):
    facts = {"training": {"flop_1e15": flop}, "base_model": {"training_flop_1e15": base}}

    assert gpai(facts, reference) == expected


def test_the_share_is_absent_without_its_thresholds(reference):
    facts = {"training": {"flop_1e15": 1}, "base_model": {"training_flop_1e15": 1}}

    assert gpai(facts, with_rows(reference, thresholds=[])) == {}
    assert gpai({}, reference) == {}


def test_a_job_ends_as_late_as_it_may():
    facts = {"stage": "train", "job": {"max_minutes": 721}}

    assert job_end(facts, AT) == dt.date(2026, 12, 1)
    assert job_end({"stage": "deploy"}, AT) == DAY
    assert job_end({"stage": "train"}, AT) is None


def test_nothing_known_derives_nothing(reference):
    assert derive({"stage": "train"}, reference, AT) == {}


def test_every_derived_document_meets_its_schema(packs, reference):
    checker = PythonEvaluator().compile(schema("derived"))
    for pack in packs:
        for name, base in pack.bases.items():
            facts = {k: v for k, v in base.items() if k != "derived"}
            found = derive(facts, reference, AT)

            assert checker.failures(found) == [], name
            assert json.loads(json.dumps(found)) == found


def test_the_catalogue_is_closed_everywhere():
    def walk(node, where):
        if "properties" in node:
            assert node.get("additionalProperties") is False, where
            for name, inner in node["properties"].items():
                walk(inner, f"{where}/{name}")
        if "items" in node:
            walk(node["items"], f"{where}/*")
        assert "number" not in str(node.get("type")), where
        assert "$ref" not in node, where

    walk(catalogue(), "")


def test_the_shipped_reference_folder_is_the_default():
    assert load_reference(REFERENCE).digest == load_reference().digest
