"""What rows are in force is a matter of acts by officers: recorded and never rewritten."""

import base64
import functools
import json

import pytest
from sqlalchemy.exc import IntegrityError
from sqlmodel import select
from world import open_world

from audit.canonical import digest
from audit.invariants import Invariants
from audit.tables import ADDED, KEYS
from policies.gate import replay
from policies.overlay import TABLES
from policies.reference import ReferenceDataError
from service.archive import load
from service.force_tables import ReferenceRow
from service.installation import build
from service.reference_rows import ADDED_TABLES, OWN_TABLES
from service.tables import StoredDecision

PRICE = {
    "provider": "own-site",
    "flavor": "cpu",
    "currency": "EUR",
    "price_micros_per_hour": 5_000_000,
    "source": "our own books, year 2026",
    "checked_on": "2026-11-29",
    "confidence": "declared",
}
CERTIFICATE = {
    "scheme": "hds",
    "provider": "own-site",
    "service": "storage",
    "regions": ["site"],
    "number": "HDS-2026/17 (v2)",
    "status": "attested",
    "framework_version": 2,
    "activities": [1, 2, 3],
    "valid_from": "2026-01-01",
    "valid_until": "2028-12-31",
    "source": "certificate of the registrar",
    "checked_on": "2026-11-29",
    "confidence": "primary",
}
ENDPOINT = {
    "host": "s3.lyon.ward.example",
    "provider": "own-site",
    "service": "storage",
    "region": "lyon",
    "source": "our own network plan",
    "checked_on": "2026-11-29",
    "confidence": "declared",
}
SITE = {
    "provider": "own-site",
    "region": "lyon",
    "country": "FR",
    "source": "our own lease",
    "checked_on": "2026-11-29",
    "confidence": "declared",
}
PDF = b"%PDF-1.7 a certificate"


def body(table="prices", row=PRICE, **changes):
    return {"table": table, "row": row} | changes


def record(world, table, row, **changes):
    return world.post("/v1/reference/rows", "olaf", body(table, row, **changes))


def listed(world, table):
    return {one["key"]: one for one in world.get(f"/v1/reference/tables/{table}")["items"]}


def test_what_ships_is_recorded_when_the_log_starts(world):
    first, second, third = world.entries()[:3]

    assert [first.action, second.action, third.action] == [
        "log.started",
        "policy.activated",
        "reference.recorded",
    ]
    assert second.data["policy"] == world.in_force.policy.digest
    assert (second.data["number"], second.data["bundle"], second.data["signers"]) == (0, None, [])
    assert third.data["reference"] == third.data["row"] == world.in_force.reference.digest


def test_a_second_start_records_nothing(world):
    before = world.kinds()

    world.wired.start()

    assert world.kinds() == before


def test_a_row_says_who_declares_it_and_is_in_force_at_once(world):
    before = world.in_force.reference

    done = record(world, "prices", PRICE, reason="our auditors agreed")

    row = listed(world, "prices")["own-site/cpu/EUR"]
    assert (row["origin"], row["id"]) == ("overlay", done["id"])
    assert row["row"] == PRICE | {"declared_by": world.ids["olaf"]}
    assert world.in_force.reference.digest == done["reference_digest"] != before.digest
    entry = world.entries()[-1]
    assert (entry.action, entry.actor.ref) == ("reference.recorded", world.ids["olaf"])
    assert entry.data["key"] == "own-site/cpu/EUR"
    assert entry.data["reference"] == done["reference_digest"]
    assert list(entry.sealed) == ["reason"]


