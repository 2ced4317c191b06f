"""How a running use case is told to stop, by a signal or from another process."""

import contextlib
import threading
from collections.abc import Callable, Iterator

POLL_S = 2.0


class Stop:
    """A request to stop and the first reason that was given. `event` is what sandboxes and evaluators wait for.

    `signal_number` is the signal that made the request, if one did.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self.signal_number: int | None = None
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """`interrupted`, `cancelled`, or None while nobody asked."""
        return self._reason

    def request(self, reason: str) -> None:
        """Ask to stop; a second request changes nothing. Safe in a signal handler of the main thread."""
        if self._reason is None:
            self._reason = reason
        self.event.set()

    def requested(self) -> bool:
        """Whether to stop."""
        return self.event.is_set()


class StopGroup:
    """Several things that run at once and are told to stop together. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[Stop] = set()
        self._reason: str | None = None

    @contextlib.contextmanager
    def one(self) -> Iterator[Stop]:
        """The Stop of one thing, for as long as it runs; requested already if all were told to stop."""
        stop = Stop()
        with self._lock:
            self._running.add(stop)
            if self._reason is not None:
                stop.request(self._reason)
        try:
            yield stop
        finally:
            with self._lock:
                self._running.discard(stop)

    def request(self, reason: str) -> None:
        """Tell all that run, and whatever begins later, to stop."""
        with self._lock:
            self._reason = self._reason or reason
            for stop in self._running:
                stop.request(reason)

    def requested(self) -> bool:
        """Whether all were told to stop."""
        with self._lock:
            return self._reason is not None

    def count(self) -> int:
        """How many run."""
        with self._lock:
            return len(self._running)


@contextlib.contextmanager
def stop_when(asked: Callable[[], bool], stop: Stop, reason: str, *, poll_s: float = POLL_S) -> Iterator[None]:
    """While the block runs, ask `asked` every `poll_s` seconds and request a stop once it says so."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(poll_s):
            if asked():
                stop.request(reason)
                return

    watcher = threading.Thread(target=watch, name="stop-when", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(timeout=10)
