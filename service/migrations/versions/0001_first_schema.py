"""The first schema, and the guards that make the log complete.

The guards are triggers: a governed row cannot be written without the entry that records the change
(same transaction on PostgreSQL; on SQLite, an entry that is not sequenced yet and that the row did
not carry before), governed rows and entries cannot be deleted, and an entry changes only once, when
the sequencer gives it its index.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Frozen copies: a migration never changes with the code. {row} is NEW.
GOVERNED = {
    "principal": "'principal:' || {row}.id",
    "token": "'token:' || {row}.id",
    "dataset_version": "'dataset:' || {row}.id",
    "base_model": "'base_model:' || {row}.id",
    "job": "'job:' || {row}.id",
    "decision": "{row}.subject_kind || ':' || {row}.subject_id",
    "approval": "{row}.subject_kind || ':' || {row}.subject_id",
    "run": "'job:' || {row}.job_id",
    "model_version": "'model_version:' || {row}.id",
    "deployment": "'deployment:' || {row}.id",
    "export": "'export:' || {row}.id",
}
FROZEN = ("audit_entry", "checkpoint", "document")


def upgrade() -> None:

    op.create_table('audit_entry',
    sa.Column('seq', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), autoincrement=True, nullable=False),
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('entity', sa.Text(), nullable=False),
    sa.Column('kind', sa.Text(), nullable=False),
    sa.Column('at', sa.Text(), nullable=False),
    sa.Column('body', sa.LargeBinary(), nullable=False),
    sa.Column('leaf_hash', sa.LargeBinary(), nullable=False),
    sa.Column('idx', sa.BigInteger(), nullable=True),
    sa.PrimaryKeyConstraint('seq', name=op.f('pk_audit_entry')),
    sa.UniqueConstraint('id', name=op.f('uq_audit_entry_id')),
    sa.UniqueConstraint('idx', name=op.f('uq_audit_entry_idx'))
    )
    op.create_index('ix_audit_entry_pending', 'audit_entry', ['seq'], unique=False, sqlite_where=sa.text('idx IS NULL'), postgresql_where=sa.text('idx IS NULL'))
    op.create_table('checkpoint',
    sa.Column('size', sa.BigInteger(), autoincrement=False, nullable=False),
    sa.Column('root', sa.LargeBinary(), nullable=False),
    sa.Column('note', sa.LargeBinary(), nullable=False),
    sa.Column('created_at', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('size', name=op.f('pk_checkpoint'))
    )
    op.create_table('document',
    sa.Column('digest', sa.Text(), nullable=False),
    sa.Column('media_type', sa.Text(), nullable=False),
    sa.Column('body', sa.LargeBinary(), nullable=False),
    sa.PrimaryKeyConstraint('digest', name=op.f('pk_document'))
    )
    op.create_table('endpoint',
    sa.Column('deployment_id', sa.Text(), nullable=False),
    sa.Column('ref', sa.Text(), nullable=True),
    sa.Column('port', sa.Integer(), nullable=True),
    sa.PrimaryKeyConstraint('deployment_id', name=op.f('pk_endpoint'))
    )
    op.create_table('idempotency_record',
    sa.Column('principal_id', sa.Text(), nullable=False),
    sa.Column('key', sa.Text(), nullable=False),
    sa.Column('request_digest', sa.Text(), nullable=False),
    sa.Column('status', sa.Integer(), nullable=False),
    sa.Column('response', sa.JSON(), nullable=False),
    sa.Column('created_at', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('principal_id', 'key', name=op.f('pk_idempotency_record'))
    )
    op.create_table('log_head',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('size', sa.BigInteger(), nullable=False),
    sa.Column('epoch', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_log_head'))
    )
    op.create_table('run_progress',
    sa.Column('run_id', sa.Text(), nullable=False),
    sa.Column('engine_ref', sa.Text(), nullable=True),
    sa.Column('mlflow_run_id', sa.Text(), nullable=True),
    sa.Column('model_version_id', sa.Text(), nullable=True),
    sa.Column('events_offset', sa.BigInteger(), nullable=False),
    sa.Column('last_event', sa.JSON(), nullable=True),
    sa.Column('tracking_error', sa.Text(), nullable=True),
    sa.PrimaryKeyConstraint('run_id', name=op.f('pk_run_progress'))
    )
    op.create_table('sealed_value',
    sa.Column('entry_id', sa.Text(), nullable=False),
    sa.Column('field', sa.Text(), nullable=False),
    sa.Column('subject_key', sa.Text(), nullable=False),
    sa.Column('sealed', sa.LargeBinary(), nullable=False),
    sa.PrimaryKeyConstraint('entry_id', 'field', name=op.f('pk_sealed_value'))
    )
    op.create_index(op.f('ix_sealed_value_subject_key'), 'sealed_value', ['subject_key'], unique=False)
    op.create_table('subject_key',
    sa.Column('subject', sa.Text(), nullable=False),
    sa.Column('wrapped', sa.LargeBinary(), nullable=False),
    sa.PrimaryKeyConstraint('subject', name=op.f('pk_subject_key'))
    )
    op.create_table('decision',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.Column('entry_id', sa.Text(), nullable=False),
    sa.Column('created_at', sa.Text(), nullable=False),
    sa.Column('subject_kind', sa.Text(), nullable=False),
    sa.Column('subject_id', sa.Text(), nullable=False),
    sa.Column('stage', sa.Text(), nullable=False),
    sa.Column('verdict', sa.Text(), nullable=False),
    sa.Column('record_digest', sa.Text(), nullable=False),
    sa.Column('facts_digest', sa.Text(), nullable=False),
    sa.Column('policy_digest', sa.Text(), nullable=False),
    sa.Column('reference_digest', sa.Text(), nullable=False),
    sa.Column('approvals', sa.JSON(), nullable=False),
    sa.Column('expires_at', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['entry_id'], ['audit_entry.id'], name=op.f('fk_decision_entry_id'), initially='DEFERRED', deferrable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_decision'))
    )
    op.create_index('ix_decision_subject', 'decision', ['subject_kind', 'subject_id'], unique=False)
    op.create_table('principal',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.Column('entry_id', sa.Text(), nullable=False),
    sa.Column('kind', sa.Text(), nullable=False),
    sa.Column('name', sa.Text(), nullable=False),
    sa.Column('roles', sa.JSON(), nullable=False),
    sa.Column('teams', sa.JSON(), nullable=False),
    sa.Column('disabled_at', sa.Text(), nullable=True),
    sa.ForeignKeyConstraint(['entry_id'], ['audit_entry.id'], name=op.f('fk_principal_entry_id'), initially='DEFERRED', deferrable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_principal'))
    )
    op.create_table('approval',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.Column('entry_id', sa.Text(), nullable=False),
    sa.Column('created_at', sa.Text(), nullable=False),
    sa.Column('subject_kind', sa.Text(), nullable=False),
    sa.Column('subject_id', sa.Text(), nullable=False),
    sa.Column('decision_id', sa.Text(), nullable=False),
    sa.Column('approver_id', sa.Text(), nullable=False),
    sa.Column('role', sa.Text(), nullable=False),
    sa.Column('outcome', sa.Text(), nullable=False),
    sa.CheckConstraint("outcome IN ('given', 'refused')", name=op.f('ck_approval_outcome')),
    sa.ForeignKeyConstraint(['approver_id'], ['principal.id'], name=op.f('fk_approval_approver_id')),
    sa.ForeignKeyConstraint(['decision_id'], ['decision.id'], name=op.f('fk_approval_decision_id')),
    sa.ForeignKeyConstraint(['entry_id'], ['audit_entry.id'], name=op.f('fk_approval_entry_id'), initially='DEFERRED', deferrable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_approval')),
    sa.UniqueConstraint('decision_id', 'approver_id', name=op.f('uq_approval_decision_id_approver_id'))
    )
    op.create_table('base_model',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.Column('entry_id', sa.Text(), nullable=False),
    sa.Column('created_at', sa.Text(), nullable=False),
    sa.Column('created_by', sa.Text(), nullable=False),
    sa.Column('name', sa.Text(), nullable=False),
    sa.Column('uri', sa.Text(), nullable=False),
    sa.Column('files_digest', sa.Text(), nullable=False),
    sa.Column('num_parameters', sa.BigInteger(), nullable=False),
    sa.Column('declared', sa.JSON(), nullable=False),
    sa.ForeignKeyConstraint(['created_by'], ['principal.id'], name=op.f('fk_base_model_created_by')),
    sa.ForeignKeyConstraint(['entry_id'], ['audit_entry.id'], name=op.f('fk_base_model_entry_id'), initially='DEFERRED', deferrable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_base_model'))
    )
    op.create_table('dataset_version',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.Column('entry_id', sa.Text(), nullable=False),
    sa.Column('created_at', sa.Text(), nullable=False),
    sa.Column('created_by', sa.Text(), nullable=False),
    sa.Column('team', sa.Text(), nullable=False),
    sa.Column('name', sa.Text(), nullable=False),
    sa.Column('uri', sa.Text(), nullable=False),
    sa.Column('manifest_digest', sa.Text(), nullable=False),
    sa.Column('num_objects', sa.Integer(), nullable=False),
    sa.Column('num_rows', sa.BigInteger(), nullable=False),
    sa.Column('size_bytes', sa.BigInteger(), nullable=False),
    sa.Column('provider', sa.Text(), nullable=True),
    sa.Column('service', sa.Text(), nullable=True),
    sa.Column('region', sa.Text(), nullable=True),
    sa.Column('country', sa.Text(), nullable=True),
    sa.Column('categories_declared', sa.JSON(), nullable=False),
    sa.Column('categories_detected', sa.JSON(), nullable=False),
    sa.Column('detection', sa.JSON(), nullable=False),
    sa.Column('declared', sa.JSON(), nullable=False),
    sa.ForeignKeyConstraint(['created_by'], ['principal.id'], name=op.f('fk_dataset_version_created_by')),
    sa.ForeignKeyConstraint(['entry_id'], ['audit_entry.id'], name=op.f('fk_dataset_version_entry_id'), initially='DEFERRED', deferrable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_dataset_version'))
    )
    op.create_index(op.f('ix_dataset_version_team'), 'dataset_version', ['team'], unique=False)
    op.create_table('export',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.Column('entry_id', sa.Text(), nullable=False),
    sa.Column('created_at', sa.Text(), nullable=False),
    sa.Column('created_by', sa.Text(), nullable=False),
    sa.Column('num_entries', sa.BigInteger(), nullable=False),
    sa.ForeignKeyConstraint(['created_by'], ['principal.id'], name=op.f('fk_export_created_by')),
    sa.ForeignKeyConstraint(['entry_id'], ['audit_entry.id'], name=op.f('fk_export_entry_id'), initially='DEFERRED', deferrable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_export'))
    )
    op.create_table('token',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.Column('entry_id', sa.Text(), nullable=False),
    sa.Column('principal_id', sa.Text(), nullable=False),
    sa.Column('secret_sha256', sa.Text(), nullable=False),
    sa.Column('expires_at', sa.Text(), nullable=False),
    sa.Column('revoked_at', sa.Text(), nullable=True),
    sa.ForeignKeyConstraint(['entry_id'], ['audit_entry.id'], name=op.f('fk_token_entry_id'), initially='DEFERRED', deferrable=True),
    sa.ForeignKeyConstraint(['principal_id'], ['principal.id'], name=op.f('fk_token_principal_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_token')),
    sa.UniqueConstraint('secret_sha256', name=op.f('uq_token_secret_sha256'))
    )
    op.create_index(op.f('ix_token_principal_id'), 'token', ['principal_id'], unique=False)
    op.create_table('job',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.Column('entry_id', sa.Text(), nullable=False),
    sa.Column('created_at', sa.Text(), nullable=False),
    sa.Column('submitted_by', sa.Text(), nullable=False),
    sa.Column('team', sa.Text(), nullable=False),
    sa.Column('name', sa.Text(), nullable=False),
    sa.Column('state', sa.Text(), nullable=False),
    sa.Column('dataset_id', sa.Text(), nullable=False),
    sa.Column('base_model_id', sa.Text(), nullable=False),
    sa.Column('document_digest', sa.Text(), nullable=False),
    sa.Column('spec_digest', sa.Text(), nullable=False),
    sa.Column('decision_id', sa.Text(), nullable=True),
    sa.Column('reason_code', sa.Text(), nullable=True),
    sa.CheckConstraint("state IN ('submitted', 'denied', 'awaiting_approval', 'approved', 'refused', 'expired', 'dispatching', 'running', 'cancelling', 'succeeded', 'failed', 'cancelled')", name=op.f('ck_job_state')),
    sa.ForeignKeyConstraint(['base_model_id'], ['base_model.id'], name=op.f('fk_job_base_model_id')),
    sa.ForeignKeyConstraint(['dataset_id'], ['dataset_version.id'], name=op.f('fk_job_dataset_id')),
    sa.ForeignKeyConstraint(['entry_id'], ['audit_entry.id'], name=op.f('fk_job_entry_id'), initially='DEFERRED', deferrable=True),
    sa.ForeignKeyConstraint(['submitted_by'], ['principal.id'], name=op.f('fk_job_submitted_by')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_job'))
    )
    op.create_index(op.f('ix_job_state'), 'job', ['state'], unique=False)
    op.create_index('ix_job_team_id', 'job', ['team', 'id'], unique=False)
    op.create_table('run',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.Column('entry_id', sa.Text(), nullable=False),
    sa.Column('created_at', sa.Text(), nullable=False),
    sa.Column('job_id', sa.Text(), nullable=False),
    sa.Column('engine', sa.Text(), nullable=False),
    sa.Column('permit_id', sa.Text(), nullable=False),
    sa.Column('permit_digest', sa.Text(), nullable=False),
    sa.Column('output_uri', sa.Text(), nullable=False),
    sa.Column('state', sa.Text(), nullable=False),
    sa.Column('outcome', sa.Text(), nullable=True),
    sa.Column('report_digest', sa.Text(), nullable=True),
    sa.Column('artefacts_digest', sa.Text(), nullable=True),
    sa.ForeignKeyConstraint(['entry_id'], ['audit_entry.id'], name=op.f('fk_run_entry_id'), initially='DEFERRED', deferrable=True),
    sa.ForeignKeyConstraint(['job_id'], ['job.id'], name=op.f('fk_run_job_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_run')),
    sa.UniqueConstraint('permit_id', name=op.f('uq_run_permit_id'))
    )
    op.create_index(op.f('ix_run_job_id'), 'run', ['job_id'], unique=False)
    op.create_table('model_version',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.Column('entry_id', sa.Text(), nullable=False),
    sa.Column('created_at', sa.Text(), nullable=False),
    sa.Column('team', sa.Text(), nullable=False),
    sa.Column('name', sa.Text(), nullable=False),
    sa.Column('job_id', sa.Text(), nullable=False),
    sa.Column('run_id', sa.Text(), nullable=False),
    sa.Column('artefacts_digest', sa.Text(), nullable=False),
    sa.Column('mlflow_run_id', sa.Text(), nullable=True),
    sa.Column('mlflow_version', sa.Text(), nullable=True),
    sa.ForeignKeyConstraint(['entry_id'], ['audit_entry.id'], name=op.f('fk_model_version_entry_id'), initially='DEFERRED', deferrable=True),
    sa.ForeignKeyConstraint(['job_id'], ['job.id'], name=op.f('fk_model_version_job_id')),
    sa.ForeignKeyConstraint(['run_id'], ['run.id'], name=op.f('fk_model_version_run_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_model_version')),
    sa.UniqueConstraint('run_id', name=op.f('uq_model_version_run_id'))
    )
    op.create_table('deployment',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.Column('entry_id', sa.Text(), nullable=False),
    sa.Column('created_at', sa.Text(), nullable=False),
    sa.Column('requested_by', sa.Text(), nullable=False),
    sa.Column('team', sa.Text(), nullable=False),
    sa.Column('name', sa.Text(), nullable=False),
    sa.Column('state', sa.Text(), nullable=False),
    sa.Column('model_version_id', sa.Text(), nullable=False),
    sa.Column('document_digest', sa.Text(), nullable=False),
    sa.Column('decision_id', sa.Text(), nullable=True),
    sa.Column('artefacts_digest', sa.Text(), nullable=True),
    sa.Column('card_digest', sa.Text(), nullable=True),
    sa.Column('transparency_digest', sa.Text(), nullable=True),
    sa.Column('reason_code', sa.Text(), nullable=True),
    sa.CheckConstraint("state IN ('requested', 'denied', 'awaiting_approval', 'approved', 'refused', 'expired', 'active', 'failed', 'retired')", name=op.f('ck_deployment_state')),
    sa.ForeignKeyConstraint(['entry_id'], ['audit_entry.id'], name=op.f('fk_deployment_entry_id'), initially='DEFERRED', deferrable=True),
    sa.ForeignKeyConstraint(['model_version_id'], ['model_version.id'], name=op.f('fk_deployment_model_version_id')),
    sa.ForeignKeyConstraint(['requested_by'], ['principal.id'], name=op.f('fk_deployment_requested_by')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_deployment'))
    )
    op.create_index(op.f('ix_deployment_state'), 'deployment', ['state'], unique=False)
    op.create_index(op.f('ix_deployment_team'), 'deployment', ['team'], unique=False)
    op.execute("INSERT INTO log_head (id, size, epoch) VALUES (1, 0, 0)")
    if op.get_bind().dialect.name == "postgresql":
        _guard_postgresql()
    else:
        _guard_sqlite()


def _guard_postgresql() -> None:
    op.execute(
        "ALTER TABLE audit_entry ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id()"
    )
    op.execute(
        """
        CREATE FUNCTION placet_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION '% of % is refused: the past does not change', TG_OP, TG_TABLE_NAME
                USING ERRCODE = 'integrity_constraint_violation';
        END $$
        """
    )
    op.execute(
        """
        CREATE FUNCTION placet_index_once() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF OLD.idx IS NOT NULL OR NEW.idx IS NULL OR
               (NEW.seq, NEW.id, NEW.entity, NEW.kind, NEW.at, NEW.body, NEW.leaf_hash, NEW.xid)
               IS DISTINCT FROM
               (OLD.seq, OLD.id, OLD.entity, OLD.kind, OLD.at, OLD.body, OLD.leaf_hash, OLD.xid)
            THEN
                RAISE EXCEPTION 'an entry changes only once, when it gets its index'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN NEW;
        END $$
        """
    )
    op.execute(
        "CREATE TRIGGER index_once BEFORE UPDATE ON audit_entry"
        " FOR EACH ROW EXECUTE FUNCTION placet_index_once()"
    )
    for table in ("checkpoint", "document"):
        op.execute(
            f"CREATE TRIGGER no_update BEFORE UPDATE ON {table}"
            " FOR EACH ROW EXECUTE FUNCTION placet_refuse()"
        )
    for table in (*FROZEN, *GOVERNED):
        op.execute(
            f'CREATE TRIGGER no_delete BEFORE DELETE ON "{table}"'
            " FOR EACH ROW EXECUTE FUNCTION placet_refuse()"
        )
        op.execute(
            f'CREATE TRIGGER no_truncate BEFORE TRUNCATE ON "{table}"'
            " FOR EACH STATEMENT EXECUTE FUNCTION placet_refuse()"
        )
    for table, entity in GOVERNED.items():
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
            CREATE CONSTRAINT TRIGGER recorded AFTER INSERT OR UPDATE ON "{table}"
            DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION placet_recorded_{table}()
            """
        )


