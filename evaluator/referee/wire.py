"""Messages between the referee and a runner: a length, then JSON, over a stream socket.

JSON and not pickle: what a runner sends is hostile, and the referee must be able to read it without executing it.
"""

import json
import socket
import struct
from typing import Any

Message = dict[str, Any]
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
_LENGTH = struct.Struct("!I")


class WireError(Exception):
    """The other side sent something that is not a message, or closed the connection."""


def send(sock: socket.socket, message: Message) -> None:
    """Send one message.

    Raises:
        OSError: the other side is gone.
    """
    body = json.dumps(message).encode()
    sock.sendall(_LENGTH.pack(len(body)) + body)


def receive(sock: socket.socket) -> Message:
    """Read one whole message.

    Raises:
        WireError: the connection closed, or the bytes are no message.
        TimeoutError: the socket's timeout passed.
    """
    (length,) = _LENGTH.unpack(_read(sock, _LENGTH.size))
    if length > MAX_MESSAGE_BYTES:
        raise WireError(f"message of {length} bytes, more than {MAX_MESSAGE_BYTES}")
    try:
        message = json.loads(_read(sock, length))
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise WireError("not a JSON object")
    return message


def _read(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise WireError("connection closed")
        data += part
    return bytes(data)
