"""Waivers: governed rows with the guards of the first schema.

A waiver cannot be written without the entry that records the change, and never goes away.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Frozen copies: a migration never changes with the code. {row} is NEW.
TABLE = "waiver"
ENTITY = "{row}.subject_kind || ':' || {row}.subject_id"


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("entry_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.Column("team", sa.Text(), nullable=False),
        sa.Column("subject_kind", sa.Text(), nullable=False),
        sa.Column("subject_id", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("rule_version", sa.Text(), nullable=False),
        sa.Column("category", sa.Text(), nullable=False),
        sa.Column("ticket", sa.Text(), nullable=False),
        sa.Column("requester_id", sa.Text(), nullable=False),
        sa.Column("document_digest", sa.Text(), nullable=False),
        sa.Column("reason_digest", sa.Text(), nullable=True),
        sa.Column("not_before", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Text(), nullable=False),
        sa.Column("approvals", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("decided_at", sa.Text(), nullable=True),
        sa.Column("revoked_at", sa.Text(), nullable=True),
        sa.Column("revoked_by", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "state IN ('requested', 'approved', 'refused', 'revoked')", name=op.f("ck_waiver_state")
        ),
        sa.CheckConstraint("category IN ('waiver', 'mitigated')", name=op.f("ck_waiver_category")),
        sa.CheckConstraint(
            "subject_kind IN ('job', 'deployment')", name=op.f("ck_waiver_subject_kind")
        ),
        sa.ForeignKeyConstraint(
            ["entry_id"],
            ["audit_entry.id"],
            name=op.f("fk_waiver_entry_id"),
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.ForeignKeyConstraint(
            ["requester_id"], ["principal.id"], name=op.f("fk_waiver_requester_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_waiver")),
    )
    op.create_index("ix_waiver_subject", TABLE, ["subject_kind", "subject_id"], unique=False)
    op.create_index(op.f("ix_waiver_team"), TABLE, ["team"], unique=False)
    if op.get_bind().dialect.name == "postgresql":
        _guard_postgresql()
    else:
        _guard_sqlite()


def _guard_postgresql() -> None:
    """Tie the table to the log; `placet_refuse` came with the first schema."""
    op.execute(
        f"CREATE TRIGGER no_delete BEFORE DELETE ON {TABLE}"
        " FOR EACH ROW EXECUTE FUNCTION placet_refuse()"
    )
    op.execute(
        f"CREATE TRIGGER no_truncate BEFORE TRUNCATE ON {TABLE}"
        " FOR EACH STATEMENT EXECUTE FUNCTION placet_refuse()"
    )
    op.execute(
        f"""
        CREATE FUNCTION placet_recorded_{TABLE}() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NOT EXISTS (
                SELECT 1 FROM audit_entry
                WHERE id = NEW.entry_id AND xid = pg_current_xact_id()
                  AND entity = {ENTITY.format(row="NEW")}
            ) THEN
                RAISE EXCEPTION 'a change of % has no audit entry in its transaction',
                    TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN NULL;
        END $$
        """
    )
    op.execute(
        f"""
        CREATE CONSTRAINT TRIGGER recorded AFTER INSERT OR UPDATE ON {TABLE}
        DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION placet_recorded_{TABLE}()
        """
    )


def _guard_sqlite() -> None:
    """Tie the table to the log, as the first schema does."""
    op.execute(
        f"""
        CREATE TRIGGER {TABLE}_no_delete BEFORE DELETE ON {TABLE}
        BEGIN SELECT RAISE(ABORT, 'DELETE of {TABLE} is refused: the past does not change'); END
        """
    )
    for event, also in (("INSERT", ""), ("UPDATE", "NEW.entry_id IS OLD.entry_id OR")):
        op.execute(
            f"""
            CREATE TRIGGER {TABLE}_recorded_{event.lower()} BEFORE {event} ON {TABLE}
            WHEN {also} NOT EXISTS (
                SELECT 1 FROM audit_entry
                WHERE id = NEW.entry_id AND idx IS NULL AND entity = {ENTITY.format(row="NEW")}
            )
            BEGIN
                SELECT RAISE(ABORT, 'a change of {TABLE} has no audit entry in its transaction');
            END
            """
        )
