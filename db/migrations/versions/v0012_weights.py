"""The weights of models that users have sent."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Migrate to this revision."""
    op.create_table(
        "weights",
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("tensors", sa.LargeBinary(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("used_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("user", "digest", name=op.f("pk_weights")),
    )
    op.create_table(
        "weights_parts",
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user", "digest"],
            ["weights.user", "weights.digest"],
            name=op.f("fk_weights_parts_user_weights"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("user", "digest", "position", name=op.f("pk_weights_parts")),
    )


def downgrade() -> None:
    """Migrate back to the previous revision. Weights are lost."""
    op.drop_table("weights_parts")
    op.drop_table("weights")
