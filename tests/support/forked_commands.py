"""Commands as processes that start at once: each is forked from a process that has imported what commands import.

A command is a process of its own in all other respects: its arguments, environment, folder, streams, session, signals
and exit status. Its parent is the test, which inherits it from the process that forked it. That starting a command
from nothing works, and what it imports, is for other tests to say (tests/service/cli/test_commands.py, and
tests/web/test_server.py of `serve`).
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PR_SET_CHILD_SUBREAPER = 36
_PID = struct.Struct(">q")
_MOST_BYTES = 1 << 20


class ForkedCommand(subprocess.Popen):  # type: ignore[type-arg]
    """A process that was forked elsewhere and is this process's child now."""

    def __init__(self, pid: int, arguments: Sequence[str]) -> None:
        self.args, self.pid, self.returncode = list(arguments), pid, None
        self.stdin = self.stdout = self.stderr = None
        self._waitpid_lock = threading.Lock()
        self._child_created = True
        self._communication_started = False
        self._input = None
        self.text_mode = True  # of pipes that a test gives it


class CommandServer:
    """The process that commands are forked from."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._socket, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
        with theirs:
            environment = {name: value for name, value in os.environ.items() if not name.startswith("KERNELWRIGHT_")}
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forked_commands", str(theirs.fileno())],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )

    def start(
        self, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdout: int, stderr: int
    ) -> ForkedCommand:
        """Start `kernelwright` with nothing on standard input, in a session of its own."""
        asked = json.dumps({"arguments": list(arguments), "cwd": str(cwd), "env": dict(env)}).encode()
        with open(os.devnull) as nothing, _inheriting():  # noqa: PTH123
            socket.send_fds(self._socket, [asked], [nothing.fileno(), stdout, stderr])
            (pid,) = _PID.unpack(self._socket.recv(_PID.size))
        return ForkedCommand(pid, arguments)

    def run(
        self, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], within_s: float = 120
    ) -> "subprocess.CompletedProcess[str]":
        """Run `kernelwright` to its end; its output as text."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            status = self.start(arguments, cwd=cwd, env=env, stdout=out.fileno(), stderr=err.fileno()).wait(within_s)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(arguments, status, out.read().decode(), err.read().decode())

    def close(self) -> None:
        """No more commands; those that run go on."""
        self._socket.close()
        self._process.wait(30)


@contextlib.contextmanager
def _inheriting() -> Iterator[None]:
    """Processes whose parent ends become children of this one, which would have to collect them: briefly, therefore."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def serve(connection: socket.socket) -> None:
    """Fork a command for each request; returns in the command's process."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, _MOST_BYTES, 3)
        if not message:
            os._exit(0)
        asked = json.loads(message)
        told, tell = os.pipe()
        between = os.fork()
        if between == 0:
            command = os.fork()
            if command != 0:
                os.write(tell, _PID.pack(command))
                os._exit(0)
            connection.close()
            os.close(told)
            os.close(tell)
            become_command(asked, descriptors)
            return
        os.waitpid(between, 0)  # from now on the command is the test's child
        connection.send(os.read(told, _PID.size))
        for descriptor in (told, tell, *descriptors):
            os.close(descriptor)


def become_command(asked: dict[str, object], descriptors: list[int]) -> None:
    """Take on what a command is given when it is started."""
    os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(str(asked["cwd"]))
    os.environ.clear()
    os.environ.update(asked["env"])  # type: ignore[call-overload]
    random.seed()
    sys.argv[:] = ["kernelwright", *asked["arguments"]]  # type: ignore[misc]
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), encoding="utf-8")
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w", closefd=False)), "utf-8", "backslashreplace", line_buffering=True
    )


def import_all() -> None:
    """Import what commands import, late or not; nothing of it may start a thread, which a fork would lose."""
    from agents.llm.models import import_litellm

    import_litellm()
    importlib.import_module("alembic.command")
    for package in ("web", "service", "agents.strategies", "agents.llm", "agents.prompting", "db", "sandbox"):
        found = pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
        for name in [module.name for module in found]:
            if not name.endswith("__main__") and not name.startswith(("db.migrations.", "sandbox.image")):
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)
    assert threading.active_count() == 1, threading.enumerate()


def run() -> None:
    """Run the command and end as Python does, but for taking apart all that was imported: that would take a second."""
    from web.cli import main

    try:
        main()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_all()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which is ignored where the tests run under nohup
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    run()
