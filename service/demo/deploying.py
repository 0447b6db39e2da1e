"""Steps 11 to 14: deploy, ask the model, read its documents, retire it."""

import time

from service.client import ClientError
from service.demo.asking import approve
from service.demo.stage import Stage, require

_ACTIVE_WITHIN_S = 300.0
_OVER = frozenset({"active", "denied", "refused", "expired", "failed", "retired"})
QUESTION = "Who may approve my job?"


def deploy(stage: Stage) -> None:
    """Ask for a deployment, let the second officer approve it, and wait until it answers."""
    stage.story.step("Deploy it: the gate asks again, and Piotr, another officer, approves")
    team = stage.people["submitter"]
    body = stage.document("deployment.yaml", model_version=stage.ids["model_version"])
    row = team.post("/v1/deployments", body)
    stage.ids["deployment"] = row["id"]
    require(
        row["state"] == "awaiting_approval",
        f"the deployment is `{row['state']}`: "
        + "; ".join(each["message"] for each in row["decision"]["findings"])[:400],
    )
    warnings = [each for each in row["decision"]["findings"] if each["effect"] == "warn"]
    for found in warnings:
        stage.story.say(f"warning {found['rule']}: {found['message']}")
    approve(stage, "second", row["id"])
    with stage.story.waiting("merged, compared with the adapter, loaded and active after"):
        deadline = time.monotonic() + _ACTIVE_WITHIN_S
        while row["state"] not in _OVER and time.monotonic() < deadline:
            time.sleep(0.3)
            row = team.get(f"/v1/deployments/{row['id']}")
    require(row["state"] == "active", f"the deployment is `{row['state']}` ({row['reason_code']})")


def question(stage: Stage) -> None:
    """Ask the deployed model through the gateway."""
    stage.story.step("Ask it through the gateway, which says that it is AI")
    messages = [{"role": "user", "content": QUESTION}]
    answer = stage.people["submitter"].ask(stage.ids["deployment"], messages, max_tokens=60)
    text = str(answer.json()["choices"][0]["message"]["content"]).strip()
    require(text, "the model gave no answer")
    disclosure = answer.headers.get("ai-disclosure", "")
    require(disclosure, "the answer carries no AI disclosure")
    stage.story.show(
        question=QUESTION,
        answer=" ".join(text.split()),
        disclosure=disclosure,
        record=answer.links.get("transparency", {}).get("url", "-"),
    )
    stage.story.say("135 million parameters, a minute of training: the wording is a toy's.")


def read_documents(stage: Stage) -> None:
    """Write model card and transparency record to the folder."""
    stage.story.step("Its documents, made from evidence when it became active")
    client, path = stage.people["auditor"], f"/v1/deployments/{stage.ids['deployment']}"
    for kind, form in (
        ("card", "md"),
        ("card", "html"),
        ("card", "json"),
        ("transparency", "html"),
        ("transparency", "json"),
    ):
        file = stage.file(f"{kind}.{form}")
        file.write_bytes(client.get_bytes(f"{path}/{kind}.{form}"))
        require(file.stat().st_size, f"the {kind} is empty as {form}")
        stage.results[f"{kind} ({form})"] = str(file)
    stage.story.show(
        model_card=stage.results["card (md)"], transparency=stage.results["transparency (html)"]
    )
    stage.story.say("What nobody supplied is listed there as missing, with who can supply it.")


def retire(stage: Stage) -> None:
    """Retire the deployment and see that it answers no more."""
    stage.story.step("Retire it: the gateway stops answering at once")
    officer, path = stage.people["officer"], f"/v1/deployments/{stage.ids['deployment']}"
    _, etag = officer.seen(path)
    row = officer.post(f"{path}/retire", {}, etag=etag)
    require(row["state"] == "retired", f"the deployment is `{row['state']}`")
    try:
        messages = [{"role": "user", "content": QUESTION}]
        stage.people["submitter"].ask(row["id"], messages, max_tokens=8)
    except ClientError as error:
        stage.story.say(f"asked once more, refused (HTTP {error.status}): {error}")
    else:
        require(False, "a retired deployment still answers")
