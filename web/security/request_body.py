"""Reading request bodies with a limit on size and time: whole before any other code sees them, but for large files."""

import asyncio
import time
from collections.abc import AsyncIterator

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import Message, Receive

from web.problems import ProblemError

MAX_BODY_BYTES = 2 * 1024 * 1024  # an op or a candidate of 1 MiB, with the escapes that JSON adds
MAX_LOGIN_BYTES = 16 * 1024  # a token and a path, from a client that is not authenticated yet
BODY_TIMEOUT_S = 30.0
SLOWEST_BYTES_A_S = 64 * 1024  # of a large file, beyond that time

CLOSE_CONNECTION = {"Connection": "close"}
"""For a response sent before the body was read: the rest of the body makes the connection useless."""


def has_body(headers: Headers) -> bool:
    """Whether the request has a body."""
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


async def read_body(headers: Headers, receive: Receive, *, max_bytes: int = MAX_BODY_BYTES) -> Receive:
    """Read the body of a request, whether its length was declared or not.

    Args:
        headers: The request's headers.
        receive: The ASGI function that receives the body.
        max_bytes: The largest body that is accepted.

    Returns:
        An ASGI function that gives back the body that was read.

    Raises:
        ProblemError: The body is too large, is compressed, or does not arrive in time.
    """
    if not has_body(headers):
        return receive
    if headers.get("content-encoding", "identity") != "identity":
        raise ProblemError(415, "bodies are taken as they are, without compression", headers=CLOSE_CONNECTION)
    declared = headers.get("content-length", "0")
    if not declared.isascii() or not declared.isdigit() or int(declared[:12]) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    disconnected = False
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            more = True
            while more and not disconnected:
                message = await receive()
                disconnected = message["type"] == "http.disconnect"
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > max_bytes:
                    raise _too_large(max_bytes)
    except TimeoutError:
        detail = f"the body did not arrive within {BODY_TIMEOUT_S:.0f} s"
        raise ProblemError(408, detail, headers=CLOSE_CONNECTION) from None
    given = disconnected

    async def replay() -> Message:
        nonlocal given
        if given:
            return {"type": "http.disconnect"} if disconnected else await receive()
        given = True
        return {"type": "http.request", "body": bytes(body), "more_body": False}

    return replay


async def file_chunks(request: Request, size_bytes: int) -> AsyncIterator[bytes]:
    """The body of a request whose route reads it itself, in pieces as they arrive.

    Args:
        request: The request.
        size_bytes: The body's length as it is declared (`file_bytes`).

    Raises:
        ProblemError: The body has another length, or arrives too slowly.
    """
    began, received, more = time.monotonic(), 0, True
    slow = ProblemError(408, "the file arrives too slowly; try again", headers=CLOSE_CONNECTION)
    while more:
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                message = await request.receive()
        except TimeoutError:
            raise slow from None
        chunk, more = message.get("body", b""), message.get("more_body", False)
        received += len(chunk)
        if received > size_bytes or (not more and received < size_bytes):  # a body in chunks may have any length
            raise ProblemError(400, "the file's length is not the declared one", headers=CLOSE_CONNECTION)
        if more and received < (time.monotonic() - began - BODY_TIMEOUT_S) * SLOWEST_BYTES_A_S:
            raise slow
        yield chunk


def file_bytes(headers: Headers, *, max_bytes: int) -> int:
    """The length of a body as it is declared.

    Raises:
        ProblemError: it is not declared, too large, or the body is compressed.
    """
    if headers.get("content-encoding", "identity") != "identity":
        raise ProblemError(415, "bodies are taken as they are, without compression", headers=CLOSE_CONNECTION)
    declared = headers.get("content-length", "")
    if not declared.isascii() or not declared.isdigit():
        raise ProblemError(411, "send the file's length (Content-Length)", headers=CLOSE_CONNECTION)
    if int(declared[:20]) > max_bytes:
        raise _too_large(max_bytes)
    return int(declared)


def _too_large(max_bytes: int) -> ProblemError:
    return ProblemError(413, f"the body is larger than {max_bytes // 1024} KiB", headers=CLOSE_CONNECTION)
