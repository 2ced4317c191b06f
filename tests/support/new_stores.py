"""New stores on SQLite: copies of one that has the newest tables and nothing in them, because migrations are slow."""

import tempfile
from functools import cache
from pathlib import Path

from db.engine import open_store
from db.store import Store


def open_new_store(path: Path) -> Store:
    """The store in a new file at `path`."""
    path.write_bytes(_template())
    return open_store(f"sqlite:///{path}")


@cache
def _template() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        open_store(f"sqlite:///{path}").close()
        return path.read_bytes()
