"""Cancellation of a running use case, by a signal or from another process."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from db.changes import Changes

POLL_S = 2.0
UNREPORTED_S = 10.0
"""How long a change of the store may go unnoticed that was not reported, because a connection was lost for example."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHOW_CURSOR = b"\x1b[?25h"


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

    @property
    def exit_status(self) -> int | None:
        """The exit status that tells a shell which signal requested the cancellation; None without a signal."""
        return None if self.signal_number is None else 128 + self.signal_number


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
    condition: Callable[[], bool],
    cancel: CancelToken,
    reason: str,
    *,
    poll_s: float = POLL_S,
    changes: Changes | None = None,
) -> Iterator[None]:
    """During the block, check `condition` in a thread; request cancellation once it holds.

    Args:
        condition: what is checked, every `poll_s` seconds.
        cancel: receives the request.
        reason: the request's reason.
        poll_s: the interval in seconds.
        changes: if given, the condition is a state of the store, and checked when that changes; every `UNREPORTED_S`
            seconds it is checked anyway.
    """
    over = False

    def watch(changed: threading.Event) -> None:
        while True:
            changed.wait(poll_s if changes is None else UNREPORTED_S)
            changed.clear()
            if over:
                return
            if condition():
                cancel.request(reason)
                return

    with contextlib.nullcontext(threading.Event()) if changes is None else changes.subscribe() as wake:
        watcher = threading.Thread(target=watch, args=(wake,), name="cancel-when", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over = True
            wake.set()
            watcher.join(timeout=10)


@contextlib.contextmanager
def cancel_on_signals(
    cancel: CancelToken, saying: str | None = "stopping and keeping the best so far"
) -> Iterator[None]:
    """During the block, turn the first signal into a request to stop. A signal that is ignored (nohup) stays ignored.

    `saying` is then printed on stderr; None prints nothing.
    """

    def handle(number: int, _frame: FrameType | None) -> None:
        if cancel.signal_number is not None:
            if sys.stderr.isatty():
                _say(_SHOW_CURSOR)
            os._exit(128 + number)
        cancel.signal_number = number
        if saying is not None:
            _say(f"\n{saying} (again to quit at once)\n".encode())
        cancel.request("interrupted")

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(text: bytes) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        os.write(2, text)
