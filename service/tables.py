"""The tables and their constraints; nothing else. Rules live in the use cases.

*Governed* tables carry `entry_id`: the audit entry that records the row's latest change. The
migration adds triggers that refuse a governed write whose entry is not there (`entity` of the entry
must be the row's own), and that refuse to delete. Instants are text in one
spelling (``2026-11-30T20:00:00Z``), so they sort and are equal on both databases.
"""

from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Index,
    Text,
    UniqueConstraint,
)
from sqlmodel import Field, SQLModel

from service.force_tables import PolicyAct, ReferenceRow
from service.governed import GovernedRow, entry_id
from service.lifecycle import DeploymentState, JobState


def _states(values: type[JobState] | type[DeploymentState]) -> CheckConstraint:
    listed = ", ".join(f"'{state}'" for state in values)
    return CheckConstraint(f"state IN ({listed})", name="state")


class Principal(GovernedRow, SQLModel, table=True):
    """Who may call. The name is personal data: it stays here and never enters the log."""

    __tablename__ = "principal"
    ENTITY: ClassVar[str] = "principal"

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=entry_id())
    kind: str = Field(sa_type=Text)
    name: str = Field(sa_type=Text)
    roles: list[str] = Field(sa_type=JSON)
    teams: list[str] = Field(sa_type=JSON)
    disabled_at: str | None = Field(default=None, sa_type=Text)


class Token(GovernedRow, SQLModel, table=True):
    """A bearer token, stored as the SHA-256 of its secret."""

    __tablename__ = "token"
    ENTITY: ClassVar[str] = "token"

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=entry_id())
    principal_id: str = Field(sa_type=Text, foreign_key="principal.id", index=True)
    secret_sha256: str = Field(sa_type=Text, unique=True)
    expires_at: str = Field(sa_type=Text)
    revoked_at: str | None = Field(default=None, sa_type=Text)


class DatasetVersion(GovernedRow, SQLModel, table=True):
    """An immutable manifest of objects with digests, and what was declared and detected."""

    __tablename__ = "dataset_version"
    ENTITY: ClassVar[str] = "dataset"

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=entry_id())
    created_at: str = Field(sa_type=Text)
    created_by: str = Field(sa_type=Text, foreign_key="principal.id")
    team: str = Field(sa_type=Text, index=True)
    name: str = Field(sa_type=Text)
    uri: str = Field(sa_type=Text)
    manifest_digest: str = Field(sa_type=Text)
    num_objects: int
    num_rows: int = Field(sa_type=BigInteger)
    size_bytes: int = Field(sa_type=BigInteger)
    provider: str | None = Field(default=None, sa_type=Text)
    service: str | None = Field(default=None, sa_type=Text)
    region: str | None = Field(default=None, sa_type=Text)
    country: str | None = Field(default=None, sa_type=Text)
    categories_declared: list[str] = Field(sa_type=JSON)
    categories_detected: list[str] = Field(sa_type=JSON)
    detection: dict[str, Any] = Field(sa_type=JSON)
    declared: dict[str, Any] = Field(sa_type=JSON)


class BaseModel(GovernedRow, SQLModel, table=True):
    """A base model: its files by digest, its licence, what is known of its training."""

    __tablename__ = "base_model"
    ENTITY: ClassVar[str] = "base_model"

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=entry_id())
    created_at: str = Field(sa_type=Text)
    created_by: str = Field(sa_type=Text, foreign_key="principal.id")
    name: str = Field(sa_type=Text)
    uri: str = Field(sa_type=Text)
    files_digest: str = Field(sa_type=Text)
    num_parameters: int = Field(sa_type=BigInteger)
    declared: dict[str, Any] = Field(sa_type=JSON)


class Job(GovernedRow, SQLModel, table=True):
    """A fine-tune that was asked for."""

    __tablename__ = "job"
    ENTITY: ClassVar[str] = "job"
    __table_args__ = (_states(JobState), Index("ix_job_team_id", "team", "id"))

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=entry_id())
    created_at: str = Field(sa_type=Text)
    submitted_by: str = Field(sa_type=Text, foreign_key="principal.id")
    team: str = Field(sa_type=Text)
    name: str = Field(sa_type=Text)
    state: str = Field(sa_type=Text, index=True)
    dataset_id: str = Field(sa_type=Text, foreign_key="dataset_version.id")
    base_model_id: str = Field(sa_type=Text, foreign_key="base_model.id")
    document_digest: str = Field(sa_type=Text)
    spec_digest: str = Field(sa_type=Text)
    decision_id: str | None = Field(default=None, sa_type=Text)
    reason_code: str | None = Field(default=None, sa_type=Text)


