"""Timeouts for slow clients: a request has to arrive, and its response has to be read, within bounds.

uvicorn limits how long a connection may be idle between two requests, but not how long a request may take to arrive. A
few thousand clients that send one byte a second would keep all others out. The timeout for a body that a route waits
for is in web/security/request_body.py.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_TIMEOUT_S = 15.0
"""From the start of a connection, or the end of a response, until the head of the next request has arrived."""

READ_TIMEOUT_S = 60.0
"""How long a client may leave a response unread."""


class TimeoutProtocol(H11Protocol):
    """uvicorn's HTTP protocol with both timeouts. A client that exceeds one is disconnected."""

    _request_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the timeout of the first request."""
        super().connection_made(transport)
        self._update_request_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel both timers."""
        super().connection_lost(exc)
        for timer in (self._request_timer, self._read_timer):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Cancel the timeout if the data completes the head of a request."""
        super().data_received(data)
        self._update_request_timer()

    def on_response_complete(self) -> None:
        """Start the timeout of the next request. Reading the rest of this request's body counts towards it."""
        super().on_response_complete()
        self._update_request_timer()

    def pause_writing(self) -> None:
        """Start the read timeout: the transport's buffer is full."""
        super().pause_writing()
        self._read_timer = self.loop.call_later(READ_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the read timeout: the client has read."""
        super().resume_writing()
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _update_request_timer(self) -> None:
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None
        elif not answering and self._request_timer is None:
            self._request_timer = self.loop.call_later(REQUEST_TIMEOUT_S, self._end)

    def _end(self) -> None:
        self.transport.close()  # waits until the client has read what was sent
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(READ_TIMEOUT_S, self.transport.abort)
