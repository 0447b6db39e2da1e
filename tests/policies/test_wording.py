"""Facts in the words of their readers, complete in six languages."""

import pytest

from policies.facts import catalogue
from policies.lint import PLACEHOLDER, described
from policies.pointers import join, split
from policies.rule import LANGUAGES
from policies.wording import (
    MAX_TEXT_CHARS,
    code,
    country,
    day,
    label,
    law,
    moment,
    provision,
    value,
    words,
)

SEEN = {
    "datasets": [{"id": "ds_7"}],
    "storage": [{"role": "output"}, {"role": None}, {}],
}


def coded(node, pattern=""):
    """List (path, code) for every text that a fact can only take from a closed list."""
    if node.get("type") in ("string", ["string", "null"]) or "enum" in node:
        yield from ((pattern, each) for each in node.get("enum", ()) if isinstance(each, str))
    for name, inner in node.get("properties", {}).items():
        yield from coded(inner, f"{pattern}/{name}")
    if "items" in node:
        yield from coded(node["items"], f"{pattern}/*")


@pytest.mark.parametrize("section", ["subjects", "facts", "codes", "laws", "letter"])
def test_every_word_is_there_in_every_language(section):
    for name, texts in words()[section].items():
        assert set(texts) == set(LANGUAGES), name
        assert all(text.strip() == text and text for text in texts.values()), name


def test_every_fact_that_a_shipped_rule_needs_has_words(policy):
    nameless = {
        join(path)
        for rule in policy.rules
        for path in (*rule.applies_needs, *rule.requires_needs)
        for language in LANGUAGES
        if label(join(path), {}, language).startswith("/")
    }

    assert nameless == set()


def test_every_code_that_a_shipped_message_can_show_has_words(policy):
    shown = {
        pattern
        for rule in policy.rules
        for message in rule.document["messages"].values()
        for pattern in PLACEHOLDER.findall(message["en"])
    }
    wordless = {
        (path, each)
        for path, each in coded(catalogue())
        if (path in shown or path.rpartition("/")[0] in shown)
        and each not in words()["codes"]
        and provision(each, "fr") == each
        and split(path)[-1] != "format"
    }

    assert wordless == set()


@pytest.mark.parametrize(
    ("pointer", "language", "text"),
    [
        ("/derived/compute/country", "en", "country (compute)"),
        ("/derived/compute/hds/status", "fr", "certificat HDS (calcul)"),
        ("/derived/datasets/0/us_exposure", "de", "Reichweite des Rechts der USA (Datensatz ds_7)"),
        ("/derived/datasets/4/country", "en", "country (dataset unknown)"),
        ("/derived/storage/0/in_eea", "es", "en el Espacio Económico Europeo (resultados)"),
        ("/derived/storage/1/in_eea", "en", "in the European Economic Area (unknown)"),
        ("/derived/storage/*/in_eea", "en", "in the European Economic Area (*)"),
        ("/stage", "pl", "etap"),
        ("/derived/dora/register", "en", "entry in the register of information (DORA)"),
        ("/no/such", "en", "/no/such"),
        ("", "en", ""),
    ],
)
def test_a_fact_is_named_by_what_it_is_and_whose(pointer, language, text):
    assert label(pointer, SEEN, language) == text


@pytest.mark.parametrize(
    ("pattern", "found", "language", "text"),
    [
        ("/derived/compute/country", "CA", "fr", "Canada"),
        ("/derived/compute/country", "DE", "pl", "Niemcy"),
        ("/derived/compute/country", "ZQ", "en", "ZQ"),
        ("/datasets/*/data_subject_countries", ["FR", "DE"], "es", "Francia, Alemania"),
        ("/cost/budget_cents", 123456, "de", "1.234,56\u00a0€"),
        ("/derived/budget/used_permille", 855, "fr", "85,5\u00a0%"),
        ("/derived/estimate/vram_needed_mib", 44_442, "en", "43.4 GiB"),
        ("/job/max_minutes", 1440, "en", "1,440"),
        ("/derived/compute/in_eea", False, "pt", "não"),
        ("/storage/*/role", "log_sink", "fr", "stockage des journaux"),
        ("/derived/compute/hds/status", "unconfirmed", "en", "claimed, not confirmed"),
        (
            "/datasets/*/categories_detected",
            ["health", "pd.basic"],
            "en",
            "health data, personal data",
        ),
        ("/datasets/*/categories_detected", ["personal", "pd.basic"], "en", "personal data"),
        ("/datasets/*/categories_detected", [], "de", "keine"),
        ("/purpose/high_risk_areas", ["annex3.5.b"], "fr", "annexe III, 5(b)"),
        ("/purpose/prohibited_practices", ["art5.1.ba"], "en", "Art. 5(1)(ba)"),
        ("/compute/region", "public", "en", "public"),
        ("/compute/gpus", None, "en", "unknown"),
        ("/compute", {"gpus": 1}, "en", "{…}"),
    ],
)
def test_a_value_is_written_for_its_reader(pattern, found, language, text):
    assert value(pattern, found, language) == text


def test_a_provider_has_its_name_where_reference_data_give_it(reference):
    assert value("/compute/provider", "ovhcloud", "en", reference) == "OVHcloud (OVH Groupe SA)"
    assert value("/compute/provider", "ovhcloud", "en") == "ovhcloud"
    assert value("/compute/provider", "own-site", "fr", reference) == "le site propre"
    assert value("/compute/provider", "nobody", "fr", reference) == "nobody"


def test_a_service_has_its_name_and_a_code_its_own_meaning(reference):
    assert value("/compute/service", "ai-training", "fr", reference) == "AI Training"
    assert value("/compute/service", "local-process", "fr", reference) == "local-process"
    assert value("/derived/compute/law_reach", "none", "fr") == "pays sans décision d'adéquation"
    assert value("/derived/compute/hds/status", "none", "fr") == "aucun"


def test_a_long_value_is_cut():
    assert len(value("/compute/region", "x" * 999, "en")) == MAX_TEXT_CHARS


def test_laws_and_dates_are_cited_as_the_language_does():
    assert law("AI Act Art. 5(1)(a)", "de") == "KI-Verordnung Art. 5(1)(a)"
    assert law("HDS requirements v2, order of 2024-04-26", "fr") == (
        "référentiel HDS v2, arrêté du 26 avril 2024"
    )
    assert law("GDPR Art. 44", "pl") == "RODO Art. 44".replace("Art.", "art.")
    assert provision("annex1.a", "en") == "Annex I, a"
    assert provision("anything", "en") == "anything"
    assert day("2026-12-01", "fr") == "1er décembre 2026"
    assert day("2026-12-01", "en") == "1 December 2026"
    assert moment("2026-12-01T09:05:00Z", "de") == "1. Dezember 2026 um 09:05 Uhr (UTC)"


def test_a_language_without_words_in_cldr_is_english():
    assert country("FR", "xx-nowhere") == "France"
    assert code("valid", "xx") == "valid"


def test_a_path_that_the_catalogue_does_not_know_is_not_described():
    assert described(catalogue(), "/no/such") is None
    assert value("/no/such", "valid", "en") == "valid"
