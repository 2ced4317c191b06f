"""The number of evaluations that were pooled for an entry of the leaderboard.

Entries of candidates with several evaluations follow when the store is opened: db.engine computes all entries after a
migration.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Migrate to this revision."""
    op.add_column("standings", sa.Column("pooled", sa.Integer(), nullable=False, server_default="0"))
    op.execute("UPDATE standings SET pooled = 1 WHERE evaluation_id IS NOT NULL")


def downgrade() -> None:
    """Migrate back to the previous revision."""
    with op.batch_alter_table("standings") as batch:
        batch.drop_column("pooled")
