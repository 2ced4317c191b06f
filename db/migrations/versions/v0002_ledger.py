"""The ledger: the key of an LLM call in its job, the reasoning, and the tool calls."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Migrate to this revision."""
    with op.batch_alter_table("llm_calls") as batch:
        batch.add_column(sa.Column("key", sa.String(length=128), nullable=True))
        batch.add_column(sa.Column("reasoning", sa.Text(), nullable=False, server_default=""))
        batch.add_column(sa.Column("reasoning_tokens", sa.Integer(), nullable=True))
        batch.add_column(sa.Column("tool_calls", sa.JSON(none_as_null=True), nullable=False, server_default="[]"))


def downgrade() -> None:
    """Migrate back to the previous revision."""
    with op.batch_alter_table("llm_calls") as batch:
        for name in ("tool_calls", "reasoning_tokens", "reasoning", "key"):
            batch.drop_column(name)
