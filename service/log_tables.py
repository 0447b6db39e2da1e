"""The tables of the audit log, of what is sealed beside it, and of the documents it names."""

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    Text,
    text,
)
from sqlmodel import Field, SQLModel

SQLModel.metadata.naming_convention = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}


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
