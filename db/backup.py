"""Backups of the store in one file. Others may write to the store meanwhile."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from db.display import displayed_url
from db.errors import StoreError

_WITHOUT_QUEUE = "--exclude-schema=dbos"  # workers enqueue the queued jobs of our tables again
_DEBIAN_FOLDER = "/usr/lib/postgresql"  # has a folder for each version, none of them in PATH
# Connection parameters without secrets that every pg_dump knows; the driver's libpq may be newer than pg_dump.
_CONNECTION_PARAMETERS = (
    *("host", "hostaddr", "port", "user", "dbname", "connect_timeout", "options", "krbsrvname"),
    *("sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl"),
)


def backup(engine: Engine, target: Path) -> None:
    """Write a backup to `target`: a database file for SQLite, an archive for pg_restore for PostgreSQL.

    Raises:
        StoreError: `target` exists or cannot be written, or pg_dump is not installed or fails.
    """
    if target.exists():
        raise StoreError(f"{target} exists; name a new file")
    partial = target.with_name(target.name + ".partial")
    write = _copy_sqlite if engine.dialect.name == "sqlite" else _dump_postgresql
    try:
        # Created first, with a mode that keeps other users from reading it.
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        write(engine, partial)
        partial.replace(target)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError | sqlite3.Error):
            raise StoreError(f"backup to {target}: {error}") from error
        raise


def _copy_sqlite(engine: Engine, partial: Path) -> None:
    with engine.connect() as connection, contextlib.closing(sqlite3.connect(partial)) as copy:
        source: Any = connection.connection.driver_connection
        source.backup(copy)


def _dump_postgresql(engine: Engine, partial: Path) -> None:
    from psycopg.conninfo import make_conninfo  # slow to import, and not needed for SQLite

    program = find_pg_dump()
    if program is None:
        raise StoreError(
            f"{displayed_url(engine.url)} is not SQLite and pg_dump is not installed; install PostgreSQL's client"
        )
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        known, password = driver.info.get_parameters(), driver.info.password
    server = make_conninfo(**{name: value for name, value in known.items() if name in _CONNECTION_PARAMETERS})
    # All users of this machine can read a process's command line, but not its environment.
    environment = {"PATH": os.defpath, "LC_ALL": "C", **({"PGPASSWORD": password} if password else {})}
    done = subprocess.run(
        [program, "--format=custom", "--no-password", _WITHOUT_QUEUE, f"--file={partial}", f"--dbname={server}"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise StoreError(f"{displayed_url(engine.url)}: pg_dump failed: {' '.join(done.stderr.split())[-500:]}")


def find_pg_dump() -> str | None:
    """The newest pg_dump on this machine. It can read older servers but no newer ones."""
    versions = sorted(Path(_DEBIAN_FOLDER).glob("*/bin/pg_dump"), key=_version, reverse=True)
    return str(versions[0]) if versions else shutil.which("pg_dump")


def _version(program: Path) -> int:
    name = program.parent.parent.name
    return int(name) if name.isdigit() else 0
