"""The leaderboard's lines as a table, filled from the evaluations that are there; indexes for lists by user."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.orm import Session

from db.leaderboard.rebuild import standings_anew
from db.types import UtcDateTime

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_PLAIN = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_FILLED_AT_ONCE = 1000


def upgrade() -> None:
    """To this revision."""
    standings = op.create_table(
        "standings",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("board", sa.String(length=64), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        *(sa.Column(name, _PLAIN, nullable=False) for name in ("suite", "task", "source_hash")),
        sa.Column("category", sa.String(length=64), nullable=False),
        sa.Column("dtype", sa.String(length=32), nullable=False),
        *(sa.Column(name, _PLAIN, nullable=False) for name in ("platform", "device", "sandbox", "model")),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("evaluations", "passed", "worth", "place")),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("speedup", sa.Double(), nullable=True),
        sa.Column("speedup_low", sa.Double(), nullable=True),
        sa.Column("speedup_high", sa.Double(), nullable=True),
        sa.Column("speedup_compile", sa.Double(), nullable=True),
        sa.Column("speedup_compile_low", sa.Double(), nullable=True),
        sa.Column("speedup_compile_high", sa.Double(), nullable=True),
        sa.Column("candidate_ms", sa.Double(), nullable=True),
        sa.Column("eager_ms", sa.Double(), nullable=True),
        sa.Column("compile_ms", sa.Double(), nullable=True),
        sa.Column("roofline_fraction", sa.Double(), nullable=True),
        sa.Column("tags", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=True),
        sa.Column("candidate_hash", sa.String(length=64), nullable=True),
        sa.Column("evaluation_id", sa.String(length=64), nullable=True),
        sa.Column("evaluated_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_standings_task_id_tasks")),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_standings")),
    )
    _fill(standings)
    op.create_index(op.f("ix_standings_board"), "standings", ["board"], unique=False)
    order = ["task", "source_hash", "platform", "device", "sandbox", "place", "key"]
    op.create_index("ix_standings_order", "standings", order, unique=False)
    op.create_index(op.f("ix_standings_model"), "standings", ["model"], unique=False, postgresql_using="hash")
    op.create_index(op.f("ix_jobs_user_id"), "jobs", ["user", "id"], unique=False)


def downgrade() -> None:
    """Back from it."""
    op.drop_index(op.f("ix_jobs_user_id"), table_name="jobs")
    op.drop_table("standings")


def _fill(standings: sa.Table) -> None:
    names = standings.columns.keys()
    with Session(op.get_bind()) as session:
        rows = [{name: row[name] for name in names} for row in standings_anew(session)]
    for begin in range(0, len(rows), _FILLED_AT_ONCE):
        op.bulk_insert(standings, rows[begin : begin + _FILLED_AT_ONCE])
