"""Level L8: every decision made again, and held against the entries that it was made about.

The gate runs again on the facts, the policy and the reference data in the bundle; its record must
come out byte for byte. That alone proves only that the gate would answer so if it were asked so, so
each record must also be about what the log is about:

    the job       id, team, document and trainer's spec are those of job.submitted
    the data      ids, digests and categories are those of dataset.registered
    the model     id, digest and licence are those of base_model.registered
    deployments   document, model version and artefacts are those that were requested and registered
    waivers       are part of the record; level L6 has held them against the entries about them

Level L6 has checked the order and the uniqueness of entries before (`audit.invariants`), that each
record and each permit says what its entry says, and that each decision was used while it was valid.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from audit.bundle import Bundle

_INPUTS = ("record", "policy", "reference", "facts")
_DATASET = ("id", "digest", "categories_declared", "categories_detected")
_BASE_MODEL = ("id", "digest", "licence")


class ReplayError(ValueError):
    """A decision does not come out again, or is not about this log; the message names the entry."""


class AbsentError(LookupError):
    """A decision cannot be replayed: a document, or what derived its facts, is not here."""


class Replay:
    """Reads entries in order and holds every decision against them.

    Args:
        bundle: an export whose levels L0 to L6 hold.
        gate: the module `policies.gate`, which the base install does not have.
    """

    def __init__(self, bundle: Bundle, gate: Any) -> None:
        self._bundle = bundle
        self._gate = gate
        self._things: dict[tuple[str, str], dict[str, Any]] = {}
        self.num_decisions = 0
        self._handlers: dict[str, Callable[[dict[str, Any], str], None]] = {
            "dataset.registered": self._register,
            "base_model.registered": self._register,
            "job.submitted": self._register,
            "model_version.registered": self._register,
            "deployment.requested": self._register,
            "gate.decided": self._decide,
        }

    def read_all(self) -> None:
        """Read every entry of the bundle.

        Raises:
            ReplayError: a decision or its use is not what the log says; names the entry.
            AbsentError: a document that a decision needs is not in the bundle.
            BundleError: a member is malformed.
        """
        for first, group in self._bundle.entry_groups():
            for index, body in enumerate(group, first):
                entry = json.loads(body)
                handler = self._handlers.get(entry["action"])
                if handler is None:
                    continue
                try:
                    handler(entry, str(entry["resource"]).partition("@")[0])
                except ReplayError as error:
                    raise ReplayError(f"entry {index}: {error}") from error
                except AbsentError as error:
                    raise AbsentError(f"entry {index}: {error}") from error

    def _register(self, entry: dict[str, Any], subject: str) -> None:
        kind, _, name = subject.partition(":")
        data = {**entry["data"], "id": name}
        self._things[kind, name] = data
        for content in ("manifest", "files"):  # a job may name data and base model by digest
            if content in data:
                self._things[kind, data[content]] = data

    def _decide(self, entry: dict[str, Any], subject: str) -> None:
        data = entry["data"]
        documents = {name: self._document(name, data[name]) for name in _INPUTS}
        try:
            result = self._gate.replay(
                documents["record"], documents["policy"], documents["reference"]
            )
            record = json.loads(documents["record"])
        except ValueError as error:
            raise ReplayError(f"cannot be replayed: {error}") from error
        if result.same_inputs and result.same_output and result.same_derived is None:
            raise AbsentError(result.not_checked)
        if not result.identical:
            members = ", ".join(result.differing) or "the inputs' digests"
            raise ReplayError(f"the decision comes out differently: {members}")
        expected = self._expected(subject)
        _compare("the facts are not those of the log", expected, _stated(record["facts"]))
        self.num_decisions += 1

    def _document(self, name: str, reference: str) -> bytes:
        document = self._bundle.document(reference)
        if document is None:
            raise AbsentError(f"the {name} {reference} is not in the bundle")
        return document

    def _expected(self, subject: str) -> dict[str, object]:
        """Say what the facts about this job or deployment must be, from earlier entries."""
        kind, _, name = subject.partition(":")
        if kind == "job":
            job = self._thing("job", name)
            return {**self._training(job), "job.document_digest": job["document"]}
        asked = self._thing("deployment", name)
        model = self._thing("model_version", asked["model_version"])
        return {
            **self._training(self._thing("job", model["job"])),
            "job.document_digest": asked["document"],
            "deploy.model_version": model["id"],
            "deploy.artefacts_digest": model["artefacts"],
        }

    def _training(self, job: dict[str, Any]) -> dict[str, object]:
        dataset = self._thing("dataset", job["dataset"])
        base = self._thing("base_model", job["base_model"])
        return {
            "job.id": job["id"],
            "job.team": job["team"],
            "job.spec_digest": job["spec"],
            "datasets": [_picked({**dataset, "digest": dataset["manifest"]}, _DATASET)],
            "base_model": _picked({**base, "digest": base["files"]}, _BASE_MODEL),
        }

    def _thing(self, kind: str, name: str) -> dict[str, Any]:
        try:
            return self._things[kind, name]
        except KeyError:
            raise ReplayError(f"no entry before introduces {kind} {name}") from None


def _stated(facts: Any) -> dict[str, object]:
    """Pick from a facts document what entries say, too.

    Raises:
        ReplayError: it lacks some of it.
    """
    try:
        job, deploy = facts["job"], facts.get("deploy") or {}
        stated = {
            "job.id": job["id"],
            "job.team": job["team"],
            "job.document_digest": job["document_digest"],
            "job.spec_digest": job["spec_digest"],
            "datasets": [_picked(each, _DATASET) for each in facts["datasets"]],
            "base_model": _picked(facts["base_model"], _BASE_MODEL),
        }
        return stated | {f"deploy.{name}": value for name, value in deploy.items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ReplayError("the facts do not say what they are about") from error


def _picked(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: values[name] for name in names}


def _compare(problem: str, expected: Mapping[str, object], found: Mapping[str, Any]) -> None:
    """Refuse values that differ, naming their members.

    Raises:
        ReplayError: starts with `problem`.
    """
    wrong = [name for name, value in expected.items() if found.get(name) != value]
    if wrong:
        raise ReplayError(f"{problem}: {', '.join(wrong)}")
