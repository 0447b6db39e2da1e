"""An excerpt of the log for one auditor: what belongs to a job, a period or a person."""

import json
import zipfile

import pytest

from audit.report import to_text
from audit.verify import verify
from service.archive import load


@pytest.fixture
def story(world):
    """Two jobs; one is trained and deployed, the other is refused."""
    deployment = world.active_deployment()
    refused = world.submit()
    world.post(
        f"/v1/jobs/{refused['id']}/approvals",
        "omar",
        {"outcome": "refused", "reason": "not now"},
        seen=refused["version"],
    )
    world.deployment, world.refused = deployment, refused
    return world


def excerpt(world, **selection):
    made = world.post("/v1/exports", "vera", {"recipient": "auditor", "selection": selection})
    path = world.folder / "excerpt.zip"
    path.write_bytes(world.ask("GET", made["bundle"], "vera").content)
    with zipfile.ZipFile(path) as bundle:
        lines = [json.loads(line) for line in bundle.read("entries.ndjson").splitlines()]
        names = bundle.namelist()
    assert made["num_shown"] == len(lines)
    report = verify(path, world.wired.ledger.vkeys)
    assert report.exit_code == 4, to_text(report)
    outcomes = {level.id: str(level.outcome) for level in report.levels}
    assert {outcomes[level] for level in ("L0", "L1", "L2", "L7")} == {"pass"}, to_text(report)
    assert outcomes["L6"] == "not checked"
    return [line["entry"] for line in lines], names


def refused_selection(world, **selection):
    answer = world.ask(
        "POST", "/v1/exports", "vera", {"recipient": "auditor", "selection": selection}
    )
    assert answer.status == 422, answer.content
    return answer.problem["detail"]


def test_a_deployment_comes_with_its_whole_line(story):
    entries, names = excerpt(story, deployments=[story.deployment["id"]])

    actions = [entry["action"] for entry in entries]
    for action in (
        "dataset.registered",
        "base_model.registered",
        "job.submitted",
        "approval.given",
        "run.finished",
        "model_version.registered",
        "deployment.activated",
    ):
        assert action in actions
    assert not any(story.refused["id"] in entry["resource"] for entry in entries)
    assert not any(entry["action"].startswith(("principal", "token")) for entry in entries)
    assert any(name.startswith("objects/") for name in names)


def test_a_job_shows_nothing_of_another(story):
    entries, names = excerpt(story, jobs=[story.refused["id"]])

    resources = {entry["resource"].partition("@")[0] for entry in entries}
    assert f"job:{story.refused['id']}" in resources
    assert not any(resource.startswith(("deployment:", "model_version:")) for resource in resources)
    shown = json.dumps(entries)
    digests = {name.removeprefix("objects/sha256-") for name in names if "objects/" in name}
    assert all(digest in shown for digest in digests)


def test_conditions_narrow_each_other_down(story):
    officer = story.ids["omar"]

    of_him, _ = excerpt(story, people=[officer])
    decisions, _ = excerpt(story, kinds=["gate.decided"], jobs=[story.refused["id"]])
    none, _ = excerpt(story, kinds=["job.cancelled"])
    later, _ = excerpt(story, since="2100-01-01")
    earlier, _ = excerpt(story, until="2100-01-01T00:00:00Z", kinds=["log.started"])

    assert {entry["actor"]["ref"] for entry in of_him} == {officer}
    assert {entry["action"] for entry in decisions} == {"gate.decided"}
    assert (none, later) == ([], [])
    assert [entry["action"] for entry in earlier] == ["log.started"]


def test_an_excerpt_is_an_entry_that_says_how_it_was_chosen(story):
    shown, _ = excerpt(story, jobs=[story.refused["id"]])

    entry = story.entries()[-1]
    assert (entry.action, entry.data["shown"]) == ("evidence.exported", len(shown))
    with story.wired.transactions.read() as session:
        selection = json.loads(load(session, str(entry.data["selection"])))
    assert f"job:{story.refused['id']}" in selection["resources"]
    assert selection["end"] == len(story.entries()) - 1


@pytest.mark.parametrize(
    ("selection", "says"),
    [
        ({}, "asks for nothing"),
        ({"jobs": []}, "asks for nothing"),
        ({"jobs": ["job_none"]}, "/selection/jobs"),
        ({"kinds": ["job.eaten"]}, "job.eaten"),
        ({"since": "2026-13-01"}, "since"),
        ({"since": "yesterday"}, "since"),
        ({"everything": True}, "everything"),
    ],
)
def test_a_selection_that_means_nothing_is_refused_before_anything_is_written(
    story, selection, says
):
    before = story.counts()

    assert says in refused_selection(story, **selection)
    assert story.counts()["export"] == before["export"]


def test_a_whole_bundle_says_that_it_is_whole(story):
    made = story.post("/v1/exports", "vera", {"recipient": "auditor"})

    assert made["num_shown"] is None
    assert made["num_entries"] == len(story.entries())
