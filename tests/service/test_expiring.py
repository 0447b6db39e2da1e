"""Certificates that end soon: which, when, and what of whose rests on them."""

import datetime as dt
import json
import os

import pytest
from loopback import answering

from policies.reference import Reference
from service import cli
from service.dated_rows import turning
from service.expiring import DailyWarning, _places, expiring, warning_days
from service.resting import Resting, Work

TODAY = dt.date(2026, 11, 30)
HEALTH = {"categories": ["health.fr.hds", "synthetic"], "data_subject_countries": ["FR"]}


@pytest.fixture
def database_url(tmp_path):
    """Use SQLite alone: nothing here depends on the database."""
    return f"sqlite:///{tmp_path / 'placet.db'}"


def certificate(until, **changes):
    return {
        "scheme": "hds",
        "provider": "own-site",
        "service": "local",
        "regions": ["site"],
        "status": "attested",
        "framework_version": 2,
        "activities": [1, 2, 3, 4, 5, 6],
        "valid_from": "2026-01-01",
        "valid_until": until,
        "source": "certificate 1234",
        "checked_on": "2026-11-30",
        "confidence": "declared",
    } | changes


def with_rows(reference, rows, **tables):
    return Reference({**reference.tables, "certificates": tuple(rows), **tables}, reference.site)


def work(facts, derived, decided_on="2026-11-30", name="job:one"):
    return Work(Resting(name, "compliance", "running"), facts, derived, decided_on)


def certified(world, *rows):
    """Put certificates in force."""
    world.restart(reference=with_rows(world.in_force.reference, rows))


def listed(world, who="vera", query=""):
    return world.get(f"/v1/reference/expiring{query}", who)


def resting_job(world):
    """Submit a job on French health data, and keep it waiting whatever the gate thinks of it."""
    dataset = world.register_dataset(
        **HEALTH, legal_basis="art6.1.e", art9_basis="art9.2.h", dpia_reference="dpia-1"
    )
    job = world.submit(dataset=dataset["id"])
    if job["state"] == "denied":
        world.tamper(
            "job", "UPDATE job SET state = 'awaiting_approval' WHERE id = :id", id=job["id"]
        )
    return job


def test_the_house_policy_is_a_row_and_no_constant(world):
    reference = world.in_force.reference

    assert warning_days(reference) == 30
    others = tuple(r for r in reference.rows("thresholds") if r["id"] != "certificate_warning_days")
    assert warning_days(with_rows(reference, (), thresholds=others)) is None


@pytest.mark.parametrize(
    ("until", "within", "days"),
    [
        ("2026-12-29", 30, 29),
        ("2026-12-30", 30, 30),
        ("2026-12-31", 30, None),
        ("2026-11-30", 30, 0),
        ("2026-11-30", 0, 0),
        ("2026-11-29", 30, None),
        ("2036-01-01", None, 3319),
        (None, None, None),
    ],
)
def test_the_last_day_counts_as_valid(world, until, within, days):
    reference = with_rows(world.in_force.reference, [certificate(until)])
    found = expiring((), reference, today=TODAY, within=within)

    assert [one.days_left for one in found] == ([] if days is None else [days])


@pytest.mark.parametrize(
    ("other", "regions"),
    [
        ({}, []),
        ({"regions": ["elsewhere"]}, ["site"]),
        ({"service": "other"}, ["site"]),
        ({"scheme": "secnumcloud"}, ["site"]),
        ({"status": "claimed"}, ["site"]),
    ],
)
def test_a_renewed_certificate_does_not_end(world, other, regions):
    rows = [certificate("2026-12-10"), certificate("2027-12-10", **other)]
    reference = with_rows(world.in_force.reference, rows)
    found = expiring((), reference, today=TODAY, within=30)

    assert [list(one.regions) for one in found] == ([regions] if regions else [])


def test_a_claim_is_no_certificate(world):
    certified(world, certificate("2026-12-10", status="claimed"))

    assert listed(world)["items"] == []


def test_it_lists_whose_work_rests_on_it(world):
    certified(world, certificate("2026-12-10"))
    world.submit(name="not-about-health")
    job = resting_job(world)

    found = listed(world)

    assert (found["as_of"], found["within"]) == ("2026-11-30", 30)
    (one,) = found["items"]
    assert (one["scheme"], one["valid_until"], one["days_left"]) == ("hds", "2026-12-10", 10)
    assert [each["subject"] for each in one["resting"]] == [f"job:{job['id']}"]
    assert one["resting"][0]["team"] == "compliance"
    assert listed(world, "ada")["items"][0]["resting"]
    assert listed(world, "eve")["items"][0]["resting"] == []
    assert listed(world, query="?within=9")["items"] == []


