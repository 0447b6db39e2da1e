"""What the service lets the gate see of a job's chain, its data and its governance."""

import json

import pytest

from policies.load import load_reference
from policies.reference import Reference
from service import facts
from service.archive import load
from service.detection.result import DETECTORS_VERSION
from service.places import NOWHERE, Place
from service.requests import Governance
from service.tables import DatasetVersion

REFERENCE = load_reference()
DIGEST = "sha256:" + "3" * 64


@pytest.mark.parametrize("port", ["", ":5000"])
def test_a_registry_is_placed_by_the_host_in_the_image_name(port):
    image = f"s3.gra.io.cloud.ovh.net{port}/placet/trainer@{DIGEST}"

    assert facts.registry_place(REFERENCE, image) == Place(
        "ovhcloud", "object-storage", "gra", None
    )


@pytest.mark.parametrize(
    "image", [f"gra/trainer@{DIGEST}", f"registry.example/gra@{DIGEST}", f"ubuntu@{DIGEST}"]
)
def test_a_registry_that_is_not_listed_has_no_place(image):
    assert facts.registry_place(REFERENCE, image) == NOWHERE


@pytest.mark.parametrize(
    "image",
    [
        f"s3.gra.io.cloud.ovh.net@{DIGEST}",
        f"s3.gra.io.cloud.ovh.net:5000@{DIGEST}",
        f"s3.gra.io.cloud.ovh.net:gra@{DIGEST}",
        "s3.gra.io.cloud.ovh.net",
    ],
)
def test_a_name_without_a_slash_is_an_image_of_the_default_registry(image):
    assert facts.registry_place(REFERENCE, image) == NOWHERE


def test_a_first_part_without_dot_or_port_is_no_host():
    row = {**next(iter(REFERENCE.rows("endpoints"))), "host": "harbor"}
    reference = Reference({**REFERENCE.tables, "endpoints": (row,)}, REFERENCE.site)

    assert facts.registry_place(reference, f"harbor/trainer@{DIGEST}") == NOWHERE


def test_places_are_stated_by_role_and_nulls_stay():
    site = Place("own-site", "storage", "site", "FR")

    assert facts.storage_facts({"tracking": NOWHERE, "output": site}) == [
        {"role": "output", "provider": "own-site", "service": "storage", "region": "site"},
        {"role": "tracking", "provider": None, "service": None, "region": None},
    ]


def test_a_reference_that_nobody_gave_is_null():
    assert set(facts.governance_fact(None).values()) == {None}
    given = Governance(dora_register_reference="ROI-7")
    assert facts.governance_fact(given)["dora_register_reference"] == "ROI-7"


def facts_of(world, decision):
    with world.wired.transactions.read() as session:
        return json.loads(load(session, decision["facts_digest"]))


def test_the_gate_sees_how_and_by_which_detectors_data_was_looked_through(lone_world):
    job = lone_world.finished_job()
    deployment = lone_world.request_deployment(job)

    for subject in (job, deployment):
        (dataset,) = facts_of(lone_world, subject["decision"])["datasets"]
        assert dataset["detection_mode"] == "full"
        assert dataset["detector"] == DETECTORS_VERSION


def test_how_data_was_looked_through_is_null_where_nothing_says_it(lone_world):
    made = lone_world.register_dataset()
    with lone_world.wired.transactions.read() as session:
        row = session.get_one(DatasetVersion, made["id"])
    row.detection = {}

    fact = facts.dataset_fact(row)

    assert (fact["detection_mode"], fact["detector"]) == (None, None)
