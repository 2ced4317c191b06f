"""Messages between the referee and a runner: a length, then JSON, over a stream socket.

The form is JSON and not pickle, because a runner's messages are hostile and the referee must read them without
executing anything.
"""

import json
import socket
import struct
import time
from typing import Any

Message = dict[str, Any]
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
_LENGTH = struct.Struct("!I")


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


def send_body(sock: socket.socket, body: bytes) -> None:
    """Send a message that has been encoded already.

    Raises:
        OSError: the other side is gone.
    """
    sock.sendall(_LENGTH.pack(len(body)) + body)


def receive(sock: socket.socket) -> Message:
    """Read one whole message.

    Raises:
        WireError: the connection closed, or the bytes are no message.
    """
    return parse(receive_bytes(sock))


def receive_bytes(sock: socket.socket, *, deadline: float | None = None) -> bytes:
    """Read one whole message without parsing it. `deadline` (time.monotonic) holds for the whole message.

    Raises:
        WireError: the connection closed, or the message is too long.
        TimeoutError: the deadline passed.
    """
    (length,) = _LENGTH.unpack(_read(sock, _LENGTH.size, deadline))
    if length > MAX_MESSAGE_BYTES:
        raise WireError(f"message of {length} bytes, more than {MAX_MESSAGE_BYTES}")
    return _read(sock, length, deadline)


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
