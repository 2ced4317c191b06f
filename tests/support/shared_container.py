"""Evaluations in one container, one after the other: each by a referee of its own, forked where torch is imported.

There is a container for each kind of command: mode, platform, limits and cores.

An evaluation takes a second less than in a container of its own. The container has the product's limits, rights and
start; it is used again only as long as an evaluation leaves nothing in it: no process, no file, no System V object.
"""

import contextlib
import json
import os
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sandbox.base import Command, Completed, Limits
from sandbox.docker.container import StartedContainer
from sandbox.docker.engine import connect
from sandbox.docker.sandbox import DockerSandbox
from sandbox.package import copy_readable
from tests.support.shared_referee.__main__ import LENGTH

_FRAME = struct.Struct(">BxxxL")  # Docker Engine API, attach
_LIVES_S = 3600.0
_MOST = 3  # containers that wait; each holds some hundred megabytes
_Kind = tuple[Path, tuple[str, ...], Limits, frozenset[int]]  # with the cores that it may use


class SharedContainerSandbox:
    """A Docker sandbox (`sandbox.base.Sandbox`) for evaluations that leave their container as it was."""

    def __init__(self, inner: DockerSandbox) -> None:
        """`inner` is the product's sandbox with the image."""
        self.name, self.promises = inner.name, inner.promises
        self._inner = inner
        self._client = connect()
        self._containers: dict[_Kind, StartedContainer] = {}  # the one that was used last comes last

    def describe(self) -> dict[str, str]:
        return self._inner.describe()

    def prepare(self, command: Command) -> None:
        pass

    def run(
        self,
        command: Command,
        *,
        on_stderr: Callable[[bytes], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Completed:
        """One evaluation. Progress is not reported while it runs, and it cannot be cancelled."""
        began = time.monotonic()
        kind = (command.package, command.args, command.limits, frozenset(os.sched_getaffinity(0)))
        container = self._containers.pop(kind, None) or self._start(command)
        self._containers[kind] = container
        while len(self._containers) > _MOST:
            self._discard(next(iter(self._containers)))
        stream = container._attached._socket  # type: ignore[union-attr]
        try:
            stream.settimeout(command.limits.wall_s)
            stream.sendall(LENGTH.pack(len(command.stdin)) + command.stdin)
            reply = json.loads(_read(stream, began + command.limits.wall_s))
        except OSError as error:
            self._discard(kind)
            ended = Completed(None, b"", str(error).encode(), time.monotonic() - began)
            return replace(ended, timed_out=isinstance(error, TimeoutError))
        if reply["left"]:
            self._discard(kind)
        out, err = (reply[name].encode("utf-8", "surrogateescape") for name in ("stdout", "stderr"))
        return Completed(reply["exit_code"], out, err, time.monotonic() - began)

    def close(self) -> None:
        """Remove all containers."""
        for kind in list(self._containers):
            self._discard(kind)
        self._client.close()

    def _discard(self, kind: _Kind) -> None:
        """Remove a container; the next evaluation of its kind starts another."""
        self._containers.pop(kind).remove()

    def _start(self, command: Command) -> StartedContainer:
        with tempfile.TemporaryDirectory() as scratch:
            package = Path(scratch) / "shared_referee"
            shutil.copytree(Path(__file__).parent / "shared_referee", package)
            shutil.copytree(command.package, package / command.package.name)
            readable = copy_readable(package)
        shared = replace(command, package=package, stdin=b"", limits=replace(command.limits, wall_s=_LIVES_S))
        container = StartedContainer(self._client, self._inner.describe()["image_id"], shared, readable)
        container._attached._socket.setblocking(True)  # type: ignore[union-attr]
        return container


def _read(stream: socket.socket, deadline: float) -> bytes:
    """The next reply; the container's standard error is passed over."""
    said = bytearray()
    while len(said) < LENGTH.size or len(said) < LENGTH.size + LENGTH.unpack_from(said)[0]:
        kind, length = _FRAME.unpack(_exactly(stream, _FRAME.size, deadline))
        payload = _exactly(stream, length, deadline)
        if kind == 1:
            said += payload
        else:
            with contextlib.suppress(ValueError):
                print(payload.decode("utf-8", "replace"), end="")
    return bytes(said[LENGTH.size :])


def _exactly(stream: socket.socket, count: int, deadline: float) -> bytes:
    found = bytearray()
    while len(found) < count:
        stream.settimeout(max(0.01, deadline - time.monotonic()))
        data = stream.recv(count - len(found))
        if not data:
            raise ConnectionError("the container has ended")
        found += data
    return bytes(found)
