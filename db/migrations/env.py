"""Alembic's entry point. db.engine passes the connection; there is no alembic.ini."""

from alembic import context

from db.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
