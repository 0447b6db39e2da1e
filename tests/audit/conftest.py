"""A small world for the audit tests: a log's keys, well-formed entries, and exports of them."""

import base64
import io
import itertools
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings

from audit.canonical import canonical, digest
from audit.event import Actor, Event, EventKind, to_bytes
from audit.invariants import Invariants
from audit.merkle import leaf_hash, root
from audit.note import Checkpoint, Ed25519Signer, sign_checkpoint
from audit.tiles import build_tiles
from audit.writing import write_bundle

# A loaded machine is slow at times: that is no failure of the code under test.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
COMMITMENT = b"\x07" * 32
VERIFIER = b"# placet_verify.py of the test world\n"


def spelt(value):
    """Return the canonical text of a value."""
    return canonical(value).decode()


TEXTS = {
    "facts": spelt({"stage": "train"}),
    "deploy facts": spelt({"stage": "deploy"}),
    "policy": spelt(
        {
            "format": "placet.policy/1",
            "packs": [],
            "rules": [
                {"id": "budget.limit", "version": "1.0.0", "waivable": True, "approvals": []},
                {"id": "hds.certificate", "version": "1.0.0", "waivable": False, "approvals": []},
            ],
        }
    ),
    "reference": spelt(
        {
            "format": "placet.reference/1",
            "site": None,
            "tables": {"thresholds": [{"id": "waiver_max_days", "value": 30}]},
        }
    ),
}
"""What the documents with these labels say; any other label is its own text."""


def make_id(prefix, number):
    """Return an id with the form of ours: 26 base32 characters, the first below 8."""
    text = ""
    for _ in range(26):
        number, digit = divmod(number, 32)
        text = ALPHABET[digit] + text
    return f"{prefix}_{text}"


