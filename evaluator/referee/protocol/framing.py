"""Messages between the referee and a runner: a length, then JSON, over a stream socket.

The form is JSON and not pickle, because a runner's messages are hostile and the referee must read them without
executing anything.
"""

import json
import os
import socket
import struct
import time
from typing import Any

Message = dict[str, Any]
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
_LENGTH = struct.Struct("!I")
_AT_ONCE = 64 * 1024  # more than any message of a call


class WireError(Exception):
    """The other side closed the connection, or sent bytes that are not a message."""


def send(sock: socket.socket, message: Message) -> None:
    """Send one message.

    Raises:
        OSError: the other side is gone.
    """
    send_body(sock, encoded(message))


def encoded(message: Message) -> bytes:
    """The body of a message."""
    return json.dumps(message).encode()


def framed(body: bytes) -> bytes:
    """A body as it is sent: after its length."""
    return _LENGTH.pack(len(body)) + body


def send_body(sock: socket.socket, body: bytes) -> None:
    """Send a message that has been encoded already.

    Raises:
        OSError: the other side is gone.
    """
    sock.sendall(framed(body))


def receive(sock: socket.socket) -> Message:
    """Read one whole message.

    Raises:
        WireError: the connection closed, or the bytes are no message.
    """
    (length,) = _LENGTH.unpack(_read(sock, _LENGTH.size, None))
    if length > MAX_MESSAGE_BYTES:
        raise WireError(f"message of {length} bytes, more than {MAX_MESSAGE_BYTES}")
    return parse(_read(sock, length, None))


def receive_last(sock: socket.socket, *, read: bytes | None = None, deadline: float | None = None) -> bytes:
    """Read one whole message that the other side sends nothing after, without parsing it.

    `read` are its first bytes, if somebody has read them.

    One system call reads a short one. `receive` makes two, and would make six where the socket has a timeout, under the
    clock of a call.

    Raises:
        WireError: the connection closed, the message is too long, or more follows.
        TimeoutError: the deadline passed. A message of which nothing has arrived is waited for without one.
    """
    data = os.read(sock.fileno(), _AT_ONCE) if read is None else read
    if not data:
        raise WireError("connection closed")
    if len(data) < _LENGTH.size:
        data += _read(sock, _LENGTH.size - len(data), deadline)
    (length,) = _LENGTH.unpack_from(data)
    if length > MAX_MESSAGE_BYTES:
        raise WireError(f"message of {length} bytes, more than {MAX_MESSAGE_BYTES}")
    missing = _LENGTH.size + length - len(data)
    if missing < 0:
        raise WireError(f"{-missing} bytes more than the message")
    return data[_LENGTH.size :] + (_read(sock, missing, deadline) if missing else b"")


def parse(body: bytes) -> Message:
    """Parse the bytes of a message.

    Raises:
        WireError: the bytes are not a message.
    """
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise WireError("not a JSON object")
    return message


def _read(sock: socket.socket, size: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < size:
        if deadline is not None:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
        part = sock.recv(size - len(data))
        if not part:
            raise WireError("connection closed")
        data += part
    return bytes(data)
