"""Erasure: what lies beside the log goes only with an entry that says so, and never changes.

A sealed value is fixed by its commitment in the log. The key of a data subject may be wrapped anew,
when the key-encryption key is rotated. Both may be deleted in the transaction of an
`erasure.executed` entry about their subject, and in no other.
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# Frozen copies: a migration never changes with the code. The column that names the data subject.
TABLES = {"sealed_value": "subject_key", "subject_key": "subject"}
FIXED = {
    "sealed_value": ("entry_id", "field", "subject_key", "sealed"),
    "subject_key": ("subject",),
}


def upgrade() -> None:
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    for table in TABLES:
        (_guard_postgresql if is_postgresql else _guard_sqlite)(table)


def _guard_postgresql(table: str) -> None:
    op.execute(
        f"CREATE TRIGGER no_truncate BEFORE TRUNCATE ON {table}"
        " FOR EACH STATEMENT EXECUTE FUNCTION placet_refuse()"
    )
    fixed = " OR ".join(f"NEW.{name} IS DISTINCT FROM OLD.{name}" for name in FIXED[table])
    op.execute(
        f"CREATE TRIGGER no_change BEFORE UPDATE ON {table} FOR EACH ROW WHEN ({fixed})"
        " EXECUTE FUNCTION placet_refuse()"
    )
    op.execute(
        f"""
        CREATE FUNCTION placet_erased_{table}() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NOT EXISTS (
                SELECT 1 FROM audit_entry
                WHERE entity = 'principal:' || OLD.{TABLES[table]}
                  AND kind = 'erasure.executed' AND xid = pg_current_xact_id()
            ) THEN
                RAISE EXCEPTION 'DELETE of % without an entry of the erasure is refused',
                    TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN OLD;
        END $$
        """
    )
    op.execute(
        f"CREATE TRIGGER erased BEFORE DELETE ON {table}"
        f" FOR EACH ROW EXECUTE FUNCTION placet_erased_{table}()"
    )
    # A delete looks its entry up by what the entry is about.
    op.execute(
        "CREATE INDEX IF NOT EXISTS ix_audit_entry_erasure ON audit_entry (entity)"
        " WHERE kind = 'erasure.executed'"
    )


def _guard_sqlite(table: str) -> None:
    fixed = " OR ".join(f"NEW.{name} IS NOT OLD.{name}" for name in FIXED[table])
    op.execute(
        f"""
        CREATE TRIGGER {table}_no_change BEFORE UPDATE ON {table} WHEN {fixed}
        BEGIN SELECT RAISE(ABORT, 'UPDATE of {table} is refused: the past does not change'); END
        """
    )
    op.execute(
        f"""
        CREATE TRIGGER {table}_erased BEFORE DELETE ON {table}
        WHEN NOT EXISTS (
            SELECT 1 FROM audit_entry
            WHERE entity = 'principal:' || OLD.{TABLES[table]}
              AND kind = 'erasure.executed' AND idx IS NULL
        )
        BEGIN
            SELECT RAISE(ABORT, 'DELETE of {table} without an entry of the erasure is refused');
        END
        """
    )
    op.execute(
        "CREATE INDEX IF NOT EXISTS ix_audit_entry_erasure ON audit_entry (entity)"
        " WHERE kind = 'erasure.executed'"
    )


def downgrade() -> None:
    raise RuntimeError("there is no way back: restore the backup made before the upgrade")
