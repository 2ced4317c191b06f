"""The history of the schema, run by db.engine."""

HEAD = "0006"
"""The newest revision, so that opening a store that is up to date need not import Alembic (tested against it)."""
