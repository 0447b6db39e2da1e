"""Deployments: ask, decide, activate, answer, retire.

An active deployment always has its model card and its transparency record: they are issued in the
transaction that activates it.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import structlog
from sqlmodel import Session

from audit.canonical import canonical
from audit.event import EventKind
from policies.decision import Decision
from service import documents as papers
from service import facts as gathering
from service import lifecycle
from service.approvals import check_version, expire, given_approvals, missing_approvals
from service.archive import load, parse_object
from service.clock import Clock, seconds
from service.gating import Gate
from service.ids import Prefix, new_id
from service.lifecycle import DeploymentMove, DeploymentState, IllegalMoveError
from service.objects.protocol import (
    CHUNK_BYTES,
    ObjectError,
    ObjectMismatchError,
    Objects,
    ObjectStoreError,
)
from service.places import SITE, Place
from service.principals import Caller, Role
from service.problems import IllegalState, NotFound, field_problem
from service.requests import DeploymentRequest
from service.serving import Endpoint, ServingObservation, ServingState
from service.tables import Deployment, EndpointState, Job, ModelVersion, Run, StoredDecision
from service.transaction import SYSTEM, Transaction, Transactions

log = structlog.get_logger(__name__)
DOCUMENT_FORMAT = "placet.deployment/1"


class MergeError(RuntimeError):
    """The adapter could not be merged; the message holds the trainer's last words."""


class Host(Protocol):
    """Something that serves merged weights behind the gateway; `service.serving` is one."""

    def start(self, deployment_id: str, model_dir: Path, name: str) -> Endpoint:
        """Start (or find) the endpoint."""
        ...

    def observe(self, ref: str) -> ServingObservation:
        """Say where it stands."""
        ...

    def stop(self, ref: str) -> None:
        """Stop it; repeatable."""
        ...


class Merge(Protocol):
    """Merges an adapter into its base model with the trainer's `export`."""

    def __call__(self, *, base: Path, adapter: Path, out: Path) -> None:
        """Write the merged model to `out`, whole or not at all.

        Raises:
            MergeError: the trainer refused or failed.
        """
        ...


@dataclass(frozen=True)
class DeploymentContext:
    """What deployments need from the installation.

    Args:
        transactions: the database.
        gate: policy and reference data in force.
        clock: what time it is.
        objects: where artefacts lie.
        sources: where base models lie.
        storage: role → place of everything a deployment writes to.
        host: serves merged weights.
        merge: merges an adapter into its base.
        folder: where merged weights are kept.
        origin: the audit log's name.
    """

    transactions: Transactions
    gate: Gate
    clock: Clock
    objects: Objects
    sources: Objects
    storage: dict[str, Place]
    host: Host
    merge: Merge
    folder: Path
    origin: str


def request(
    tx: Transaction, caller: Caller, *, asked: DeploymentRequest, context: DeploymentContext
) -> tuple[Deployment, Decision]:
    """Record a deployment and the gate's decision at stage `deploy`, together.

    Raises:
        Forbidden: not a submitter of the model's team.
        Unprocessable: no such model version, or a place where nothing of ours serves.
    """
    caller.require(Role.SUBMITTER)
    model = tx.session.get(ModelVersion, asked.model_version)
    if model is None or not caller.sees(model.team):
        raise field_problem("/model_version", "no such model version that you may see")
    caller.require_team(model.team)
    deployment_id = new_id(Prefix.DEPLOYMENT)
    document = canonical(
        {
            "format": DOCUMENT_FORMAT,
            "deployment": deployment_id,
            "requested_by": caller.id,
            "artefacts": model.artefacts_digest,
            "request": asked.model_dump(),
        }
    )
    row = Deployment(
        id=deployment_id,
        entry_id="",
        created_at=seconds(context.clock()),
        requested_by=caller.id,
        team=model.team,
        name=asked.name,
        state=DeploymentState.REQUESTED,
        model_version_id=model.id,
        document_digest=tx.keep(document),
        artefacts_digest=model.artefacts_digest,
    )
    tx.record(
        EventKind.DEPLOYMENT_REQUESTED,
        row,
        actor=caller.actor,
        data={"model_version": model.id, "document": row.document_digest},
    )
    facts = facts_of(tx.session, row, asked, context)
    decision, _ = context.gate.decide(tx, row, facts, now=context.clock())
    provider = asked.compute.provider
    if decision.verdict != "deny" and provider != SITE[0]:
        raise field_problem(
            "/compute/provider",
            f"models are served on `{SITE[0]}` only, got `{provider}`; the gate decides on where"
            " it will run, not on a label",
        )
    return row, decision