def test_an_ended_one_is_listed_while_something_rests_on_it(world):
    certified(world, certificate("2026-11-20"))
    assert listed(world)["items"] == []
    job = resting_job(world)

    (one,) = listed(world)["items"]
    assert one["days_left"] == -10

    world.tamper("job", "UPDATE job SET state = 'cancelled' WHERE id = :id", id=job["id"])
    assert listed(world)["items"] == []


def test_only_places_that_need_a_certificate_count():
    place = {"provider": "own-site", "service": "local", "region": "site"}
    unknown = {**place, "region": None}
    facts = {"compute": place, "deploy": None, "datasets": [place, unknown], "storage": [place]}
    valid, exempt = {"hds": {"status": "valid"}}, {"hds": {"status": "exempt"}}
    derived = {"compute": exempt, "datasets": [{"country": "FR"}, valid], "storage": [valid]}

    assert list(_places(work(facts, derived))) == [("hds", "own-site", "local", "site")]
    assert list(_places(work(None, {}))) == []


@pytest.mark.parametrize("within", ["-1", "x", "4000", "1.5"])
def test_a_wrong_number_of_days_is_refused(world, within):
    assert world.ask("GET", f"/v1/reference/expiring?within={within}", "vera").status == 422


def test_nobody_unknown_may_look(world):
    assert world.ask("GET", "/v1/reference/expiring", None).status == 401


def test_the_worker_warns_once_a_day(world, operator_log):
    certified(world, certificate("2026-12-10"))
    job = resting_job(world)

    def warned():
        return [line for line in operator_log if line["event"] == "certificate.expiring"]

    world.worker.work()
    world.worker.work()
    (one,) = warned()
    assert one["days_left"] == 10
    assert one["resting"] == [f"job:{job['id']}"]

    world.clock.advance(days=1)
    world.worker.work()
    assert [line["days_left"] for line in warned()] == [10, 9]


def test_a_warning_that_cannot_be_made_keeps_nothing_waiting(world, operator_log, monkeypatch):
    def fail(*_, **__):
        raise ValueError("a bug")

    monkeypatch.setattr(DailyWarning, "say", fail)
    job = world.approved_job()

    world.worker.work()

    assert world.job(job["id"])["state"] == "running"
    assert "worker.step_failed" in {line["event"] for line in operator_log}


def test_the_command_lists_them(world, capfd, monkeypatch):
    certified(world, certificate("2026-12-10"))
    job = resting_job(world)
    monkeypatch.setattr(os, "umask", lambda mask: mask)
    monkeypatch.setenv("PLACET_TOKEN", world.tokens["vera"])
    with answering(world.app) as url:
        monkeypatch.setenv("PLACET_URL", url)
        said = []
        for words in ([], ["--within", "5"], ["--json"], ["--within", "-1"]):
            capfd.readouterr()
            said.append((cli.main(["reference", "expiring", *words]), capfd.readouterr().out))

    assert [status for status, _ in said] == [0, 0, 0, 2]
    assert "2026-12-10  in 10 days  hds  own-site / local / site" in said[0][1]
    assert f"job:{job['id']}  compliance" in said[0][1]
    assert said[1][1] == "nothing ends within 5 days\n"
    assert json.loads(said[2][1])["items"][0]["days_left"] == 10


# Rows of law


def in_country(country, provider="own-site", **derived):
    place = {"provider": provider, "service": "local", "region": "site"}
    return work({"compute": place}, {"compute": {"country": country, **derived}})


def law(reference, table, *rows):
    return Reference({**reference.tables, table: tuple(rows)}, reference.site)


def row_of(reference, table, **changes):
    return {**reference.rows(table)[0], **changes}


def turned(found):
    return [(one.table, one.key, one.change, one.on, one.days_left) for one in found]


@pytest.mark.parametrize(
    ("until", "within", "days"),
    [
        ("2026-12-29", 30, 29),
        ("2026-12-31", 30, None),
        ("2026-11-30", 0, 0),
        ("2026-11-29", 30, None),
        (None, None, None),
    ],
)
def test_a_country_decision_that_ends_is_listed_up_to_its_last_day(world, until, within, days):
    now = world.in_force.reference
    reference = law(now, "adequacy", row_of(now, "adequacy", country="GB", until=until))

    found = turning((), reference, today=TODAY, within=within)

    wanted = [("adequacy", "GB", "ends", until, days)]
    assert turned(found) == ([] if days is None else wanted)


@pytest.mark.parametrize(
    ("later", "is_listed"),
    [
        ({"scope": "general"}, False),
        ({"scope": "conditional"}, True),
        ({"scope": "general", "from": "2026-12-22"}, True),
        ({"scope": "general", "country": "JP"}, True),
    ],
)
def test_a_country_decision_that_a_later_one_continues_does_not_end(world, later, is_listed):
    now = world.in_force.reference
    old = row_of(now, "adequacy", country="GB", scope="general", until="2026-12-20")
    new = {**old, "from": "2026-12-21", "until": None, **later}
    reference = law(now, "adequacy", old, new)

    assert bool(turning((), reference, today=TODAY, within=30)) is is_listed


