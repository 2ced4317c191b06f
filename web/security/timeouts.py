"""Connections of clients that take their time: each has to send a whole request, and take its answer, within bounds.

uvicorn bounds how long a connection rests between two requests, but not how long a request takes to arrive, so that a
few thousand clients that send a byte a second would keep out all others. The time that a body may take while it is
waited for is web/security/request_body.py's.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_TIMEOUT_S = 15.0
"""From a connection's beginning, or the end of an answer, until the head of the next request is there."""

READ_TIMEOUT_S = 60.0
"""How long a client may leave unread what it was sent."""


class TimeoutProtocol(H11Protocol):
    """uvicorn's protocol with deadlines."""

    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadlines."""
        super().connection_lost(exc)
        for timer in (self._late, self._stuck):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Go on with what arrived."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request; what is left of this one's body is part of the wait."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        super().pause_writing()
        self._stuck = self.loop.call_later(READ_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on writing."""
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _watch(self) -> None:
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and self._late is not None:
            self._late.cancel()
            self._late = None
        elif not answering and self._late is None:
            self._late = self.loop.call_later(REQUEST_TIMEOUT_S, self._end)

    def _end(self) -> None:
        self.transport.close()  # once what was answered has been read
        if self._stuck is None:
            self._stuck = self.loop.call_later(READ_TIMEOUT_S, self.transport.abort)