def facts_of(
    session: Session, row: Deployment, asked: DeploymentRequest, context: DeploymentContext
) -> dict[str, object]:
    """Gather the facts of a deployment as they are now; the card is built to be counted."""
    model = session.get_one(ModelVersion, row.model_version_id)
    job = session.get_one(Job, model.job_id)
    trained = session.get_one(StoredDecision, job.decision_id)
    issued = papers.issue(
        session,
        row,
        reference=context.gate.reference,
        origin=context.origin,
        now=row.created_at,
    )
    counted = issued.card_completeness
    total = counted.measured + counted.declared + counted.missing
    return gathering.deployment_facts(
        parse_object(load(session, trained.facts_digest)),
        asked,
        document_digest=row.document_digest,
        artefacts_digest=model.artefacts_digest,
        card=(counted.missing, total),
        evaluation_present=issued.has_evaluation,
        art50_texts_present=set(asked.languages) <= asked.notices.keys(),
        storage=context.storage,
    )


def find(session: Session, caller: Caller, deployment_id: str) -> Deployment:
    """Return a deployment that the caller may see.

    Raises:
        NotFound: no such deployment, or another team's.
    """
    row = session.get(Deployment, deployment_id)
    if row is None or not caller.sees(row.team):
        raise NotFound(f"no deployment `{deployment_id}` that you may see")
    return row


def advance(context: DeploymentContext, deployment_id: str) -> None:
    """Bring an approved deployment one step further: merge, start, wait, activate.

    Every step can be repeated after a crash; nothing answers before the activation is committed.
    """
    with context.transactions.read() as session:
        row = session.get_one(Deployment, deployment_id)
        endpoint = session.get(EndpointState, deployment_id)
    if endpoint is None or endpoint.ref is None:
        if _may_start(context, deployment_id):
            _start(context, row)
        return
    state = context.host.observe(endpoint.ref).state
    if state in {ServingState.FAILED, ServingState.STOPPED}:
        fail(context, deployment_id, "endpoint_failed")
    elif state is ServingState.READY:
        _activate(context, deployment_id)


def watch(context: DeploymentContext, deployment_id: str) -> None:
    """Record it when an active deployment's endpoint ended by itself."""
    with context.transactions.read() as session:
        endpoint = session.get(EndpointState, deployment_id)
    if endpoint is None or endpoint.ref is None:
        return
    if context.host.observe(endpoint.ref).state in {ServingState.FAILED, ServingState.STOPPED}:
        fail(context, deployment_id, "endpoint_failed")


def stop_endpoint(context: DeploymentContext, deployment_id: str) -> None:
    """Stop the endpoint of a deployment that must not answer any more."""
    with context.transactions.read() as session:
        endpoint = session.get(EndpointState, deployment_id)
    if endpoint is None or endpoint.ref is None:
        return
    context.host.stop(endpoint.ref)
    with context.transactions.write() as tx:
        stopped = tx.session.get_one(EndpointState, deployment_id)
        stopped.ref, stopped.port = None, None
        tx.session.add(stopped)


def retire(
    tx: Transaction, caller: Caller, *, row: Deployment, expected_version: int
) -> Deployment:
    """Retire a deployment; the gateway stops answering with the commit.

    Raises:
        Forbidden: neither an officer nor a submitter of the team.
        PreconditionFailed: it changed since the caller read it.
        IllegalState: it is not active, approved or waiting.
    """
    if Role.OFFICER not in caller.roles:
        caller.require(Role.SUBMITTER)
        caller.require_team(row.team)
    check_version(row, expected_version)
    try:
        state, kind = lifecycle.follow(
            lifecycle.DEPLOYMENT, DeploymentState(row.state), DeploymentMove.RETIRE
        )
    except IllegalMoveError as error:
        raise IllegalState(str(error)) from error
    row.state = state
    tx.record(kind, row, actor=caller.actor, data={})
    return row


def fail(context: DeploymentContext, deployment_id: str, reason_code: str) -> None:
    """Record that a deployment does not work, and why in a code."""
    with context.transactions.write() as tx:
        row = tx.session.get_one(Deployment, deployment_id, with_for_update=True)
        state, kind = lifecycle.follow(
            lifecycle.DEPLOYMENT, DeploymentState(row.state), DeploymentMove.FAIL
        )
        row.state, row.reason_code = state, reason_code
        tx.record(kind, row, actor=SYSTEM, data={"reason_code": reason_code}, outcome="error")


