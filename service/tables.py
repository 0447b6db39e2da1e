"""The tables and their constraints; nothing else. Rules live in the use cases.

*Governed* tables carry `entry_id`: the audit entry that records the row's latest change. The
migration adds triggers that refuse a governed write whose entry is not there (`entity` of the entry
must be the row's own, see `ENTITY_SQL`), and that refuse to delete. Instants are text in one
spelling (``2026-11-30T20:00:00Z``), so they sort and are equal on both databases.
"""

from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import declared_attr
from sqlmodel import Field, SQLModel

from service.lifecycle import DeploymentState, JobState

SQLModel.metadata.naming_convention = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}


class _Versioned:
    """A stale writer loses: UPDATE … WHERE version = what was read. `Transaction.record` counts."""

    @declared_attr.directive
    @classmethod
    def __mapper_args__(cls) -> dict[str, Any]:
        return {"version_id_col": cls.__table__.c.version, "version_id_generator": False}  # type: ignore[attr-defined]


def _entry_id() -> Any:
    """Make the column that ties a governed row to the entry of its latest change."""
    return Column(
        Text,
        ForeignKey("audit_entry.id", deferrable=True, initially="DEFERRED"),
        nullable=False,
    )


def _states(values: type[JobState] | type[DeploymentState]) -> CheckConstraint:
    listed = ", ".join(f"'{state}'" for state in values)
    return CheckConstraint(f"state IN ({listed})", name="state")


class AuditEntry(SQLModel, table=True):
    """One entry: exact leaf bytes, and the index once the sequencer gave it one."""

    __tablename__ = "audit_entry"
    __table_args__ = (
        Index(
            "ix_audit_entry_pending",
            "seq",
            sqlite_where=text("idx IS NULL"),
            postgresql_where=text("idx IS NULL"),
        ),
    )

    seq: int | None = Field(
        default=None,
        sa_column=Column(
            BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
        ),
    )
    id: str = Field(sa_type=Text, unique=True)
    entity: str = Field(sa_type=Text)
    kind: str = Field(sa_type=Text)
    at: str = Field(sa_type=Text)
    body: bytes = Field(sa_type=LargeBinary)
    leaf_hash: bytes = Field(sa_type=LargeBinary)
    idx: int | None = Field(default=None, sa_type=BigInteger, unique=True, nullable=True)


class LogHead(SQLModel, table=True):
    """The sequencer's single row: how many entries have an index, and who may sequence."""

    __tablename__ = "log_head"

    id: int = Field(primary_key=True)
    size: int = Field(sa_type=BigInteger)
    epoch: int = Field(sa_type=BigInteger)


class SignedCheckpoint(SQLModel, table=True):
    """A checkpoint that was signed and published."""

    __tablename__ = "checkpoint"

    size: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    root: bytes = Field(sa_type=LargeBinary)
    note: bytes = Field(sa_type=LargeBinary)
    created_at: str = Field(sa_type=Text)


class SealedValue(SQLModel, table=True):
    """A personal value beside the log: AES-256-GCM under its subject's key; erasable."""

    __tablename__ = "sealed_value"

    entry_id: str = Field(sa_type=Text, primary_key=True)
    field: str = Field(sa_type=Text, primary_key=True)
    subject_key: str = Field(sa_type=Text, index=True)
    sealed: bytes = Field(sa_type=LargeBinary)


class SubjectKey(SQLModel, table=True):
    """A data subject's key, wrapped by the installation's key-encryption key."""

    __tablename__ = "subject_key"

    subject: str = Field(sa_type=Text, primary_key=True)
    wrapped: bytes = Field(sa_type=LargeBinary)


class Document(SQLModel, table=True):
    """A document that entries refer to by digest: spec, facts, decision, policy, report, card."""

    __tablename__ = "document"

    digest: str = Field(sa_type=Text, primary_key=True)
    media_type: str = Field(sa_type=Text)
    body: bytes = Field(sa_type=LargeBinary)


class Principal(_Versioned, SQLModel, table=True):
    """Who may call. The name is personal data: it stays here and never enters the log."""

    __tablename__ = "principal"
    ENTITY_SQL: ClassVar[str] = "'principal:' || {row}.id"

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=_entry_id())
    kind: str = Field(sa_type=Text)
    name: str = Field(sa_type=Text)
    roles: list[str] = Field(sa_type=JSON)
    teams: list[str] = Field(sa_type=JSON)
    disabled_at: str | None = Field(default=None, sa_type=Text)

    @property
    def entity(self) -> str:
        """Name the row as entries do."""
        return f"principal:{self.id}"


class Token(_Versioned, SQLModel, table=True):
    """A bearer token, stored as the SHA-256 of its secret."""

    __tablename__ = "token"
    ENTITY_SQL: ClassVar[str] = "'token:' || {row}.id"

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=_entry_id())
    principal_id: str = Field(sa_type=Text, foreign_key="principal.id", index=True)
    secret_sha256: str = Field(sa_type=Text, unique=True)
    expires_at: str = Field(sa_type=Text)
    revoked_at: str | None = Field(default=None, sa_type=Text)

    @property
    def entity(self) -> str:
        """Name the row as entries do."""
        return f"token:{self.id}"


class DatasetVersion(_Versioned, SQLModel, table=True):
    """An immutable manifest of objects with digests, and what was declared and detected."""

    __tablename__ = "dataset_version"
    ENTITY_SQL: ClassVar[str] = "'dataset:' || {row}.id"

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=_entry_id())
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

    @property
    def entity(self) -> str:
        """Name the row as entries do."""
        return f"dataset:{self.id}"


