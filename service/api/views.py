"""How rows look from outside. A view never has a default: every member is there, or it is null."""

from typing import Any

from service.registry import rows_format_of
from service.tables import (
    Approval,
    BaseModel,
    DatasetVersion,
    Deployment,
    Job,
    ModelVersion,
    Run,
    RunProgress,
    StoredDecision,
    StoredWaiver,
)


def dataset(row: DatasetVersion) -> dict[str, Any]:
    """Render a dataset version."""
    return {
        "id": row.id,
        "version": row.version,
        "name": row.name,
        "team": row.team,
        "uri": row.uri,
        "manifest_digest": row.manifest_digest,
        "format": rows_format_of(row),
        "num_objects": row.num_objects,
        "num_rows": row.num_rows,
        "size_bytes": row.size_bytes,
        "place": {
            "provider": row.provider,
            "service": row.service,
            "region": row.region,
            "country": row.country,
        },
        "categories_declared": row.categories_declared,
        "categories_detected": row.categories_detected,
        "detection": row.detection,
        "declared": row.declared,
        "created_at": row.created_at,
        "created_by": row.created_by,
        "entry": row.entry_id,
    }


def base_model(row: BaseModel) -> dict[str, Any]:
    """Render a base model."""
    return {
        "id": row.id,
        "version": row.version,
        "name": row.name,
        "uri": row.uri,
        "files_digest": row.files_digest,
        "num_parameters": row.num_parameters,
        "declared": row.declared,
        "created_at": row.created_at,
        "created_by": row.created_by,
        "entry": row.entry_id,
    }


def job(row: Job) -> dict[str, Any]:
    """Render a job without its history."""
    return {
        "id": row.id,
        "version": row.version,
        "name": row.name,
        "team": row.team,
        "state": row.state,
        "reason_code": row.reason_code,
        "submitted_by": row.submitted_by,
        "dataset": row.dataset_id,
        "base_model": row.base_model_id,
        "document_digest": row.document_digest,
        "spec_digest": row.spec_digest,
        "decision": row.decision_id,
        "created_at": row.created_at,
        "entry": row.entry_id,
    }


def run(row: Run, progress: RunProgress | None, model: ModelVersion | None) -> dict[str, Any]:
    """Render a run with its live progress."""
    return {
        "id": row.id,
        "state": row.state,
        "outcome": row.outcome,
        "engine": row.engine,
        "permit": row.permit_id,
        "report_digest": row.report_digest,
        "artefacts_digest": row.artefacts_digest,
        "mlflow_run": None if progress is None else progress.mlflow_run_id,
        "tracking_error": None if progress is None else progress.tracking_error,
        "progress": None if progress is None else progress.last_event,
        "model_version": None if model is None else model.id,
        "created_at": row.created_at,
    }


def decision(
    row: StoredDecision,
    findings: list[dict[str, Any]],
    approvals: list[Approval],
    missing: dict[str, int],
) -> dict[str, Any]:
    """Render a decision with its findings and approvals."""
    return {
        "id": row.id,
        "subject": f"{row.subject_kind}:{row.subject_id}",
        "stage": row.stage,
        "verdict": row.verdict,
        "record_digest": row.record_digest,
        "facts_digest": row.facts_digest,
        "policy_digest": row.policy_digest,
        "reference_digest": row.reference_digest,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "findings": findings,
        "approvals_needed": row.approvals,
        "approvals_missing": [{"role": r, "count": c} for r, c in sorted(missing.items())],
        "approvals": [
            {
                "id": item.id,
                "approver": item.approver_id,
                "role": item.role,
                "outcome": item.outcome,
                "created_at": item.created_at,
                "entry": item.entry_id,
            }
            for item in approvals
        ],
        "entry": row.entry_id,
    }


def waiver(
    row: StoredWaiver, *, state: str, subject_state: str, missing: int, needs_attention: bool
) -> dict[str, Any]:
    """Render a waiver as it stands now; its reason stays sealed."""
    return {
        "id": row.id,
        "version": row.version,
        "state": state,
        "subject": row.entity,
        "subject_state": subject_state,
        "needs_attention": needs_attention,
        "team": row.team,
        "rule": row.rule,
        "rule_version": row.rule_version,
        "category": row.category,
        "ticket": row.ticket,
        "requester": row.requester_id,
        "not_before": row.not_before,
        "expires_at": row.expires_at,
        "approvals": row.approvals,
        "approvals_missing": missing,
        "decided_at": row.decided_at,
        "revoked_at": row.revoked_at,
        "revoked_by": row.revoked_by,
        "document_digest": row.document_digest,
        "created_at": row.created_at,
        "entry": row.entry_id,
    }


def model_version(row: ModelVersion) -> dict[str, Any]:
    """Render a model version."""
    return {
        "id": row.id,
        "version": row.version,
        "name": row.name,
        "team": row.team,
        "job": row.job_id,
        "run": row.run_id,
        "artefacts_digest": row.artefacts_digest,
        "mlflow_run": row.mlflow_run_id,
        "mlflow_version": row.mlflow_version,
        "created_at": row.created_at,
        "entry": row.entry_id,
    }


def deployment(row: Deployment) -> dict[str, Any]:
    """Render a deployment."""
    return {
        "id": row.id,
        "version": row.version,
        "name": row.name,
        "team": row.team,
        "state": row.state,
        "reason_code": row.reason_code,
        "requested_by": row.requested_by,
        "model_version": row.model_version_id,
        "document_digest": row.document_digest,
        "decision": row.decision_id,
        "artefacts_digest": row.artefacts_digest,
        "card_digest": row.card_digest,
        "transparency_digest": row.transparency_digest,
        "created_at": row.created_at,
        "entry": row.entry_id,
    }
