"""Excerpts: how many entries an export shows, when it does not enclose all."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("export", sa.Column("num_shown", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    raise RuntimeError("there is no way back: restore the backup made before the upgrade")
