"""One container kept ready for the command that will come next. It is used once and thrown away."""

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

_IDLE_S = 900.0  # a container that nobody has taken by then is not used any more
_Key = tuple[Command, str]


class WarmContainer:
    """At most one started container, with the command that it was started for (all but the standard input)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: _Key | None = None
        self._coming: Future[StartedContainer] | None = None

    def start(self, command: Command, start: Callable[[Path, float], StartedContainer]) -> None:
        """Start one on another thread, unless one for this command is there.

        `start` gets a readable copy of the package as it is now, and the time in seconds that the container may wait.

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
                coming.set_result(start(package, _IDLE_S))
            except BaseException as error:  # whoever takes it starts one of its own and meets the same error
                coming.set_exception(error)

        with self._lock:
            self._key, self._coming = key, coming
        # Not a daemon: a process that ends waits for it, so that nothing is left behind.
        threading.Thread(target=work, name="prepare").start()

    def take(self, command: Command) -> StartedContainer | None:
        """The container that was started for this command, if it is there, alive and recent."""
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
        """Remove what is there."""
        with self._lock:
            coming, self._key, self._coming = self._coming, None, None
        if coming is not None and coming.exception() is None:
            coming.result().remove()


def _key(command: Command, package: Path) -> _Key:
    """The command without its input, and what a folder holds of its package."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes() + b"\0")
    return replace(command, stdin=b""), digest.hexdigest()
