"""Gathering what the gate may see: our own rows and dated reference data, nothing else.

A value that nobody measured or declared is null here, and null is unknown to every rule. Numbers
that stand for effort are upper bounds: tokens never exceed bytes, and a run cannot outlive the
minutes in its permit.
"""

from typing import Any

from policies import estimate
from policies.reference import Reference
from policies.workload import architecture_flop_1e15
from service.places import NOWHERE, SITE, Place
from service.requests import DeploymentRequest, Governance, JobRequest
from service.tables import BaseModel, DatasetVersion

FORMAT = "placet.facts/1"
_MICROS_PER_CENT = 10_000
_SHAPE = (
    "layers",
    "hidden_size",
    "intermediate_size",
    "vocabulary_size",
    "attention_heads",
    "kv_heads",
)


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
    reference: Reference,
) -> dict[str, Any]:
    """Gather the facts of a job at stage `train`.

    `job.uses` is a complete statement of the endpoints that the job talks to; each has a row in
    `storage`, and one whose place is not known has nulls there.
    """
    compute = request.compute.model_dump()
    if compute["image"] is None and request.compute.provider == SITE[0]:
        compute["image"] = code_digest
    used = dict(storage)
    if request.compute.image is not None:
        used["registry"] = registry_place(reference, request.compute.image)
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
            "uses": sorted(used),
        },
        "purpose": request.purpose.model_dump(),
        "governance": governance_fact(request.governance),
        "compute": compute,
        "datasets": [dataset_fact(dataset)],
        "storage": storage_facts(used),
        "base_model": base_model_fact(base),
        "training": training_fact(request, base, dataset),
        "cost": {"estimate_cents": cost_cents, "budget_cents": request.budget_cents},
    }


def training_fact(request: JobRequest, base: BaseModel, dataset: DatasetVersion) -> dict[str, Any]:
    """Say how much is trained and how; tokens are bounded by bytes, epochs included."""
    training = request.training
    return {
        "flop_1e15": training_flop_1e15(base, dataset, epochs=training.epochs),
        "estimated_minutes": request.max_minutes,
        "tokens": dataset.size_bytes * training.epochs,
        "epochs": training.epochs,
        "tokens_per_step": training.tokens_per_step,
        "max_tokens": training.max_tokens,
        "rank": training.rank,
        "precision": training.precision,
        "gradient_checkpointing": False,
    }


def registry_place(reference: Reference, image: str) -> Place:
    """Find the place of a container registry by the host in an image's name; never by a label.

    A first part is a host only before a slash and with a dot or a port in it, as engines read it:
    `s3.example:5000@sha256:…` is a tag, and `s3/image` a name, on the engine's default registry.
    """
    first, slash, _ = image.partition("/")
    host = first.partition(":")[0]
    if not slash or not ("." in first or ":" in first) or "@" in first:
        return NOWHERE
    for row in reference.rows("endpoints"):
        if row["host"] == host:
            return Place(row["provider"], row["service"], row["region"], None)
    return NOWHERE


def storage_facts(storage: dict[str, Place]) -> list[dict[str, Any]]:
    """Render the place of each role, by role."""
    return [{"role": role, **place.to_fact()} for role, place in sorted(storage.items())]


def governance_fact(declared: Governance | None) -> dict[str, Any]:
    """Render what the team refers to; a reference that was not given is null."""
    return (declared or Governance()).model_dump()


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
    evaluation_age_days: int,
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
        evaluation_age_days: whole days since the run that measured it ended.
    """
    missing, fields = card
    declared = governance_fact(request.governance)
    before = training.get("governance") or {}
    return {
        **{key: training[key] for key in ("purpose", "datasets", "base_model", "training", "cost")},
        "format": FORMAT,
        "stage": "deploy",
        "job": {
            **training["job"],
            "document_digest": document_digest,
            "uses": sorted(storage),
        },
        "governance": {k: before.get(k) if v is None else v for k, v in declared.items()},
        "compute": {**request.compute.model_dump(), "image": training["compute"]["image"]},
        "storage": storage_facts(storage),
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
            "bias_report_present": request.bias_report_reference is not None,
            "leakage_report_present": request.leakage_report_reference is not None,
            "technical_file_present": request.technical_file_reference is not None,
            "evaluation_age_days": evaluation_age_days if evaluation_present else None,
            "interacts_with_people": request.interacts_with_people,
            "generates_content": True,
            "marking_present": request.marks_outputs,
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
        "detection_mode": row.detection.get("mode"),
        "detector": row.detection.get("detectors"),
    }


def base_model_fact(row: BaseModel) -> dict[str, Any]:
    """Render a base model as rules see it; sizes that its own config does not say are null."""
    shape = row.declared.get("shape") or {}
    return {
        "id": row.id,
        "digest": row.files_digest,
        "licence": row.declared.get("licence"),
        "training_flop_1e15": row.declared.get("training_flop_1e15"),
        "licence_allows_fine_tuning": row.declared.get("licence_allows_fine_tuning"),
        "parameters": row.num_parameters,
        **{name: shape.get(name) for name in _SHAPE},
    }
