"""Ctrl-C, SIGTERM and a closed terminal: the first asks to stop and keeps what there is, the second quits at once."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

from service.cancellation import CancelToken

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHOW_CURSOR = b"\x1b[?25h"


@contextlib.contextmanager
def cancel_on_signals(
    cancel: CancelToken, saying: str | None = "stopping and keeping the best so far"
) -> Iterator[None]:
    """While the block runs, turn the first signal into a request to stop. One that was ignored (nohup) stays so.

    `saying` is what is told on stderr then; None where that holds nothing but JSON.
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


def exit_status(cancel: CancelToken) -> int | None:
    """The status that tells a shell which signal ended us, or None."""
    return None if cancel.signal_number is None else 128 + cancel.signal_number


def _say(text: bytes) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        os.write(2, text)
