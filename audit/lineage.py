"""What came from what: data and base model, job, run, artefacts, model version, deployment.

A part of level L6; `audit.invariants` lists the rules. Each link names the one before it, and the
digests at both ends must be the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from audit.canonical import JsonValue
from audit.consent import Subject, Violate
from audit.event import Event, EventKind

_BYTES = ("document", "spec", "dataset", "base_model")
_CONTENT = {"dataset": "manifest", "base_model": "files"}


@dataclass
class Run:
    """A run that was dispatched; `outcome` is there when it is over."""

    job: str
    outcome: str | None = None
    artefacts: JsonValue = None


@dataclass
class Deployment:
    """A deployment that was requested, and how far it came."""

    model_version: JsonValue
    is_activated: bool = False
    is_ended: bool = False


class Lineage:
    """Follows things by the ids and digests that entries name."""

    def __init__(self, violate: Violate) -> None:
        self._violate = violate
        self._registered: set[Subject] = set()
        self._contents: set[tuple[str, JsonValue]] = set()
        self._jobs: dict[str, Mapping[str, JsonValue]] = {}
        self._permits: set[JsonValue] = set()
        self._runs: dict[str, Run] = {}
        self._modelled: set[str] = set()
        self._models: dict[str, JsonValue] = {}
        self._deployments: dict[str, Deployment] = {}
        self._issued: set[tuple[EventKind, JsonValue, JsonValue]] = set()

    def register(self, event: Event, subject: Subject) -> None:
        """Take in dataset.registered or base_model.registered."""
        if subject in self._registered:
            self._violate("registered-once", f"{':'.join(subject)} was registered before")
        self._registered.add(subject)
        self._contents |= {subject, (subject[0], event.data[_CONTENT[subject[0]]])}

    def submit(self, event: Event, subject: Subject) -> None:
        """Take in job.submitted."""
        for kind in _CONTENT:
            if (kind, event.data[kind]) not in self._contents:
                detail = f"{event.data[kind]} was not registered before"
                self._violate("submission-needs-registration", detail)
        self._jobs.setdefault(subject[1], event.data)

    def dispatch(self, event: Event, subject: Subject) -> None:
        """Take in run.dispatching."""
        data, run = event.data, str(event.data["run"])
        submitted = self._jobs.get(subject[1], data)  # none at all: consent names that
        if wrong := [name for name in _BYTES if data[name] != submitted[name]]:
            self._violate("dispatch-binds-bytes", f"not as submitted: {', '.join(wrong)}")
        permit = {data["permit"], data["permit_digest"]}
        if permit & self._permits:
            self._violate("permit-once", f"{data['permit']} was used before")
        self._permits |= permit
        if run in self._runs:
            self._violate("dispatch-once", f"{run} was dispatched before")
        self._runs.setdefault(run, Run(subject[1]))

    def follow(self, event: Event, subject: Subject) -> Run | None:
        """Take in run.started or run.observed; return the run if it was dispatched."""
        name = str(event.data["run"])
        run = self._runs.get(name)
        if run is None:
            self._violate("run-needs-dispatch", f"{name} was never dispatched")
            return None
        if subject not in {("job", run.job), ("run", name)}:
            self._violate("run-of-its-job", f"{name} is a run of job:{run.job}")
        if run.outcome is not None:
            self._violate("run-after-finish", f"{name} was over before")
        return run

    def finish(self, event: Event, subject: Subject) -> None:
        """Take in run.finished; the first one counts."""
        run = self.follow(event, subject)
        if run is not None and run.outcome is None:
            run.outcome, run.artefacts = str(event.data["outcome"]), event.data["artefacts"]

    def model(self, event: Event, subject: Subject) -> None:
        """Take in model_version.registered."""
        data, name = event.data, str(event.data["run"])
        run = self._runs.get(name)
        if run is None or run.job != data["job"]:
            self._violate("model-needs-run", f"{data['job']} has no run {name}")
        elif run.outcome != "succeeded":
            self._violate("model-needs-success", f"{name} had not succeeded before")
        elif run.artefacts != data["artefacts"]:
            self._violate("model-binds-artefacts", f"{name} left other artefacts")
        if name in self._modelled or subject[1] in self._models:
            self._violate("model-once", f"{subject[1]} or a model version of {name} was there")
        self._modelled.add(name)
        self._models.setdefault(subject[1], data["artefacts"])

    def request(self, event: Event, subject: Subject) -> None:
        """Take in deployment.requested."""
        model = event.data["model_version"]
        if model not in self._models:
            self._violate("request-needs-model", f"{model} was not registered before")
        self._deployments.setdefault(subject[1], Deployment(model))

    def issue(self, event: Event, _: Subject) -> None:
        """Take in card.issued or transparency.issued."""
        document = event.action.partition(".")[0]
        self._issued.add((event.action, event.data["deployment"], event.data[document]))

    def activate(self, event: Event, subject: Subject) -> None:
        """Take in deployment.activated."""
        data, model = event.data, str(event.data["model_version"])
        if model not in self._models or self._models[model] != data["artefacts"]:
            self._violate("activation-binds-artefacts", f"{model} has other artefacts, or none")
        for kind in (EventKind.CARD_ISSUED, EventKind.TRANSPARENCY_ISSUED):
            document = kind.partition(".")[0]
            if (kind, subject[1], data[document]) not in self._issued:
                self._violate(f"activation-needs-{document}", "it was not issued before")
        deployment = self._deployments.get(subject[1])
        if deployment is None:  # consent names that
            return
        if deployment.model_version != model:
            detail = f"{deployment.model_version} was requested, {model} activated"
            self._violate("activation-binds-model", detail)
        if deployment.is_activated:
            self._violate("activation-once", f"{subject[1]} was activated before")
        if deployment.is_ended:
            self._violate("activation-after-end", f"{subject[1]} was retired or failed before")
        deployment.is_activated = True

    def end(self, _: Event, subject: Subject) -> None:
        """Take in deployment.retired or deployment.failed."""
        deployment = self._deployments.get(subject[1])
        if deployment is None:
            self._violate("end-needs-request", f"nobody asked for {':'.join(subject)} before")
            return
        if deployment.is_ended:
            self._violate("end-once", f"{subject[1]} was retired or failed before")
        deployment.is_ended = True
