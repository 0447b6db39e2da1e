"""Documents: canonical, complete about what is missing, refused when altered."""

import json

import pytest

from audit.canonical import canonical, parse
from model_cards import card, document, transparency
from model_cards.catalogue import catalogue
from model_cards.document import DocumentError
from model_cards.evidence import Claim, Declared, Evidence, Missing, Reference


def test_same_evidence_gives_the_same_canonical_bytes(evidence, card_bytes, record_bytes):
    again = Evidence.from_json(evidence.to_json())
    assert card.build(again) == card_bytes == canonical(parse(card_bytes))
    assert transparency.build(again) == record_bytes
    assert json.loads(card_bytes)["format"] == "placet.model-card/1"
    assert json.loads(record_bytes)["format"] == "placet.transparency/1"


def test_documents_hold_no_float(card_bytes, record_bytes):
    for data in (card_bytes, record_bytes):
        json.loads(data, parse_float=lambda text: pytest.fail(f"float {text}"))


def test_every_field_of_the_catalogue_is_listed_once(card_bytes, record_bytes):
    for name, data in (("model-card", card_bytes), ("transparency", record_bytes)):
        listed = [row.id for row in document.read(data).rows]
        assert listed == [field.id for field in catalogue().of(name)]


def test_completeness_counts_statuses_and_articles(card_bytes):
    counted = document.completeness(card_bytes)
    rows = document.read(card_bytes).rows
    assert counted.total == len(rows)
    assert counted.missing == sum(row.status == "missing" for row in rows) > 0
    assert counted.measured == sum(row.status == "measured" for row in rows) > 0
    places = {count.provision.key: count for count in counted.by_article}
    energy = places["ai-act annex XI 2(e)"]
    assert (energy.supplied, energy.missing) == (1, 1)


def test_reference_data_counts_as_declared():
    source = Reference(row="regions/x", checked_on="2026-11-30")
    counted = document.completeness(
        card.build(Evidence.of({"compute.country": Claim("FR", source)}))
    )
    assert (counted.measured, counted.declared) == (0, 1)


def test_each_value_more_moves_one_field_from_missing_to_supplied():
    before = document.completeness(card.build(Evidence.of({})))
    source = Declared(by="prn_1", on="2026-11-30")
    after = document.completeness(card.build(Evidence.of({"base.id": Claim("a/b", source)})))
    assert after.missing == before.missing - 1
    assert after.declared == 1
    assert after.total == before.total


def test_missing_field_says_who_and_which_article(card_bytes):
    row = next(
        row for row in json.loads(card_bytes)["fields"] if row["id"] == "evaluation.bias_report"
    )
    assert row["status"] == "missing"
    assert row["who"] == ["submitter"]
    assert {
        "law": "ai-act",
        "part": "article",
        "ref": "10(2)(f)",
        "applies_from": "2027-12-02",
    } in row["asked_by"]


def test_document_reads_back_what_was_given(evidence, card_bytes):
    read = document.read(card_bytes)
    for row in read.rows:
        assert row.item == evidence.fields[row.id]
    assert read.claim("base.id").value == "HuggingFaceTB/SmolLM2-135M"
    assert read.claim("evaluation.bias_report") is None
    assert read.claim("no.such.field") is None


def alter(data, change):
    raw = json.loads(data)
    change(raw)
    return canonical(raw)


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw.update(format="placet.model-card/2"),
        lambda raw: raw.update(extra=1),
        lambda raw: raw.update(law_checked_on="today"),
        lambda raw: raw.update(catalogue="sha256:0"),
        lambda raw: raw.update(fields={}),
        lambda raw: raw["fields"].pop(),
        lambda raw: raw["fields"].append(raw["fields"][0]),
        lambda raw: raw["fields"].append(3),
        lambda raw: raw["completeness"].update(missing=0),
        lambda raw: raw["fields"][0].update(status="measured"),
        lambda raw: raw["fields"][0].update(value=7),
        lambda raw: raw["fields"][0].update(unit="a\nb"),
        lambda raw: raw["fields"][0].update(kind="poem"),
        lambda raw: raw["fields"][0].update(section="two words"),
        lambda raw: raw["fields"][0].update(id=["x"]),
        lambda raw: raw["fields"][0].update(asked_by=[{"law": "x"}]),
        lambda raw: raw["fields"][0].update(comment="x"),
        lambda raw: raw["fields"][0].pop("source"),
    ],
)
def test_altered_document_is_refused(card_bytes, change):
    with pytest.raises(DocumentError):
        document.read(alter(card_bytes, change))


@pytest.mark.parametrize("data", [b"", b"{}", b"null", b"\xff", b'{"b":1, "a":2}'])
def test_other_bytes_are_refused(data):
    with pytest.raises(DocumentError):
        document.read(data)


def test_document_of_another_catalogue_is_still_readable(card_bytes):
    def rename(raw):
        raw["fields"][0].update(id="model.future_name", section="future")
        raw["catalogue"] = "sha256:" + "0" * 64

    assert document.read(alter(card_bytes, rename)).rows[0].id == "model.future_name"


def test_gap_given_with_its_own_article_keeps_it():
    place = catalogue().fields["base.id"].asked_by[:1]
    read = document.read(card.build(Evidence.of({"model.name": Missing(asked_by=place)})))
    assert read.rows[0].item.asked_by == place == read.rows[0].asked_by
