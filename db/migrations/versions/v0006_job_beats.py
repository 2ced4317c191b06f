"""The last heartbeat of a job that a command runs."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Migrate to this revision."""
    op.add_column("jobs", sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Migrate back to the previous revision."""
    with op.batch_alter_table("jobs") as batch:
        batch.drop_column("heartbeat_at")
