"""Taking turns on a device: two jobs of one host never disturb each other's measurements."""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sandbox.base import Command, Completed, Promise, Sandbox

_LOOK_AGAIN_S = 0.1


class StillWaiting(Exception):
    """The wait for a turn was called off."""


@contextlib.contextmanager
def turn(
    lock: Path, *, on_wait: Callable[[], None], cancel: threading.Event | None = None, shared: bool = False
) -> Iterator[None]:
    """Hold the device that `lock` stands for. The kernel frees it when its holder dies, however it dies.

    `on_wait` is called once if someone else holds it. Any number may hold it `shared`, while nobody holds it alone:
    those who build, where building would disturb who measures. Nobody is passed by for ever: who waits stands in a gate
    through which those of the other kind must come, too.

    Raises:
        StillWaiting: `cancel` was set before the turn came.
    """
    told = False

    def wait() -> None:
        nonlocal told
        if not told:
            on_wait()
            told = True
        if cancel is None:
            time.sleep(_LOOK_AGAIN_S)
        elif cancel.wait(_LOOK_AGAIN_S):
            raise StillWaiting

    with contextlib.ExitStack() as held:
        with contextlib.ExitStack() as passing:
            for path, stack in ((lock.with_suffix(".gate"), passing), (lock, held)):
                while (descriptor := _try_lock(path, shared=shared)) is None:
                    wait()
                stack.callback(os.close, descriptor)
        yield


@contextlib.contextmanager
def one_of(locks: Sequence[Path], *, cancel: threading.Event) -> Iterator[None]:
    """Hold any one of several locks.

    Raises:
        StillWaiting: `cancel` was set before one was free.
    """
    while True:
        for lock in locks:
            if (descriptor := _try_lock(lock, shared=False)) is not None:
                try:
                    yield
                finally:
                    os.close(descriptor)
                return
        if cancel.wait(_LOOK_AGAIN_S):
            raise StillWaiting


def device_lock(folder: Path, platform: str, slot: int = 0) -> Path:
    """The lock of a device of this host, counted from 0; `folder` is one for all users of the host."""
    return folder / f"kernelwright-{platform}-{slot}.lock"


class TurnSandbox:
    """A sandbox whose commands wait for their turn on a device, and end when `stop` is set."""

    def __init__(self, inner: Sandbox, lock: Path, *, on_wait: Callable[[], None], stop: threading.Event) -> None:
        self._inner = inner
        self._lock = lock
        self._on_wait = on_wait
        self._stop = stop
        self.name: str = inner.name
        self.promises: frozenset[Promise] = inner.promises

    def run(
        self,
        command: Command,
        *,
        on_stderr: Callable[[bytes], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Completed:
        """As `Sandbox.run`, once it is our turn; cancelled while it waits, the command never ran."""
        cancel = cancel or self._stop
        try:
            with turn(self._lock, on_wait=self._on_wait, cancel=cancel):
                return self._inner.run(command, on_stderr=on_stderr, cancel=cancel)
        except StillWaiting:
            return Completed(exit_code=None, stdout=b"", stderr=b"", wall_s=0.0, cancelled=True)

    def prepare(self, command: Command) -> None:
        """As `Sandbox.prepare`; it takes no turn, for it measures nothing."""
        self._inner.prepare(command)

    def describe(self) -> dict[str, str]:
        """Provenance of the sandbox behind it."""
        return self._inner.describe()


def _try_lock(lock: Path, *, shared: bool) -> int | None:
    """The descriptor that holds the lock, or None if someone else does.

    The file is made by whichever user comes first, readable for all: flock needs no right to write.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(lock, flags)
    except FileNotFoundError:
        try:
            descriptor = os.open(lock, flags | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return None  # made this instant by another; look again
        os.fchmod(descriptor, 0o644)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), lock.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):  # held, or a cleaner of old files removed it under us
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
