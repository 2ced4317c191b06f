"""Entries whose candidate passed in trials alone stand below those that were proven, in a group of their own.

Which entries these are follows when the store is opened: db.engine computes all entries after a migration.
"""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Migrate to this revision."""
    op.execute("UPDATE standings SET worth = 3 WHERE worth = 2")


def downgrade() -> None:
    """Migrate back to the previous revision."""
    op.execute("UPDATE standings SET worth = worth - 1 WHERE worth >= 2")
