"""Runs over whole models become jobs, and keep their captures. A run has the id of its job."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_JSON = sa.JSON(none_as_null=True)
_MOMENT = sa.DateTime(timezone=True)
_RUNNING = "running"

_jobs = sa.table(
    "jobs",
    sa.column("id", sa.Integer),
    sa.column("task_id", sa.Integer),
    sa.column("kind", sa.String),
    sa.column("platform", sa.String),
    sa.column("sandbox", sa.String),
    sa.column("model", sa.Text),
    sa.column("strategy", sa.String),
    sa.column("options", _JSON),
    sa.column("status", sa.String),
    sa.column("stop_reason", sa.Text),
    sa.column("error", sa.Text),
    sa.column("cancel_requested", sa.Boolean),
    sa.column("rounds_done", sa.Integer),
    sa.column("cost_usd", sa.Double),
    sa.column("tokens", sa.Integer),
    sa.column("best_evaluation_id", sa.String),
    sa.column("created_at", _MOMENT),
    sa.column("started_at", _MOMENT),
    sa.column("finished_at", _MOMENT),
    sa.column("user", sa.String),
)
_regions = sa.table(
    "model_regions",
    *(sa.column(name) for name in ("run_id", "name", "position", "kind", "occurrences", "eager_ms", "share")),
    *(sa.column(name) for name in ("task_id", "job_id")),
)


def upgrade() -> None:
    """Migrate to this revision."""
    connection = op.get_bind()
    old = sa.Table("model_runs", sa.MetaData(), autoload_with=connection)
    runs = [dict(row) for row in connection.execute(sa.select(old).order_by(old.c.id)).mappings()]
    regions = [dict(row) for row in connection.execute(sa.select(_regions)).mappings()]
    _drop()
    _create(
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("capture", sa.LargeBinary(), nullable=True),
        sa.Column("files", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["id"], ["jobs.id"], name=op.f("fk_model_runs_id_jobs")),
    )
    new = sa.Table("model_runs", sa.MetaData(), autoload_with=connection)
    for run in runs:
        job_id = connection.execute(sa.insert(_jobs).values(_job(run)).returning(_jobs.c.id)).scalar_one()
        kept = ("stage", "plan", "batch_id", "trials", "kept", "evaluation_id")
        connection.execute(sa.insert(new).values(id=job_id, **{name: _value(run[name]) for name in kept}))
        for region in regions:
            if region["run_id"] == run["id"]:
                connection.execute(sa.insert(_regions).values({**region, "run_id": job_id}))


def downgrade() -> None:
    """Migrate back to the previous revision. Captures and delivered files are lost."""
    connection = op.get_bind()
    new = sa.Table("model_runs", sa.MetaData(), autoload_with=connection)
    query = sa.select(new, _jobs).join(_jobs, _jobs.c.id == new.c.id)
    runs = [dict(row) for row in connection.execute(query).mappings()]
    regions = [dict(row) for row in connection.execute(sa.select(_regions)).mappings()]
    _drop()
    _create(
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("platform", sa.String(length=32), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("options", _JSON, nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("finished_at", _MOMENT, nullable=True),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_model_runs_task_id_tasks")),
    )
    op.create_index(op.f("ix_model_runs_task_id"), "model_runs", ["task_id"], unique=False)
    old = sa.Table("model_runs", sa.MetaData(), autoload_with=connection)
    for run in runs:
        connection.execute(sa.insert(old).values({column.name: _value(run[column.name]) for column in old.columns}))
    if regions:
        connection.execute(sa.insert(_regions), regions)


def _drop() -> None:
    """Drop both tables with their indexes."""
    op.drop_table("model_regions")
    op.drop_table("model_runs")


def _create(*columns: sa.schema.SchemaItem) -> None:
    """Create both tables, the runs with these columns beside those that do not change."""
    op.create_table(
        "model_runs",
        *columns,
        sa.Column("plan", _JSON, nullable=False),
        sa.Column("batch_id", sa.Integer(), nullable=True),
        sa.Column("trials", _JSON, nullable=False),
        sa.Column("kept", _JSON, nullable=True),
        sa.Column("evaluation_id", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], name=op.f("fk_model_runs_batch_id_batches")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_runs")),
    )
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


def _job(run: dict[str, object]) -> dict[str, object]:
    """The job of a run that an earlier version stored. No process of this version runs it."""
    options = dict(run["options"] or {})  # type: ignore[call-overload]
    status = "interrupted" if run["status"] == _RUNNING else run["status"]
    return {
        "task_id": run["task_id"],
        "kind": "model",
        "platform": run["platform"],
        "sandbox": "",
        "model": run["model"],
        "strategy": options.pop("strategy", None),
        "options": options,
        "status": status,
        "stop_reason": {"done": "done", "interrupted": "interrupted"}.get(str(status), "error"),
        "error": run["error"] if status == "failed" else None,
        "cancel_requested": False,
        "rounds_done": 0,
        "cost_usd": 0.0,
        "tokens": 0,
        "best_evaluation_id": None,
        "created_at": _value(run["created_at"]),
        "started_at": _value(run["created_at"]),
        "finished_at": _value(run["finished_at"] or run["created_at"]),
        "user": run["user"],
    }


def _value(value: object) -> object:
    """A value as it was read. SQL's NULL stays NULL and does not become JSON's."""
    return sa.null() if value is None else value
