"""Opens the store that the settings name, and upgrades, checks and backs it up for the `db` commands."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from db import engine
from db.backup import backup
from db.display import displayed_url
from db.leaderboard.standings import repair_standings, standings_problems
from db.migrations import HEAD
from db.store import Store
from service.settings import Settings

_SHOWN_PROBLEMS = 20


@dataclass(frozen=True)
class StoreCheck:
    """The comparison of a store with this version's tables, with each difference."""

    url: str
    revision: str | None
    newest: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


@dataclass(frozen=True)
class Upgraded:
    """A store with this version's tables. `mended` counts the entries of the leaderboard that were wrong."""

    url: str
    mended: int


def open_store(settings: Settings) -> Store:
    """Open the store. It is created or upgraded before if that is necessary.

    Raises:
        StoreError: it cannot be used.
    """
    return engine.open_store(settings.store_url)


@contextlib.contextmanager
def opened_store(settings: Settings) -> Iterator[Store]:
    """The store, open during the block.

    Raises:
        StoreError: it cannot be used.
    """
    store = open_store(settings)
    try:
        yield store
    finally:
        store.close()


def upgrade_store(settings: Settings) -> Upgraded:
    """Create or upgrade the store and compute its leaderboard again.

    Raises:
        StoreError: it cannot be used.
    """
    store = open_store(settings)
    try:
        with store.write() as session:
            mended = repair_standings(session)
        return Upgraded(displayed_url(store.engine.url), mended)
    finally:
        store.close()


def check_store(settings: Settings) -> StoreCheck:
    """Compare the store with this version's tables and have the database check itself. Nothing is changed.

    Raises:
        StoreError: it cannot be opened.
    """
    database = engine.make_engine(settings.store_url, create=False)
    try:
        with engine.store_errors(database):
            revision = engine.revision_of(database)
            problems = engine.integrity_problems(database)
            if revision != HEAD:
                problems.append(f"revision {revision}, this version needs {HEAD}: run `kernelwright db upgrade`")
            else:
                problems += engine.schema_differences(database) or _standings_problems(database)
    finally:
        database.dispose()
    return StoreCheck(displayed_url(database.url), revision, HEAD, tuple(problems))


def backup_store(settings: Settings, target: Path) -> Path:
    """Write a whole copy of the store to a new file.

    Raises:
        StoreError: the file exists or cannot be written, or PostgreSQL's pg_dump is missing or fails.
    """
    store = open_store(settings)
    try:
        backup(store.engine, target)
    finally:
        store.close()
    return target


def _standings_problems(database: Engine) -> list[str]:
    with Store(database).read() as session:
        problems = standings_problems(session)
    left = len(problems) - _SHOWN_PROBLEMS
    return problems[:_SHOWN_PROBLEMS] + ([f"leaderboard: {left} more entries differ"] if left > 0 else [])
