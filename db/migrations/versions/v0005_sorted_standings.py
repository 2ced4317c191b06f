"""The costs of jobs on the leaderboard, and an index for each of its orders."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_FIGURES = ("speedup", "speedup_compile", "candidate_ms", "roofline_fraction", "cost_usd", "evaluated_at")

# The cost is not known if the job has no model, or if one of its LLM calls has no known price.
_FILL = """
UPDATE standings SET cost_usd = (
    SELECT jobs.cost_usd FROM jobs
    WHERE jobs.id = standings.job_id AND jobs.model IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM llm_calls WHERE llm_calls.job_id = jobs.id AND llm_calls.cost_usd IS NULL
    )
) WHERE job_id IS NOT NULL
"""


def upgrade() -> None:
    """Migrate to this revision."""
    op.add_column("standings", sa.Column("cost_usd", sa.Double(), nullable=True))
    op.execute(_FILL)
    for name in _FIGURES:
        op.create_index(f"ix_standings_by_{name}", "standings", ["worth", name, "key"], unique=False)


def downgrade() -> None:
    """Migrate back to the previous revision."""
    for name in _FIGURES:
        op.drop_index(f"ix_standings_by_{name}", table_name="standings")
    with op.batch_alter_table("standings") as batch:
        batch.drop_column("cost_usd")
