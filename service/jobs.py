"""What can be done with a job: submit, read, decide, cancel. Every change is one transaction."""

from dataclasses import dataclass
from typing import Any

from sqlmodel import Session

from audit.canonical import canonical, digest
from audit.event import EventKind
from policies.decision import Decision
from service import facts as gathering
from service import lifecycle
from service.approvals import check_version
from service.archive import parse_object
from service.clock import Clock, seconds
from service.gating import Gate
from service.ids import Prefix, new_id
from service.lifecycle import IllegalMoveError, JobMove, JobState
from service.places import SITE, Addresses
from service.principals import Caller, Role
from service.problems import IllegalState, NotFound, field_problem
from service.registry import rows_format_of
from service.requests import STORED, JobRequest
from service.tables import BaseModel, DatasetVersion, Job
from service.transaction import Transaction
from trainer.contract import CHAT_ROWS, ContractError, JobSpec

DOCUMENT_FORMAT = "placet.job/1"


@dataclass(frozen=True)
class JobContext:
    """What submitting needs from the installation.

    Args:
        gate: policy and reference data in force.
        clock: what time it is.
        addresses: the endpoints of everything a run writes to.
        engines: providers that an engine is configured for.
        code_digest: digest of our own training code, which runs on the own site.
        manifests: URI prefix under which dataset manifests lie.
        site_price: euro cents an hour on the own site costs; None is unknown.
    """

    gate: Gate
    clock: Clock
    addresses: Addresses
    engines: frozenset[str]
    code_digest: str
    manifests: str
    site_price: int | None


@dataclass(frozen=True)
class Prepared:
    """A request resolved to exact bytes and gathered facts; nothing of it is recorded yet."""

    job: Job
    document: bytes
    spec: bytes
    facts: dict[str, Any]


def submit(
    tx: Transaction, caller: Caller, *, request: JobRequest, context: JobContext
) -> tuple[Job, Decision]:
    """Record a job and the gate's decision on it, together.

    A denied job is returned like any other: the denial is its state.

    Raises:
        Forbidden: not a submitter, or not of this team.
        Unprocessable: unknown data set or base model, or hyperparameters the trainer refuses, or
            no engine for a provider that the gate would let through, or an image for the own site.
    """
    caller.require(Role.SUBMITTER)
    caller.require_team(request.team)
    prepared = _prepared(tx.session, caller, request=request, context=context)
    job = prepared.job
    tx.keep(prepared.document)
    tx.keep(prepared.spec)
    tx.record(
        EventKind.JOB_SUBMITTED,
        job,
        actor=caller.actor,
        data={
            "document": job.document_digest,
            "spec": job.spec_digest,
            "dataset": job.dataset_id,
            "base_model": job.base_model_id,
            "team": job.team,
        },
    )
    decision, _ = context.gate.decide(tx, job, prepared.facts, now=context.clock())
    _check_engine(request, decision, context)
    return job, decision


def preview(
    session: Session, caller: Caller, *, request: JobRequest, context: JobContext
) -> Decision:
    """Decide on a job as `submit` would now, and record nothing.

    Officers and auditors may ask on behalf of any team.

    Raises:
        Forbidden: neither submitter, officer nor auditor, or not of this team.
        Unprocessable: as `submit`.
    """
    check_previewer(caller, request.team)
    prepared = _prepared(session, caller, request=request, context=context)
    decision = context.gate.preview(
        session, prepared.facts, subject_kind="job", subject_id=prepared.job.id, now=context.clock()
    )
    _check_engine(request, decision, context)
    return decision


def check_previewer(caller: Caller, team: str) -> None:
    """Refuse whoever may not ask what the gate would say about a request of this team.

    Raises:
        Forbidden: neither submitter, officer nor auditor, or not of this team.
    """
    caller.require(Role.SUBMITTER, Role.OFFICER, Role.AUDITOR)
    if not caller.sees(team):
        caller.require_team(team)


def _check_engine(request: JobRequest, decision: Decision, context: JobContext) -> None:
    provider = request.compute.provider
    if decision.verdict != "deny" and provider not in context.engines:
        configured = ", ".join(sorted(context.engines)) or "none"
        raise field_problem(
            "/compute/provider",
            f"the gate would allow it, but no engine is configured for `{provider}` here;"
            f" configured: {configured}",
        )


