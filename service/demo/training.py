"""Steps 9 and 10: the run, live, and what MLflow holds of it afterwards."""

from service.commands.watching import Live
from service.demo.stage import Stage, require


def train(stage: Stage) -> None:
    """Follow the run until it is over."""
    stage.story.step("Training: the trainer checks its permit, then every byte, then trains")
    team, job = stage.people["submitter"], stage.ids["job"]
    live = Live(indent=stage.story.margin)
    state, reason = "", None
    try:
        for event in team.follow(job):
            state, reason = event["state"], event["reason_code"]
            live.show(event)
    finally:
        live.close()
    require(state == "succeeded", f"the run ended as `{state}` ({reason}); see `placet logs {job}`")


def compare(stage: Stage) -> None:
    """Read the tracked run back from MLflow: loss before and after, the registered version."""
    stage.story.step("What training changed, as MLflow holds it")
    from service.demo.tracked import read_run, wait_for_version  # noqa: PLC0415 — MLflow is slow

    version = wait_for_version(stage.people["submitter"], stage.ids["job"])
    stage.ids["model_version"] = version["id"]
    figures = read_run(stage.house.settings, version["mlflow_run"])
    before, after = figures["eval_loss_before"], figures["eval_loss_after"]
    require(after < before, f"the held-out loss did not fall: {before:.4f} -> {after:.4f}")
    perplexities = f"{figures['perplexity_before']:.2f} -> {figures['perplexity_after']:.2f}"
    stage.story.show(
        held_out_loss=f"{before:.4f} -> {after:.4f} nats per answer token",
        perplexity=perplexities,
        model_version=f"{version['id']} = MLflow `{version['name']}` {version['mlflow_version']}",
    )
    stage.results |= {"loss": f"{before:.4f} -> {after:.4f}", "perplexity": perplexities}
