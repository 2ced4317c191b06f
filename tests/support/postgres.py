"""A PostgreSQL server of the tests' own, or the one that KERNELWRIGHT_TEST_POSTGRES_URL names: a database a test.

The private one listens on a socket in a temporary folder alone, writes nothing through to the disk, and ends with the
process that started it, whatever that dies of.
"""

import contextlib
import ctypes
import getpass
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy.engine import URL, make_url

SUPERUSER = "postgres"
WITH_PASSWORD = "guarded"
"""A role that the private server asks for a password; all others of the socket it believes."""
STARTS_WITHIN_S = 30.0
_QUICK = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200", "shared_buffers=64MB")
_PR_SET_PDEATHSIG = 1


class NoPostgres(RuntimeError):
    """PostgreSQL cannot be used. Its text says why and what to do."""


class Postgres:
    """A server on which databases can be made. `url` names its own first database."""

    def __init__(self, url: URL) -> None:
        self.url = url
        self._numbers = itertools.count(1)
        self._mark = uuid.uuid4().hex[:8]

    def url_of(self, database: str) -> str:
        """The URL of one of its databases."""
        return self.url.set(database=database).render_as_string(hide_password=False)

    def create(self, template: str = "template0") -> str:
        """A new database's name; `template` may be another one that nobody is connected to."""
        name = f"kernelwright_test_{self._mark}_{next(self._numbers)}"
        self.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template)))
        return name

    def drop(self, database: str) -> None:
        """Remove a database, whoever is connected to it."""
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))

    @contextlib.contextmanager
    def database(self, template: str = "template0") -> Iterator[str]:
        """A database of its own for as long as this lasts; its URL."""
        name = self.create(template)
        try:
            yield self.url_of(name)
        finally:
            self.drop(name)

    def execute(self, statement: sql.Composable) -> None:
        """Run a statement outside of any transaction."""
        parts = self.url.translate_connect_args(username="user", database="dbname")
        with psycopg.connect(**parts, **dict(self.url.query), autocommit=True) as connection:
            connection.execute(statement)


def find_programs() -> Path | None:
    """The folder of initdb and postgres: of the newest version that Debian installed, or from the search path."""
    installed = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if installed:
        return max(installed, key=lambda folder: float(folder.parent.name))
    found = shutil.which("initdb")
    return None if found is None else Path(found).resolve().parent


@contextlib.contextmanager
def started(options: tuple[str, ...] = _QUICK) -> Iterator[Postgres]:
    """A private server with these settings.

    Raises:
        NoPostgres: its programs are missing, or it does not start.
    """
    programs = find_programs()
    if programs is None:
        raise NoPostgres("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    user = SUPERUSER if os.geteuid() == 0 else getpass.getuser()  # it refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="kernelwright-pg-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, user)
        _initialize(programs, folder, user)
        with _running(programs, folder, user, options):
            server = Postgres(
                URL.create("postgresql+psycopg", SUPERUSER, database="postgres", query={"host": str(folder)})
            )
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def opened(url: str | None) -> Iterator[Postgres]:
    """The server that `url` names, on which its user may make databases, else a private one.

    Raises:
        NoPostgres: there is none to use.
    """
    if url is None:
        with started() as server:
            yield server
    else:
        yield Postgres(make_url(url))


def _initialize(programs: Path, folder: Path, user: str) -> None:
    command = [programs / "initdb", "--pgdata", folder / "data", "--username", SUPERUSER, "--auth", "trust"]
    # In English order "a" comes before "B": what must sort by code points has to say so.
    command += ["--no-sync", "--encoding", "UTF8", "--locale", "C", "--locale-provider", "icu", "--icu-locale", "en"]
    done = subprocess.run(
        command, user=user if os.geteuid() == 0 else None, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise NoPostgres(f"initdb failed: {done.stderr.strip()}")
    access = folder / "data/pg_hba.conf"
    access.write_text(f"local all {WITH_PASSWORD} scram-sha-256\n" + access.read_text())


@contextlib.contextmanager
def _running(programs: Path, folder: Path, user: str, options: tuple[str, ...]) -> Iterator[None]:
    settings = (*options, "listen_addresses=", f"unix_socket_directories={folder}")
    log = folder / "log"
    with log.open("w") as stream:
        server = subprocess.Popen(
            [programs / "postgres", "-D", folder / "data", *(f"--{setting}" for setting in settings)],
            user=user if os.geteuid() == 0 else None,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
    try:
        _wait(server, folder, log)
        yield
    finally:
        server.send_signal(signal.SIGINT)  # "fast": ends sessions instead of waiting for them
        try:
            server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            server.send_signal(signal.SIGQUIT)
            server.wait()


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _wait(server: "subprocess.Popen[bytes]", folder: Path, log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            psycopg.connect(host=str(folder), user=SUPERUSER, dbname="postgres").close()
            return
        except psycopg.OperationalError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise NoPostgres(f"PostgreSQL does not start ({error}): {log.read_text()[-1000:]}") from None
            time.sleep(0.05)
