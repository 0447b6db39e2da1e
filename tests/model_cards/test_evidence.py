"""Evidence: nothing is invented, nothing malformed is let in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.canonical import canonical, digest_of, parse
from model_cards import values
from model_cards.catalogue import Provision, catalogue
from model_cards.evidence import (
    Claim,
    Declared,
    Evidence,
    EvidenceError,
    Measured,
    Missing,
    Reason,
    Reference,
)

BY = Declared(by="prn_1", on="2026-11-30")


def of(field, value, source=BY, unit=None):
    return Evidence.of({field: Claim(value, source, unit)})


def test_nothing_given_means_everything_missing_with_who_and_article():
    empty = Evidence.of({})
    assert set(empty.fields) == set(catalogue().fields)
    for name, item in empty.fields.items():
        assert isinstance(item, Missing)
        assert item.reason is Reason.NOT_SUPPLIED
        assert item.who == catalogue().fields[name].who
        assert item.asked_by == catalogue().fields[name].asked_by


def test_unknown_field_is_refused():
    with pytest.raises(EvidenceError, match=r"unknown field 'model\.beauty'"):
        of("model.beauty", "very")


@pytest.mark.parametrize("blank", ["", "  ", "\n\t"])
def test_blank_text_is_missing_not_a_value(blank):
    item = of("model.name", blank).fields["model.name"]
    assert isinstance(item, Missing)
    assert item.reason is Reason.EMPTY


def test_empty_report_is_missing_not_a_crash():
    assert isinstance(
        of("evaluation.group_performance", {}).fields["evaluation.group_performance"], Missing
    )


def test_empty_list_is_an_answer():
    assert of("purpose.prohibited_practices", []).fields["purpose.prohibited_practices"].value == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model.name", "two\nlines"),
        ("model.name", "x" * 501),
        ("model.name", 7),
        ("model.description", "x" * 8001),
        ("model.name", "\ud800"),
        ("base.digest", "sha256:abc"),
        ("data.rows", -1),
        ("data.rows", True),
        ("data.rows", 1.5),
        ("data.rows", 2**53),
        ("training.learning_rate", 0.1),
        ("training.learning_rate", "1e-4"),
        ("training.learning_rate", "٣"),
        ("training.learning_rate", ".5"),
        ("record.issued_at", "2026-13-01T00:00:00Z"),
        ("record.issued_at", "2026-11-30T00:00:00+00:00"),
        ("data.languages", "en"),
        ("data.languages", ["a"] * 201),
        ("data.languages", ["ok", 3]),
        ("log.entries", ["1"]),
        ("art50.notices", {"en": ""}),
        ("art50.notices", {"": "text"}),
        ("art50.notices", ["text"]),
        ("run.id", "run 1"),
    ],
)
def test_value_of_the_wrong_kind_is_refused_and_the_field_named(field, value):
    with pytest.raises(EvidenceError, match=f"field {field}: expected"):
        of(field, value)


@pytest.mark.parametrize(
    "source",
    [
        Declared(by="", on="2026-11-30"),
        Declared(by="a\nb", on="2026-11-30"),
        Declared(by="prn_1", on="30.11.2026"),
        Declared(by="prn_1", on="2026-02-30"),
        Declared(by="prn_1", on="2026-11-30", entry=-1),
        Measured(at="yesterday"),
        Measured(at="2026-11-30T00:00:00Z", run="run 1"),
        Measured(at="2026-11-30T00:00:00Z", document="sha1:x"),
        Measured(at="2026-11-30T00:00:00Z", entry=True),
        Reference(row="", checked_on="2026-11-30"),
        Reference(row="regions/x", checked_on="soon"),
    ],
)
def test_source_without_who_and_when_is_refused(source):
    with pytest.raises(EvidenceError, match=r"field model\.name: expected"):
        of("model.name", "x", source)


def test_unit_is_the_catalogues_or_refused():
    assert of("compute.energy", "1.5").fields["compute.energy"].unit == "kWh"
    assert of("compute.energy", "1.5", unit="kWh").fields["compute.energy"].unit == "kWh"
    with pytest.raises(EvidenceError, match="expected unit kWh, got 'MWh'"):
        of("compute.energy", "1.5", unit="MWh")


@pytest.mark.parametrize(
    "gap",
    [
        Missing(note="two\nlines"),
        Missing(who=("the boss",)),
        Missing(note="x" * 501),
        Missing(asked_by=(Provision("ai-act", "article", "5", "soon"),)),
        Missing(asked_by=(Provision("", "article", "5", "2026-01-01"),)),
    ],
)
def test_malformed_gap_is_refused(gap):
    with pytest.raises(EvidenceError, match="expected"):
        Evidence.of({"model.name": gap})


def test_json_round_trip_keeps_everything(evidence):
    data = evidence.to_json()
    assert Evidence.from_json(data) == evidence
    assert canonical(parse(data)) == data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"format":"placet.evidence/1"}',
        b'{"format":"placet.evidence/2","fields":{}}',
        b'{"format":"placet.evidence/1","fields":[]}',
        b'{"format":"placet.evidence/1","fields":{"model.name":1}}',
        b'{"format":"placet.evidence/1","fields":{"model.name":{"value":"x"}}}',
        b'{"format":"placet.evidence/1","fields":{"model.name":{"value":"x","source":{"kind":"rumour"}}}}',
        b'{"format":"placet.evidence/1","fields":{"model.name":{"missing":{"reason":"lost"}}}}',
        b'{"format":"placet.evidence/1","fields":{"model.name":{"missing":{"reason":"empty","who":"me"}}}}',
        b'{"format":"placet.evidence/1","fields":{"model.name":{"value":"x","surprise":1,"source":{"kind":"declared","by":"a","on":"2026-11-30"}}}}',
    ],
)
def test_other_json_is_refused(data):
    with pytest.raises(EvidenceError):
        Evidence.from_json(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["value", "source", "missing", "kind", "reason", "by", "on", "asked_by"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(JSON)
def test_any_json_is_read_or_refused_but_never_crashes(raw):
    data = canonical({"format": "placet.evidence/1", "fields": {"model.name": raw}})
    try:
        Evidence.from_json(data)
    except EvidenceError:
        assert digest_of(raw)


def test_every_kind_says_what_it_expects():
    for kind in values.KINDS:
        assert "expected" in values.fault(kind, None)
