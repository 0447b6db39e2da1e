"""Rows and entries agree; who edits a table as its owner is found out."""

import pytest

from service.reconciling import reconcile


def found(world):
    with world.wired.transactions.snapshot() as session:
        return reconcile(session)


@pytest.fixture
def story(world):
    world.active_deployment()
    refused = world.submit()
    world.post(
        f"/v1/jobs/{refused['id']}/approvals",
        "omar",
        {"outcome": "refused", "reason": "not now"},
        seen=refused["version"],
    )
    world.post("/v1/exports", "vera", {"recipient": "auditor"})
    return world


def test_a_whole_story_reconciles_to_nothing(story):
    done = found(story)

    assert [str(d) for d in done.differences] == []
    assert done.entries == len(story.entries())
    assert done.rows > 10
    assert done.documents > 10


def rules(world):
    return {(one.rule, one.subject.split()[0].split(":")[0]) for one in found(world).differences}


JOB = "(SELECT id FROM job ORDER BY id LIMIT 1)"
BACK_TO_THE_FIRST = (
    f"UPDATE job SET version = 1, entry_id = (SELECT id FROM audit_entry WHERE"
    f" kind = 'job.submitted' AND entity = 'job:' || {JOB}) WHERE id = {JOB}"
)


@pytest.mark.parametrize(
    ("table", "statement", "expected"),
    [
        ("export", "DELETE FROM export", ("entry-needs-row", "export")),
        (
            "job",
            f"UPDATE job SET version = version + 1 WHERE id = {JOB}",
            ("row-needs-entry", "Job"),
        ),
        (
            "job",
            BACK_TO_THE_FIRST,
            ("row-is-latest", "Job"),
        ),
        (
            "job",
            "UPDATE job SET entry_id = (SELECT id FROM audit_entry WHERE kind = 'log.started')",
            ("row-needs-entry", "Job"),
        ),
        (
            "audit_entry",
            "UPDATE audit_entry SET kind = 'job.cancelled' WHERE kind = 'job.submitted'",
            ("entry-is-intact", "evt_"),
        ),
        (
            "audit_entry",
            "UPDATE audit_entry SET leaf_hash = body WHERE kind = 'job.submitted'",
            ("entry-is-intact", "evt_"),
        ),
        (
            "audit_entry",
            "UPDATE audit_entry SET idx = idx + 1000 WHERE kind = 'log.started'",
            ("index-contiguous", "log"),
        ),
        (
            "document",
            "UPDATE document SET body = leaf_hash FROM audit_entry WHERE kind = 'log.started'",
            ("document-is-there", "sha256"),
        ),
        ("document", "DELETE FROM document", ("document-is-there", "sha256")),
        ("sealed_value", "DELETE FROM sealed_value", ("seal-is-there", "evt_")),
        ("log_head", "UPDATE log_head SET size = 1", ("checkpoint-in-order", "log")),
    ],
)
def test_what_an_owner_of_the_tables_does_is_found(story, table, statement, expected):
    story.tamper(table, statement)

    rule, subject = expected
    assert any(told == rule and about.startswith(subject) for told, about in rules(story))


def test_a_deleted_entry_leaves_a_gap(story):
    story.tamper("audit_entry", "DELETE FROM audit_entry WHERE kind = 'job.submitted'")

    assert {rule for rule, _ in rules(story)} >= {"versions-contiguous", "index-contiguous"}


def test_an_entry_about_nothing_that_is_there_is_found(story):
    """Two versions of one row cannot be told in two entries of the same number."""
    story.tamper(
        "audit_entry",
        "INSERT INTO audit_entry (id, entity, kind, at, body, leaf_hash)"
        " SELECT 'evt_x', entity, kind, at, body, leaf_hash FROM audit_entry"
        " WHERE kind = 'dataset.registered'",
    )

    assert {rule for rule, _ in rules(story)} == {"entry-is-intact", "versions-contiguous"}


def test_the_list_is_short_and_the_count_is_whole(story):
    story.tamper("audit_entry", "UPDATE audit_entry SET at = 'x', leaf_hash = body, entity = 'x'")

    done = found(story)

    assert len(done.differences) <= 100
    assert done.num_differences > len(story.entries())
