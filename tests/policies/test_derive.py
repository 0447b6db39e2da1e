"""Derived facts: each small function, and that nothing is ever guessed."""

import datetime as dt
import json
from dataclasses import replace

import pytest

from policies.categories import classes_of, closure, data_classes, dataset_tags
from policies.derive import budget, compute, dataset, gpai, job_end
from policies.deriving import derive
from policies.evaluator import PythonEvaluator
from policies.facts import catalogue, schema
from policies.load import REFERENCE, load_reference
from policies.places import Setting
from policies.reference import Reference

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
        "undeclared_severe": 1,
        "undeclared_ordinary": 0,
        "legal_basis": "missing",
        "art9_basis": "stated",
        "dpia": "missing",
    }
    assert dataset(setting, {}) == {}
    assert dataset(setting, {"categories_declared": [], "categories_detected": ["public"]}) == {
        "undeclared_categories": 1,
        "undeclared_severe": 0,
        "undeclared_ordinary": 1,
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
