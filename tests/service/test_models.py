"""A model version is ours first; MLflow mirrors it, now or later, once."""

import pytest


def model_versions(world):
    return world.get("/v1/model-versions")["items"]


def test_a_successful_run_is_registered_once_with_tags_that_point_back(world):
    job = world.finished_job()
    for _ in range(3):
        world.worker.work()

    (model,) = model_versions(world)
    (mirrored,) = world.tracking.models
    assert (
        model["id"] == job["runs"][0]["model_version"] == mirrored["tags"]["placet.model_version"]
    )
    assert model["mlflow_version"] == "1"
    assert mirrored["tags"]["placet.job"] == job["id"]
    assert mirrored["tags"]["placet.decision"] == job["decision"]["record_digest"]
    assert mirrored["tags"]["placet.artefacts"] == model["artefacts_digest"]
    assert world.kinds().count("model_version.registered") == 1


def finish_while_mlflow_is_away(world):
    job, ref = world.running_job()
    world.engine.write(ref, events=b'{"kind":"step","step":1}\n')
    world.worker.work()
    world.tracking.is_away = True
    world.write_report(job)
    world.engine.end(ref, 0)
    world.worker.work()
    return job


def test_mlflow_that_comes_back_in_time_gets_the_model(world):
    job = finish_while_mlflow_is_away(world)
    assert model_versions(world) == []
    assert world.job(job["id"])["runs"][0]["tracking_error"]
    world.tracking.is_away = False

    world.worker.work()

    (model,) = model_versions(world)
    assert model["mlflow_version"] == "1"
    assert world.job(job["id"])["runs"][0]["tracking_error"] is None


def test_mlflow_that_stays_away_does_not_withhold_the_model(world):
    finish_while_mlflow_is_away(world)
    world.clock.advance(minutes=6)

    world.worker.work()

    (model,) = model_versions(world)
    assert model["mlflow_version"] is None
    assert world.entries()[-1].data["mlflow_version"] is None


def test_an_answer_lost_by_mlflow_makes_no_second_model(world):
    job, ref = world.running_job()
    world.engine.write(ref, events=b'{"kind":"step","step":1}\n')
    world.write_report(job)
    world.engine.end(ref, 0)
    register = world.tracking.register_model

    def lose(**what):
        register(**what)
        raise OSError("connection reset")

    world.tracking.register_model = lose
    world.worker.work()
    world.tracking.register_model = register
    world.worker.work()

    (model,) = model_versions(world)
    assert len(world.tracking.models) == 1
    assert model["mlflow_version"] == "1"


@pytest.mark.parametrize("code", [1, 2, 75])
def test_what_failed_is_no_model(lone_world, code):
    job, ref = lone_world.running_job()
    lone_world.write_report(job)
    lone_world.engine.end(ref, code)

    lone_world.worker.work()

    assert model_versions(lone_world) == []


def test_another_team_does_not_see_the_model(lone_world):
    job = lone_world.finished_job()
    path = f"/v1/model-versions/{job['runs'][0]['model_version']}"

    assert lone_world.get(path)["job"] == job["id"]
    assert lone_world.ask("GET", path, "eve").status == 404
    assert lone_world.get("/v1/model-versions", "eve")["items"] == []
    answer = lone_world.ask(
        "POST",
        "/v1/deployments",
        "eve",
        lone_world.deployment_body(job["runs"][0]["model_version"]),
    )
    assert answer.problem["errors"][0]["pointer"] == "/model_version"
