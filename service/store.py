"""Opening the store that the settings name, and what the `db` commands do with it."""

from dataclasses import dataclass
from pathlib import Path

from db import engine
from db.migrations import HEAD
from db.store import Store
from service.settings import Settings


@dataclass(frozen=True)
class StoreCheck:
    """Whether a store is as this version needs it, and each thing that is not."""

    url: str
    revision: str | None
    newest: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Nothing is wrong."""
        return not self.problems


def open_store(settings: Settings) -> Store:
    """The store, made or upgraded first where needed.

    Raises:
        StoreError: it cannot be used.
    """
    return engine.open_store(settings.store_url)


def check_store(settings: Settings) -> StoreCheck:
    """Compare the store with this version's tables and have the database check itself; changes nothing.

    Raises:
        StoreError: it cannot be opened.
    """
    database = engine.make_engine(settings.store_url, create=False)
    with engine.failures_named(database):
        revision = engine.revision_of(database)
        problems = engine.integrity_problems(database)
        if revision != HEAD:
            problems.append(f"revision {revision}, this version needs {HEAD}: run `kernelwright db upgrade`")
        else:
            problems += engine.differences(database)
    database.dispose()
    return StoreCheck(engine.shown(database.url), revision, HEAD, tuple(problems))


def backup_store(settings: Settings, target: Path) -> Path:
    """Write a whole copy of the store to a new file.

    Raises:
        StoreError: it is not SQLite, or the file exists or cannot be written.
    """
    store = open_store(settings)
    try:
        engine.backup(store.engine, target)
    finally:
        store.close()
    return target
