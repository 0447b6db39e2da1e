"""From an approved deployment to an endpoint that answers, and back: merge, start, activate, stop.

Every step can be repeated after a crash; nothing answers before the activation is committed.
"""

import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import structlog

from audit.event import EventKind
from service import documents as papers
from service import lifecycle, waivers
from service.approvals import expire, given_approvals, missing_approvals
from service.archive import load, parse_object
from service.clock import seconds
from service.deployments import DeploymentContext, MergeError, facts_of
from service.lifecycle import DeploymentMove, DeploymentState
from service.objects.protocol import (
    CHUNK_BYTES,
    ObjectError,
    ObjectMismatchError,
    Objects,
    ObjectStoreError,
)
from service.serving import ServingState
from service.tables import Deployment, EndpointState, Job, ModelVersion, Run, StoredDecision
from service.transaction import SYSTEM, Transaction

log = structlog.get_logger(__name__)


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
    """Stop the endpoint of a deployment that must not answer any more.

    The wish is asserted again in each pass until the endpoint is seen to be gone.
    """
    with context.transactions.read() as session:
        endpoint = session.get(EndpointState, deployment_id)
    if endpoint is None or endpoint.ref is None:
        return
    context.host.stop(endpoint.ref)
    if context.host.observe(endpoint.ref).state not in {ServingState.STOPPED, ServingState.FAILED}:
        return
    with context.transactions.write() as tx:
        stopped = tx.session.get_one(EndpointState, deployment_id)
        stopped.ref, stopped.port = None, None
        tx.session.add(stopped)


def fail(context: DeploymentContext, deployment_id: str, reason_code: str) -> None:
    """Record that a deployment does not work, and why in a code."""
    with context.transactions.write() as tx:
        row = tx.session.get_one(Deployment, deployment_id, with_for_update=True)
        _fail(tx, row, reason_code)


def _fail(tx: Transaction, row: Deployment, reason_code: str) -> None:
    state, kind = lifecycle.follow(
        lifecycle.DEPLOYMENT, DeploymentState(row.state), DeploymentMove.FAIL
    )
    row.state, row.reason_code = state, reason_code
    tx.record(kind, row, actor=SYSTEM, data={"reason_code": reason_code}, outcome="error")


def _holds_its_waivers(context: DeploymentContext, tx: Transaction, row: Deployment) -> bool:
    """Say whether what was waived for it, and for its training, still is; record what is not."""
    model = tx.session.get_one(ModelVersion, row.model_version_id)
    if waivers.revoked_under(tx.session, tx.session.get_one(Job, model.job_id)) is not None:
        _fail(tx, row, "waiver_revoked")
        return False
    now = context.clock()
    active = {one.id for one in waivers.active_for(tx.session, row.entity, now)}
    if waivers.counted(tx.session, row) <= active:
        return True
    asked = papers.deployment_request_of(load(tx.session, row.document_digest))
    context.gate.decide(tx, row, facts_of(tx.session, row, asked, context), now=now)
    return False


def _may_start(context: DeploymentContext, deployment_id: str) -> bool:
    """Check everything again before anything starts; record what changed."""
    with context.transactions.write() as tx:
        row = tx.session.get_one(Deployment, deployment_id, with_for_update=True)
        return _is_still_approved(context, tx, row)


def _is_still_approved(context: DeploymentContext, tx: Transaction, row: Deployment) -> bool:
    """Ask the gate again, as of now; what changed since the approval is recorded as a move.

    Waivers end, certificates run out, and rules and rows change between an approval and the hour
    at which it is used. Only a decision that comes out the same still has its approvals.
    """
    now = context.clock()
    if row.state != DeploymentState.APPROVED:
        return False
    decision = tx.session.get_one(StoredDecision, row.decision_id)
    if decision.expires_at <= seconds(now):
        expire(tx, row)
        return False
    if not _holds_its_waivers(context, tx, row):
        return False
    asked = papers.deployment_request_of(load(tx.session, row.document_digest))
    facts = facts_of(tx.session, row, asked, context)
    fresh = context.gate.preview(
        tx.session, facts, subject_kind="deployment", subject_id=row.id, now=now
    )
    record = load(tx.session, decision.record_digest)
    if not context.gate.rests_on_the_same(tx.session, decision, fresh, record):
        context.gate.decide(tx, row, facts, now=now)
        return False
    distinct = [
        given
        for given in given_approvals(tx.session, decision)
        if given.approver_id != row.requested_by
    ]
    if missing_approvals(decision, distinct):
        log.error("deployment.unapproved", deployment_id=row.id)
        return False
    return True


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
    """Ask the gate again, issue both documents and activate, in one transaction."""
    with context.transactions.write() as tx:
        row = tx.session.get_one(Deployment, deployment_id, with_for_update=True)
        if not _is_still_approved(context, tx, row):
            return
        decision = tx.session.get_one(StoredDecision, row.decision_id)
        issued = papers.issue(
            tx.session,
            row,
            reference=context.gate.current(tx.session).reference,
            origin=context.origin,
            now=seconds(context.clock()),
        )
        row.card_digest = tx.keep(issued.card)
        row.transparency_digest = tx.keep(issued.transparency)
        _record_documents(tx, row, issued)
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


def _record_documents(tx: Transaction, row: Deployment, issued: papers.Issued) -> None:
    """Record that both documents were issued, and how complete they are."""
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
