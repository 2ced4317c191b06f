"""The service: users, batches, workers, tokens, the audit log, idempotency keys, and retractions."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_JSON = sa.JSON(none_as_null=True)
_MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Migrate to this revision."""
    op.create_table(
        "batches",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("spec", _JSON, nullable=False),
        sa.Column("budget_usd", sa.Double(), nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("started", sa.Text(), nullable=False),
        sa.Column("platform", sa.String(length=32), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("sandbox", sa.String(length=32), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("started_at", _MOMENT, nullable=False),
        sa.Column("heartbeat_at", _MOMENT, nullable=False),
        sa.Column("stopped_at", _MOMENT, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    op.create_index(op.f("ix_workers_status"), "workers", ["status"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("max_jobs", sa.Integer(), nullable=True),
        sa.Column("max_usd_a_day", sa.Double(), nullable=True),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("expires_at", _MOMENT, nullable=True),
        sa.Column("revoked_at", _MOMENT, nullable=True),
        sa.Column("last_used_at", _MOMENT, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("hash", name=op.f("uq_tokens_hash")),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=64), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("user", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_table(
        "audit_log",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.Column("actor", sa.String(length=64), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=128), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("data", _JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
    )
    op.create_index(op.f("ix_audit_log_subject"), "audit_log", ["subject"], unique=False)
    with op.batch_alter_table("jobs") as batch:
        batch.add_column(sa.Column("user", sa.String(length=64), nullable=False, server_default="local"))
        for name in ("priority", "fair_tag", "attempt"):
            batch.add_column(sa.Column(name, sa.Integer(), nullable=False, server_default="0"))
        batch.add_column(sa.Column("worker_id", sa.String(length=36), nullable=True))
        batch.add_column(sa.Column("batch_id", sa.Integer(), nullable=True))
        batch.add_column(sa.Column("sample", sa.Integer(), nullable=True))
        batch.add_column(sa.Column("unsettled_usd", sa.Double(), nullable=False, server_default="0"))
        batch.create_foreign_key(op.f("fk_jobs_batch_id_batches"), "batches", ["batch_id"], ["id"])
        batch.create_index(op.f("ix_jobs_batch_id"), ["batch_id"], unique=False)
        batch.create_index(op.f("ix_jobs_user_created_at"), ["user", "created_at"], unique=False)
    with op.batch_alter_table("evaluations") as batch:
        batch.add_column(sa.Column("retracted_at", _MOMENT, nullable=True))


def downgrade() -> None:
    """Migrate back to the previous revision."""
    with op.batch_alter_table("evaluations") as batch:
        batch.drop_column("retracted_at")
    with op.batch_alter_table("jobs") as batch:
        batch.drop_index(op.f("ix_jobs_user_created_at"))
        batch.drop_index(op.f("ix_jobs_batch_id"))
        batch.drop_constraint(op.f("fk_jobs_batch_id_batches"), type_="foreignkey")
        for name in ("unsettled_usd", "sample", "batch_id", "worker_id", "attempt", "fair_tag", "priority", "user"):
            batch.drop_column(name)
    for table in ("audit_log", "idempotency_keys", "tokens", "workers", "batches"):
        op.drop_table(table)
