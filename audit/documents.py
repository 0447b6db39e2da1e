"""Documents that say what an entry says: requests, permits, run reports, requests for waivers.

A part of level L6; `audit.invariants` lists the rules. Each entry that makes one of these names it
by digest; here the document must be about the same thing, by the same person, with the same bytes.

    job         {"format": "placet.job/1", "job", "submitted_by", "spec", "dataset_manifest",
                 "base_model_files", "request": {"team", "compute": {"provider", …}, …}}
    deployment  {"format": "placet.deployment/1", "deployment", "requested_by", "artefacts",
                 "request": {"model_version", …}}
    waiver      {"format": "placet.waiver-request/1", "waiver", "subject", "requester", "record",
                 "rule", "rule_version", "category", "not_before", "expires_at", …}
    permit      a JSON Web Token (`audit.tokens`); its signature is the trainer's business
    report      {"format": "placet.run-report/1", "run_id", "permit_id", "spec_digest", "status",
                 "artefacts": {path: {"digest", "size_bytes"}}, …}
    artefacts   {"format": "placet.artefacts/1", "run", "files": {path: {"digest", "size_bytes"}}}

A permit that is still in use is not enclosed in an export, and then missing like any document.
"""

from collections.abc import Mapping
from datetime import datetime

from audit.canonical import JsonValue
from audit.consent import Consent, Subject, Violate
from audit.enclosed import Enclosed, Members, UnreadableError, differing
from audit.event import Event
from audit.records import CLOCK_SKEW
from audit.tokens import ClaimsError, claims_of

_MADE_OF = {"dataset": "manifest", "base_model": "files"}
_WAIVED = ("waiver", "rule", "rule_version", "category", "not_before", "expires_at")


