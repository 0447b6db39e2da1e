"""The tables of what is in force: acts on the policy and on the reference data. Append-only."""

from typing import ClassVar

from sqlalchemy import JSON, BigInteger, CheckConstraint, Index, Text
from sqlmodel import Field, SQLModel

from service.governed import GovernedRow, entry_id


class PolicyAct(GovernedRow, SQLModel, table=True):
    """One act on the policy in force: enforced, tried in the shadow, or rejected.

    `sequence` counts all acts, so that two at once exclude each other; `number` is the bundle's.
    """

    __tablename__ = "policy_act"
    ENTITY: ClassVar[str] = "policy"
    __table_args__ = (CheckConstraint("act IN ('enforce', 'shadow', 'rejected')", name="act"),)

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=entry_id())
    created_at: str = Field(sa_type=Text)
    created_by: str | None = Field(default=None, sa_type=Text, foreign_key="principal.id")
    sequence: int = Field(unique=True)
    act: str = Field(sa_type=Text)
    number: int = Field(sa_type=BigInteger)
    policy_digest: str | None = Field(default=None, sa_type=Text)
    bundle_digest: str | None = Field(default=None, sa_type=Text)
    signers: list[str] = Field(sa_type=JSON)
    reason_code: str | None = Field(default=None, sa_type=Text)


class ReferenceRow(GovernedRow, SQLModel, table=True):
    """One act on the reference data in force: what ships, a row recorded or withdrawn.

    `reference_digest` names all tables as they are in force from here on.
    """

    __tablename__ = "reference_row"
    ENTITY: ClassVar[str] = "reference"
    __table_args__ = (
        Index("ix_reference_row_key", "table_name", "row_key"),
        CheckConstraint("act IN ('shipped', 'recorded', 'withdrawn', 'hidden')", name="act"),
    )

    id: str = Field(sa_type=Text, primary_key=True)
    version: int = Field(default=0)
    entry_id: str = Field(sa_column=entry_id())
    created_at: str = Field(sa_type=Text)
    created_by: str | None = Field(default=None, sa_type=Text, foreign_key="principal.id")
    sequence: int = Field(unique=True)
    act: str = Field(sa_type=Text)
    table_name: str = Field(sa_type=Text)
    row_key: str = Field(sa_type=Text)
    row_digest: str | None = Field(default=None, sa_type=Text)
    document_digest: str | None = Field(default=None, sa_type=Text)
    reference_digest: str = Field(sa_type=Text)