class BaseModel(_Versioned, SQLModel, table=True):
    """A base model: its files by digest, its licence, what is known of its training."""

    __tablename__ = "base_model"
    ENTITY_SQL: ClassVar[str] = "'base_model:' || {row}.id"

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=_entry_id())
    created_at: str = Field(sa_type=Text)
    created_by: str = Field(sa_type=Text, foreign_key="principal.id")
    name: str = Field(sa_type=Text)
    uri: str = Field(sa_type=Text)
    files_digest: str = Field(sa_type=Text)
    num_parameters: int = Field(sa_type=BigInteger)
    declared: dict[str, Any] = Field(sa_type=JSON)

    @property
    def entity(self) -> str:
        """Name the row as entries do."""
        return f"base_model:{self.id}"


class Job(_Versioned, SQLModel, table=True):
    """A fine-tune that was asked for."""

    __tablename__ = "job"
    __table_args__ = (_states(JobState), Index("ix_job_team_id", "team", "id"))
    ENTITY_SQL: ClassVar[str] = "'job:' || {row}.id"

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=_entry_id())
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

    @property
    def entity(self) -> str:
        """Name the row as entries do."""
        return f"job:{self.id}"


class StoredDecision(_Versioned, SQLModel, table=True):
    """One gate decision about a job or a deployment; the record itself is a document."""

    __tablename__ = "decision"
    __table_args__ = (Index("ix_decision_subject", "subject_kind", "subject_id"),)
    ENTITY_SQL: ClassVar[str] = "{row}.subject_kind || ':' || {row}.subject_id"

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=_entry_id())
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
        """Name the row as entries do."""
        return f"{self.subject_kind}:{self.subject_id}"


class Approval(_Versioned, SQLModel, table=True):
    """One officer's yes or no, bound to one decision record."""

    __tablename__ = "approval"
    __table_args__ = (
        UniqueConstraint("decision_id", "approver_id"),
        CheckConstraint("outcome IN ('given', 'refused')", name="outcome"),
    )
    ENTITY_SQL: ClassVar[str] = "{row}.subject_kind || ':' || {row}.subject_id"

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=_entry_id())
    created_at: str = Field(sa_type=Text)
    subject_kind: str = Field(sa_type=Text)
    subject_id: str = Field(sa_type=Text)
    decision_id: str = Field(sa_type=Text, foreign_key="decision.id")
    approver_id: str = Field(sa_type=Text, foreign_key="principal.id")
    role: str = Field(sa_type=Text)
    outcome: str = Field(sa_type=Text)

    @property
    def entity(self) -> str:
        """Name the row as entries do."""
        return f"{self.subject_kind}:{self.subject_id}"


class Run(_Versioned, SQLModel, table=True):
    """What the engine does for one job, under one permit."""

    __tablename__ = "run"
    ENTITY_SQL: ClassVar[str] = "'job:' || {row}.job_id"

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=_entry_id())
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
        """Name the row as entries do."""
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


class ModelVersion(_Versioned, SQLModel, table=True):
    """What a successful run produced: artefacts by digest, and where MLflow mirrors them."""

    __tablename__ = "model_version"
    ENTITY_SQL: ClassVar[str] = "'model_version:' || {row}.id"

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=_entry_id())
    created_at: str = Field(sa_type=Text)
    team: str = Field(sa_type=Text)
    name: str = Field(sa_type=Text)
    job_id: str = Field(sa_type=Text, foreign_key="job.id")
    run_id: str = Field(sa_type=Text, foreign_key="run.id", unique=True)
    artefacts_digest: str = Field(sa_type=Text)
    mlflow_run_id: str | None = Field(default=None, sa_type=Text)
    mlflow_version: str | None = Field(default=None, sa_type=Text)

    @property
    def entity(self) -> str:
        """Name the row as entries do."""
        return f"model_version:{self.id}"


class Deployment(_Versioned, SQLModel, table=True):
    """A model version that people are to use, and the documents that go with it."""

    __tablename__ = "deployment"
    __table_args__ = (_states(DeploymentState),)
    ENTITY_SQL: ClassVar[str] = "'deployment:' || {row}.id"

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=_entry_id())
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

    @property
    def entity(self) -> str:
        """Name the row as entries do."""
        return f"deployment:{self.id}"


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


class Export(_Versioned, SQLModel, table=True):
    """A bundle that was handed out; the entry `evidence.exported` records it."""

    __tablename__ = "export"
    ENTITY_SQL: ClassVar[str] = "'export:' || {row}.id"

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=_entry_id())
    created_at: str = Field(sa_type=Text)
    created_by: str = Field(sa_type=Text, foreign_key="principal.id")
    num_entries: int = Field(sa_type=BigInteger)

    @property
    def entity(self) -> str:
        """Name the row as entries do."""
        return f"export:{self.id}"


Governed = (
    Principal
    | Token
    | DatasetVersion
    | BaseModel
    | Job
    | StoredDecision
    | Approval
    | Run
    | ModelVersion
    | Deployment
    | Export
)
GOVERNED: tuple[type[Governed], ...] = (
    Principal,
    Token,
    DatasetVersion,
    BaseModel,
    Job,
    StoredDecision,
    Approval,
    Run,
    ModelVersion,
    Deployment,
    Export,
)
