"""The documents of a deployment, from evidence: every value measured, declared, or missing.

Nothing is filled in. What the run report measured names the run and its entry; what a person stated
names the principal, the day and the entry; what the reference data says names the row. A field that
none of them answers stays out, and the document says who could supply it.
"""

from dataclasses import dataclass
from typing import Any

from sqlmodel import Session, col, select

from audit.canonical import digest_of
from audit.event import EventKind
from model_cards import card, transparency
from model_cards.document import Completeness, completeness
from model_cards.evidence import Claim, Declared, Evidence, Measured, Missing, Reason, Reference
from policies.reference import Reference as ReferenceData
from service.approvals import given_approvals
from service.archive import load, parse_object
from service.jobs import request_of
from service.log_tables import AuditEntry
from service.requests import STORED, DeploymentRequest, JobRequest
from service.tables import (
    BaseModel,
    DatasetVersion,
    Deployment,
    Job,
    ModelVersion,
    Run,
    StoredDecision,
)
from trainer.contract import RunReport

Fields = dict[str, Claim | Missing]


@dataclass(frozen=True)
class Issued:
    """Both documents of a deployment, and how complete they are."""

    card: bytes
    transparency: bytes
    card_completeness: Completeness
    transparency_completeness: Completeness
    has_evaluation: bool


@dataclass(frozen=True)
class Case:
    """Everything about one deployment, read from the database."""

    deployment: Deployment
    request: DeploymentRequest
    model: ModelVersion
    job: Job
    job_request: JobRequest
    run: Run
    report: RunReport
    artefacts: dict[str, Any]
    dataset: DatasetVersion
    base: BaseModel
    decision: StoredDecision
    decision_record: dict[str, Any]
    approver_roles: list[str]


def read_case(
    session: Session, deployment: Deployment, asked: DeploymentRequest | None = None
) -> Case:
    """Read everything that the documents of a deployment rest on.

    The decision is the deployment's own once there is one, else the job's. `asked` stands in for
    the stored request, where none is stored yet.

    Raises:
        AlteredDocumentError: a stored document is not what its digest says.
    """
    model = session.get_one(ModelVersion, deployment.model_version_id)
    job = session.get_one(Job, model.job_id)
    run = session.get_one(Run, model.run_id)
    decision = session.get_one(StoredDecision, deployment.decision_id or job.decision_id)
    return Case(
        deployment=deployment,
        request=asked or deployment_request_of(load(session, deployment.document_digest)),
        model=model,
        job=job,
        job_request=request_of(load(session, job.document_digest)),
        run=run,
        report=RunReport.from_bytes(load(session, str(run.report_digest))),
        artefacts=parse_object(load(session, model.artefacts_digest)),
        dataset=session.get_one(DatasetVersion, job.dataset_id),
        base=session.get_one(BaseModel, job.base_model_id),
        decision=decision,
        decision_record=parse_object(load(session, decision.record_digest)),
        approver_roles=[row.role for row in given_approvals(session, decision)],
    )


def deployment_request_of(document: bytes) -> DeploymentRequest:
    """Read the request back from a stored deployment document."""
    return DeploymentRequest.model_validate(parse_object(document)["request"], context=STORED)


def issue(
    session: Session,
    deployment: Deployment,
    *,
    reference: ReferenceData,
    origin: str,
    now: str,
    asked: DeploymentRequest | None = None,
) -> Issued:
    """Build both documents from what is known now; same evidence, same bytes."""
    case = read_case(session, deployment, asked)
    entries = _entries(session, case)
    evidence = Evidence.of(
        {
            **_identity(case, entries),
            **_purpose(case, entries),
            **_base_and_data(case, entries),
            **_training(case, entries),
            **_evaluation(case, entries),
            **_compute(case, entries, reference),
            **_decision(case, entries),
            "record.issued_at": Claim(now, Measured(at=now)),
            "log.origin": Claim(origin, Measured(at=now)),
            "log.entries": Claim(
                sorted({index for index in entries.values() if index is not None}),
                Measured(at=now),
            ),
        }
    )
    card_bytes = card.build(evidence)
    record_bytes = transparency.build(evidence)
    return Issued(
        card=card_bytes,
        transparency=record_bytes,
        card_completeness=completeness(card_bytes),
        transparency_completeness=completeness(record_bytes),
        has_evaluation={"eval_loss_before", "eval_loss_after"} <= case.report.metrics.keys(),
    )


