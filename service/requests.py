"""What callers may send, field by field. Unknown members are refused; nothing permits by default.

Free text is limited to where people need it (a reason, a name for colleagues) and never enters the
log; everything else is an id, a code or a number.
"""

import re
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
)

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$")]
Code = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/+-]{0,119}$")]
Uri = Annotated[str, StringConstraints(pattern=r"^(?:file:///|s3://)[^\s]{1,1000}$")]
Country = Annotated[str, StringConstraints(pattern=r"^[A-Z]{2}$")]
Decimal = Annotated[str, StringConstraints(pattern=r"^(?:0|[1-9]\d{0,3})(?:\.\d{1,9})?$")]
Text = Annotated[str, StringConstraints(max_length=2000, strip_whitespace=True)]
Moment = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}:\d{2}Z)?$")]
Language = Annotated[str, StringConstraints(pattern=r"^[a-z]{2}$")]
Image = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._/:-]{0,200}@sha256:[0-9a-f]{64}$")
]


REFERENCE_PATTERN = r"^(?=.*[0-9])[A-Za-z0-9][A-Za-z0-9._:/#-]{0,63}$"
STORED = {"is_stored": True}
"""Validation context of a request that was taken in before and is read back."""


def _referring(value: str, info: ValidationInfo) -> str:
    """Take an identifier of another system and no words: a name in a document is there for ever.

    What was recorded under an earlier, wider shape is read back as it is.
    """
    is_stored = bool(info.context and info.context.get("is_stored"))
    if not is_stored and not re.fullmatch(REFERENCE_PATTERN, value):
        raise ValueError(
            "expected an identifier such as `GRC-1042` or `dpia/2026/7#3`: 1 to 64 letters,"
            " digits and `-_/.#:` with at least one digit and no space; never a person's name"
        )
    return value


Reference = Annotated[
    str,
    AfterValidator(_referring),
    WithJsonSchema({"type": "string", "pattern": REFERENCE_PATTERN}),
]
"""An identifier of a case or a document that the house keeps elsewhere."""


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DatasetRequest(_Closed):
    """A dataset version to register."""

    name: Slug = Field(description="Name, unique enough for people.", examples=["helpdesk"])
    team: Slug = Field(description="Team that owns it.", examples=["compliance"])
    uri: Uri = Field(
        description="Folder or object with rows, all in one format.",
        examples=["s3://bucket/helpdesk/v1"],
    )
    format: Literal["chat-jsonl", "jsonl", "csv", "parquet", "text"] | None = Field(
        default=None,
        description="How rows are written. Null: told by the objects. Jobs train on `chat-jsonl`"
        " only.",
    )
    licence: Code = Field(description="SPDX id of the licence.", examples=["Apache-2.0"])
    categories: list[Code] = Field(
        max_length=32,
        description="Data categories that are in it, as the team declares them.",
        examples=[["synthetic"]],
    )
    legal_basis: Code | None = Field(
        default=None,
        description="GDPR Art. 6 basis; needed for personal data.",
        examples=["art6.1.e"],
    )
    art9_basis: Code | None = Field(
        default=None, description="GDPR Art. 9(2) basis; needed for special categories."
    )
    dpia_reference: Reference | None = Field(
        default=None, description="Reference of the data-protection impact assessment."
    )
    data_subject_countries: list[Country] = Field(
        max_length=64, description="Countries whose people the data is about; may be empty."
    )


class BaseModelRequest(_Closed):
    """A base model to register."""

    name: Slug = Field(description="Name.", examples=["smollm2-135m-instruct"])
    uri: Uri = Field(description="Folder with safetensors, config and tokenizer.")
    licence: Code = Field(description="SPDX id of the licence.", examples=["Apache-2.0"])
    licence_allows_fine_tuning: bool | None = Field(
        default=None,
        description="Whether the licence allows it, as the team read it. Null: unknown.",
    )
    training_flop_1e15: int | None = Field(
        default=None, ge=1, description="Its training compute in units of 1e15 FLOP. Null: unknown."
    )
    source: Annotated[str, StringConstraints(max_length=500)] = Field(
        default="", description="Where it came from."
    )


