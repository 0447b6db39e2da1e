"""Own rows over those that ship: by key, schema-checked, and nothing that ships is touched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.load import REFERENCE, load_overlay, load_reference
from policies.overlay import TABLES, OverlayRow, key_of, lay_over, make_row, rows_of
from policies.reference import KEYS, Reference, ReferenceDataError

SHIPPED = load_reference()
PRICE = {
    "provider": "own-site",
    "flavor": "cpu",
    "currency": "EUR",
    "price_micros_per_hour": 5,
    "source": "our books",
    "checked_on": "2026-11-29",
    "confidence": "declared",
    "declared_by": "prn_officer",
}
SHIPPED_KEYS = [(table, key) for table, key, _ in rows_of(SHIPPED)]


def test_every_table_has_a_key_and_no_shipped_row_shares_one():
    assert set(TABLES) >= set(SHIPPED.tables) | set(KEYS)
    assert all(key for _, key in SHIPPED_KEYS)
    assert len(set(SHIPPED_KEYS)) == len(SHIPPED_KEYS)


def test_nothing_over_it_is_the_same():
    assert lay_over(SHIPPED, []) is SHIPPED


def test_a_row_is_added_and_what_ships_stays_as_it_was():
    before = SHIPPED.to_bytes()

    made = lay_over(SHIPPED, [make_row("prices", PRICE)])

    assert made.rows("prices")[:-1] == SHIPPED.rows("prices")
    assert made.rows("prices")[-1] == PRICE
    assert SHIPPED.to_bytes() == before
    assert Reference.from_bytes(made.to_bytes()).digest == made.digest != SHIPPED.digest


def test_a_row_takes_the_place_of_the_shipped_one():
    shipped = SHIPPED.rows("prices")[0]
    own = make_row("prices", {**shipped, "price_micros_per_hour": 1, "declared_by": "prn_x"})

    made = lay_over(SHIPPED, [own])

    assert len(made.rows("prices")) == len(SHIPPED.rows("prices"))
    assert [row for row in made.rows("prices") if key_of("prices", row) == own.key] == [own.row]


def test_of_two_rows_with_one_key_the_last_holds():
    first, last = (make_row("prices", PRICE | {"price_micros_per_hour": n}) for n in (1, 2))
    made = lay_over(SHIPPED, [first, last])
    assert [row for row in made.rows("prices") if key_of("prices", row) == last.key] == [last.row]


@given(st.sets(st.sampled_from(SHIPPED_KEYS), min_size=1, max_size=8))
def test_hiding_rows_takes_exactly_them_away(hidden):
    made = lay_over(SHIPPED, [OverlayRow(table, key, None) for table, key in sorted(hidden)])
    assert {(t, k) for t, k, _ in rows_of(made)} == set(SHIPPED_KEYS) - hidden


@given(st.permutations([make_row("prices", PRICE | {"flavor": f}) for f in ("a1", "b2", "c3")]))
def test_the_order_of_different_keys_does_not_matter(rows):
    expected = lay_over(SHIPPED, [make_row("prices", PRICE | {"flavor": f}) for f in
                                  ("a1", "b2", "c3")])  # fmt: skip
    assert lay_over(SHIPPED, rows).digest == expected.digest


@pytest.mark.parametrize(
    ("table", "row", "says"),
    [
        ("taxes", PRICE, "no table"),
        ("prices", {k: v for k, v in PRICE.items() if k != "flavor"}, "lacks `flavor`"),
        ("prices", PRICE | {"flavor": "a b"}, "is no key"),
        ("prices", PRICE | {"flavor": "\u0430"}, "is no key"),
        ("prices", PRICE | {"extra": 1}, "additionalProperties"),
        ("prices", PRICE | {"declared_by": ""}, "breaks"),
        ("prices", {k: v for k, v in PRICE.items() if k != "declared_by"}, "declared_by"),
        ("prices", PRICE | {"checked_on": "2026-13-01"}, "no day"),
    ],
)
def test_a_row_that_is_refused_says_why(table, row, says):
    with pytest.raises(ReferenceDataError, match=says):
        make_row(table, row)


def test_a_key_that_is_not_the_rows_own_is_refused():
    with pytest.raises(ReferenceDataError, match="not the key"):
        lay_over(SHIPPED, [OverlayRow("prices", "a/b/EUR", PRICE)])
    with pytest.raises(ReferenceDataError, match="no table"):
        lay_over(SHIPPED, [OverlayRow("taxes", "a", None)])


def test_the_shipped_folder_could_be_an_overlay_of_itself(tmp_path):
    name = "prices.yaml"
    (tmp_path / name).write_bytes((REFERENCE / name).read_bytes())

    rows = load_overlay(tmp_path, declared_by="operator")

    assert {row.row["declared_by"] for row in rows} == {"operator"}
    assert len(lay_over(SHIPPED, rows).rows("prices")) == len(SHIPPED.rows("prices"))
    with pytest.raises(ReferenceDataError, match="is no folder"):
        load_overlay(tmp_path / "nowhere", declared_by="operator")
