"""The handle through which everything is read and written, in short transactions."""

import contextlib
from collections.abc import Iterator

from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from db.errors import StoreError


class Store:
    """An opened store. The functions of db.tasks, db.jobs, db.results and db.leaderboard take it as first argument.

    Safe to share between threads: every transaction has a connection of its own.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = engine.execution_options(immediate=True)

    @contextlib.contextmanager
    def read(self) -> Iterator[Session]:
        """A consistent view; nothing done in it is kept.

        Raises:
            StoreError: the database does not answer.
        """
        with _failures_named(self.engine), Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextlib.contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that commits at the end and rolls back on an exception. Keep it short: others wait.

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
    except OperationalError as error:
        where = engine.url.render_as_string(hide_password=True)
        raise StoreError(f"{where}: {error.orig or error}; check that it is there, writable and not full") from error