class StoredDecision(GovernedRow, SQLModel, table=True):
    """One gate decision about a job or a deployment; the record itself is a document."""

    __tablename__ = "decision"
    __table_args__ = (Index("ix_decision_subject", "subject_kind", "subject_id"),)

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=entry_id())
    created_at: str = Field(sa_type=Text)
    subject_kind: str = Field(sa_type=Text)
    subject_id: str = Field(sa_type=Text)
    stage: str = Field(sa_type=Text)
    verdict: str = Field(sa_type=Text)
    record_digest: str = Field(sa_type=Text)
    facts_digest: str = Field(sa_type=Text)
    policy_digest: str = Field(sa_type=Text)
    reference_digest: str = Field(sa_type=Text)
    approvals: list[dict[str, Any]] = Field(sa_type=JSON)
    expires_at: str = Field(sa_type=Text)

    @property
    def entity(self) -> str:
        """Name the subject: the entry is about it."""
        return f"{self.subject_kind}:{self.subject_id}"


class Approval(GovernedRow, SQLModel, table=True):
    """One officer's yes or no, bound to one decision record."""

    __tablename__ = "approval"
    __table_args__ = (
        UniqueConstraint("decision_id", "approver_id"),
        CheckConstraint("outcome IN ('given', 'refused')", name="outcome"),
    )

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=entry_id())
    created_at: str = Field(sa_type=Text)
    subject_kind: str = Field(sa_type=Text)
    subject_id: str = Field(sa_type=Text)
    decision_id: str = Field(sa_type=Text, foreign_key="decision.id")
    approver_id: str = Field(sa_type=Text, foreign_key="principal.id")
    role: str = Field(sa_type=Text)
    outcome: str = Field(sa_type=Text)

    @property
    def entity(self) -> str:
        """Name the subject: the entry is about it."""
        return f"{self.subject_kind}:{self.subject_id}"


class StoredWaiver(GovernedRow, SQLModel, table=True):
    """One exception from one version of one rule for one subject, and who answers for it.

    `approvals` holds {"approver", "role", "at"} in the order they were given. The reason
    is personal text and lies sealed beside the log; `reason_digest` is its commitment there.
    """

    __tablename__ = "waiver"
    __table_args__ = (
        Index("ix_waiver_subject", "subject_kind", "subject_id"),
        CheckConstraint("state IN ('requested', 'approved', 'refused', 'revoked')", name="state"),
        CheckConstraint("category IN ('waiver', 'mitigated')", name="category"),
        CheckConstraint("subject_kind IN ('job', 'deployment')", name="subject_kind"),
    )

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=entry_id())
    created_at: str = Field(sa_type=Text)
    team: str = Field(sa_type=Text, index=True)
    subject_kind: str = Field(sa_type=Text)
    subject_id: str = Field(sa_type=Text)
    rule: str = Field(sa_type=Text)
    rule_version: str = Field(sa_type=Text)
    category: str = Field(sa_type=Text)
    ticket: str = Field(sa_type=Text)
    requester_id: str = Field(sa_type=Text, foreign_key="principal.id")
    document_digest: str = Field(sa_type=Text)
    reason_digest: str | None = Field(default=None, sa_type=Text)
    not_before: str = Field(sa_type=Text)
    expires_at: str = Field(sa_type=Text)
    approvals: list[dict[str, Any]] = Field(sa_type=JSON)
    state: str = Field(sa_type=Text)
    decided_at: str | None = Field(default=None, sa_type=Text)
    revoked_at: str | None = Field(default=None, sa_type=Text)
    revoked_by: str | None = Field(default=None, sa_type=Text)

    @property
    def entity(self) -> str:
        """Name the subject: the entry is about it."""
        return f"{self.subject_kind}:{self.subject_id}"


class Run(GovernedRow, SQLModel, table=True):
    """What the engine does for one job, under one permit."""

    __tablename__ = "run"

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=entry_id())
    created_at: str = Field(sa_type=Text)
    job_id: str = Field(sa_type=Text, foreign_key="job.id", index=True)
    engine: str = Field(sa_type=Text)
    permit_id: str = Field(sa_type=Text, unique=True)
    permit_digest: str = Field(sa_type=Text)
    output_uri: str = Field(sa_type=Text)
    state: str = Field(sa_type=Text)
    outcome: str | None = Field(default=None, sa_type=Text)
    report_digest: str | None = Field(default=None, sa_type=Text)
    artefacts_digest: str | None = Field(default=None, sa_type=Text)

    @property
    def entity(self) -> str:
        """Name the job: the entry is about it."""
        return f"job:{self.job_id}"


