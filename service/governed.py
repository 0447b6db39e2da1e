"""What every governed row has: an id, a version, and the entry of its latest change."""

from typing import Any, ClassVar

from sqlalchemy import Column, ForeignKey, Text
from sqlalchemy.orm import declared_attr

import service.log_tables  # noqa: F401 — `audit_entry` must be known before a key points at it


class GovernedRow:
    """What every governed row has: a version, and the name it has in entries.

    A stale writer loses: UPDATE … WHERE version = what was read. `Transaction.record` counts.
    """

    ENTITY: ClassVar[str]
    id: str

    @property
    def entity(self) -> str:
        """Name the row as entries do."""
        return f"{self.ENTITY}:{self.id}"

    @declared_attr.directive
    @classmethod
    def __mapper_args__(cls) -> dict[str, Any]:
        return {"version_id_col": cls.__table__.c.version, "version_id_generator": False}  # type: ignore[attr-defined]


def entry_id() -> Any:
    """Make the column that ties a governed row to the entry of its latest change."""
    return Column(
        Text,
        ForeignKey("audit_entry.id", deferrable=True, initially="DEFERRED"),
        nullable=False,
    )
