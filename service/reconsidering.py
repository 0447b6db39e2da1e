"""Deciding again: when a waiver begins or ends, the gate answers anew on facts as they are now."""

import structlog

from service import deployments, jobs
from service import documents as papers
from service.archive import AlteredDocumentError, load
from service.deployments import DeploymentContext
from service.jobs import JobContext
from service.places import SITE
from service.tables import BaseModel, DatasetVersion, Job
from service.transaction import Transaction
from service.waivers import OPEN, Subject

log = structlog.get_logger(__name__)


def decide_again(
    tx: Transaction, subject: Subject, *, training: JobContext, serving: DeploymentContext
) -> bool:
    """Ask the gate about something that is not under way yet; say whether it was asked.

    The new decision ends the one before it, and what was approved on that. Approvals that the new
    one needs are asked for anew. Where nothing of ours could run it, or its documents were altered,
    nothing changes here: a dispatch checks both again and refuses.
    """
    if subject.state not in OPEN:
        return False
    try:
        if isinstance(subject, Job):
            return _decide_job(tx, subject, training)
        asked = papers.deployment_request_of(load(tx.session, subject.document_digest))
        if asked.compute.provider != SITE[0]:
            return False
        facts = deployments.facts_of(tx.session, subject, asked, serving)
        serving.gate.decide(tx, subject, facts, now=serving.clock())
    except AlteredDocumentError as error:
        log.warning("waiver.subject_altered", subject=subject.entity, reason=str(error))
        return False
    return True


def _decide_job(tx: Transaction, job: Job, context: JobContext) -> bool:
    request = jobs.request_of(load(tx.session, job.document_digest))
    if request.compute.provider not in context.engines:
        log.warning("waiver.no_engine", subject=job.entity, provider=request.compute.provider)
        return False
    dataset = tx.session.get_one(DatasetVersion, job.dataset_id)
    base = tx.session.get_one(BaseModel, job.base_model_id)
    facts = jobs.facts_of(tx.session, request, job, dataset, base, context=context)
    context.gate.decide(tx, job, facts, now=context.clock())
    return True
