"""The handle through which everything is read and written, in short transactions."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Engine, text
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError
from sqlalchemy.orm import Session

from db.display import one_line, shown
from db.errors import StoreError

# PostgreSQL shows each statement another state of things, unless it is asked not to.
_READER: Mapping[str, Mapping[str, Any]] = {
    "postgresql": {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
}


class Store:
    """An opened store. Functions of the rooms of `db` take it as first argument.

    Safe to share between threads: every transaction has a connection of its own.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = engine.execution_options(immediate=True)
        self._reader = engine.execution_options(**_READER.get(engine.dialect.name, {}))

    @contextlib.contextmanager
    def read(self) -> Iterator[Session]:
        """A consistent view; nothing done in it is kept.

        Raises:
            StoreError: the database does not answer.
        """
        with _failures_named(self.engine), Session(self._reader, expire_on_commit=False) as session:
            yield session

    @contextlib.contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that commits at the end and rolls back on an exception. Keep it short: others wait.

        On SQLite one is written at a time; on PostgreSQL several are, so whoever decides by what he reads locks it
        first (db.locks).

        Raises:
            StoreError: the database does not answer, its disk is full, or someone else writes for too long.
        """
        with _failures_named(self.engine), Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    def ping(self) -> None:
        """Ask the database for nothing in particular.

        Raises:
            StoreError: it does not answer.
        """
        with self.read() as session:
            session.execute(text("SELECT 1"))

    def close(self) -> None:
        """Give back all connections."""
        self.engine.dispose()


@contextlib.contextmanager
def _failures_named(engine: Engine) -> Iterator[None]:
    try:
        yield
    except (OperationalError, InternalError, InterfaceError) as error:  # a server that became a standby is the second
        raise StoreError(
            f"{shown(engine.url)}: {one_line(error)}; check that it is there, writable and not full"
        ) from error
