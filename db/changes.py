"""Tells a process that a database was written to, by any process, without asking the database.

`Store.write` and `Store.announce` tell: by NOTIFY on PostgreSQL, and on SQLite, which all use on one host, by a file
beside the database that the kernel's inotify watches.
"""

import contextlib
import ctypes
import logging
import os
import select
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Engine

from db.store import CHANNEL, announcements_of

_IN_CLOSE_WRITE = 0x8
_INOTIFY_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_RETRY_S = 2.0
_SETTLE_S = 0.02

log = logging.getLogger(__name__)


class _Source(Protocol):
    """What one thread waits for. `fileno` is readable when there is something to `read`."""

    def fileno(self) -> int: ...

    def read(self) -> bool:
        """Take what has arrived, and say whether the database has changed."""
        ...

    def close(self) -> None: ...


class Changes:
    """Sets events when the database has changed. One thread waits for all of them. Safe to share between threads.

    Spurious reports are possible. While the connection that listens is down, reports are missing, so waits need a
    longest time.

    Args:
        engine: the database's engine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._subscribed: set[threading.Event] = set()
        self._lock = threading.Lock()
        self._wake_read, self._wake_write = os.pipe()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="changes", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def subscribe(self) -> Iterator[threading.Event]:
        """During the block, an event that is set by every change. It is set at first, so that nothing is missed."""
        event = threading.Event()
        event.set()
        with self._lock:
            self._subscribed.add(event)
        try:
            yield event
        finally:
            with self._lock:
                self._subscribed.discard(event)

    def report(self) -> None:
        """Set the events of all subscribers."""
        with self._lock:
            for event in self._subscribed:
                event.set()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        os.write(self._wake_write, b"x")
        self._thread.join(10)
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                with contextlib.closing(_open_source(self._engine)) as source:
                    self.report()  # what happened before is not known
                    self._watch(source)
            except Exception as error:  # whatever it was: without reports, waits last longer and nothing else is lost
                log.warning("changes of the store are not reported: %s", error)
                self._closing.wait(_RETRY_S)

    def _watch(self, source: _Source) -> None:
        while not self._closing.is_set():
            ready, _, _ = select.select([source.fileno(), self._wake_read], [], [])
            self._closing.wait(_SETTLE_S)  # a commit is several writes
            if source.fileno() in ready and source.read():
                self.report()


def _open_source(engine: Engine) -> _Source:
    if engine.dialect.name == "sqlite":
        return _AnnouncementsFile(announcements_of(engine))
    return _PostgresqlListener(engine)


class _AnnouncementsFile:
    """The file that is closed after each commit on an SQLite database, watched by inotify."""

    def __init__(self, path: Path) -> None:
        self._name = os.fsencode(path.name)
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0 or libc.inotify_add_watch(self._fd, os.fsencode(path.parent), _IN_CLOSE_WRITE) < 0:
            number = ctypes.get_errno()
            if self._fd >= 0:
                os.close(self._fd)
            raise OSError(number, os.strerror(number), str(path.parent))

    def fileno(self) -> int:
        return self._fd

    def read(self) -> bool:
        """Take the kernel's events: those of the folder, each with the name of a file."""
        data, place, changed = os.read(self._fd, 65536), 0, False
        while place < len(data):
            _, _, _, length = _INOTIFY_EVENT.unpack_from(data, place)
            place += _INOTIFY_EVENT.size
            changed |= data[place : place + length].rstrip(b"\0") == self._name
            place += length
        return changed

    def close(self) -> None:
        os.close(self._fd)


class _PostgresqlListener:
    """Notifications on a connection of its own."""

    def __init__(self, engine: Engine) -> None:
        pooled = engine.raw_connection()
        connection: Any = pooled.driver_connection  # psycopg's
        pooled.detach()  # closed by this class alone
        self._connection = connection
        self._connection.rollback()
        self._connection.autocommit = True
        self._connection.execute(f"LISTEN {CHANNEL}")

    def fileno(self) -> int:
        return int(self._connection.fileno())

    def read(self) -> bool:
        """Take the notifications.

        Raises:
            OSError: the connection is lost.
        """
        from psycopg import OperationalError

        connection, changed = self._connection.pgconn, False
        try:
            connection.consume_input()
        except OperationalError as error:
            raise OSError(str(error).strip()) from error
        while connection.notifies() is not None:
            changed = True
        return changed

    def close(self) -> None:
        self._connection.close()