class World:
    """Makes entries and exports of one log; every document it names is kept in `documents`."""

    def __init__(self, origin="example.com/log/1", seed=b"\x01"):
        self.origin = origin
        self.signer = Ed25519Signer.from_seed(origin, seed * 32)
        self.vkey = self.signer.vkey
        self.documents = {}
        self._numbers = itertools.count(1)
        self.job = make_id("job", 1)
        self.deployment = make_id("dep", 1)
        self.run = make_id("run", 1)
        self.model = make_id("mv", 1)
        self.waiver = make_id("wvr", 1)
        self.dataset, self.base_model = make_id("ds", 1), make_id("bm", 1)
        self.officer, self.second, self.submitter = (make_id("prn", n) for n in (1, 2, 3))
        self._decided = None
        self._texts = TEXTS | self._own_texts()

    def _own_texts(self):
        """What the documents say that name things of this world."""
        spec, files = digest(b"spec"), {"adapter/w.bin": {"digest": digest(b"w"), "size_bytes": 1}}
        left = spelt({"format": "placet.artefacts/1", "run": self.run, "files": files})
        report = {"run_id": self.run, "permit_id": make_id("prm", 1), "spec_digest": spec}
        report |= {"status": "succeeded", "artefacts": files}
        deployment = {"deployment": self.deployment, "requested_by": self.submitter}
        deployment |= {"artefacts": digest(left.encode()), "request": {"model_version": self.model}}
        return {
            "job": self.job_text(),
            "report": spelt({"format": "placet.run-report/1", **report}),
            "artefacts": left,
            "deployment": spelt({"format": "placet.deployment/1", **deployment}),
        }

    def job_text(self, **changes):
        """Return the text of a job's document."""
        job = {
            "format": "placet.job/1",
            "job": self.job,
            "submitted_by": self.submitter,
            "spec": digest(b"spec"),
            "dataset_manifest": digest(b"manifest"),
            "base_model_files": digest(b"files"),
            "request": {"team": "radiology", "compute": {"provider": "local"}},
        }
        return spelt(job | changes)

    def permit(self, dispatched, **changes):
        """Return the text of the permit of a run.dispatching with this data."""
        claims = {
            "aud": "placet-trainer",
            "sub": dispatched["run"],
            "jti": dispatched["permit"],
            "job": self.job,
            "document": dispatched["document"],
            "spec": dispatched["spec"],
            "dataset": digest(b"manifest"),
            "base_model": digest(b"files"),
            "decision": dispatched["record"],
            "iat": 1796040000,
            "exp": 1796041800,
        }
        body = base64.urlsafe_b64encode(canonical(claims | changes)).rstrip(b"=").decode()
        return f"e30.{body}.c2ln"

    def document(self, text):
        """Keep a document, given as its text or as a label; return its digest."""
        data = self._texts.get(text, text).encode()
        self.documents[digest(data)] = data
        return digest(data)

    def policy(self, **changes):
        """Return the text of a policy whose waivable rule is changed."""
        policy = json.loads(TEXTS["policy"])
        policy["rules"][0] |= changes
        return spelt(policy)

    def reference(self, **tables):
        """Return the text of reference data with other tables."""
        reference = json.loads(TEXTS["reference"])
        reference["tables"] |= tables
        return spelt(reference)

    def event(self, action, resource=None, actor=None, **data):
        number = next(self._numbers)
        return Event(
            id=make_id("evt", number),
            log=self.origin,
            at=f"2026-11-30T12:00:00.{number % 1000:03d}Z",
            actor=Actor("human", actor or self.submitter, "token"),
            action=EventKind(action),
            resource=resource or f"job:{self.job}",
            outcome="ok",
            data=data,
        )

    def started(self):
        return self.event("log.started", f"log:{self.origin}", vkey=self.vkey)

    def created(self, person, *roles):
        return self.event("principal.created", f"principal:{person}", roles=list(roles), teams=[])

    def registered_dataset(self, dataset=None, **changes):
        data = {
            "manifest": self.document("manifest"),
            "categories_declared": ["synthetic"],
            "categories_detected": [],
            "country": "FR",
            "num_objects": 1,
            "size_bytes": 1000,
        }
        resource = f"dataset:{dataset or self.dataset}"
        return self.event("dataset.registered", resource, **{**data, **changes})

    def registered_base_model(self, base_model=None, **changes):
        data = {"files": self.document("files"), "licence": "Apache-2.0"}
        resource = f"base_model:{base_model or self.base_model}"
        return self.event("base_model.registered", resource, **{**data, **changes})

    def submitted(self, actor=None, **changes):
        data = {
            "document": self.document("job"),
            "spec": self.document("spec"),
            "dataset": self.dataset,
            "base_model": self.base_model,
            "team": "radiology",
        }
        return self.event("job.submitted", actor=actor, **{**data, **changes})

    def decided(self, verdict="allow", record="record", stage="train", approvals=(), **changes):
        resource = f"job:{self.job}" if stage == "train" else f"deployment:{self.deployment}"
        data = {
            "stage": stage,
            "record": self.document(record),
            "facts": self.document("facts" if stage == "train" else "deploy facts"),
            "policy": self.document("policy"),
            "reference": self.document("reference"),
            "verdict": verdict,
            "approvals": [{"role": role, "count": count} for role, count in approvals],
        }
        self._decided = (data | changes)["record"]
        return self.event("gate.decided", resource, **{**data, **changes})

    def recorded(self, verdict="allow", stage="train", approvals=(), **changes):
        """Return the text of the record that `decided` with the same arguments is about."""
        subject = f"job:{self.job}" if stage == "train" else f"deployment:{self.deployment}"
        record = {
            "format": "placet.decision/1",
            "subject": subject,
            "verdict": verdict,
            "policy": self.document("policy"),
            "reference": self.document("reference"),
            "facts": {"stage": stage},
            "facts_digest": digest(canonical({"stage": stage})),
            "approvals": [{"role": role, "count": count} for role, count in approvals],
            "evaluated_at": "2026-11-30T12:00:00Z",
            "valid_until": "2026-12-07T12:00:00Z",
            "results": [],
            "waivers": [],
        }
        return spelt(record | changes)

    def approved(self, actor=None, role="officer", record="record", **changes):
        data = {"record": self.document(record), "role": role}
        return self.event("approval.given", actor=actor or self.officer, **{**data, **changes})

    def waiver_requested(
        self, actor=None, *, waiver=None, reason=COMMITMENT, document=None, **changes
    ):
        data = {
            "waiver": waiver or self.waiver,
            "rule": "budget.limit",
            "rule_version": "1.0.0",
            "category": "waiver",
            "not_before": "2026-11-30T12:00:00Z",
            "expires_at": "2026-12-07T00:00:00Z",
        } | changes
        asked = {"requester": actor or self.submitter, "subject": f"job:{self.job}", **data}
        if self._decided is not None:
            asked["record"] = self._decided
        asked = {"format": "placet.waiver-request/1", **asked, **(document or {})}
        data = {"digest": self.document(spelt(asked)), **data}
        event = self.event("waiver.requested", actor=actor, **data)
        return replace(event, sealed={"reason": base64.b64encode(reason).decode()})

    def waiver_approved(self, actor=None, role="officer", **changes):
        data = {"waiver": self.waiver, "role": role}
        return self.event("waiver.approved", actor=actor or self.officer, **{**data, **changes})

    def waived_record(self, *, waivers=None, results=None, **changes):
        """Return the text of a record that counts a waiver."""
        if results is None:
            results = [{"rule": "budget.limit", "version": "1.0.0", "outcome": "waived"}]
        waivers = [self.counted()] if waivers is None else waivers
        said = {"results": results, "waivers": waivers}
        return self.recorded("allow_with_warnings", **said, **changes)

    def counted(self, **changes):
        """A waiver as a decision record holds it."""
        waiver = {
            "format": "placet.waiver/1",
            "id": self.waiver,
            "rule": "budget.limit",
            "rule_version": "1.0.0",
            "subject": f"job:{self.job}",
            "category": "waiver",
            "reason_digest": f"sha256:{COMMITMENT.hex()}",
            "requester": self.submitter,
            "approvers": [self.officer, self.second],
            "not_before": "2026-11-30T12:00:00Z",
            "expires_at": "2026-12-07T00:00:00Z",
            "revoked_at": None,
        }
        return {**waiver, **changes}

    def dispatching(self, record="record", run=None, **changes):
        data = {
            "run": run or self.run,
            "permit": make_id("prm", 1),
            "document": self.document("job"),
            "spec": self.document("spec"),
            "dataset": self.dataset,
            "base_model": self.base_model,
            "record": self.document(record),
            "engine": "local",
        } | changes
        if "permit_digest" not in data:
            data["permit_digest"] = self.document(self.permit(data))
        return self.event("run.dispatching", **data)

    def finished(self, **changes):
        data = {
            "run": self.run,
            "outcome": "succeeded",
            "report": self.document("report"),
            "artefacts": self.document("artefacts"),
        }
        return self.event("run.finished", **{**data, **changes})

    def modelled(self, model=None, **changes):
        data = {
            "job": self.job,
            "run": self.run,
            "artefacts": self.document("artefacts"),
            "mlflow_run": "0a1b2c",
            "mlflow_version": "3",
        }
        resource = f"model_version:{model or self.model}"
        return self.event("model_version.registered", resource, **{**data, **changes})

    def requested(self, model=None):
        resource = f"deployment:{self.deployment}"
        version, document = model or self.model, self.document("deployment")
        return self.event(
            "deployment.requested", resource, model_version=version, document=document
        )

    def issued(self, document="card", **changes):
        data = {
            document: self.document(document),
            "deployment": self.deployment,
            "measured": 7,
            "declared": 5,
            "missing": 2,
        }
        resource = f"deployment:{self.deployment}"
        return self.event(f"{document}.issued", resource, **{**data, **changes})

    def activated(self, record="deploy record", **changes):
        data = {
            "model_version": self.model,
            "artefacts": self.document("artefacts"),
            "record": self.document(record),
            "card": self.document("card"),
            "transparency": self.document("transparency"),
        }
        resource = f"deployment:{self.deployment}"
        return self.event("deployment.activated", resource, **{**data, **changes})

    def enforced(self, policy="policy", **changes):
        data = {
            "policy": self.document(policy),
            "bundle": None,
            "number": 0,
            "mode": "enforce",
            "signers": [],
        }
        return self.by_service("policy.activated", f"policy:{make_id('pol', 1)}", data | changes)

    def referenced(self, reference="reference", **changes):
        data = {
            "table": "all",
            "key": "shipped",
            "row": self.document(reference),
            "document": None,
            "reference": self.document(reference),
        }
        resource = f"reference:{make_id('ref', 1)}"
        return self.by_service("reference.recorded", resource, data | changes)

    def by_service(self, action, resource, data):
        event = self.event(action, resource, **data)
        return replace(event, actor=Actor("service", "placet", "internal"))

    def prologue(self):
        """The people, the data set and the base model that every story needs."""
        return [
            self.started(),
            self.enforced(),
            self.referenced(),
            self.created(self.submitter, "submitter"),
            self.created(self.officer, "officer", "dpo", "admin"),
            self.created(self.second, "officer"),
            self.registered_dataset(),
            self.registered_base_model(),
        ]

    def trained(self):
        """A job that became a model version."""
        return [
            self.submitted(),
            self.decided(),
            self.dispatching(),
            self.finished(),
            self.modelled(),
        ]

    def story(self):
        """An allowed story of 20 entries, from the first one to a deployment."""
        asked = {"verdict": "require_approval", "approvals": [("officer", 1)]}
        trained, deployed = self.recorded(**asked), self.recorded(stage="deploy")
        return [
            *self.prologue(),
            self.submitted(),
            self.decided(record=trained, **asked),
            self.approved(record=trained),
            self.dispatching(trained),
            self.event("run.started", run=self.run),
            self.finished(),
            self.modelled(),
            self.requested(),
            self.decided("allow", deployed, "deploy"),
            self.issued("card"),
            self.issued("transparency"),
            self.activated(deployed),
        ]

    def entries(self, events):
        return [to_bytes(event) for event in events]

    def checkpoint(self, entries, size=None, signers=None, **options):
        leaves = [leaf_hash(entry) for entry in entries[:size]]
        head = Checkpoint(self.origin, len(leaves), root(leaves))
        return sign_checkpoint(head, signers or [self.signer], **options)

    def export(
        self,
        entries,
        *,
        checkpoint=None,
        documents=None,
        signer=None,
        verifier=VERIFIER,
        selection=None,
    ):
        """Return the bytes of an export of raw entries."""
        tiles = dict(build_tiles(0, entries, lambda _: b""))
        out = io.BytesIO()
        write_bundle(
            out,
            checkpoint=checkpoint or self.checkpoint(entries),
            tiles=tiles.__getitem__,
            objects=self.documents if documents is None else documents,
            signer=signer or self.signer,
            verifier=verifier,
            manifest_fields={"exported_at": "2026-11-30T12:00:00Z"},
            selection=selection,
        )
        return out.getvalue()

    def export_story(self, **options):
        return self.export(self.entries(self.story()), **options)