def test_a_shipped_row_is_replaced_and_shows_again_when_ours_is_withdrawn(world):
    key, shipped = next((k, one["row"]) for k, one in listed(world, "prices").items())
    before = world.in_force.reference.digest
    record(world, "prices", shipped | {"price_micros_per_hour": 1, "checked_on": "2026-11-29"})
    assert listed(world, "prices")[key]["row"]["price_micros_per_hour"] == 1

    gone = {"table": "prices", "key": key}
    assert world.post("/v1/reference/withdrawals", "olaf", gone)["act"] == "withdrawn"

    assert listed(world, "prices")[key] == {"key": key, "origin": "shipped", "row": shipped}
    assert world.in_force.reference.digest == before

    assert world.post("/v1/reference/withdrawals", "olaf", gone)["act"] == "hidden"
    assert listed(world, "prices")[key]["row"] is None
    assert world.ask("POST", "/v1/reference/withdrawals", "olaf", gone).status == 404
    record(world, "prices", shipped)
    assert listed(world, "prices")[key]["origin"] == "overlay"


def test_a_certificate_keeps_its_document(world):
    attached = {"media_type": "application/pdf", "content": base64.b64encode(PDF).decode()}

    done = record(world, "certificates", CERTIFICATE, document=attached)

    assert done["document_digest"] == done["row"]["document"] == digest(PDF)
    answer = world.ask("GET", f"/v1/reference/rows/{done['id']}/document")
    assert (answer.status, answer.content) == (200, PDF)
    assert world.entries()[-1].data["document"] == digest(PDF)


def test_a_second_site_of_ours_is_a_place(world):
    assert world.wired.places().of("https://s3.lyon.ward.example").country is None

    record(world, "regions", SITE)
    record(world, "endpoints", ENDPOINT)

    assert world.wired.places().of("https://s3.lyon.ward.example").country == "FR"


def test_a_price_of_ours_changes_the_next_estimate_and_no_stored_decision(world):
    rented = {
        "provider": "ovhcloud",
        "flavor": "l40s-1-gpu",
        "currency": "EUR",
        "price_micros_per_hour": 777_000_000,
        "source": "our framework contract",
        "checked_on": "2026-11-29",
        "confidence": "declared",
    }
    changes = {
        "compute__provider": "ovhcloud",
        "compute__service": "ai-training",
        "compute__region": "GRA",
        "compute__flavor": "l40s-1-gpu",
        "compute__gpus": 1,
        "budget_cents": 1,
    }
    first = world.submit(**changes)

    record(world, "prices", rented)
    second = world.submit(**changes)

    costs = [facts_of(world, job)["cost"]["estimate_cents"] for job in (first, second)]
    assert costs[0] != costs[1]
    assert costs[1] >= 77_700
    for job in (first, second):
        assert replayed(world, job).identical


def decision(world, job):
    with world.wired.transactions.read() as session:
        row = session.get_one(StoredDecision, job["decision"]["id"])
        names = (row.record_digest, row.policy_digest, row.reference_digest)
        return [load(session, name) for name in names]


def facts_of(world, job):
    return json.loads(decision(world, job)[0])["facts"]


def replayed(world, job):
    return replay(*decision(world, job))


def test_an_approval_is_stale_when_a_row_changes_before_the_dispatch(world, operator_log):
    job = world.approved_job()
    record(world, "prices", PRICE)

    world.worker.work()

    again = world.job(job["id"])
    assert again["state"] == "awaiting_approval"
    assert again["decision"]["id"] != job["decision"]["id"]
    assert again["decision"]["approvals"] == []
    assert not world.engine.runs
    (stale,) = (one for one in operator_log if one["event"] == "approval.stale")
    assert stale["changed"] == ["facts", "reference"] or stale["changed"] == ["reference"]
    for each in (job, again):
        assert replayed(world, each).identical


def test_another_process_takes_a_row_at_its_next_transaction(world):
    other = build(world.wired.settings, clock=world.clock)
    record(world, "prices", PRICE)

    with other.transactions.read() as session:
        seen = other.gate.current(session).reference

    other.database.dispose()
    assert seen.digest == world.in_force.reference.digest
    assert any(row["source"] == PRICE["source"] for row in seen.rows("prices"))


