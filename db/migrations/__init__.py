"""The migrations of the schema. db.engine runs them."""

HEAD = "0013"
"""The newest revision. A test compares it with the migrations; opening a current store does not import Alembic."""