def _prepared(
    session: Session, caller: Caller, *, request: JobRequest, context: JobContext
) -> Prepared:
    """Resolve a request to exact bytes and gather its facts."""
    dataset = session.get(DatasetVersion, request.dataset)
    if dataset is None or dataset.team != request.team:
        raise field_problem("/dataset", "no such dataset version in your team; register it first")
    if (written := rows_format_of(dataset)) != CHAT_ROWS:
        raise field_problem(
            "/dataset",
            f"its rows are `{written}`, and the trainer learns from `{CHAT_ROWS}` only; write them"
            f" as `{CHAT_ROWS}`, register that and name it here",
        )
    base = session.get(BaseModel, request.base_model)
    if base is None:
        raise field_problem("/base_model", "no such base model; register it first")
    if request.compute.provider == SITE[0] and request.compute.image is not None:
        raise field_problem("/compute/image", "our own code runs on the own site; leave it null")
    spec = training_spec(request, dataset, base, manifests=context.manifests).to_bytes()
    job_id = new_id(Prefix.JOB)
    document = canonical(
        {
            "format": DOCUMENT_FORMAT,
            "job": job_id,
            "submitted_by": caller.id,
            "dataset_manifest": dataset.manifest_digest,
            "base_model_files": base.files_digest,
            "spec": digest(spec),
            "request": request.model_dump(),
        }
    )
    job = Job(
        id=job_id,
        entry_id="",
        created_at=seconds(context.clock()),
        submitted_by=caller.id,
        team=request.team,
        name=request.name,
        state=JobState.SUBMITTED,
        dataset_id=dataset.id,
        base_model_id=base.id,
        document_digest=digest(document),
        spec_digest=digest(spec),
    )
    return Prepared(
        job, document, spec, facts_of(session, request, job, dataset, base, context=context)
    )


def facts_of(
    session: Session,
    request: JobRequest,
    job: Job,
    dataset: DatasetVersion,
    base: BaseModel,
    *,
    context: JobContext,
) -> dict[str, Any]:
    """Gather the facts of a job as they are now, places and prices by the rows in force."""
    reference = context.gate.current(session).reference
    return gathering.job_facts(
        request,
        job_id=job.id,
        document_digest=job.document_digest,
        spec_digest=job.spec_digest,
        dataset=dataset,
        base=base,
        storage=context.addresses.storage(reference),
        cost_cents=gathering.cost_estimate_cents(
            reference,
            provider=request.compute.provider,
            flavor=request.compute.flavor,
            gpus=request.compute.gpus,
            minutes=request.max_minutes,
            site_price=context.site_price,
        ),
        code_digest=context.code_digest,
        reference=reference,
    )


def training_spec(
    request: JobRequest, dataset: DatasetVersion, base: BaseModel, *, manifests: str
) -> JobSpec:
    """Resolve names to digests: the exact bytes that the trainer will read.

    Raises:
        Unprocessable: the trainer's contract refuses a value; says which and why.
    """
    training = request.training
    document = {
        "format": "placet.train/1",
        "seed": training.seed,
        "base_model": {"uri": base.uri, "digest": base.files_digest},
        "dataset": {
            "manifest_uri": manifest_uri(manifests, dataset.manifest_digest),
            "digest": dataset.manifest_digest,
        },
        "split": {"eval_permille": training.eval_permille},
        "max_tokens": training.max_tokens,
        "overlong": training.overlong,
        "adapter": {
            "kind": training.method,
            "rank": training.rank,
            "alpha": training.alpha,
            "dropout": training.dropout,
            "targets": "all-linear",
        },
        "optimizer": {
            "learning_rate": training.learning_rate,
            "schedule": training.schedule,
            "warmup_permille": training.warmup_permille,
            "clip_norm": training.clip_norm,
            "weight_decay": training.weight_decay,
            "tokens_per_step": training.tokens_per_step,
            "epochs": training.epochs,
        },
        "precision": training.precision,
        "checkpoint": {
            "every_steps": training.checkpoint_every_steps,
            "keep": training.checkpoint_keep,
        },
        "limits": {"max_minutes": request.max_minutes, "max_steps": training.max_steps},
    }
    try:
        return JobSpec.from_bytes(canonical(document))
    except ContractError as error:
        raise field_problem("/training", str(error)) from error


def manifest_uri(prefix: str, manifest_digest: str) -> str:
    """Say where a dataset manifest lies: its digest is its name."""
    return f"{prefix}/{manifest_digest.replace(':', '-')}.json"


def find(session: Session, caller: Caller, job_id: str) -> Job:
    """Return a job that the caller may see.

    Raises:
        NotFound: no such job, or another team's.
    """
    job = session.get(Job, job_id)
    if job is None or not caller.sees(job.team):
        raise NotFound(f"no job `{job_id}` that you may see; list yours with `placet jobs`")
    return job


def cancel(tx: Transaction, caller: Caller, *, job: Job, expected_version: int) -> Job:
    """Ask that a job does not run, or stops; the worker re-asserts it until the engine confirms.

    Raises:
        Forbidden: neither a submitter of the team nor an officer.
        PreconditionFailed: the job changed since the caller read it.
        IllegalState: it is over already.
    """
    if Role.OFFICER not in caller.roles:
        caller.require(Role.SUBMITTER)
        caller.require_team(job.team)
    check_version(job, expected_version)
    try:
        state, kind = lifecycle.follow(lifecycle.JOB, JobState(job.state), JobMove.CANCEL)
    except IllegalMoveError as error:
        raise IllegalState(str(error)) from error
    job.state = state
    tx.record(kind, job, actor=caller.actor, data={})
    return job


def request_of(document: bytes) -> JobRequest:
    """Read the request back from a stored job document."""
    return JobRequest.model_validate(parse_object(document)["request"], context=STORED)