def _may_start(context: DeploymentContext, deployment_id: str) -> bool:
    """Check everything again before anything starts; record what changed."""
    now = context.clock()
    with context.transactions.write() as tx:
        row = tx.session.get_one(Deployment, deployment_id, with_for_update=True)
        if row.state != DeploymentState.APPROVED:
            return False
        decision = tx.session.get_one(StoredDecision, row.decision_id)
        if decision.expires_at <= seconds(now):
            expire(tx, row)
            return False
        asked = papers.deployment_request_of(load(tx.session, row.document_digest))
        facts = facts_of(tx.session, row, asked, context)
        fresh = context.gate.preview(facts, subject_kind="deployment", subject_id=row.id, now=now)
        record = load(tx.session, decision.record_digest)
        if not context.gate.rests_on_the_same(decision, fresh, record):
            context.gate.decide(tx, row, facts, now=now)
            return False
        distinct = [
            given
            for given in given_approvals(tx.session, decision)
            if given.approver_id != row.requested_by
        ]
        return not missing_approvals(decision, distinct)


def _start(context: DeploymentContext, row: Deployment) -> None:
    """Fetch the approved artefacts, check each digest, merge and start the endpoint."""
    with context.transactions.read() as session:
        model = session.get_one(ModelVersion, row.model_version_id)
        case = papers.read_case(session, row)
        run = session.get_one(Run, model.run_id)
        files = parse_object(load(session, case.base.files_digest))
    merged = context.folder / model.artefacts_digest.replace(":", "-")
    if not merged.exists():
        try:
            with tempfile.TemporaryDirectory(dir=_made(context.folder)) as scratch:
                adapter, base = Path(scratch, "adapter"), Path(scratch, "base")
                artefacts = {
                    path.removeprefix("adapter/"): file["digest"]
                    for path, file in case.artefacts["files"].items()
                    if path.startswith("adapter/")
                }
                _fetch(context.objects, f"{run.output_uri}/adapter", artefacts, adapter)
                base_files = {file["path"]: file["digest"] for file in files["files"]}
                _fetch(context.sources, case.base.uri.rstrip("/"), base_files, base)
                context.merge(base=base, adapter=adapter, out=merged)
        except ObjectStoreError:  # an outage is no evidence: the next pass tries again
            raise
        except (ObjectError, MergeError) as error:
            log.warning("deployment.not_started", deployment_id=row.id, reason=str(error))
            is_merge = isinstance(error, MergeError)
            fail(context, row.id, "merge_failed" if is_merge else "artefact_differs")
            return
    endpoint = context.host.start(row.id, merged, row.name)
    with context.transactions.write() as tx:
        stored = tx.session.get(EndpointState, row.id) or EndpointState(deployment_id=row.id)
        stored.ref, stored.port = endpoint.ref, endpoint.port
        tx.session.add(stored)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _fetch(objects: Objects, prefix: str, files: Mapping[str, str], folder: Path) -> None:
    """Copy files whose digests are recorded; what is merged is what was checked.

    Raises:
        ObjectError: a file is missing or holds other bytes than were recorded.
    """
    for path, expected in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        hasher = sha256()
        with objects.open(f"{prefix}/{path}") as source, target.open("wb") as out:
            while chunk := source.read(CHUNK_BYTES):
                hasher.update(chunk)
                out.write(chunk)
        if f"sha256:{hasher.hexdigest()}" != expected:
            raise ObjectMismatchError(f"`{prefix}/{path}` holds other bytes than were recorded")


def _activate(context: DeploymentContext, deployment_id: str) -> None:
    """Issue both documents and activate, in one transaction."""
    now = seconds(context.clock())
    with context.transactions.write() as tx:
        row = tx.session.get_one(Deployment, deployment_id, with_for_update=True)
        if row.state != DeploymentState.APPROVED:
            return
        decision = tx.session.get_one(StoredDecision, row.decision_id)
        issued = papers.issue(
            tx.session,
            row,
            reference=context.gate.reference,
            origin=context.origin,
            now=now,
        )
        row.card_digest = tx.keep(issued.card)
        row.transparency_digest = tx.keep(issued.transparency)
        for kind, name, body, counted in (
            (EventKind.CARD_ISSUED, "card", row.card_digest, issued.card_completeness),
            (
                EventKind.TRANSPARENCY_ISSUED,
                "transparency",
                row.transparency_digest,
                issued.transparency_completeness,
            ),
        ):
            tx.record(
                kind,
                row,
                actor=SYSTEM,
                data={
                    name: body,
                    "deployment": row.id,
                    "measured": counted.measured,
                    "declared": counted.declared,
                    "missing": counted.missing,
                },
            )
        state, kind = lifecycle.follow(
            lifecycle.DEPLOYMENT, DeploymentState(row.state), DeploymentMove.ACTIVATE
        )
        row.state = state
        tx.record(
            kind,
            row,
            actor=SYSTEM,
            data={
                "model_version": row.model_version_id,
                "artefacts": str(row.artefacts_digest),
                "record": decision.record_digest,
                "card": row.card_digest,
                "transparency": row.transparency_digest,
            },
        )
