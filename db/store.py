"""The store: all reads and writes are short transactions on it."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, text
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError
from sqlalchemy.orm import Session

from db.display import displayed_url, error_text
from db.errors import StoreError

CHANNEL = "kernelwright_changes"
"""What PostgreSQL's listeners listen to (db.changes)."""

# By default each statement of a PostgreSQL transaction sees another snapshot.
_READER: Mapping[str, Mapping[str, Any]] = {
    "postgresql": {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
}


class Store:
    """An opened store. Other functions of `db` take a session of it as their first argument.

    Safe to share between threads: every transaction has its own connection.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = engine.execution_options(immediate=True)
        self._reader = engine.execution_options(**_READER.get(engine.dialect.name, {}))

    @contextlib.contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that reads one snapshot. Changes are not kept.

        Raises:
            StoreError: The database does not answer.
        """
        with _store_errors(self.engine), Session(self._reader, expire_on_commit=False) as session:
            yield session

    @contextlib.contextmanager
    def write(self, *, announce: bool = True) -> Iterator[Session]:
        """A transaction that commits at the end of the block, or rolls back on an exception. Keep it short.

        SQLite runs one such transaction at a time, PostgreSQL several. Code that decides by what it has read must lock
        these rows first (db.locks).

        Args:
            announce: whether those who wait for changes are told (`db.changes`). Heartbeats change nothing that they
                wait for.

        Raises:
            StoreError: The database does not answer, its disk is full, or another writer holds a lock for too long.
        """
        with _store_errors(self.engine), Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session
            if announce and self.engine.dialect.name == "postgresql":
                session.execute(text(f"NOTIFY {CHANNEL}"))
        if announce and self.engine.dialect.name == "sqlite":
            _touch(announcements_of(self.engine))

    def announce(self) -> None:
        """Tell those who wait for changes (`db.changes`) of a change outside of the store: in the queue's tables.

        Raises:
            StoreError: The database does not answer.
        """
        if self.engine.dialect.name == "sqlite":
            _touch(announcements_of(self.engine))
            return
        with self.write():
            pass

    def ping(self) -> None:
        """Check that the database answers.

        Raises:
            StoreError: It does not answer.
        """
        with self.read() as session:
            session.execute(text("SELECT 1"))

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def announcements_of(engine: Engine) -> Path:
    """The file beside an SQLite database that is opened for writing, and closed, after each announced commit."""
    return Path(f"{engine.url.database}.changed")


def _touch(path: Path) -> None:
    with contextlib.suppress(OSError):  # the disk may be full; those who wait look from time to time anyway
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


@contextlib.contextmanager
def _store_errors(engine: Engine) -> Iterator[None]:
    try:
        yield
    except (OperationalError, InternalError, InterfaceError) as error:  # InternalError: the server has become a standby
        raise StoreError(
            f"{displayed_url(engine.url)}: {error_text(error)}; check that it is there, writable and not full"
        ) from error