class Documents:
    """Follows what documents must say, and holds each one that is enclosed against it."""

    def __init__(self, violate: Violate, consent: Consent, enclosed: Enclosed) -> None:
        self._violate = violate
        self._consent = consent
        self._enclosed = enclosed
        self._contents: dict[tuple[str, JsonValue], JsonValue] = {}
        self._models: dict[JsonValue, JsonValue] = {}
        self._engines: dict[str, JsonValue] = {}
        self._dispatched: dict[JsonValue, Mapping[str, JsonValue]] = {}

    def register(self, event: Event, subject: Subject) -> None:
        """Take in dataset.registered or base_model.registered: a job may name both by digest."""
        content = event.data[_MADE_OF[subject[0]]]
        self._contents.setdefault(subject, content)
        self._contents.setdefault((subject[0], content), content)

    def model(self, event: Event, subject: Subject) -> None:
        """Take in model_version.registered."""
        self._models.setdefault(subject[1], event.data["artefacts"])

    def submit(self, event: Event, subject: Subject) -> None:
        """Take in job.submitted."""
        data = event.data
        expected: dict[str, JsonValue] = {
            "job": subject[1],
            "submitted_by": event.actor.ref,
            "spec": data["spec"],
            **self._made_of(
                data, {"dataset_manifest": "dataset", "base_model_files": "base_model"}
            ),
        }
        asked = self._request(event, "placet.job/1", expected, {"team": data["team"]})
        if asked is not None:
            place = asked.get("compute")
            engine = place.get("provider") if isinstance(place, dict) else None
            self._engines.setdefault(subject[1], engine)

    def request(self, event: Event, subject: Subject) -> None:
        """Take in deployment.requested."""
        model = event.data["model_version"]
        expected: dict[str, JsonValue] = {
            "deployment": subject[1],
            "requested_by": event.actor.ref,
        }
        if model in self._models:
            expected["artefacts"] = self._models[model]
        self._request(event, "placet.deployment/1", expected, {"model_version": model})

    def waive(self, event: Event, subject: Subject) -> None:
        """Take in waiver.requested: two others sign what this document says."""
        expected: dict[str, JsonValue] = {name: event.data[name] for name in _WAIVED}
        expected |= {"subject": ":".join(subject), "requester": event.actor.ref}
        latest = self._consent.latest(subject)
        if latest is not None:
            expected["record"] = latest.record
        form = "placet.waiver-request/1"
        self._hold("waiver-binds-document", event.data["digest"], form, expected)

    def dispatch(self, event: Event, subject: Subject) -> None:
        """Take in run.dispatching: the permit gives the right that the entry names, then."""
        data = event.data
        self._dispatched.setdefault(data["run"], data)
        engine = self._engines.get(subject[1], data["engine"])
        if engine != data["engine"]:
            detail = f"{data['run']} on {data['engine']}, but {engine} was asked for"
            self._violate("dispatch-binds-engine", detail)
        token = self._enclosed.body(str(data["permit_digest"]))
        if token is None:
            return
        expected: dict[str, JsonValue] = {
            "aud": "placet-trainer",
            "sub": data["run"],
            "jti": data["permit"],
            "job": subject[1],
            "document": data["document"],
            "spec": data["spec"],
            "decision": data["record"],
            **self._made_of(data, {"dataset": "dataset", "base_model": "base_model"}),
        }
        try:
            claims = claims_of(token)
        except ClaimsError as cause:
            self._violate("dispatch-binds-permit", f"{data['permit']}: {cause}")
            return
        wrong = differing(expected, claims) + _wrong_claims(event, claims)
        if wrong:
            self._violate("dispatch-binds-permit", f"{data['permit']}: {', '.join(wrong)}")

    def finish(self, event: Event, _: Subject) -> None:
        """Take in run.finished: the report is of this run and, if it succeeded, says so."""
        data, is_success = event.data, event.data["outcome"] == "succeeded"
        started = self._dispatched.get(data["run"], {})
        if is_success and (data["report"] is None or data["artefacts"] is None):
            self._violate("finish-binds-report", f"{data['run']} succeeded without a report")
            return
        expected: dict[str, JsonValue] = {"run_id": data["run"]}
        if started:
            expected |= {"permit_id": started["permit"], "spec_digest": started["spec"]}
        if is_success:
            expected["status"] = "succeeded"
        form = "placet.run-report/1"
        report = self._hold("finish-binds-report", data["report"], form, expected)
        form, expected = "placet.artefacts/1", {"run": data["run"]}
        left = self._hold("finish-binds-report", data["artefacts"], form, expected)
        if report is None or left is None:
            return
        if differing({"artefacts": left.get("files")}, report):
            self._violate("finish-binds-report", f"{data['run']}: artefacts")

    def _made_of(
        self, data: Mapping[str, JsonValue], names: Mapping[str, str]
    ) -> dict[str, JsonValue]:
        """Say what data set and base model are made of; lineage names one that is not known."""
        found = {name: self._contents.get((kind, data[kind])) for name, kind in names.items()}
        return {name: content for name, content in found.items() if content is not None}

    def _request(
        self, event: Event, form: str, expected: Members, asked: Members
    ) -> Members | None:
        """Hold the document of a request; return what it asks for when it can be read."""
        rule, name = "request-binds-document", event.data["document"]
        document = self._hold(rule, name, form, expected)
        if document is None:
            return None
        request = document.get("request")
        if wrong := differing(asked, request):
            self._violate(rule, f"{name} says another {', '.join(wrong)}")
        return request if isinstance(request, dict) else None

    def _hold(self, rule: str, name: JsonValue, form: str, expected: Members) -> Members | None:
        """Return a document that is named and enclosed and can be read, whatever it says."""
        if name is None:
            return None
        try:
            document = self._enclosed.read(str(name), form)
        except UnreadableError as cause:
            self._violate(rule, f"{name}: {cause}")
            return None
        if document is not None and (wrong := differing(expected, document)):
            self._violate(rule, f"{name} says another {', '.join(wrong)}")
        return document


def _wrong_claims(event: Event, claims: Members) -> list[str]:
    """Name the times of a permit that do not fit the entry's; both are claims of one house."""
    at = datetime.fromisoformat(event.at).timestamp()
    issued, expires = claims.get("iat"), claims.get("exp")
    wrong = []
    if not isinstance(issued, int) or abs(issued - at) > CLOCK_SKEW.total_seconds():
        wrong.append("iat")
    if not isinstance(expires, int) or expires <= at:
        wrong.append("exp")
    return wrong