class RunProgress(SQLModel, table=True):
    """Operational bookkeeping of a run. Not governed: nothing here is evidence."""

    __tablename__ = "run_progress"

    run_id: str = Field(sa_type=Text, primary_key=True)
    engine_ref: str | None = Field(default=None, sa_type=Text)
    mlflow_run_id: str | None = Field(default=None, sa_type=Text)
    model_version_id: str | None = Field(default=None, sa_type=Text)
    events_offset: int = Field(default=0, sa_type=BigInteger)
    last_event: dict[str, Any] | None = Field(default=None, sa_type=JSON)
    tracking_error: str | None = Field(default=None, sa_type=Text)


class ModelVersion(GovernedRow, SQLModel, table=True):
    """What a successful run produced: artefacts by digest, and where MLflow mirrors them."""

    __tablename__ = "model_version"
    ENTITY: ClassVar[str] = "model_version"

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=entry_id())
    created_at: str = Field(sa_type=Text)
    team: str = Field(sa_type=Text)
    name: str = Field(sa_type=Text)
    job_id: str = Field(sa_type=Text, foreign_key="job.id")
    run_id: str = Field(sa_type=Text, foreign_key="run.id", unique=True)
    artefacts_digest: str = Field(sa_type=Text)
    mlflow_run_id: str | None = Field(default=None, sa_type=Text)
    mlflow_version: str | None = Field(default=None, sa_type=Text)


class Deployment(GovernedRow, SQLModel, table=True):
    """A model version that people are to use, and the documents that go with it."""

    __tablename__ = "deployment"
    ENTITY: ClassVar[str] = "deployment"
    __table_args__ = (_states(DeploymentState),)

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=entry_id())
    created_at: str = Field(sa_type=Text)
    requested_by: str = Field(sa_type=Text, foreign_key="principal.id")
    team: str = Field(sa_type=Text, index=True)
    name: str = Field(sa_type=Text)
    state: str = Field(sa_type=Text, index=True)
    model_version_id: str = Field(sa_type=Text, foreign_key="model_version.id")
    document_digest: str = Field(sa_type=Text)
    decision_id: str | None = Field(default=None, sa_type=Text)
    artefacts_digest: str | None = Field(default=None, sa_type=Text)
    card_digest: str | None = Field(default=None, sa_type=Text)
    transparency_digest: str | None = Field(default=None, sa_type=Text)
    reason_code: str | None = Field(default=None, sa_type=Text)


class EndpointState(SQLModel, table=True):
    """Where a deployment answers. Not governed: ports come and go."""

    __tablename__ = "endpoint"

    deployment_id: str = Field(sa_type=Text, primary_key=True)
    ref: str | None = Field(default=None, sa_type=Text)
    port: int | None = Field(default=None)


class IdempotencyRecord(SQLModel, table=True):
    """The stored answer to a creating request, written in the transaction that did the work."""

    __tablename__ = "idempotency_record"

    principal_id: str = Field(sa_type=Text, primary_key=True)
    key: str = Field(sa_type=Text, primary_key=True)
    request_digest: str = Field(sa_type=Text)
    status: int
    response: dict[str, Any] = Field(sa_type=JSON)
    created_at: str = Field(sa_type=Text)


class Export(GovernedRow, SQLModel, table=True):
    """A bundle that was handed out; the entry `evidence.exported` records it."""

    __tablename__ = "export"
    ENTITY: ClassVar[str] = "export"

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=entry_id())
    created_at: str = Field(sa_type=Text)
    created_by: str = Field(sa_type=Text, foreign_key="principal.id")
    num_entries: int = Field(sa_type=BigInteger)
    num_shown: int | None = Field(default=None, sa_type=BigInteger)
    """Of an excerpt; None when all entries are enclosed."""


Governed = (
    Principal
    | Token
    | DatasetVersion
    | BaseModel
    | Job
    | StoredDecision
    | Approval
    | StoredWaiver
    | Run
    | ModelVersion
    | Deployment
    | Export
    | PolicyAct
    | ReferenceRow
)
GOVERNED: tuple[type[Governed], ...] = (
    Principal,
    Token,
    DatasetVersion,
    BaseModel,
    Job,
    StoredDecision,
    Approval,
    StoredWaiver,
    Run,
    ModelVersion,
    Deployment,
    Export,
    PolicyAct,
    ReferenceRow,
)