@pytest.mark.parametrize("who", ["ada", "vera", "root"])
def test_only_officers_change_rows(world, who):
    before = world.counts()["reference_row"]
    price = {"table": "prices", "key": "own-site/cpu/EUR"}

    assert world.ask("POST", "/v1/reference/rows", who, body()).status == 403
    assert world.ask("POST", "/v1/reference/withdrawals", who, price).status == 403
    assert world.counts()["reference_row"] == before


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("regions", {"country": "FR"}),
        ("providers", {"parent": "FR"}),
        ("endpoints", {"region": "gra"}),
        ("categories", {"classes": []}),
        ("country_sets", {"members": ["CA"]}),
        ("adequacy", {"scope": "general"}),
        ("thresholds", {"note": "ours"}),
        ("uses", {"note": "ours"}),
        ("licences", {"note": "ours"}),
    ],
)
def test_one_officer_says_neither_what_the_law_is_nor_where_a_shipped_place_lies(
    world, table, change
):
    """An audit: rows of the law, recorded by one officer, let Art. 9 data out of the Union."""
    wanted = {"regions": "ovhcloud/BHS", "providers": "aws", "endpoints": "s3.bhs.io.cloud.ovh.net"}
    rows = listed(world, table)
    key = wanted.get(table) or next(iter(rows))
    before = world.in_force.reference.digest, world.counts()["reference_row"]

    body_ = body(table, {**rows[key]["row"], **change, "checked_on": "2026-11-29"})
    answer = world.ask("POST", "/v1/reference/rows", "olaf", body_)
    assert answer.status == 422
    assert "PLACET_REFERENCE_DIR" in str(answer.json)
    gone = world.ask("POST", "/v1/reference/withdrawals", "olaf", {"table": table, "key": key})
    assert gone.status == 422
    assert (world.in_force.reference.digest, world.counts()["reference_row"]) == before


def test_a_service_account_changes_no_row(world):
    world.tamper(
        "principal", "UPDATE principal SET kind = 'service' WHERE id = :id", id=world.ids["olaf"]
    )
    assert world.ask("POST", "/v1/reference/rows", "olaf", body()).status == 403


@pytest.mark.parametrize(
    ("request_body", "status", "says"),
    [
        (body("taxes"), 422, "no table"),
        (body("../prices"), 422, "/table"),
        (body(row=PRICE | {"discount": 3}), 422, "additionalProperties"),
        (body(row=PRICE | {"price_micros_per_hour": -1}), 422, "minimum"),
        (body(row=PRICE | {"price_micros_per_hour": True}), 422, "type"),
        (body(row=PRICE | {"provider": "\u043evhcloud"}), 422, "is no key"),
        (body(row=PRICE | {"provider": "own site"}), 422, "is no key"),
        (body(row=PRICE | {"checked_on": "2026-12-01"}), 422, "future"),
        (body(row=PRICE | {"checked_on": "2026-02-30"}), 422, "no day"),
        (body(row=PRICE | {"declared_by": "prn_somebody"}), 422, "leave it out"),
        (body(row=PRICE | {"document": "/etc/passwd"}), 422, "leave it out"),
        (body(row=PRICE | {"document": "sha256:" + "0" * 64}), 422, "leave it out"),
        (body(row={k: v for k, v in PRICE.items() if k != "source"}), 422, "required"),
        (
            body("certificates", CERTIFICATE | {"valid_until": "2025-12-31"}),
            422,
            "before `valid_from`",
        ),
        (body("certificates", CERTIFICATE | {"valid_until": None}), 422, "valid_until"),
        (body("certificates", CERTIFICATE | {"number": "../../x\n"}), 422, "pattern"),
        (body(document={"media_type": "application/jwt", "content": "aaaa"}), 422, "media_type"),
        (body(document={"media_type": "text/plain", "content": "äääää"}), 422, "base64"),
        (body(document="/etc/passwd"), 422, "/document"),
    ],
)
def test_a_hostile_row_changes_nothing(lone_world, request_body, status, says):
    before = lone_world.in_force.reference.digest, lone_world.counts()["reference_row"]

    answer = lone_world.ask("POST", "/v1/reference/rows", "olaf", request_body)

    assert (answer.status, says in json.dumps(answer.problem)) == (status, True), answer.problem
    after = lone_world.in_force.reference.digest, lone_world.counts()["reference_row"]
    assert after == before


