"""What a runner is to open is sent behind the message, also where a stopped runner has no room for it unread."""

import os
import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from evaluator.referee.isolation.handle import RunnerHandle
from evaluator.referee.protocol import framing


@pytest.mark.parametrize("nbytes", [10, 1 << 20])
def test_message_and_descriptors_arrive(nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    handle: Any = object.__new__(RunnerHandle)
    handle._sock, theirs = socket.socketpair()
    found: list[Any] = []

    def runner() -> None:
        found.append(framing.receive(theirs))
        found.append(socket.recv_fds(theirs, 1, 2)[1])

    def answer(timeout_s: float, meanwhile: Any = None) -> tuple[dict[str, Any], Any]:
        """The runner goes on only now, as one that was stopped."""
        thread = threading.Thread(target=runner)
        thread.start()
        if meanwhile is not None:
            meanwhile()
        thread.join()
        return {}, SimpleNamespace(seconds=1.0)

    monkeypatch.setattr(handle, "_answer", answer)
    fds = [os.memfd_create(name) for name in ("inputs", "outputs")]
    for number, fd in enumerate(fds):
        os.write(fd, bytes([number]))
    handle.share({"op": "hand_over", "rows": "x" * nbytes}, [(fds[0], 4096), (fds[1], 8192)], timeout_s=10)
    message, received = found
    assert (message["op"], message["sizes"], len(message["rows"])) == ("hand_over", [4096, 8192], nbytes)
    assert [os.pread(fd, 1, 0) for fd in received] == [b"\0", b"\1"]
    for fd in (*fds, *received):
        os.close(fd)
    theirs.close()
    handle._sock.close()
