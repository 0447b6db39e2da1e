"""Deployments: ask, decide, activate, answer, retire.

An active deployment always has its model card and its transparency record: they are issued in the
transaction that activates it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sqlmodel import Session

from audit.canonical import canonical, digest
from audit.event import EventKind
from policies.decision import Decision
from service import documents as papers
from service import facts as gathering
from service import lifecycle, waivers
from service.approvals import check_version
from service.archive import load, parse_object
from service.clock import Clock, instant, seconds
from service.gating import Gate
from service.ids import Prefix, new_id
from service.lifecycle import DeploymentMove, DeploymentState, IllegalMoveError
from service.objects.protocol import (
    Objects,
)
from service.places import SITE, Addresses
from service.principals import Caller, Role
from service.problems import IllegalState, NotFound, field_problem
from service.requests import DeploymentRequest
from service.serving import Endpoint, ServingObservation
from service.tables import Deployment, Job, ModelVersion, StoredDecision
from service.transaction import Transaction, Transactions

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
        addresses: the endpoints of everything a deployment writes to.
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
    addresses: Addresses
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
        IllegalState: the model was trained under a waiver that was revoked.
    """
    caller.require(Role.SUBMITTER)
    model = _model_for(tx.session, caller, asked)
    caller.require_team(model.team)
    row, document = _prepared(caller, asked=asked, model=model, context=context)
    tx.keep(document)
    tx.record(
        EventKind.DEPLOYMENT_REQUESTED,
        row,
        actor=caller.actor,
        data={"model_version": model.id, "document": row.document_digest},
    )
    facts = facts_of(tx.session, row, asked, context)
    decision, _ = context.gate.decide(tx, row, facts, now=context.clock())
    _check_served(asked, decision)
    return row, decision


def preview(
    session: Session, caller: Caller, *, asked: DeploymentRequest, context: DeploymentContext
) -> Decision:
    """Decide on a deployment as `request` would now, and record nothing.

    Raises:
        Forbidden: neither submitter, officer nor auditor, or not of the model's team.
        Unprocessable: as `request`.
    """
    caller.require(Role.SUBMITTER, Role.OFFICER, Role.AUDITOR)
    model = _model_for(session, caller, asked)
    row, _ = _prepared(caller, asked=asked, model=model, context=context)
    decision = context.gate.preview(
        session,
        facts_of(session, row, asked, context),
        subject_kind="deployment",
        subject_id=row.id,
        now=context.clock(),
    )
    _check_served(asked, decision)
    return decision


def _model_for(session: Session, caller: Caller, asked: DeploymentRequest) -> ModelVersion:
    model = session.get(ModelVersion, asked.model_version)
    if model is None or not caller.sees(model.team):
        raise field_problem("/model_version", "no such model version that you may see")
    ended = waivers.revoked_under(session, session.get_one(Job, model.job_id))
    if ended is not None:
        raise IllegalState(
            f"it was trained under the waiver `{ended}`, which was revoked; train it again"
        )
    return model


def _prepared(
    caller: Caller, *, asked: DeploymentRequest, model: ModelVersion, context: DeploymentContext
) -> tuple[Deployment, bytes]:
    """Resolve a request to exact bytes; nothing is recorded yet."""
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
        document_digest=digest(document),
        artefacts_digest=model.artefacts_digest,
    )
    return row, document


def _check_served(asked: DeploymentRequest, decision: Decision) -> None:
    provider = asked.compute.provider
    if decision.verdict != "deny" and provider != SITE[0]:
        raise field_problem(
            "/compute/provider",
            f"models are served on `{SITE[0]}` only, got `{provider}`; the gate decides on where"
            " it will run, not on a label",
        )


def facts_of(
    session: Session, row: Deployment, asked: DeploymentRequest, context: DeploymentContext
) -> dict[str, object]:
    """Gather the facts of a deployment as they are now; the card is built to be counted."""
    model = session.get_one(ModelVersion, row.model_version_id)
    job = session.get_one(Job, model.job_id)
    trained = session.get_one(StoredDecision, job.decision_id)
    reference = context.gate.current(session).reference
    issued = papers.issue(
        session,
        row,
        asked=asked,
        reference=reference,
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
        storage=context.addresses.storage(reference),
        evaluation_age_days=max(0, (context.clock() - instant(model.created_at)).days),
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
