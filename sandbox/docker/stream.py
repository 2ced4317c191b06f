"""The attached connection to a container: sends its input and receives its output, within limits."""

import contextlib
import selectors
import socket
import struct
import threading
import time
from typing import Any

import docker

from sandbox.output_capture import EndReason, OutputCapture

_HEADER = struct.Struct(">BxxxL")  # stream (1 output, 2 error), then the payload's length: Docker Engine API, attach
_CHUNK_BYTES = 256 * 1024
_LONGEST_WAIT_S = 0.1  # how soon a cancellation is seen


class AttachedStream:
    """An attached connection to a container that has not been started yet."""

    def __init__(self, api: docker.APIClient, container: str) -> None:
        params = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1, "logs": 0}
        self._stream: Any = api.attach_socket(container, params)
        self._socket: socket.socket = getattr(self._stream, "_sock", self._stream)
        self._socket.setblocking(False)
        self._pending = bytearray()

    def close(self) -> None:
        """Close the connection. The container continues."""
        with contextlib.suppress(OSError):
            self._stream.close()
        with contextlib.suppress(OSError):
            self._socket.close()

    def communicate(
        self, stdin: bytes, capture: OutputCapture, *, deadline: float, cancel: threading.Event | None
    ) -> EndReason:
        """Send `stdin` and close it. Capture output until the streams close, a limit is reached, or `cancel` is set."""
        unsent = memoryview(stdin)
        with selectors.DefaultSelector() as selector:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if unsent else 0)
            selector.register(self._socket, events)
            if not unsent:
                self._close_stdin()
            while True:
                if cancel is not None and cancel.is_set():
                    return EndReason.CANCELLED
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return EndReason.TIMED_OUT
                for _, ready in selector.select(min(left_s, _LONGEST_WAIT_S)):
                    if ready & selectors.EVENT_WRITE:
                        unsent = self._send(unsent)
                        if not unsent:
                            selector.modify(self._socket, selectors.EVENT_READ)
                            self._close_stdin()
                    if ready & selectors.EVENT_READ and not self._receive(capture):
                        return EndReason.CLOSED
                if capture.truncated:
                    return EndReason.TOO_MUCH_OUTPUT

    def _send(self, unsent: memoryview) -> memoryview:
        try:
            return unsent[self._socket.send(unsent[:_CHUNK_BYTES]) :]
        except BlockingIOError:
            return unsent
        except OSError:  # the process has closed its stdin, which is no error
            return unsent[len(unsent) :]

    def _close_stdin(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _receive(self, capture: OutputCapture) -> bool:
        """Capture what has arrived; False at the end of the stream."""
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        self._pending += data
        while len(self._pending) >= _HEADER.size:
            stream, length = _HEADER.unpack_from(self._pending)
            end = _HEADER.size + length
            if len(self._pending) < end:
                break
            payload = bytes(self._pending[_HEADER.size : end])
            del self._pending[:end]
            (capture.add_stderr if stream == 2 else capture.add_stdout)(payload)
        return True
