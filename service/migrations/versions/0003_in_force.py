"""What is in force: acts on the policy and on the reference data, with the guards of the log.

Neither can be written without the entry that records it; neither is changed or deleted afterwards.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# Frozen copies: a migration never changes with the code. {row} is NEW.
TABLES = {
    "policy_act": "'policy:' || {row}.id",
    "reference_row": "'reference:' || {row}.id",
}


def upgrade() -> None:
    op.create_table(
        "policy_act",
        *_every_act("policy_act", "'enforce', 'shadow', 'rejected'"),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("policy_digest", sa.Text(), nullable=True),
        sa.Column("bundle_digest", sa.Text(), nullable=True),
        sa.Column("signers", sa.JSON(), nullable=False),
        sa.Column("reason_code", sa.Text(), nullable=True),
    )
    op.create_table(
        "reference_row",
        *_every_act("reference_row", "'shipped', 'recorded', 'withdrawn', 'hidden'"),
        sa.Column("table_name", sa.Text(), nullable=False),
        sa.Column("row_key", sa.Text(), nullable=False),
        sa.Column("row_digest", sa.Text(), nullable=True),
        sa.Column("document_digest", sa.Text(), nullable=True),
        sa.Column("reference_digest", sa.Text(), nullable=False),
    )
    op.create_index("ix_reference_row_key", "reference_row", ["table_name", "row_key"])
    guard = _guard_sqlite
    if op.get_bind().dialect.name == "postgresql":
        guard = _guard_postgresql
    for table, entity in TABLES.items():
        guard(table, entity)


def _every_act(table: str, acts: str) -> list[sa.schema.SchemaItem]:
    return [
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("entry_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("act", sa.Text(), nullable=False),
        sa.CheckConstraint(f"act IN ({acts})", name=op.f(f"ck_{table}_act")),
        sa.ForeignKeyConstraint(
            ["entry_id"],
            ["audit_entry.id"],
            name=op.f(f"fk_{table}_entry_id"),
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.ForeignKeyConstraint(
            ["created_by"], ["principal.id"], name=op.f(f"fk_{table}_created_by")
        ),
        sa.UniqueConstraint("sequence", name=op.f(f"uq_{table}_sequence")),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
    ]


def _guard_postgresql(table: str, entity: str) -> None:
    """Tie a table to the log; `placet_refuse` came with the first schema."""
    op.execute(
        f"CREATE TRIGGER no_change BEFORE UPDATE OR DELETE ON {table}"
        " FOR EACH ROW EXECUTE FUNCTION placet_refuse()"
    )
    op.execute(
        f"CREATE TRIGGER no_truncate BEFORE TRUNCATE ON {table}"
        " FOR EACH STATEMENT EXECUTE FUNCTION placet_refuse()"
    )
    op.execute(
        f"""
        CREATE FUNCTION placet_recorded_{table}() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NOT EXISTS (
                SELECT 1 FROM audit_entry
                WHERE id = NEW.entry_id AND xid = pg_current_xact_id()
                  AND entity = {entity.format(row="NEW")}
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
        CREATE CONSTRAINT TRIGGER recorded AFTER INSERT ON {table}
        DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION placet_recorded_{table}()
        """
    )


def _guard_sqlite(table: str, entity: str) -> None:
    """Tie a table to the log, as the first schema does."""
    for event in ("DELETE", "UPDATE"):
        op.execute(
            f"""
            CREATE TRIGGER {table}_no_{event.lower()} BEFORE {event} ON {table}
            BEGIN
                SELECT RAISE(ABORT, '{event} of {table} is refused: the past does not change');
            END
            """
        )
    op.execute(
        f"""
        CREATE TRIGGER {table}_recorded_insert BEFORE INSERT ON {table}
        WHEN NOT EXISTS (
            SELECT 1 FROM audit_entry
            WHERE id = NEW.entry_id AND idx IS NULL AND entity = {entity.format(row="NEW")}
        )
        BEGIN
            SELECT RAISE(ABORT, 'a change of {table} has no audit entry in its transaction');
        END
        """
    )
