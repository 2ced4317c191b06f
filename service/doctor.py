"""The examination of this machine: what Kernelwright needs, what is missing, and how to get it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.engine import make_url

from db import engine
from db.backup import find_pg_dump
from db.display import displayed_url
from db.errors import StoreError
from db.jobs import job_queue
from db.jobs.workers import list_workers
from db.migrations import HEAD
from db.store import Store
from db.types import utc_now
from evaluator.platforms import PLATFORM_NAMES, load_platform, proves
from sandbox.doctor import Finding, examine, examine_platform
from service.errors import BadRequest
from service.evaluation_context import open_platform
from service.jobs.liveness import LOST_AFTER_S
from service.settings import Settings

_SET_STORE = "set KERNELWRIGHT_DATA_DIR or KERNELWRIGHT_DATABASE_URL"


def examine_machine(settings: Settings) -> list[Finding]:
    """Examine sandboxes and tools, the store, the workers, the lock folder and the devices.

    It starts no container and changes nothing.

    Raises:
        BadRequest: the platform of the settings is unknown.
    """
    platform = open_platform(settings.platform, settings.device)
    return [
        *examine(settings.data_dir, image=settings.image or platform.image().tag, programs=platform.host_programs()),
        *_store_and_workers(settings),
        _lock_dir(settings.lock_dir),
        *(_device(name) for name in PLATFORM_NAMES),
    ]


def can_work(findings: list[Finding]) -> bool:
    """Whether nothing is missing that is required."""
    return all(finding.status != "missing" for finding in findings)


def _store_and_workers(settings: Settings) -> list[Finding]:
    try:
        url = settings.store_url
        if url.startswith("sqlite") and not _sqlite_file(url).is_file():
            return [_unmade(_sqlite_file(url))]
        with _opened(url) as database, engine.store_errors(database):
            found = [_store(database)]
            if engine.revision_of(database) == HEAD:
                found.append(_workers(Store(database)))
            if database.dialect.name == "postgresql":
                found.append(_pg_dump(database))
            return found
    except (StoreError, BadRequest) as error:
        return [Finding("store", "missing", str(error), _SET_STORE)]


@contextmanager
def _opened(url: str) -> Iterator[Engine]:
    database = engine.make_engine(url, create=False)
    try:
        yield database
    finally:
        database.dispose()


def _sqlite_file(url: str) -> Path:
    return Path(make_url(url).database or "")


def _unmade(file: Path) -> Finding:
    folder = next(path for path in file.absolute().parents if path.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding("store", "missing", f"{folder} cannot be written", _SET_STORE)
    return Finding("store", "ok", f"{file}, which the first command will make")


def _store(database: Engine) -> Finding:
    url, revision = displayed_url(database.url), engine.revision_of(database)
    if revision is not None and revision > HEAD:
        return Finding(
            "store", "missing", f"{url} is at revision {revision}, newer than {HEAD}", "upgrade Kernelwright here"
        )
    later = "" if revision == HEAD else f"; the next command brings it to {HEAD}, and older versions stop working"
    return Finding("store", "ok", f"{url} at revision {revision or 'none'}{later}")


def _workers(store: Store) -> Finding:
    """Examine the workers. They are optional, because commands that work on this machine need none."""
    with store.read() as session:
        workers = list_workers(session, live=True)
        waiting = len(job_queue.list_queued(session))
    now = utc_now()
    ages = {f"{each.platform} {each.slot} on {each.owner.host}": now - each.heartbeat_at for each in workers}
    fresh = [name for name, age in ages.items() if age.total_seconds() <= LOST_AFTER_S]
    waits = f"{waiting} job{'' if waiting == 1 else 's'} waiting"
    if not fresh:
        return Finding("workers", "optional", f"none alive, {waits}", "kernelwright worker, or kernelwright serve")
    return Finding("workers", "ok", f"{', '.join(sorted(fresh))}; {waits}")


def _pg_dump(database: Engine) -> Finding:
    """Examine pg_dump. It is optional, because a backup can be made on the database's own host."""
    with database.connect() as connection:
        info = connection.dialect.server_version_info
    server = int(info[0]) if info else 0
    remedy = f"apt-get install postgresql-client-{server}, or back up on the database's host"
    program = find_pg_dump()
    if program is None:
        return Finding("pg_dump", "optional", "not found; kernelwright db backup needs it", remedy)
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    version = next((word for word in told.split() if word[:1].isdigit()), "0")
    if int(version.partition(".")[0]) < server:
        return Finding("pg_dump", "optional", f"{told} cannot read a server of version {server}", remedy)
    return Finding("pg_dump", "ok", f"{told}, server {server}")


def _lock_dir(folder: Path) -> Finding:
    remedy = "set KERNELWRIGHT_LOCK_DIR to one folder for all who measure on this host"
    if not folder.is_dir():
        return Finding("lock folder", "missing", f"{folder} is no folder", remedy)
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding("lock folder", "missing", f"{folder} cannot be written", remedy)
    return Finding("lock folder", "ok", str(folder))


def _device(name: str) -> Finding:
    platform = load_platform(name)
    try:
        told = proves(platform)
        device = f"{platform.device().name}, {told}" if told.startswith("timed on") else platform.device().name
    except OSError as error:
        return Finding(f"platform {name}", "missing", str(error), "see `kernelwright platforms`")
    readiness = examine_platform(name, platform.image().tag, platform.host_programs(), platform.host_packages())
    if readiness.absent:
        absent = readiness.absent[0]
        return Finding(f"platform {name}", "optional", f"{device}; {absent.name}: {absent.detail}", absent.remedy)
    if readiness.ready:
        return Finding(f"platform {name}", "ok", device)
    lacking = ", ".join(found.name for found in readiness.missing)
    remedy = f"{readiness.image.remedy}, or for the process sandbox {readiness.missing[0].remedy}"
    return Finding(f"platform {name}", "optional", f"{device}; neither its image nor {lacking} is here", remedy)