def test_work_rests_on_a_country_by_its_places_and_by_the_law_that_reaches_its_provider(world):
    now = world.in_force.reference
    reference = law(now, "adequacy", row_of(now, "adequacy", country="FR", until="2026-12-20"))
    there, elsewhere = in_country("FR"), in_country("DE", provider="nobody")
    owned = in_country("DE", law_reach="general")  # the own site's owner has its seat in France
    lost = in_country("DE", law_reach="none")

    for one, is_resting in ((there, 1), (elsewhere, 0), (owned, 1), (lost, 0)):
        (found,) = turning((one,), reference, today=TODAY, within=30)
        assert len(found.resting) == is_resting


def test_a_country_that_leaves_a_set_takes_its_places_along(world):
    now = world.in_force.reference
    old = row_of(now, "country_sets", set="eea", members=["DE", "FR"], until="2026-12-20")
    new = {**old, "members": ["DE"], "from": "2026-12-21", "until": None}
    reference = law(now, "country_sets", old, new)

    found = turning((in_country("FR"), in_country("DE")), reference, today=TODAY, within=30)

    assert turned(found) == [("country_sets", "eea", "ends", "2026-12-20", 20)]
    assert len(found[0].resting) == 1
    whole = law(now, "country_sets", old, {**new, "members": ["DE", "FR", "NO"]})
    assert turning((in_country("FR"),), whole, today=TODAY, within=30) == []


def test_a_use_is_listed_when_work_declared_it_before_the_law_binds(world):
    def declared(decided_on):
        purpose = {"prohibited_practices": ["art5.1.ba"], "high_risk_areas": ["annex3.5.b"]}
        return work({"purpose": purpose}, {}, decided_on)

    reference = world.in_force.reference

    def found(decided_on, today, within=30):
        day = dt.date.fromisoformat(today)
        return turned(turning((declared(decided_on),), reference, today=day, within=within))

    soon = ("uses", "art5.1.ba", "starts", "2026-12-02")
    assert found("2026-11-30", "2026-11-30") == [(*soon, 2)]
    assert found("2026-12-01", "2026-12-05") == [(*soon, -3)]
    assert found("2026-12-02", "2026-12-05") == []
    assert found("2026-11-30", "2027-11-10")[-1][1:] == ("annex3.5.b", "starts", "2027-12-02", 22)
    assert turning((), reference, today=TODAY, within=30) == []


def test_facts_that_broke_their_contract_rest_on_nothing(world):
    now = world.in_force.reference
    reference = law(now, "adequacy", row_of(now, "adequacy", country="GB", until="2026-12-20"))
    (found,) = turning((work(None, {}), work("x", {})), reference, today=TODAY, within=30)
    assert found.resting == ()


def test_each_team_sees_its_own_work_that_rests_on_a_row_and_the_worker_warns(world, operator_log):
    now = world.in_force.reference
    ending = row_of(now, "adequacy", country="FR", until="2026-12-20")
    quiet = row_of(now, "adequacy", country="GB", until="2026-12-21")
    world.restart(reference=law(now, "adequacy", ending, quiet))
    job = world.submit(purpose__high_risk_areas=["annex3.5.b"])
    world.clock.advance(days=1)

    shown = {who: listed(world, who)["rows"] for who in ("ada", "eve")}
    world.worker.work()

    assert [row["key"] for row in shown["ada"]] == ["FR", "GB"]
    assert [one["subject"] for one in shown["ada"][0]["resting"]] == [f"job:{job['id']}"]
    assert [row["resting"] for row in shown["eve"]] == [[], []]
    assert [row["days_left"] for row in shown["ada"]] == [19, 20]
    of_mine = [row["key"] for row in listed(world, "ada", "?within=400")["rows"]]
    of_others = [row["key"] for row in listed(world, "eve", "?within=400")["rows"]]
    assert "annex3.5.b" in of_mine
    assert "annex3.5.b" not in of_others
    (warned,) = [line for line in operator_log if line["event"] == "reference.turning"]
    assert (warned["key"], warned["resting"]) == ("FR", [f"job:{job['id']}"])


def test_the_command_lists_rows_of_law(world, capfd, monkeypatch):
    now = world.in_force.reference
    ending = row_of(now, "adequacy", country="FR", until="2026-12-20")
    world.restart(reference=law(now, "adequacy", ending))
    job = world.submit()
    monkeypatch.setattr(os, "umask", lambda mask: mask)
    monkeypatch.setenv("PLACET_TOKEN", world.tokens["vera"])
    with answering(world.app) as url:
        monkeypatch.setenv("PLACET_URL", url)
        capfd.readouterr()
        status, said = cli.main(["reference", "expiring"]), capfd.readouterr().out

    assert status == 0
    assert said.startswith("2026-12-20  in 20 days  adequacy  FR  ends\n")
    assert f"job:{job['id']}  compliance" in said