@pytest.fixture
def world():
    return World()


@pytest.fixture
def make_world():
    return World


@pytest.fixture
def change():
    """Return dataclasses.replace, the way tests alter one member of a value."""
    return replace


@pytest.fixture
def told(world):
    """Return a function that reads events with their documents: the invariants after them."""

    def read(events, load=None):
        invariants = Invariants(world.origin, load or world.documents.get)
        for index, event in enumerate(events):
            invariants.read(index, event)
        return invariants

    return read


@pytest.fixture
def untold(world, told):
    """Return a function that reads events without any document, as most rules need none."""
    return lambda events: told(events, load=lambda _: None)


@pytest.fixture
def ids():
    return make_id


@pytest.fixture
def golden():
    """Compare bytes with a golden file; PLACET_GOLDEN=1 writes it instead."""

    def compare(path, data):
        if os.environ.get("PLACET_GOLDEN") == "1":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        assert path.read_bytes() == data

    return compare


@pytest.fixture
def vector_folder():
    """Give a function that finds one folder of the public test vectors."""
    root_folder = Path(__file__).parents[2].parent / "shared" / "vectors"
    vectors = Path(os.environ.get("PLACET_VECTORS") or root_folder)

    def find(name):
        if not (vectors / name).is_dir():
            reason = f"no public test vectors at {vectors / name}: set PLACET_VECTORS"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)
        return vectors / name

    return find
