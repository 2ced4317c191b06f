"""Opening a database: its engine, its migrations, and checks of its schema."""

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
from sqlalchemy.orm import Session

from db.display import displayed_url, error_text
from db.errors import StoreError
from db.migrations import HEAD
from db.store import Store

BUSY_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 10
_IDLE_TIMEOUT_S = 120  # releases the locks of a host that vanished during a transaction
_QUIET: dict[str, Any] = {"hide_parameters": True}  # errors are logged, and parameters may be secrets
_MIGRATIONS = Path(__file__).parent / "migrations"
_REMEDY = "use sqlite:////path/to.db or postgresql+psycopg://…"
_ADVISORY_LOCK = 0x6B65726E  # a constant that other programs on the same database are unlikely to use


def open_store(url: str) -> Store:
    """Open the store at `url`. Create or upgrade its tables if necessary; several processes may do so at once.

    Raises:
        StoreError: The URL is not usable, the database does not answer, or a newer version has written it.
    """
    engine = make_engine(url)
    try:
        with store_errors(engine):
            if revision_of(engine) != HEAD:
                upgrade(engine)
    except BaseException:
        engine.dispose()
        raise
    return Store(engine)


def make_engine(url: str, *, create: bool = True) -> Engine:
    """Make an engine with the settings that the store relies on. It does not connect yet.

    Args:
        url: SQLAlchemy's URL of the database.
        create: Allow an SQLite file that does not exist yet, and make its folder.

    Raises:
        StoreError: The URL cannot be parsed, its driver is not installed, or the SQLite file or its folder is missing.
    """
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite_engine(parsed, create=create)
        return _postgresql_engine(parsed)
    except ModuleNotFoundError as error:
        raise StoreError(f"database URL {_masked(url)}: driver {error.name} is not installed; install it") from error
    except ValueError as error:  # its message may quote the password
        raise StoreError(f"database URL {_masked(url)}: its port is not a number; {_REMEDY}") from error
    except (ArgumentError, NoSuchModuleError) as error:
        raise StoreError(f"database URL {_masked(url)}: {error}; {_REMEDY}") from error


@contextlib.contextmanager
def store_errors(engine: Engine) -> Iterator[None]:
    """Raise SQLAlchemy's errors in the block as errors that name the store.

    Raises:
        StoreError: Instead of a DatabaseError.
    """
    try:
        yield
    except DatabaseError as error:
        raise StoreError(
            f"{displayed_url(engine.url)}: {error_text(error)}; check KERNELWRIGHT_DATABASE_URL"
        ) from error


def revision_of(engine: Engine) -> str | None:
    """The revision of the database's schema, or None if the database is empty."""
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def upgrade(engine: Engine) -> None:
    """Migrate the database to the newest revision and compute the leaderboard by this version's rules, under a lock.

    Raises:
        StoreError: A newer version of Kernelwright has written the database.
    """
    from alembic import command  # slow to import, and needed on first use only
    from alembic.util import CommandError

    from db.leaderboard.standings import repair_standings

    with _upgrade_lock(engine), migration_transaction(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL lock_timeout = 0"))  # wait for another process's migration
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        config = alembic_config(connection)
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise StoreError(
                f"{displayed_url(engine.url)} was written by a newer Kernelwright ({error}); "
                "upgrade Kernelwright or set KERNELWRIGHT_DATABASE_URL to another store"
            ) from error
        with Session(connection, join_transaction_mode="rollback_only") as session:
            repair_standings(session)
            session.commit()  # of the session; the transaction commits at the end of the block


@contextlib.contextmanager
def migration_transaction(engine: Engine) -> Iterator[Connection]:
    """A transaction for migrations, on a connection of its own.

    To alter a table, Alembic replaces it by a copy on SQLite. Dropping the old table would delete the rows that refer
    to it. Foreign keys are therefore not enforced during the transaction, and are checked before it commits.

    Raises:
        StoreError: Rows refer to rows that do not exist. Nothing was changed.
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
        row, url = orphans[0], displayed_url(connection.engine.url)
        raise StoreError(
            f"{url}: {len(orphans)} rows refer to rows that are not there, the first is row "
            f"{row[1]} of table {row[0]} (to {row[2]}); nothing was changed; restore a backup or delete those rows"
        )


def schema_differences(engine: Engine) -> list[str]:
    """The differences between the database's schema and db.tables, one line each."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from db.tables import Base

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return [str(difference) for difference in compare_metadata(context, Base.metadata)]


def integrity_problems(engine: Engine) -> list[str]:
    """The problems that SQLite finds in its file, one line each. Always empty for PostgreSQL, which checks itself."""
    if engine.dialect.name != "sqlite":
        return []
    with engine.connect() as connection:
        found = [str(row[0]) for row in connection.execute(text("PRAGMA integrity_check"))]
        orphans = [f"foreign key: {tuple(row)}" for row in connection.execute(text("PRAGMA foreign_key_check"))]
    return [line for line in found if line != "ok"] + orphans


def alembic_config(connection: Connection) -> Any:
    """Alembic's configuration for a connection."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _masked(url: str) -> str:
    """The part of an unparsable URL that cannot hold a password."""
    return repr(url.split("@")[-1].split("?")[0])


def _postgresql_engine(url: URL) -> Engine:
    """An engine that waits for locks as long as SQLite does, and has timeouts for a server that does not answer."""
    timeouts = {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_TIMEOUT_S}
    engine = create_engine(url, pool_pre_ping=True, connect_args=timeouts, **_QUIET)
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
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S}, **_QUIET)
    event.listen(engine, "connect", _on_sqlite_connect)
    event.listen(engine, "begin", _on_sqlite_begin)
    return engine


def _on_sqlite_connect(connection: Any, _record: object) -> None:
    # The driver must not begin transactions itself: it would leave DDL outside of them, and begin writers as readers.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys=ON")


def _on_sqlite_begin(connection: Connection) -> None:
    # A transaction that reads first and writes later fails at once with "database is locked"; an immediate one waits.
    immediate = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


@contextlib.contextmanager
def _upgrade_lock(engine: Engine) -> Iterator[None]:
    """Exclude other upgrades of an SQLite file by a lock file: switching to WAL ignores the busy timeout."""
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
