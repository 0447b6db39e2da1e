"""Certificates that end soon: which, when, and what of whose rests on them."""

import datetime as dt
import json
import os

import pytest
from loopback import answering

from policies.reference import Reference
from service import cli
from service.expiring import DailyWarning, _places, expiring, warning_days

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
    with world.wired.transactions.read() as session:
        found = expiring(session, reference, today=TODAY, within=within)

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
    with world.wired.transactions.read() as session:
        found = expiring(session, reference, today=TODAY, within=30)

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

    assert list(_places(facts, derived)) == [("hds", "own-site", "local", "site")]
    assert list(_places(None, {})) == []


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
    assert said[1][1] == "no certificate ends within 5 days\n"
    assert json.loads(said[2][1])["items"][0]["days_left"] == 10