def _guard_sqlite() -> None:
    for table in (*FROZEN, *GOVERNED):
        op.execute(
            f"""
            CREATE TRIGGER {table}_no_delete BEFORE DELETE ON "{table}"
            BEGIN SELECT RAISE(ABORT, 'DELETE of {table} is refused: the past does not change'); END
            """
        )
    for table in ("checkpoint", "document"):
        op.execute(
            f"""
            CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table}
            BEGIN SELECT RAISE(ABORT, 'UPDATE of {table} is refused: the past does not change'); END
            """
        )
    op.execute(
        """
        CREATE TRIGGER audit_entry_index_once BEFORE UPDATE ON audit_entry
        WHEN OLD.idx IS NOT NULL OR NEW.idx IS NULL OR NEW.seq IS NOT OLD.seq
          OR NEW.id IS NOT OLD.id OR NEW.entity IS NOT OLD.entity OR NEW.kind IS NOT OLD.kind
          OR NEW.at IS NOT OLD.at OR NEW.body IS NOT OLD.body OR NEW.leaf_hash IS NOT OLD.leaf_hash
        BEGIN SELECT RAISE(ABORT, 'an entry changes only once, when it gets its index'); END
        """
    )
    for table, entity in GOVERNED.items():
        for event, also in (("INSERT", ""), ("UPDATE", "NEW.entry_id IS OLD.entry_id OR")):
            op.execute(
                f"""
                CREATE TRIGGER {table}_recorded_{event.lower()} BEFORE {event} ON "{table}"
                WHEN {also} NOT EXISTS (
                    SELECT 1 FROM audit_entry
                    WHERE id = NEW.entry_id AND idx IS NULL AND entity = {entity.format(row="NEW")}
                )
                BEGIN
                    SELECT RAISE(ABORT, 'a change of {table} has no audit entry in its transaction');
                END
                """
            )
