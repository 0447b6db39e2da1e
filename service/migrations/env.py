"""Alembic's entry point. The caller passes an open connection; there is no alembic.ini."""

from alembic import context
from sqlmodel import SQLModel

import service.tables  # noqa: F401 — fills SQLModel.metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=SQLModel.metadata)
with context.begin_transaction():
    context.run_migrations()