class Purpose(_Closed):
    """What the model is for. Declared by the submitter, seen by the officer."""

    use_codes: list[Code] = Field(min_length=1, max_length=16, examples=[["helpdesk.internal"]])
    prohibited_practices: list[Code] = Field(
        max_length=16,
        description="AI Act Art. 5 practices it comes under, for instance `art5.1.a`."
        " An empty list declares: none.",
    )
    high_risk_areas: list[Code] = Field(
        max_length=16,
        description="AI Act Annex III areas, for instance `annex3.5.b`."
        " An empty list declares: none.",
    )


class Governance(_Closed):
    """References to what the house keeps elsewhere. Null: not given, which is never a pass."""

    dora_critical_function: bool | None = Field(
        default=None,
        description="Whether it supports a critical or important function of a financial entity"
        " (Regulation (EU) 2022/2554 Art. 3(22)).",
    )
    dora_register_reference: Reference | None = Field(
        default=None, description="Entry in the register of information (Art. 28(3))."
    )
    dora_exit_plan_reference: Reference | None = Field(
        default=None, description="Exit plan for the providers used (Art. 28(8))."
    )
    dora_audit_rights_reference: Reference | None = Field(
        default=None, description="Contract clause on access, inspection and audit (Art. 30(3))."
    )
    processor_contract_reference: Reference | None = Field(
        default=None, description="Contract with the processors used (GDPR Art. 28(3))."
    )
    record_of_processing_reference: Reference | None = Field(
        default=None, description="Entry in the record of processing (GDPR Art. 30)."
    )
    fria_reference: Reference | None = Field(
        default=None, description="Fundamental rights impact assessment (AI Act Art. 27)."
    )
    eu_database_reference: Reference | None = Field(
        default=None, description="Registration in the EU database (AI Act Art. 49, 71)."
    )
    art6_3_exception_reference: Reference | None = Field(
        default=None,
        description="Documented assessment that an Annex III use is not high-risk (Art. 6(3)).",
    )


class Compute(_Closed):
    """Where it is to run."""

    provider: Code = Field(examples=["own-site"])
    service: Code = Field(examples=["local"])
    region: Code = Field(examples=["site"])
    flavor: Code = Field(examples=["cpu"])
    gpus: int = Field(ge=0, le=64)
    image: Image | None = Field(
        default=None, description="Container image by digest. Null on the own site: our own code."
    )


class Training(_Closed):
    """How it is to be trained; the trainer documents units and ranges."""

    method: Literal["lora"]
    seed: int = Field(ge=0, le=2**31 - 1)
    epochs: int = Field(ge=1, le=100)
    max_steps: int = Field(default=0, ge=0, le=10_000_000)
    max_tokens: int = Field(ge=16, le=131_072)
    tokens_per_step: int = Field(ge=16, le=4_194_304)
    overlong: Literal["refuse", "drop", "truncate"]
    eval_permille: int = Field(ge=0, le=500)
    rank: int = Field(ge=1, le=256)
    alpha: int = Field(ge=1, le=1024)
    dropout: Decimal = "0"
    learning_rate: Decimal
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup_permille: int = Field(default=30, ge=0, le=500)
    clip_norm: Decimal = "1.0"
    weight_decay: Decimal = "0"
    precision: Literal["fp32", "bf16"]
    checkpoint_every_steps: int = Field(ge=1, le=100_000)
    checkpoint_keep: int = Field(default=3, ge=1, le=100)


class JobRequest(_Closed):
    """A fine-tune that a team asks for."""

    name: Slug = Field(examples=["helpdesk-lora"])
    team: Slug = Field(examples=["compliance"])
    dataset: Code = Field(description="Id of a dataset version of this team.")
    base_model: Code = Field(description="Id of a base model.")
    purpose: Purpose
    compute: Compute
    training: Training
    budget_cents: int = Field(ge=0, le=10**9, description="Most it may cost, in euro cents.")
    max_minutes: int = Field(ge=1, le=10_080, description="Longest run, in minutes.")
    governance: Governance | None = Field(
        default=None, description="References that rules ask for, where they apply."
    )


