"""Reference data hold what the log said and nothing else: each row that nobody named is found."""

import json
from dataclasses import replace

import pytest

from audit.canonical import canonical
from audit.event import Actor

CERTIFICATE = {
    "scheme": "hds",
    "provider": "ovhcloud",
    "service": "ai-training",
    "regions": ["RBX", "GRA"],
    "valid_from": None,
    "status": "claimed",
}
SHIPPED = {
    "prices": [
        {"provider": "a", "flavor": "x", "currency": "EUR", "cents": 100},
        {"provider": "a", "flavor": "y", "currency": "EUR", "cents": 200},
    ],
    "certificates": [CERTIFICATE],
    "regions": [{"provider": "a", "region": "GRA", "country": "FR"}],
}
KEY = "hds/ovhcloud/ai-training/GRA+RBX/-"


class House:
    """Records rows as officers do, in a world whose shipped tables are `SHIPPED`."""

    def __init__(self, world):
        self.world = world
        self.before = world.prologue()
        self.shipped = self.world.reference(**SHIPPED)
        self.ships = world.referenced(self.shipped)

    def row(self, **members):
        return canonical({"declared_by": self.world.officer, **members}).decode()

    def price(self, flavor="x", cents=1, **more):
        return self.row(provider="a", flavor=flavor, currency="EUR", cents=cents, **more)

    def act(self, whole, row, table="prices", key="a/x/EUR", **changes):
        """The act of an officer after which `whole` is in force."""
        data = {"table": table, "key": key, "row": row and self.world.document(row)}
        event = self.world.referenced(whole, **data | changes)
        return replace(event, actor=Actor("human", self.world.officer, "token"))

    def whole(self, *own, without=(), table="prices"):
        """All data in force: what ships without some rows, then own rows."""
        kept = [row for n, row in enumerate(SHIPPED.get(table, [])) if n not in without]
        rows = {**SHIPPED, table: [*kept, *map(json.loads, own)]}
        return self.world.reference(**rows)


def renamed(event, whole):
    """Return the act with another digest of what is in force after it."""
    return replace(event, data={**event.data, "reference": whole})


@pytest.fixture
def house(world):
    return House(world)


@pytest.fixture
def rules(house, told):
    """Return a function that reads events after the shipped tables: [(index, rule)]."""

    def read(*events):
        before = [*house.before, house.ships]
        violations = told([*before, *events]).violations
        return [(each.index - len(before), each.rule) for each in violations]

    return read


class TestHonest:
    def test_a_row_that_takes_the_place_of_a_shipped_one(self, house, rules):
        own = house.price()
        assert rules(house.act(house.whole(own, without=[0]), own)) == []

    def test_a_row_that_is_added(self, house, rules):
        own = house.price("z")
        assert rules(house.act(house.whole(own), own, key="a/z/EUR")) == []

    def test_a_shipped_row_that_is_hidden(self, house, rules):
        assert rules(house.act(house.whole(without=[0]), None)) == []

    def test_an_own_row_that_is_withdrawn_shows_the_shipped_one_again(self, house, rules):
        own = house.price()
        events = [house.act(house.whole(own, without=[0]), own), house.act(house.shipped, None)]
        assert rules(*events) == []

    def test_own_rows_stand_in_the_order_of_their_keys(self, house, rules):
        last, first = house.price("z"), house.price("b")
        events = [
            house.act(house.whole(last), last, key="a/z/EUR"),
            house.act(house.whole(first, last), first, key="a/b/EUR"),
        ]
        assert rules(*events) == []

    def test_what_ships_later_lies_under_the_own_rows(self, house, rules, world):
        own = house.price()
        later = json.loads(house.shipped)
        later["tables"]["prices"][1]["cents"] = 250
        ships = canonical(later).decode()
        later["tables"]["prices"] = [later["tables"]["prices"][1], json.loads(own)]
        whole = world.document(canonical(later).decode())
        again = renamed(world.referenced(ships), whole)
        assert rules(house.act(house.whole(own, without=[0]), own), again) == []

    def test_a_certificate_has_a_key_of_its_regions_and_its_first_day(self, house, rules):
        own = house.row(**CERTIFICATE)
        whole = house.whole(own, without=[0], table="certificates")
        assert rules(house.act(whole, own, "certificates", KEY)) == []

    def test_a_place_of_ones_own(self, house, rules):
        own = house.row(provider="own-site", region="lyon", country="FR")
        whole = house.whole(own, table="regions")
        assert rules(house.act(whole, own, "regions", "own-site/lyon")) == []


