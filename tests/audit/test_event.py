"""Entries: a closed vocabulary in which no sentence fits."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.canonical import MAX_INT, canonical
from audit.event import Actor, EventError, EventKind, from_bytes, resource_parts, to_bytes
from audit.kinds import KINDS

GOLDEN = Path(__file__).parents[1] / "golden" / "audit" / "entries.ndjson"
DIGEST = "sha256:" + "ab" * 32


def one_of_each(world, ids):
    """One well-formed entry of every kind."""
    job, run, version = world.job, world.run, ids("mv", 1)
    deployment = f"deployment:{world.deployment}"
    return [
        world.started(),
        world.event("principal.created", f"principal:{world.officer}", roles=["officer"], teams=[]),
        world.event("principal.changed", f"principal:{world.officer}", roles=[], teams=["care"]),
        world.event("principal.disabled", f"principal:{world.officer}"),
        world.event(
            "token.issued",
            f"token:{ids('tok', 1)}",
            token=ids("tok", 1),
            expires_at="2027-01-01T00:00:00Z",
        ),
        world.event("token.revoked", f"token:{ids('tok', 1)}", token=ids("tok", 1)),
        world.event(
            "dataset.registered",
            f"dataset:{ids('ds', 1)}",
            manifest=DIGEST,
            categories_declared=["health"],
            categories_detected=[],
            country=None,
            num_objects=3,
            size_bytes=MAX_INT,
        ),
        world.event(
            "base_model.registered",
            f"base_model:{ids('bm', 1)}",
            files=DIGEST,
            licence="Apache-2.0",
        ),
        world.submitted(),
        world.decided(approvals=[("officer", 2)], job=job),
        world.approved(),
        world.event("approval.refused", record=DIGEST, role="officer"),
        world.event("approval.expired", record=DIGEST),
        world.event("job.cancelled"),
        world.waiver_requested(),
        world.waiver_approved(),
        world.event("waiver.refused", waiver=ids("wvr", 1), role="officer"),
        world.event("waiver.revoked", f"deployment:{world.deployment}", waiver=ids("wvr", 1)),
        world.dispatching(),
        world.event("run.started", run=run),
        world.event("run.observed", f"run:{run}", run=run, state="running"),
        world.finished(report=None, artefacts=None, outcome="failed"),
        world.event(
            "model_version.registered",
            f"model_version:{version}",
            job=job,
            run=run,
            artefacts=DIGEST,
            mlflow_run="0a1b2c",
            mlflow_version=3,
        ),
        world.requested(),
        world.activated(),
        world.event("deployment.retired", deployment),
        world.event("deployment.failed", deployment, reason_code="out_of_memory"),
        world.issued("card"),
        world.issued("transparency"),
        world.event(
            "evidence.exported",
            f"export:{ids('exp', 1)}",
            first=0,
            last=11,
            checkpoint_size=12,
            recipient_kind="auditor",
        ),
        world.referenced(document=DIGEST),
        world.enforced(bundle=DIGEST, number=7, signers=["maintainer-a+0a1b2c3d"]),
        world.event(
            "policy.rejected",
            f"policy:{ids('pol', 2)}",
            bundle=DIGEST,
            reason_code="quorum",
            still=DIGEST,
        ),
        world.event(
            "request.refused",
            f"job:{job}@3",
            problem="self-approval",
            route="POST /v1/jobs/{job_id}",
        ),
        world.event("log.recovered", f"log:{world.origin}", first=7, last=9),
        world.event(
            "value.disclosed",
            f"principal:{world.officer}",
            entry=ids("evt", 1),
            field="reason",
            recipient="auditor-17",
        ),
        world.event(
            "erasure.executed",
            f"principal:{world.officer}",
            ground="art17-1-b",
            keys=1,
            values=3,
        ),
    ]


def spoiled(event, **changes):
    return replace(event, data={**event.data, **changes})


@pytest.fixture
def events(world, ids):
    return one_of_each(world, ids)


@pytest.fixture
def value(world):
    """A well-formed entry as a plain value, to be spoiled."""
    return json.loads(to_bytes(world.submitted()))


def refused(value):
    with pytest.raises(EventError) as caught:
        from_bytes(canonical(value))
    return str(caught.value)


def test_every_kind_reads_back_byte_for_byte(events):
    assert [event.action for event in events] == list(EventKind)
    for event in events:
        data = to_bytes(event)
        assert from_bytes(data) == event
        assert to_bytes(from_bytes(data)) == data
        assert canonical(json.loads(data)) == data


def test_the_bytes_of_every_kind_are_golden(events, golden):
    golden(GOLDEN, b"".join(to_bytes(event) + b"\n" for event in events))


def test_every_kind_is_described():
    assert set(KINDS) == set(EventKind)


def test_each_member_is_needed_and_no_other_is_taken(events):
    for event in events:
        value = json.loads(to_bytes(event))
        for name in value:
            refused({key: each for key, each in value.items() if key != name})
        assert "unknown" in refused({**value, "note": "x"})
        for name in value["data"]:
            if event.action == EventKind.GATE_DECIDED and name == "job":
                continue
            data = {key: each for key, each in value["data"].items() if key != name}
            assert f"lacks the member `data.{name}`" in refused({**value, "data": data})
        assert "unknown member" in refused({**value, "data": {**value["data"], "note": "x"}})


def test_no_member_takes_a_sentence_or_a_name(events):
    for event in events:
        value = json.loads(to_bytes(event))
        for text in ("Jane Roe", "a b", "é", "a\nb", "x" * 201, "", " ", "\u202e", "#", "<b>"):
            for name in value["data"]:
                refused({**value, "data": {**value["data"], name: text}})
                refused({**value, "data": {**value["data"], name: [text]}})
            for name in value:
                refused({**value, name: text})
            for name in value["actor"]:
                refused({**value, "actor": {**value["actor"], name: text}})


def test_no_member_takes_another_type(events):
    for event in events:
        value = json.loads(to_bytes(event))
        for wrong in (True, -1, {}, [[]], {"a": 1}, [None], ["x"] * 65):
            for name in value["data"]:
                refused({**value, "data": {**value["data"], name: wrong}})
        for wrong in (True, None, 7, [], {"a": 1}):
            for name in value:
                if wrong is None and name in {"cause", "state", "policy"}:
                    continue
                refused({**value, name: wrong})


@pytest.mark.parametrize(
    "at",
    [
        "2026-11-30T12:00:00Z",
        "2026-11-30T12:00:00.1234Z",
        "2026-11-30T12:00:00.123+00:00",
        "2026-11-30 12:00:00.123Z",
        "2026-02-30T12:00:00.123Z",
        "2026-11-30T24:00:00.123Z",
        "2026-11-30T23:59:60.123Z",
        "2026-11-30T12:00:00.123z",
        "٢٠٢٦-11-30T12:00:00.123Z",
    ],
)
def test_instants_have_one_form_and_exist(value, at):
    assert "`at`" in refused({**value, "at": at})


@pytest.mark.parametrize(
    "resource",
    [
        "job",
        "job:",
        "job:job_1",
        "job:run_00000000000000000000000001",
        "job:job_80000000000000000000000000",
        "job:job_0000000000000000000000000i",
        "job:job_00000000000000000000000001@",
        "job:job_00000000000000000000000001@v3",
        "job:job_00000000000000000000000001@3@3",
        "run:run_00000000000000000000000001",
        "JOB:job_00000000000000000000000001",
    ],
)
def test_a_resource_is_a_kind_and_an_id_of_it(value, resource):
    assert "resource" in refused({**value, "resource": resource})


def test_a_resource_may_have_a_version(world, change):
    event = change(world.submitted(), resource=f"job:{world.job}@3")

    assert resource_parts(from_bytes(to_bytes(event)).resource) == ("job", world.job)


def test_digests_or_ids_name_data_sets_and_base_models(world, ids):
    for dataset, base_model in ((DIGEST, DIGEST), (ids("ds", 1), ids("bm", 1))):
        event = world.submitted(dataset=dataset, base_model=base_model)
        assert from_bytes(to_bytes(event)) == event
    with pytest.raises(EventError):
        to_bytes(world.submitted(dataset=ids("bm", 1)))


class TestGate:
    def test_the_stage_says_what_is_decided_on(self, world):
        with pytest.raises(EventError, match="a deployment at this stage"):
            to_bytes(spoiled(world.decided(), stage="deploy"))

    def test_the_named_subject_is_the_resource(self, world, ids):
        assert from_bytes(to_bytes(world.decided(job=world.job)))
        assert from_bytes(to_bytes(world.decided(stage="deploy", deployment=world.deployment)))
        for changes in (
            {"job": ids("job", 2)},
            {"deployment": world.deployment},
            {"job": world.job, "deployment": world.deployment},
            {"job": "nonsense"},
        ):
            with pytest.raises(EventError):
                to_bytes(world.decided(**changes))

    def test_an_approval_without_roles_is_no_demand(self, world):
        with pytest.raises(EventError, match="at least one role"):
            to_bytes(world.decided("require_approval"))

    def test_a_quorum_is_of_at_most_100_people(self, world):
        assert from_bytes(to_bytes(world.decided(approvals=[("a", 50), ("b", 50)])))
        with pytest.raises(EventError, match="at most 100 people"):
            to_bytes(world.decided(approvals=[("a", 50), ("b", 51)]))

    @pytest.mark.parametrize(
        "quorum",
        [
            {"role": "officer"},
            {"role": "o", "count": 0},
            {"role": "o", "count": 101},
            {"role": "o", "count": True},
            {"role": "o o", "count": 1},
            {"role": "o", "count": 1, "x": 1},
            "officer",
        ],
    )
    def test_a_quorum_is_a_role_and_a_count(self, world, quorum):
        with pytest.raises(EventError):
            to_bytes(spoiled(world.decided(), approvals=[quorum]))


class TestSealed:
    def test_commitments_are_carried(self, world, change):
        sealed = {"reason": "A" * 43 + "="}
        event = change(world.approved(), sealed=sealed)

        assert from_bytes(to_bytes(event)).sealed == sealed

    @pytest.mark.parametrize(
        "sealed",
        [
            {"reason": "because I say so"},
            {"reason": "A" * 44},
            {"reason": "A" * 42 + "B="},
            {"reason": "é" * 44},
            {"reason": "A" * 42 + "=="},
            {"my reason": "A" * 43 + "="},
            {"reason": None},
            {f"f{n}": "A" * 43 + "=" for n in range(65)},
        ],
    )
    def test_anything_else_is_refused(self, world, change, sealed):
        with pytest.raises(EventError, match="sealed"):
            to_bytes(change(world.approved(), sealed=sealed))


def test_bytes_that_are_not_canonical_are_refused(world):
    data = to_bytes(world.submitted())
    for other in (data + b"\n", data.replace(b",", b", ", 1), b" " + data):
        with pytest.raises(EventError, match="canonical"):
            from_bytes(other)
    with pytest.raises(EventError, match="object"):
        from_bytes(b"[]")


def test_an_entry_has_at_most_16_kib(world, change):
    event = world.submitted()
    sealed = {f"{n:03d}".ljust(200, "x"): "A" * 43 + "=" for n in range(64)}
    with pytest.raises(EventError, match="refer to long values"):
        to_bytes(change(event, sealed=sealed))
    with pytest.raises(EventError, match="at most 16384"):
        from_bytes(b" " * 16_385)


@given(st.binary(max_size=100))
def test_reading_raises_nothing_but_its_own_error(data):
    with pytest.raises(EventError):
        from_bytes(data)


@given(
    st.dictionaries(
        st.sampled_from(["v", "id", "log", "at", "actor", "action", "data", "sealed"]),
        st.none() | st.integers(0, 9) | st.text(max_size=3),
    )
)
def test_values_of_the_right_shape_raise_nothing_but_the_own_error(value):
    with pytest.raises(EventError):
        from_bytes(canonical(value))


def test_an_actor_has_a_kind(value):
    assert "actor.kind" in refused({**value, "actor": {"kind": "robot", "ref": "x", "auth": "y"}})
    assert Actor("model", "x", "y").kind == "model"
