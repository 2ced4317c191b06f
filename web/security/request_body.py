"""Bodies of requests, read whole before anything looks at them: within a bound of bytes and of time."""

import asyncio

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from web.problems import ProblemError

MAX_BODY_BYTES = 2 * 1024 * 1024  # an op or a candidate of 1 MiB, and what JSON's escapes add to it
MAX_LOGIN_BYTES = 16 * 1024  # of those who are not known yet: a token and a path
MAX_WAIT_S = 30.0

# What was not read is still on its way: the connection cannot be used for another request.
CLOSE = {"Connection": "close"}


def has_body(headers: Headers) -> bool:
    """Whether a body comes with these headers."""
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


async def bounded(headers: Headers, receive: Receive, *, most: int = MAX_BODY_BYTES) -> Receive:
    """`receive` with the body of at most so many bytes read already, whether its length was told or not.

    Raises:
        ProblemError: it is too large, compressed, or does not come to its end.
    """
    if not has_body(headers):
        return receive
    if headers.get("content-encoding", "identity") != "identity":
        raise ProblemError(415, "bodies are taken as they are, without compression", headers=CLOSE)
    told = headers.get("content-length", "0")
    if not told.isascii() or not told.isdigit() or int(told[:12]) > most:
        raise _too_large(most)
    body = bytearray()
    gone = False
    try:
        async with asyncio.timeout(MAX_WAIT_S):
            more = True
            while more and not gone:
                message = await receive()
                gone = message["type"] == "http.disconnect"
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > most:
                    raise _too_large(most)
    except TimeoutError:
        raise ProblemError(408, f"the body did not arrive within {MAX_WAIT_S:.0f} s", headers=CLOSE) from None
    given = gone

    async def replay() -> Message:
        nonlocal given
        if given:
            return {"type": "http.disconnect"} if gone else await receive()
        given = True
        return {"type": "http.request", "body": bytes(body), "more_body": False}

    return replay


def _too_large(most: int) -> ProblemError:
    return ProblemError(413, f"the body is larger than {most // 1024} KiB", headers=CLOSE)
