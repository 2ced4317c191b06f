"""Device locks: no two measurements of one host use the same resource at the same time.

A platform names the resources that its device needs (`Platform.exclusive_resources`): the processor, a GPU. Two
platforms that name the same resource exclude each other.
"""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from sandbox.base import Command, Completed, Promise, Sandbox

_RETRY_S = 0.1


class WaitCancelled(Exception):
    """The wait for a lock was cancelled."""


@contextlib.contextmanager
def hold_device(
    locks: Sequence[Path],
    *,
    on_wait: Callable[[], None],
    on_end_of_wait: Callable[[], None] = lambda: None,
    cancel: threading.Event | None = None,
    shared: bool = False,
) -> Iterator[None]:
    """Hold the locks of a device's resources during the block. The kernel releases them when their holder dies.

    Measurements hold them exclusively. Builds share them where a build would disturb a measurement. Each waiter also
    holds a second lock (`.gate`) that every later waiter needs first, so a stream of shared holders cannot starve it.
    All processes take locks in the order of their names, so none waits for one that waits for it.

    Args:
        locks: the locks' files, of `lock_paths`.
        on_wait: called once if one of them is not free.
        on_end_of_wait: called after that, when all of them are held.
        cancel: ends the wait.
        shared: hold them together with other shared holders.

    Raises:
        WaitCancelled: `cancel` was set before all of them were free.
    """
    reported = False

    def wait() -> None:
        nonlocal reported
        if not reported:
            on_wait()
            reported = True
        if cancel is None:
            time.sleep(_RETRY_S)
        elif cancel.wait(_RETRY_S):
            raise WaitCancelled

    with contextlib.ExitStack() as held:
        for lock in sorted(set(locks)):
            with contextlib.ExitStack() as passing:
                for path, stack in ((lock.with_suffix(".gate"), passing), (lock, held)):
                    while (descriptor := _try_lock(path, shared=shared)) is None:
                        wait()
                    stack.callback(os.close, descriptor)
        if reported:
            on_end_of_wait()
        yield


@contextlib.contextmanager
def hold_any(locks: Sequence[Path], *, cancel: threading.Event) -> Iterator[None]:
    """Hold one of several locks exclusively during the block, whichever is free first.

    Raises:
        WaitCancelled: `cancel` was set before one was free.
    """
    while True:
        for lock in locks:
            if (descriptor := _try_lock(lock, shared=False)) is not None:
                try:
                    yield
                finally:
                    os.close(descriptor)
                return
        if cancel.wait(_RETRY_S):
            raise WaitCancelled


def lock_paths(folder: Path, resources: Iterable[str]) -> tuple[Path, ...]:
    """The lock files of resources of this host; `folder` is one for all users of the host."""
    return tuple(folder / f"kernelwright-{resource}.lock" for resource in sorted(set(resources)))


class DeviceLockSandbox:
    """A sandbox whose commands hold a device's locks while they run, and end when `cancel` is set."""

    def __init__(
        self,
        inner: Sandbox,
        locks: Sequence[Path],
        *,
        on_wait: Callable[[], None],
        on_end_of_wait: Callable[[], None] = lambda: None,
        cancel: threading.Event,
    ) -> None:
        self._inner = inner
        self._locks = locks
        self._on_wait = on_wait
        self._on_end_of_wait = on_end_of_wait
        self._cancel = cancel
        self.name: str = inner.name
        self.promises: frozenset[Promise] = inner.promises

    def run(
        self,
        command: Command,
        *,
        on_stderr: Callable[[bytes], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Completed:
        """As `Sandbox.run`, under the locks. A command that is cancelled while it waits never runs."""
        cancel = cancel or self._cancel
        try:
            with hold_device(self._locks, on_wait=self._on_wait, on_end_of_wait=self._on_end_of_wait, cancel=cancel):
                return self._inner.run(command, on_stderr=on_stderr, cancel=cancel)
        except WaitCancelled:
            return Completed(exit_code=None, stdout=b"", stderr=b"", wall_s=0.0, cancelled=True)

    def prepare(self, command: Command) -> None:
        """As `Sandbox.prepare`, without the locks: preparation measures nothing."""
        self._inner.prepare(command)

    def describe(self) -> dict[str, str]:
        """Provenance of the inner sandbox."""
        return self._inner.describe()


def _try_lock(lock: Path, *, shared: bool) -> int | None:
    """The descriptor that holds the lock, or None if the lock is held elsewhere.

    The first user creates the file readable for all: flock needs no write permission.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(lock, flags)
    except FileNotFoundError:
        try:
            descriptor = os.open(lock, flags | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return None  # another process created it just now; retry
        os.fchmod(descriptor, 0o644)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), lock.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):  # held, or the file was removed meanwhile
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
