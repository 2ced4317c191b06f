"""Runs over whole models, and the regions of each."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_JSON = sa.JSON(none_as_null=True)
_MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Migrate to this revision."""
    op.create_table(
        "model_runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("platform", sa.String(length=32), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("options", _JSON, nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("plan", _JSON, nullable=False),
        sa.Column("batch_id", sa.Integer(), nullable=True),
        sa.Column("trials", _JSON, nullable=False),
        sa.Column("kept", _JSON, nullable=True),
        sa.Column("evaluation_id", sa.String(length=64), nullable=True),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("finished_at", _MOMENT, nullable=True),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], name=op.f("fk_model_runs_batch_id_batches")),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_model_runs_task_id_tasks")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_runs")),
    )
    op.create_index(op.f("ix_model_runs_task_id"), "model_runs", ["task_id"], unique=False)
    op.create_index(op.f("ix_model_runs_batch_id"), "model_runs", ["batch_id"], unique=False)
    op.create_table(
        "model_regions",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=120), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("occurrences", sa.Integer(), nullable=False),
        sa.Column("eager_ms", sa.Double(), nullable=False),
        sa.Column("share", sa.Double(), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_model_regions_job_id_jobs")),
        sa.ForeignKeyConstraint(
            ["run_id"], ["model_runs.id"], name=op.f("fk_model_regions_run_id_model_runs"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_model_regions_task_id_tasks")),
        sa.PrimaryKeyConstraint("run_id", "name", name=op.f("pk_model_regions")),
    )
    op.create_index(op.f("ix_model_regions_job_id"), "model_regions", ["job_id"], unique=False)
    op.create_index(op.f("ix_model_regions_task_id"), "model_regions", ["task_id"], unique=False)


def downgrade() -> None:
    """Migrate back to the previous revision."""
    op.drop_table("model_regions")
    op.drop_table("model_runs")
