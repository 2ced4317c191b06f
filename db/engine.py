"""A database's name and its errors as people may see them."""

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError

from db.display import one_line, shown
from db.errors import StoreError
from db.migrations import HEAD
from db.store import Store

BUSY_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 10
_IDLE_TIMEOUT_S = 120  # a host that vanished amid a transaction holds its locks for no longer
_MIGRATIONS = Path(__file__).parent / "migrations"
_REMEDY = "use sqlite:////path/to.db or postgresql+psycopg://…"
_ADVISORY_LOCK = 0x6B65726E  # any constant that other users of the same PostgreSQL database are unlikely to pick


def open_store(url: str) -> Store:
    """The store at `url`, made or upgraded first where needed; several processes may do so at once.

    Raises:
        StoreError: the URL is not usable, the database does not answer, or a newer version wrote it.
    """
    engine = make_engine(url)
    try:
        with failures_named(engine):
            if revision_of(engine) != HEAD:
                upgrade(engine)
    except BaseException:
        engine.dispose()
        raise
    return Store(engine)


def make_engine(url: str, *, create: bool = True) -> Engine:
    """An engine with the settings that the store relies on; connects to nothing yet.

    Raises:
        StoreError: the URL cannot be read, its driver is missing, or its SQLite file is missing and not to be made
            (`create`), or cannot be.
    """
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite_engine(parsed, create=create)
        return _postgresql_engine(parsed)
    except ModuleNotFoundError as error:
        raise StoreError(f"database URL {_masked(url)}: driver {error.name} is not installed; install it") from error
    except ValueError as error:  # make_url's, which may quote any part of what it was given
        raise StoreError(f"database URL {_masked(url)}: its port is not a number; {_REMEDY}") from error
    except (ArgumentError, NoSuchModuleError) as error:
        raise StoreError(f"database URL {_masked(url)}: {error}; {_REMEDY}") from error


@contextlib.contextmanager
def failures_named(engine: Engine) -> Iterator[None]:
    """Turn the database's own errors into one line that names the store.

    Raises:
        StoreError: instead of SQLAlchemy's DatabaseError.
    """
    try:
        yield
    except DatabaseError as error:
        raise StoreError(f"{shown(engine.url)}: {one_line(error)}; check KERNELWRIGHT_DATABASE_URL") from error


def revision_of(engine: Engine) -> str | None:
    """The revision that the database is at; None for an empty one."""
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def upgrade(engine: Engine) -> None:
    """Bring the database to the newest revision, under a lock; does nothing if another process was faster.

    Raises:
        StoreError: a newer version of Kernelwright wrote the database.
    """
    from alembic import command  # slow to import, and needed on first use only
    from alembic.util import CommandError

    with _upgrade_lock(engine), migrating(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL lock_timeout = 0"))  # another's migration takes as long as it takes
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        config = alembic_config(connection)
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise StoreError(
                f"{shown(engine.url)} was written by a newer Kernelwright ({error}); "
                "upgrade Kernelwright or set KERNELWRIGHT_DATABASE_URL to another store"
            ) from error


@contextlib.contextmanager
def migrating(engine: Engine) -> Iterator[Connection]:
    """A transaction for migrations, on a connection that is closed afterwards.

    SQLite changes a table by a copy that takes its place, and dropping the old one would delete what refers to its
    rows. So foreign keys rest meanwhile and are checked before the commit.

    Raises:
        StoreError: rows refer to some that are not there; nothing was changed.
    """
    with engine.execution_options(immediate=True).connect() as connection:
        if engine.dialect.name != "sqlite":
            with connection.begin():
                yield connection
            return
        driver: Any = connection.connection.driver_connection
        driver.execute("PRAGMA foreign_keys=OFF")  # has no effect within a transaction
        try:
            with connection.begin():
                yield connection
                _check_references(connection)
        finally:
            driver.execute("PRAGMA foreign_keys=ON")


def _check_references(connection: Connection) -> None:
    orphans = connection.execute(text("PRAGMA foreign_key_check")).all()
    if orphans:
        row = orphans[0]
        raise StoreError(
            f"{shown(connection.engine.url)}: {len(orphans)} rows refer to rows that are not there, the first is row "
            f"{row[1]} of table {row[0]} (to {row[2]}); nothing was changed; restore a backup or delete those rows"
        )


def differences(engine: Engine) -> list[str]:
    """How the database's schema differs from the tables in the code, one line each; empty when they agree."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from db.tables import Base

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return [str(difference) for difference in compare_metadata(context, Base.metadata)]


def integrity_problems(engine: Engine) -> list[str]:
    """What the database's own check finds wrong with its file; always empty for PostgreSQL, which checks itself."""
    if engine.dialect.name != "sqlite":
        return []
    with engine.connect() as connection:
        found = [str(row[0]) for row in connection.execute(text("PRAGMA integrity_check"))]
        orphans = [f"foreign key: {tuple(row)}" for row in connection.execute(text("PRAGMA foreign_key_check"))]
    return [line for line in found if line != "ok"] + orphans


def alembic_config(connection: Connection) -> Any:
    """Alembic's configuration for this connection."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _masked(url: str) -> str:
    """A URL that could not be parsed, cut where a password may begin."""
    return repr(url.split("@")[-1].split("?")[0])


def _postgresql_engine(url: URL) -> Engine:
    """Waits as long for others as with SQLite, and never forever for a server or a host that went silent."""
    patience = {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_TIMEOUT_S}
    engine = create_engine(url, pool_pre_ping=True, connect_args=patience)
    event.listen(engine, "connect", _on_postgresql_connect)
    return engine


def _on_postgresql_connect(connection: Any, _record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{BUSY_TIMEOUT_S:.0f}s'")
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{_IDLE_TIMEOUT_S}s'")
    connection.commit()


def _sqlite_engine(url: URL, *, create: bool) -> Engine:
    if url.database in (None, "", ":memory:"):
        raise StoreError("an SQLite store needs a file, for several processes share it; use sqlite:////path/to.db")
    path = Path(str(url.database))
    if not create and not path.is_file():
        raise StoreError(f"{path}: no store there yet; `kernelwright db upgrade` makes it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(
            f"{path.parent}: {error.strerror}; set KERNELWRIGHT_DATA_DIR to a folder you can write"
        ) from error
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _on_sqlite_connect)
    event.listen(engine, "begin", _on_sqlite_begin)
    return engine


def _on_sqlite_connect(connection: Any, _record: object) -> None:
    # The driver must not open transactions by itself: it would leave DDL outside them and start writers as readers.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys=ON")


def _on_sqlite_begin(connection: Connection) -> None:
    # A reader that turns writer half-way fails at once with "database is locked"; a writer that says so first waits.
    immediate = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


@contextlib.contextmanager
def _upgrade_lock(engine: Engine) -> Iterator[None]:
    """One upgrader at a time. SQLite needs a file for it: switching to WAL does not wait for the busy timeout."""
    if engine.dialect.name != "sqlite":
        yield
        return
    path = f"{engine.url.database}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.closing(sqlite3.connect(str(engine.url.database), timeout=BUSY_TIMEOUT_S)) as plain:
            plain.execute("PRAGMA journal_mode=WAL")
        yield
    finally:
        os.close(descriptor)
