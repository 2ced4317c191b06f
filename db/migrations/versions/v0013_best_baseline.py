"""The fastest of the baselines that a candidate was timed against, and the speedup over it.

Earlier evaluations knew eager and torch.compile. The leaderboard's entries are computed after every migration.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_SPEEDUPS = ("speedup_best", "speedup_best_low", "speedup_best_high")
_INDEX = "ix_standings_by_speedup_best"
_COMPILE_IS_FASTER = "speedup_compile IS NOT NULL AND speedup_compile < speedup"


def upgrade() -> None:
    """Migrate to this revision."""
    for table in ("evaluations", "standings"):
        for name in _SPEEDUPS:
            op.add_column(table, sa.Column(name, sa.Double(), nullable=True))
        op.add_column(table, sa.Column("best_baseline", sa.String(length=32), nullable=True))
        for condition, baseline, column in (
            ("speedup IS NOT NULL", "eager", "speedup"),
            (_COMPILE_IS_FASTER, "compile", "speedup_compile"),
        ):
            values = ", ".join(f"{name} = {column}{name.removeprefix('speedup_best')}" for name in _SPEEDUPS)
            statement = f"UPDATE {table} SET {values}, best_baseline = '{baseline}' WHERE {condition}"  # noqa: S608
            op.execute(sa.text(statement))
    op.create_index(_INDEX, "standings", ["worth", "speedup_best", "key"])


def downgrade() -> None:
    """Migrate back to the previous revision."""
    op.drop_index(_INDEX, table_name="standings")
    for table in ("standings", "evaluations"):
        with op.batch_alter_table(table) as batch:
            for name in ("best_baseline", *reversed(_SPEEDUPS)):
                batch.drop_column(name)
