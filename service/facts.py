"""Gathering what the gate may see: our own rows and dated reference data, nothing else.

A value that nobody measured or declared is null here, and null is unknown to every rule. Numbers
that stand for effort are upper bounds: tokens never exceed bytes, and a run cannot outlive the
minutes in its permit.
"""

from typing import Any

from policies import estimate
from policies.reference import Reference
from policies.workload import architecture_flop_1e15
from service.places import SITE, Place
from service.requests import DeploymentRequest, JobRequest
from service.tables import BaseModel, DatasetVersion

FORMAT = "placet.facts/1"
_MICROS_PER_CENT = 10_000


def training_flop_1e15(base: BaseModel, dataset: DatasetVersion, *, epochs: int) -> int:
    """Bound the training compute from above, in 1e15 FLOP, rounded up: 6 · parameters · tokens.

    Source: the Commission's guidelines on general-purpose AI models, C(2025) 7719,
    architecture-based method. Tokens are bounded by bytes, since a byte-level tokenizer has no
    shorter token.
    """
    return architecture_flop_1e15(base.num_parameters, dataset.size_bytes * epochs)


def cost_estimate_cents(
    reference: Reference,
    *,
    provider: str,
    flavor: str,
    gpus: int,
    minutes: int,
    site_price: int | None,
) -> int | None:
    """Say the most it can cost in euro cents, or None when no price in euros is known.

    The time is billed as the dated row says. On the own site a row counts first, then the
    operator's one price, by the started minute.
    """
    price = estimate.price_row(reference, provider, flavor)
    if price is None and provider == SITE[0] and site_price is not None:
        price = {"price_micros_per_hour": site_price * _MICROS_PER_CENT, "billing_step_s": 60}
    return None if price is None else estimate.cost_cents(price, units=gpus, minutes=minutes)


def job_facts(
    request: JobRequest,
    *,
    job_id: str,
    document_digest: str,
    spec_digest: str,
    dataset: DatasetVersion,
    base: BaseModel,
    storage: dict[str, Place],
    cost_cents: int | None,
    code_digest: str,
) -> dict[str, Any]:
    """Gather the facts of a job at stage `train`."""
    compute = request.compute.model_dump()
    if compute["image"] is None and request.compute.provider == SITE[0]:
        compute["image"] = code_digest
    return {
        "format": FORMAT,
        "stage": "train",
        "job": {
            "id": job_id,
            "kind": "fine_tune",
            "method": request.training.method,
            "team": request.team,
            "document_digest": document_digest,
            "spec_digest": spec_digest,
            "max_minutes": request.max_minutes,
            "from_scratch": False,
        },
        "purpose": request.purpose.model_dump(),
        "compute": compute,
        "datasets": [dataset_fact(dataset)],
        "storage": [{"role": role, **place.to_fact()} for role, place in sorted(storage.items())],
        "base_model": base_model_fact(base),
        "training": {
            "flop_1e15": training_flop_1e15(base, dataset, epochs=request.training.epochs),
            "estimated_minutes": request.max_minutes,
        },
        "cost": {"estimate_cents": cost_cents, "budget_cents": request.budget_cents},
    }


def deployment_facts(
    training: dict[str, Any],
    request: DeploymentRequest,
    *,
    document_digest: str,
    artefacts_digest: str,
    card: tuple[int, int],
    evaluation_present: bool,
    art50_texts_present: bool,
    storage: dict[str, Place],
) -> dict[str, Any]:
    """Gather the facts of a deployment at stage `deploy`.

    Args:
        training: the facts that the job was decided on; what was trained on what still counts.
        request: what is asked.
        document_digest: the deployment document's digest.
        artefacts_digest: digest of the artefacts' manifest.
        card: missing fields and all fields of the model card.
        evaluation_present: whether the run measured a held-out loss before and after.
        art50_texts_present: whether disclosure texts exist in every language of use.
        storage: where what the deployment writes will lie.
    """
    missing, fields = card
    return {
        **{key: training[key] for key in ("purpose", "datasets", "base_model", "training", "cost")},
        "format": FORMAT,
        "stage": "deploy",
        "job": {**training["job"], "document_digest": document_digest},
        "compute": {**request.compute.model_dump(), "image": training["compute"]["image"]},
        "storage": [{"role": role, **place.to_fact()} for role, place in sorted(storage.items())],
        "deploy": {
            "model_version": request.model_version,
            "artefacts_digest": artefacts_digest,
            "card_missing": missing,
            "card_fields": fields,
            "evaluation_present": evaluation_present,
            "art50_texts_present": art50_texts_present,
            "serves_public": request.serves_public,
            "oversight_contact_present": bool(request.oversight_contact.strip()),
            "region": request.compute.region,
            "provider": request.compute.provider,
            "service": request.compute.service,
        },
    }


def dataset_fact(row: DatasetVersion) -> dict[str, Any]:
    """Render a dataset version as rules see it."""
    return {
        "id": row.id,
        "digest": row.manifest_digest,
        "provider": row.provider,
        "service": row.service,
        "region": row.region,
        "categories_declared": row.categories_declared,
        "categories_detected": row.categories_detected,
        "licence": row.declared.get("licence"),
        "legal_basis": row.declared.get("legal_basis"),
        "art9_basis": row.declared.get("art9_basis"),
        "dpia_reference": row.declared.get("dpia_reference"),
        "data_subject_countries": row.declared.get("data_subject_countries"),
    }


def base_model_fact(row: BaseModel) -> dict[str, Any]:
    """Render a base model as rules see it."""
    return {
        "id": row.id,
        "digest": row.files_digest,
        "licence": row.declared.get("licence"),
        "training_flop_1e15": row.declared.get("training_flop_1e15"),
        "licence_allows_fine_tuning": row.declared.get("licence_allows_fine_tuning"),
    }