def _entries(session: Session, case: Case) -> dict[str, int | None]:
    """Find the log index of each step that the documents cite; None while not sequenced."""
    wanted = {
        "dataset": (case.dataset.entity, EventKind.DATASET_REGISTERED),
        "base": (case.base.entity, EventKind.BASE_MODEL_REGISTERED),
        "submitted": (case.job.entity, EventKind.JOB_SUBMITTED),
        "finished": (case.job.entity, EventKind.RUN_FINISHED),
        "dispatched": (case.job.entity, EventKind.RUN_DISPATCHING),
        "model": (case.model.entity, EventKind.MODEL_VERSION_REGISTERED),
        "requested": (case.deployment.entity, EventKind.DEPLOYMENT_REQUESTED),
        "decided": (
            f"{case.decision.subject_kind}:{case.decision.subject_id}",
            EventKind.GATE_DECIDED,
        ),
    }
    found: dict[str, int | None] = {}
    for name, (entity, kind) in wanted.items():
        rows = (
            select(AuditEntry.idx)
            .where(AuditEntry.entity == entity, AuditEntry.kind == kind.value)
            .order_by(col(AuditEntry.seq).desc())
            .limit(1)
        )
        found[name] = session.exec(rows).first()
    return found


def _identity(case: Case, entries: dict[str, int | None]) -> Fields:
    asked = _declared_by_deployer(case, entries)
    known = Measured(at=case.model.created_at, entry=entries["model"])
    fields: Fields = {
        "model.name": Claim(case.model.name, asked),
        "model.version": Claim(case.model.mlflow_version or case.model.id, known),
        "model.version_id": Claim(case.model.id, known),
        "deployment.id": Claim(
            case.deployment.id,
            Measured(at=case.deployment.created_at, entry=entries["requested"]),
        ),
    }
    for field, value in (
        ("model.description", case.request.description),
        ("model.licence", case.request.licence),
        ("model.inputs_outputs", case.request.inputs_outputs),
    ):
        if value:
            fields[field] = Claim(value, asked)
    return fields


def _purpose(case: Case, entries: dict[str, int | None]) -> Fields:
    asked = _declared_by_deployer(case, entries)
    submitted = Declared(
        by=case.job.submitted_by, on=case.job.created_at[:10], entry=entries["submitted"]
    )
    request, purpose = case.request, case.job_request.purpose
    fields: Fields = {
        "purpose.intended": Claim(_lines(request.intended_use), asked),
        "purpose.prohibited_practices": Claim(list(purpose.prohibited_practices), submitted),
        "purpose.high_risk_areas": Claim(list(purpose.high_risk_areas), submitted),
    }
    if request.excluded_use:
        fields["purpose.excluded"] = Claim(_lines(request.excluded_use), asked)
    if request.limitations:
        fields["limits.known"] = Claim(_lines(request.limitations), asked)
    for role, who in (("provider", request.provider), ("deployer", request.deployer)):
        if who is not None:
            fields[f"{role}.name"] = Claim(who.name, asked)
            fields[f"{role}.contact"] = Claim(who.contact, asked)
    if request.oversight:
        fields["oversight.measures"] = Claim(_lines(request.oversight), asked)
    if request.log_retention_months is not None:
        fields["logs.retention_months"] = Claim(request.log_retention_months, asked)
    if request.notices:
        fields["art50.notices"] = Claim(dict(request.notices), asked)
    return fields


def _base_and_data(case: Case, entries: dict[str, int | None]) -> Fields:
    base, data = case.base, case.dataset
    base_said, data_said = _declared(base, entries["base"]), _declared(data, entries["dataset"])
    base_seen = Measured(at=base.created_at, entry=entries["base"], document=base.files_digest)
    data_seen = Measured(
        at=data.created_at, entry=entries["dataset"], document=data.manifest_digest
    )
    fields: Fields = {
        "base.id": Claim(base.name, base_said),
        "base.digest": Claim(base.files_digest, base_seen),
        "base.licence": Claim(str(base.declared["licence"]), base_said),
        "base.parameters": Claim(base.num_parameters, base_seen),
        "data.id": Claim(data.id, data_seen),
        "data.digest": Claim(data.manifest_digest, data_seen),
        "data.licence": Claim(str(data.declared["licence"]), data_said),
        "data.categories_declared": Claim(list(data.categories_declared), data_said),
        "data.categories_detected": Claim(list(data.categories_detected), data_seen),
        "data.rows": Claim(data.num_rows, data_seen),
    }
    if languages := data.declared.get("languages"):
        fields["data.languages"] = Claim(list(languages), data_said)
    for field, member in (
        ("data.legal_basis", "legal_basis"),
        ("data.art9_condition", "art9_basis"),
        ("data.impact_assessment", "dpia_reference"),
    ):
        if value := data.declared.get(member):
            fields[field] = Claim(str(value), data_said)
    return fields


def _training(case: Case, entries: dict[str, int | None]) -> Fields:
    seen = _measured_by_run(case, entries)
    training = case.job_request.training
    submitted = Declared(
        by=case.job.submitted_by, on=case.job.created_at[:10], entry=entries["submitted"]
    )
    fields: Fields = {
        "training.method": Claim("LoRA", submitted),
        "training.adapter_rank": Claim(training.rank, submitted),
        "training.adapter_alpha": Claim(training.alpha, submitted),
        "training.adapter_targets": Claim(["all-linear"], submitted),
        "training.epochs": Claim(training.epochs, submitted),
        "training.learning_rate": Claim(training.learning_rate, submitted),
        "training.seed": Claim(case.report.seed, seen),
    }
    for field, name in (
        ("training.tokens", "tokens_trained"),
        ("training.trainable_parameters", "trainable_parameters"),
        ("evaluation.held_out_rows", "rows_eval"),
        ("evaluation.held_out_tokens", "tokens_eval"),
    ):
        if name in case.report.ledger:
            fields[field] = Claim(case.report.ledger[name], seen)
    return fields


