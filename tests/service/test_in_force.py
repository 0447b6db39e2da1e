"""A change of what decides and a decision exclude each other; neither sees half of the other."""

import threading

import pytest

from audit.invariants import Invariants
from service import in_force
from service.installation import build
from service.problems import Unavailable

PRICE = {
    "provider": "own-site",
    "flavor": "cpu",
    "currency": "EUR",
    "price_micros_per_hour": 5_000_000,
    "source": "our own books, year 2026",
    "checked_on": "2026-11-29",
    "confidence": "declared",
}


def test_nothing_decides_before_anything_is_in_force(world):
    job = world.job_body()
    world.tamper("policy_act", "DELETE FROM policy_act")

    assert world.ask("POST", "/v1/decisions:preview", "ada", job).status == 503
    with world.wired.transactions.read() as session, pytest.raises(Unavailable, match="no policy"):
        world.wired.gate.current(session)


def test_an_altered_policy_decides_nothing(make_world):
    world = make_world()
    job, policy = world.job_body(), world.in_force.policy.digest
    world.tamper("document", "UPDATE document SET body = :b WHERE digest = :d", b=b"{}", d=policy)

    in_force._policies.clear()

    assert world.ask("POST", "/v1/decisions:preview", "ada", job).status == 503


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
@pytest.mark.postgres
def test_a_decision_under_way_stands_in_the_log_before_the_change_it_did_not_know(world):
    other = build(world.wired.settings, clock=world.clock)
    done = threading.Event()

    def change():
        assert (
            world.ask(
                "POST", "/v1/reference/rows", "olaf", {"table": "prices", "row": PRICE}
            ).status
            == 201
        )
        done.set()

    job = world.submit()
    thread = threading.Thread(target=change)
    with other.transactions.write() as tx:
        seen = other.gate.current(tx.session).reference.digest
        thread.start()
        assert not done.wait(1.5), "the change did not wait for the transaction that decides"
        assert other.gate.current(tx.session).reference.digest == seen
    thread.join(10)
    other.database.dispose()

    assert done.is_set()
    assert world.in_force.reference.digest != seen
    assert world.submit()["decision"]["reference_digest"] != job["decision"]["reference_digest"]
    invariants = Invariants("placet.localhost/log", lambda _: None)
    for index, entry in enumerate(world.entries()):
        invariants.read(index, entry)
    assert invariants.violations == []
