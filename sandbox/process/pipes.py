"""Communication with a child process over three pipes, with limits on time and size."""

import os
import selectors
import threading
import time
from typing import IO

from sandbox.output_capture import EndReason, OutputCapture

_CHUNK_BYTES = 256 * 1024
_LONGEST_WAIT_S = 0.1  # the longest delay before a cancellation is noticed


def communicate(
    stdin: IO[bytes],
    stdout: IO[bytes],
    stderr: IO[bytes],
    data: bytes,
    capture: OutputCapture,
    *,
    deadline: float,
    cancel: threading.Event | None,
) -> EndReason:
    """Send `data`, close `stdin`, and collect both outputs until they close, a limit is reached, or `cancel` is set."""
    unsent = memoryview(data)
    with selectors.DefaultSelector() as selector:
        for pipe in (stdin, stdout, stderr):
            os.set_blocking(pipe.fileno(), False)
        selector.register(stdout, selectors.EVENT_READ, capture.add_stdout)
        selector.register(stderr, selectors.EVENT_READ, capture.add_stderr)
        selector.register(stdin, selectors.EVENT_WRITE)
        open_outputs = 2
        while open_outputs:
            if cancel is not None and cancel.is_set():
                return EndReason.CANCELLED
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return EndReason.TIMED_OUT
            for key, _ in selector.select(min(left_s, _LONGEST_WAIT_S)):
                if key.fileobj is stdin:
                    unsent = _send(stdin, unsent)
                    if not unsent:
                        selector.unregister(stdin)
                        stdin.close()
                    continue
                chunk = os.read(key.fd, _CHUNK_BYTES)
                if chunk:
                    key.data(chunk)
                else:
                    selector.unregister(key.fileobj)
                    open_outputs -= 1
            if capture.truncated:
                return EndReason.TOO_MUCH_OUTPUT
    return EndReason.CLOSED


def _send(stdin: IO[bytes], unsent: memoryview) -> memoryview:
    try:
        return unsent[os.write(stdin.fileno(), unsent[:_CHUNK_BYTES]) :]
    except BlockingIOError:
        return unsent
    except BrokenPipeError:  # the process has closed its stdin, which is no error
        return unsent[len(unsent) :]