def _evaluation(case: Case, entries: dict[str, int | None]) -> Fields:
    seen = _measured_by_run(case, entries)
    fields: Fields = {}
    for field, name in (
        ("evaluation.loss_before", "eval_loss_before"),
        ("evaluation.loss_after", "eval_loss_after"),
        ("evaluation.perplexity_before", "perplexity_before"),
        ("evaluation.perplexity_after", "perplexity_after"),
    ):
        if name in case.report.metrics:
            fields[field] = Claim(f"{case.report.metrics[name]:f}", seen)
    for field in ("evaluation.bias_report", "evaluation.leakage_report"):
        fields[field] = Missing(Reason.NOT_MEASURED)
    return fields


def _compute(case: Case, entries: dict[str, int | None], reference: ReferenceData) -> Fields:
    seen = _measured_by_run(case, entries)
    report, compute = case.report, case.job_request.compute
    flop = report.flop
    fields: Fields = {
        "compute.flop_architecture": Claim(f"{flop.architecture:f}", seen),
        "compute.flop_executed": Claim(f"{flop.executed:f}", seen),
        "compute.flop_hardware": Missing(Reason.NOT_MEASURED)
        if flop.hardware is None
        else Claim(f"{flop.hardware:f}", seen),
        "compute.energy": Missing(Reason.NOT_MEASURED)
        if report.energy.kwh is None
        else Claim(f"{report.energy.kwh:f}", seen),
        "compute.energy_method": Claim(report.energy.method[:500], seen),
        "environment.digest": Claim(digest_of(dict(report.environment)), seen),
        "environment.software": Claim(
            {str(k): str(v)[:500] for k, v in report.environment.items() if v}, seen
        ),
        "artefacts.digest": Claim(case.model.artefacts_digest, seen),
        "artefacts.files": Claim(
            {path: str(file["digest"]) for path, file in case.artefacts["files"].items()}, seen
        ),
    }
    decided = Measured(at=case.decision.created_at, entry=entries["decided"])
    fields["compute.provider"] = Claim(compute.provider, decided)
    fields["compute.region"] = Claim(compute.region, decided)
    row = reference.regions.get((compute.provider, compute.region))
    if row is not None:
        fields["compute.country"] = Claim(
            str(row["country"]), _region_source(row, reference, compute.provider, compute.region)
        )
    places = [
        f"{item['role']}: {item['provider'] or 'unknown'} / {item['region'] or 'unknown'}"
        for item in case.decision_record["facts"]["storage"]
    ]
    fields["storage.places"] = Claim(places, decided)
    ratio = case.decision_record["derived"].get("gpai", {}).get("share_permille")
    if ratio is not None:
        fields["compute.gpai_ratio"] = Claim(f"{ratio / 1000:.3f}", decided)
    return fields


def _decision(case: Case, entries: dict[str, int | None]) -> Fields:
    decided = Measured(
        at=case.decision.created_at,
        entry=entries["decided"],
        document=case.decision.record_digest,
    )
    ran = Measured(at=case.run.created_at, run=case.run.id, entry=entries["dispatched"])
    return {
        "job.id": Claim(case.job.id, ran),
        "run.id": Claim(case.run.id, ran),
        "permit.id": Claim(case.run.permit_id, ran),
        "decision.verdict": Claim(case.decision.verdict, decided),
        "decision.digest": Claim(case.decision.record_digest, decided),
        "decision.policy_digest": Claim(case.decision.policy_digest, decided),
        "approvals.count": Claim(len(case.approver_roles), decided),
        "approvals.roles": Claim(sorted(set(case.approver_roles)), decided),
    }


def _region_source(
    row: Any, reference: ReferenceData, provider: str, region: str
) -> Declared | Reference:
    if reference.site is not None and row["confidence"] == "declared":
        site = reference.site
        return Declared(by=str(site["declared_by"]), on=str(site["checked_on"]))
    return Reference(row=f"regions/{provider}/{region}", checked_on=str(row["checked_on"]))


def _measured_by_run(case: Case, entries: dict[str, int | None]) -> Measured:
    return Measured(
        at=case.report.finished_at,
        run=case.run.id,
        entry=entries["finished"],
        document=case.run.report_digest,
    )


def _declared(row: BaseModel | DatasetVersion, entry: int | None) -> Declared:
    return Declared(by=row.created_by, on=row.created_at[:10], entry=entry)


def _declared_by_deployer(case: Case, entries: dict[str, int | None]) -> Declared:
    return Declared(
        by=case.deployment.requested_by,
        on=case.deployment.created_at[:10],
        entry=entries["requested"],
    )


def _lines(text: str) -> list[str]:
    return [line.strip()[:500] for line in text.splitlines() if line.strip()]