class DecisionRequest(_Closed):
    """An officer's decision."""

    outcome: Literal["given", "refused"]
    reason: Text = Field(
        default="", description="Needed for a refusal. Kept beside the log, erasable."
    )


class Contact(_Closed):
    """Who answers for a deployed system: an organisation and its functional address.

    Both are published and enter documents that are never deleted: no person's name or mailbox.
    """

    name: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    contact: Annotated[str, StringConstraints(min_length=3, max_length=200)]


class DeploymentRequest(_Closed):
    """A model version that is to be used."""

    name: Slug
    model_version: Code
    compute: Compute
    intended_use: Annotated[str, StringConstraints(min_length=10, max_length=2000)]
    description: Annotated[str, StringConstraints(max_length=2000)] = Field(
        default="", description="What the model does, in the team's words."
    )
    licence: Code | None = Field(
        default=None, description="Licence the tuned model is given; the base model's is another."
    )
    inputs_outputs: Annotated[str, StringConstraints(max_length=500)] = Field(
        default="", description="What goes in and what comes out, for instance `text in, text out`."
    )
    excluded_use: Annotated[str, StringConstraints(max_length=2000)] = ""
    limitations: Annotated[str, StringConstraints(max_length=2000)] = ""
    serves_public: bool
    provider: Contact | None = Field(default=None, description="AI Act Art. 3(3) provider.")
    deployer: Contact | None = Field(default=None, description="AI Act Art. 3(4) deployer.")
    oversight: Annotated[str, StringConstraints(max_length=2000)] = Field(
        default="", description="Human oversight measures (AI Act Art. 14, 26)."
    )
    oversight_contact: Annotated[str, StringConstraints(max_length=200)] = Field(
        default="", description="Functional address, for instance `ai-office@…`; never a person's."
    )
    notices: dict[Language, Annotated[str, StringConstraints(min_length=10, max_length=500)]] = (
        Field(
            default_factory=dict,
            description="What users are told (AI Act Art. 50), by language; the deployer's words.",
        )
    )
    log_retention_months: int | None = Field(default=None, ge=6, le=240)
    languages: list[Language] = Field(
        min_length=1, max_length=24, description="Languages of its users."
    )
    interacts_with_people: bool = Field(
        default=True, description="Whether people interact with it directly (AI Act Art. 50(1))."
    )
    marks_outputs: bool = Field(
        default=False,
        description="Whether its outputs are marked machine-readably (AI Act Art. 50(2)).",
    )
    bias_report_reference: Reference | None = Field(
        default=None, description="Report on bias of these weights."
    )
    leakage_report_reference: Reference | None = Field(
        default=None, description="Report on what these weights repeat of their training data."
    )
    technical_file_reference: Reference | None = Field(
        default=None, description="Technical documentation (AI Act Art. 11, Annex IV)."
    )
    governance: Governance | None = Field(
        default=None,
        description="References that rules ask for; what is null here is taken from the job.",
    )


class ExportSelection(_Closed):
    """What an excerpt is to show; entries must meet every condition that is given."""

    since: Moment | None = Field(default=None, description="Entries from this day or instant on.")
    until: Moment | None = Field(default=None, description="Entries before this day or instant.")
    jobs: list[str] | None = Field(default=None, max_length=100)
    model_versions: list[str] | None = Field(default=None, max_length=100)
    deployments: list[str] | None = Field(default=None, max_length=100)
    datasets: list[str] | None = Field(default=None, max_length=100)
    people: list[str] | None = Field(
        default=None, max_length=100, description="Who acted, by principal id."
    )
    kinds: list[str] | None = Field(
        default=None, max_length=100, description="Kinds of entries, such as `gate.decided`."
    )


class ExportRequest(_Closed):
    """A bundle to hand out: of the whole log, or an excerpt that says what it leaves out."""

    recipient: Literal["auditor", "authority", "controller", "internal"]
    selection: ExportSelection | None = None
