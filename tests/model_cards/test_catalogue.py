"""The catalogue and the locales are complete, in six languages, and claim nothing."""

import json
import re
from string import Formatter

import pytest

from model_cards import values
from model_cards.catalogue import DOCUMENTS, LANGUAGES, catalogue
from model_cards.evidence import Reason
from model_cards.language import AUTONYMS, LanguageError, words

WANTED = [
    "model.name",
    "model.version",
    "base.id",
    "base.licence",
    "base.digest",
    "training.method",
    "training.adapter_rank",
    "training.adapter_alpha",
    "training.adapter_targets",
    "data.id",
    "data.digest",
    "data.licence",
    "data.categories_declared",
    "data.languages",
    "data.rows",
    "data.provenance",
    "data.legal_basis",
    "purpose.intended",
    "purpose.excluded",
    "purpose.high_risk_areas",
    "purpose.prohibited_practices",
    "evaluation.loss_before",
    "evaluation.loss_after",
    "evaluation.perplexity_before",
    "evaluation.perplexity_after",
    "evaluation.held_out_rows",
    "evaluation.held_out_tokens",
    "evaluation.bias_report",
    "evaluation.leakage_report",
    "compute.flop_architecture",
    "compute.flop_executed",
    "compute.flop_hardware",
    "compute.gpai_ratio",
    "compute.energy",
    "compute.energy_method",
    "training.duration",
    "compute.hardware",
    "compute.region",
    "compute.country",
    "storage.places",
    "training.seed",
    "environment.digest",
    "artefacts.digest",
    "artefacts.files",
    "permit.id",
    "run.id",
    "job.id",
    "decision.digest",
    "decision.verdict",
    "approvals.count",
    "approvals.roles",
    "provider.name",
    "deployer.name",
    "deployer.contact",
    "oversight.measures",
    "limits.known",
    "art50.notices",
    "logs.retention_months",
    "record.issued_at",
    "log.origin",
    "log.entries",
]


def test_catalogue_has_every_field_the_documents_need():
    assert set(WANTED) <= set(catalogue().fields)


@pytest.mark.parametrize("field", catalogue().fields.values(), ids=lambda field: field.id)
def test_each_field_is_well_formed(field):
    assert values.is_code(field.id)
    assert field.kind in values.KINDS
    assert field.section in catalogue().sections
    assert field.documents
    assert set(field.documents) <= set(DOCUMENTS)
    assert set(field.label) == set(LANGUAGES)
    assert all(text == text.strip() and text for text in field.label.values())
    assert field.who
    assert all(f"role.{name}" in words("en") for name in field.who)
    assert field.unit is None or f"unit.{field.unit}" in words("en")
    for place in field.asked_by:
        assert place.law in catalogue().laws
        assert f"part.{place.part}" in words("en")
        assert values.is_date(place.applies_from)


def test_ids_are_unique_in_the_file():
    from model_cards.catalogue import SCHEMA

    ids = [row["id"] for row in json.loads(SCHEMA.read_bytes())["fields"]]
    assert len(ids) == len(set(ids))


def test_labels_of_one_language_are_distinct():
    for language in LANGUAGES:
        labels = [field.label[language] for field in catalogue().fields.values()]
        assert len(labels) == len(set(labels)), language


def test_dates_are_those_of_the_amended_ai_act():
    dates = {
        (place.part, place.ref): place.applies_from
        for field in catalogue().fields.values()
        for place in field.asked_by
        if place.law == "ai-act"
    }
    assert dates["article", "5(1)"] == "2025-02-02"
    assert dates["annex", "XI 2(e)"] == "2025-08-02"
    assert dates["article", "50(1)"] == "2026-08-02"
    assert dates["article", "13(3)(a)"] == "2027-12-02"
    assert dates["article", "26(6)"] == "2027-12-02"


@pytest.mark.parametrize("language", LANGUAGES)
def test_locales_have_the_same_keys_and_placeholders(language):
    def placeholders(text):
        return sorted(name for _, name, _, _ in Formatter().parse(text) if name)

    ours, english = words(language), words("en")
    assert list(ours) == list(english)
    for key, text in english.items():
        assert placeholders(ours[key]) == placeholders(text), key
    assert language in AUTONYMS


def test_unknown_language_is_refused():
    with pytest.raises(LanguageError, match="expected one of"):
        words("xx")


def test_every_status_and_reason_has_its_word():
    for status in ("measured", "declared", "reference", "missing"):
        assert words("pl")[f"status.{status}"]
    for reason in Reason:
        assert words("pl")[f"reason.{reason.value}"]


CLAIMS = re.compile(
    r"complian|conform|konform|zgodn|übereinstimm|cumple|cumpre|en règle|guarantee|garant|zapewnia"
    r"|certif|zertifi|lawful|licit|rechtmäßig",
    re.IGNORECASE,
)


def test_no_word_of_ours_claims_that_the_law_is_met(golden):
    from model_cards.catalogue import SCHEMA
    from model_cards.language import LOCALES
    from model_cards.render import TEMPLATES

    files = [SCHEMA, *LOCALES.iterdir(), *TEMPLATES.iterdir(), *golden.iterdir()]
    assert len(files) > 12
    for path in files:
        text = path.read_text("utf-8")
        assert not CLAIMS.findall(text), path.name
