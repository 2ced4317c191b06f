"""The load of other programs on the device during an evaluation, and an index for the history of a device.

It is not known of earlier evaluations.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_INDEX = "ix_evaluations_platform_device_created_at"


def upgrade() -> None:
    """Migrate to this revision."""
    op.add_column("evaluations", sa.Column("noise", sa.Double(), nullable=True))
    op.create_index(_INDEX, "evaluations", ["platform", "device", "created_at"])


def downgrade() -> None:
    """Migrate back to the previous revision."""
    op.drop_index(_INDEX, table_name="evaluations")
    with op.batch_alter_table("evaluations") as batch:
        batch.drop_column("noise")
