"""Cancellation of a running use case, by a signal or from another process."""

import contextlib
import threading
from collections.abc import Callable, Iterator

POLL_S = 2.0


class Cancelled(Exception):
    """The work was cancelled before it had a result."""


class CancelToken:
    """Tells running work to stop, with the reason of the first request.

    Attributes:
        event: what sandboxes and evaluators wait for.
        signal_number: the signal that requested the cancellation, or None.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self.signal_number: int | None = None
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """`interrupted`, `cancelled` or `lost`; None before the first request."""
        return self._reason

    def request(self, reason: str) -> None:
        """Request cancellation. Later requests keep the first reason. Safe in a signal handler of the main thread."""
        if self._reason is None:
            self._reason = reason
        self.event.set()

    def requested(self) -> bool:
        """Whether cancellation was requested."""
        return self.event.is_set()


class CancelGroup:
    """Cancels everything that runs in a group at once. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[CancelToken] = set()
        self._reason: str | None = None

    @contextlib.contextmanager
    def new_token(self) -> Iterator[CancelToken]:
        """A token that belongs to the group during the block; already cancelled if the group is."""
        token = CancelToken()
        with self._lock:
            self._running.add(token)
            if self._reason is not None:
                token.request(self._reason)
        try:
            yield token
        finally:
            with self._lock:
                self._running.discard(token)

    def request(self, reason: str) -> None:
        """Cancel all current tokens and every later one."""
        with self._lock:
            self._reason = self._reason or reason
            for token in self._running:
                token.request(reason)

    def requested(self) -> bool:
        """Whether the group was cancelled."""
        with self._lock:
            return self._reason is not None

    def count(self) -> int:
        """The number of tokens in use."""
        with self._lock:
            return len(self._running)


@contextlib.contextmanager
def cancel_when(
    condition: Callable[[], bool], cancel: CancelToken, reason: str, *, poll_s: float = POLL_S
) -> Iterator[None]:
    """During the block, check `condition` every `poll_s` seconds in a thread; request cancellation once it holds."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(poll_s):
            if condition():
                cancel.request(reason)
                return

    watcher = threading.Thread(target=watch, name="cancel-when", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(timeout=10)
