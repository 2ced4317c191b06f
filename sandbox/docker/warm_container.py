"""A container that is started before its command is run. It is used once and then removed."""

import hashlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from sandbox.base import Command
from sandbox.docker.container import StartedContainer
from sandbox.package import copy_readable

_IDLE_S = 900.0  # an unused container expires after this
_Key = tuple[Command, str]


class WarmContainer:
    """At most one started container, and the command that it was started for, except for the standard input."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: _Key | None = None
        self._coming: Future[StartedContainer] | None = None

    def start(self, command: Command, create: Callable[[Path, float], StartedContainer]) -> None:
        """Start a container in another thread, unless there is one for this command.

        Args:
            command: the command.
            create: starts the container, given a readable copy of the package and the seconds that it may wait.

        Raises:
            ValueError: the command's package cannot be run.
        """
        key = _key(command, command.package)
        with self._lock:
            if self._key == key:
                return
        self.discard()
        package = copy_readable(command.package)
        key = _key(command, package)
        coming: Future[StartedContainer] = Future()

        def work() -> None:
            try:
                coming.set_result(create(package, _IDLE_S))
            except BaseException as error:  # the run starts its own container and meets the same error
                coming.set_exception(error)

        with self._lock:
            self._key, self._coming = key, coming
        # Not a daemon thread: the process waits for it at its end, so that no container is left behind.
        threading.Thread(target=work, name="prepare").start()

    def take(self, command: Command) -> StartedContainer | None:
        """The container that was started for this command, if it is running and recent."""
        with self._lock:
            if self._coming is None or self._key != _key(command, command.package):
                return None
            coming, self._key, self._coming = self._coming, None, None
        if coming.exception() is not None:
            return None
        container = coming.result()
        if container.good_until > time.monotonic() and container.runs():
            return container
        container.remove()
        return None

    def discard(self) -> None:
        """Remove the container, if there is one."""
        with self._lock:
            coming, self._key, self._coming = self._coming, None, None
        if coming is not None and coming.exception() is None:
            coming.result().remove()


def _key(command: Command, package: Path) -> _Key:
    """The command without its input, and a hash of its package's source files."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes() + b"\0")
    return replace(command, stdin=b""), digest.hexdigest()