class TestForged:
    @pytest.fixture
    def own(self, house):
        return house.price()

    def test_another_row_of_the_same_table_changed_with_it(self, house, rules, own):
        whole = house.whole(own, without=[0]).replace('"cents":200', '"cents":2')
        assert rules(house.act(whole, own)) == [(0, "reference-is-what-was-said")]

    def test_a_table_of_the_law_changed_with_it(self, house, rules, own):
        whole = house.whole(own, without=[0]).replace('"value":30', '"value":300')
        assert rules(house.act(whole, own)) == [(0, "reference-is-what-was-said")]

    def test_the_site_changed_with_it(self, house, rules, own):
        whole = house.whole(own, without=[0]).replace('"site":null', '"site":{"country":"FR"}')
        assert rules(house.act(whole, own)) == [(0, "reference-is-what-was-said")]

    def test_another_row_than_the_entry_names(self, house, rules, own):
        whole = house.whole(house.price(cents=2), without=[0])
        assert rules(house.act(whole, own)) == [(0, "reference-is-what-was-said")]

    def test_rows_in_another_order(self, house, rules):
        own = house.price("z")
        rows = {**SHIPPED, "prices": [*SHIPPED["prices"][::-1], json.loads(own)]}
        whole = house.world.reference(**rows)
        assert rules(house.act(whole, own, key="a/z/EUR")) == [(0, "reference-is-what-was-said")]

    def test_a_shipped_row_kept_beside_the_own_one(self, house, rules, own):
        assert rules(house.act(house.whole(own), own)) == [(0, "reference-is-what-was-said")]

    def test_a_row_hidden_that_the_entry_does_not_name(self, house, rules):
        whole = house.whole(without=[0, 1])
        assert rules(house.act(whole, None)) == [(0, "reference-is-what-was-said")]

    def test_a_withdrawal_that_leaves_the_row(self, house, rules, own):
        whole = house.whole(own, without=[0])
        assert rules(house.act(whole, own), house.act(whole, None)) == [
            (1, "reference-is-what-was-said")
        ]

    def test_an_old_row_that_comes_back_with_a_later_act(self, house, rules):
        old, new, other = house.price(cents=1), house.price(cents=2), house.price("z")
        events = [
            house.act(house.whole(old, without=[0]), old),
            house.act(house.whole(new, without=[0]), new),
            house.act(house.whole(old, other, without=[0]), other, key="a/z/EUR"),
        ]
        assert rules(*events) == [(2, "reference-is-what-was-said")]

    def test_shipped_tables_that_are_not_in_force(self, house, rules, world):
        whole = world.document(house.whole(without=[0]))
        assert rules(renamed(house.ships, whole))[-1:] == [(0, "reference-is-what-was-said")]

    def test_own_rows_that_a_later_start_loses(self, house, rules, own):
        taken = house.act(house.whole(own, without=[0]), own)
        assert rules(taken, house.world.referenced(house.shipped)) == [
            (1, "reference-is-what-was-said")
        ]

    @pytest.mark.parametrize(
        ("row", "changes"),
        [
            ({"provider": "b"}, {}),
            ({"declared_by": "prn_00000000000000000000000009"}, {}),
            ({"document": "sha256:" + "1" * 64}, {}),
            ({}, {"document": "sha256:" + "1" * 64}),
        ],
    )
    def test_a_row_that_is_not_the_one_of_its_entry(self, house, rules, own, row, changes):
        spoilt = canonical(json.loads(own) | row).decode()
        whole = house.whole(spoilt, without=[0])
        found = rules(house.act(whole, spoilt, **changes))
        assert (0, "reference-row-binds-entry") in found

    def test_nothing_is_taken_away_that_was_not_there(self, house, rules):
        event = house.act(house.shipped, None, key="a/nothing/EUR")
        assert rules(event) == [(0, "reference-row-binds-entry")]

    @pytest.mark.parametrize("is_hidden", [True, False])
    def test_a_shipped_region_in_another_country(self, house, rules, is_hidden):
        own = None if is_hidden else house.row(provider="a", region="GRA", country="DE")
        whole = house.whole(*([own] if own else []), without=[0], table="regions")
        event = house.act(whole, own, "regions", "a/GRA")
        assert rules(event) == [(0, "reference-is-not-law")]

    @pytest.mark.parametrize("text", ["[]", "no json", '{"provider":1.5}'])
    def test_a_row_that_cannot_be_read(self, house, rules, text):
        found = rules(house.act(house.shipped, text))
        assert (0, "reference-readable") in found

    @pytest.mark.parametrize("tables", [[], {"prices": 1}, {"prices": [1]}, None])
    def test_shipped_tables_that_cannot_be_read(self, house, world, told, own, tables):
        spoilt = canonical({**json.loads(house.shipped), "tables": tables}).decode()
        events = [*house.before, world.referenced(spoilt), house.act(house.shipped, own)]
        assert "reference-readable" in {each.rule for each in told(events).violations}

    @pytest.mark.parametrize("change", [{"tables": []}, {"tables": None}, {"tables": {"site": 1}}])
    def test_data_in_force_that_have_no_such_tables(self, house, rules, own, change):
        spoilt = canonical({**json.loads(house.shipped), **change}).decode()
        assert rules(house.act(spoilt, own)) == [(0, "reference-is-what-was-said")]

    def test_data_in_force_without_any_tables(self, house, rules, own):
        event = house.act('{"format":"placet.reference/1"}', own)
        assert rules(event) == [(0, "reference-is-what-was-said")]


class TestMissing:
    """What is not enclosed is missing: nothing is said against it, and nothing for it."""

    @pytest.mark.parametrize("which", ["row", "whole", "shipped"])
    def test_without_one_of_them_the_act_is_not_checked(self, house, told, which):
        own = house.price()
        texts = {
            "row": own,
            "whole": house.whole(own, without=[0, 1]),  # a lie that needs all three to be seen
            "shipped": house.shipped,
        }
        events = [*house.before, house.ships, house.act(texts["whole"], own)]
        gone = house.world.document(texts[which])
        del house.world.documents[gone]
        invariants = told(events)
        assert (invariants.violations, invariants.missing) == ([], {gone})

    def test_a_row_that_is_not_enclosed_may_be_withdrawn(self, house, told):
        own = house.price()
        taken = house.act(house.whole(own, without=[0]), own)
        del house.world.documents[taken.data["row"]]
        events = [*house.before, house.ships, taken, house.act(house.shipped, None)]
        assert told(events).violations == []