def test_a_float_is_no_number(lone_world):
    raw = json.dumps(body(row=PRICE | {"price_micros_per_hour": 1.5})).encode()
    assert lone_world.ask("POST", "/v1/reference/rows", "olaf", raw=raw).status == 400


def test_a_request_that_is_sent_twice_records_once(world):
    answers = [
        world.ask("POST", "/v1/reference/rows", "olaf", body(), key="the-same-key") for _ in "ab"
    ]
    assert [one.json for one in answers] == [answers[0].json] * 2
    assert world.counts()["reference_row"] == 2


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        ("reference_row", "UPDATE reference_row SET act = 'hidden'"),
        ("reference_row", "DELETE FROM reference_row"),
        ("policy_act", "UPDATE policy_act SET number = 9"),
        ("policy_act", "DELETE FROM policy_act"),
    ],
)
def test_an_act_is_never_changed_nor_deleted(world, table, statement):
    before = world.counts()[table]

    with pytest.raises(IntegrityError, match="the past does not change"):
        world.change(statement)

    assert world.counts()[table] == before


def test_the_overlay_folder_is_part_of_what_ships_and_its_change_is_an_entry(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    rows = json.dumps({"table": "prices", "defaults": {}, "rows": [PRICE]})
    (folder / "prices.yaml").write_text(rows)
    world = open_world(tmp_path, f"sqlite:///{tmp_path / 'placet.db'}", reference_dir=folder)

    own = listed(world, "prices")["own-site/cpu/EUR"]
    assert own == {
        "key": "own-site/cpu/EUR",
        "origin": "shipped",
        "row": PRICE | {"declared_by": "operator"},
    }
    before = world.in_force.reference.digest
    (folder / "prices.yaml").write_text(rows.replace("5000000", "6000000"))
    build(world.wired.settings, clock=world.clock).start()

    assert world.in_force.reference.digest != before
    assert world.kinds().count("reference.recorded") == 2
    (folder / "prices.yaml").write_text(rows.replace("EUR", "XXX"))
    with pytest.raises(ReferenceDataError, match="breaks"):
        build(world.wired.settings, clock=world.clock)
    world.wired.database.dispose()


def test_rows_survive_another_release_and_its_tables(world):
    record(world, "prices", PRICE)
    site = dict(world.wired.shipped.reference.site) | {"checked_on": "2026-11-28"}
    shipped = type(world.wired.shipped.reference)(world.wired.shipped.reference.tables, site)

    world.restart(reference=shipped)

    assert listed(world, "prices")["own-site/cpu/EUR"]["origin"] == "overlay"
    assert world.in_force.reference.site == site
    with world.wired.transactions.read() as session:
        acts = [row.act for row in session.exec(select(ReferenceRow))]
    assert sorted(acts) == ["recorded", "shipped", "shipped"]


def test_the_verifier_holds_the_log_to_the_same_tables_and_keys():
    assert set(KEYS) == OWN_TABLES | ADDED_TABLES
    assert ADDED == ADDED_TABLES
    assert {table: TABLES[table] for table in KEYS} == KEYS


def test_every_act_on_a_row_is_what_the_verifier_makes_of_the_log(world):
    record(world, "prices", PRICE)
    record(world, "prices", {**PRICE, "price_micros_per_hour": 1})
    record(world, "certificates", CERTIFICATE)
    record(world, "regions", SITE)
    record(world, "endpoints", ENDPOINT)
    shipped = next(iter(listed(world, "flavors")))
    for table, key in (("prices", "own-site/cpu/EUR"), ("flavors", shipped)):
        world.post("/v1/reference/withdrawals", "olaf", {"table": table, "key": key})

    with world.wired.transactions.read() as session:
        invariants = Invariants(world.wired.transactions.origin, functools.partial(load, session))
        for index, entry in enumerate(world.entries()):
            invariants.read(index, entry)
    assert invariants.violations == []
    assert world.kinds().count("reference.recorded") == 8
