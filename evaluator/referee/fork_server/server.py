"""The fork server: forks runners that have torch imported, share one memory layout and know no secret.

It is forked from the referee before the referee has read the request, so a runner's memory cannot hold the seed, the
candidate's neighbours or an expected output.
"""

import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

from ..protocol import framing
from ..protocol.baselines import PACKAGES, PACKAGES_GROUP
from ..runner import call_loop
from ..runner.main import Runner
from ..runner.platforms.load import load_imports, load_runner_platform
from . import imports, syscall_filter

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)
_SA_NOCLDSTOP = 1
_OPEN_FILES = 1024
_PENDING_SIGNALS = 256
_SIGNAL_S = 0.5  # that a signal to all processes of a user may take


def serve(sock: socket.socket, platform: str, *, compiler: bool = False) -> None:
    """Fork a runner for each `spawn` message, reap for each `reap`, signal for each `signal`, until it closes.

    A message `begin` has no answer.

    Args:
        sock: the connection to the referee.
        platform: what its runners are for.
        compiler: import torch.compile's machinery before the first runner is forked, so that none needs to. This takes
            2 s of a processor, and begins with the first message: `begin`, or a `spawn`. Most evaluations in a job have
            no use for it, and end this server without one.
    """
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    load_runner_platform(platform)  # for its imports: once, not in each runner
    loop = call_loop.load()
    if compiler:
        if not sock.recv(1, socket.MSG_PEEK):
            return
        imports.import_compiler(platform)
    runners: dict[int, int | None] = {}  # pid and, once it has ended, exit status
    # Orphans of a runner become children of this process. If they were not reaped, they would use up the sandbox's
    # limit on processes.
    signal.signal(signal.SIGCHLD, lambda *_: _collect(runners))
    _only_when_children_end()
    while True:
        try:
            message = framing.receive(sock)
        except framing.WireError:
            return
        if message["op"] == "begin":
            continue
        if message["op"] == "spawn":
            _, fds, _, _ = socket.recv_fds(sock, 1, 2)
            # A runner that ends at once must be known before it is reaped.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            try:
                pid, problem = os.fork(), ""
            except OSError as error:
                pid, problem = -1, str(error)
            if pid == 0:
                sock.close()
                _become_runner(socket.socket(fileno=fds[0]), fds[1], message, platform, loop)
            if not problem:
                runners[pid] = None
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            for fd in fds:
                os.close(fd)
            framing.send(sock, {"error": problem} if problem else {"pid": pid})
        elif message["op"] == "signal":
            framing.send(sock, {"done": _signal_all(message["uid"], message["number"])})
        else:
            framing.send(sock, {"status": runners.get(message["pid"])})


class _SignalAction(ctypes.Structure):
    """struct sigaction of the GNU C library."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_char * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


def _only_when_children_end() -> None:
    """Ignore children that stop or continue, because a SIGCHLD for them would wake this process during timed calls."""
    action = _SignalAction()
    if _libc.sigaction(signal.SIGCHLD, None, ctypes.byref(action)) == 0:
        action.flags |= _SA_NOCLDSTOP
        _libc.sigaction(signal.SIGCHLD, ctypes.byref(action), None)


def _collect(runners: dict[int, int | None]) -> None:
    """Reap all children that have ended, runners and adopted orphans, and record the exit statuses of runners."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid in runners and runners[pid] is None:
                runners[pid] = status


def _signal_all(uid: int, number: int) -> bool:
    """Send a signal to all processes of a user at once, as that user: kill(2) with -1, which no fork escapes.

    Returns:
        Whether it was sent. The user's processes may kill or stop the one that sends it.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        pid = os.fork()
        if pid == 0:
            try:
                os.setresuid(uid, uid, uid)
                os.kill(-1, number)
                os._exit(0)
            finally:
                os._exit(1)
        deadline = time.monotonic() + _SIGNAL_S
        while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.0005)
        return ended[1] == 0
    except OSError:
        return False
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _become_runner(
    sock: socket.socket, log: int, message: framing.Message, platform: str, loop: call_loop.CallLoop | None
) -> None:
    """Set up this fresh child as a runner, serve, and never return."""
    status = 1
    try:
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")  # if memory runs out, the kernel kills the runner first
        _limit(message)
        if message["uid"] is not None:
            os.setgroups([PACKAGES_GROUP] if message["packages"] else [])
            os.setresgid(message["uid"], message["uid"], message["uid"])
            os.setresuid(message["uid"], message["uid"], message["uid"])
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        syscall_filter.refuse_work_while_stopped()
        if message["packages"]:
            sys.path.append(PACKAGES)
        home = Path(message["home"])
        home.mkdir(mode=0o700)
        os.chdir(home)
        built = home / "built"
        load_imports(platform).prepare_compiler_folder(built / "inductor")
        os.environ.update(
            HOME=str(home),
            TMPDIR=str(home),
            TORCHINDUCTOR_CACHE_DIR=f"{built}/inductor",
            TORCH_EXTENSIONS_DIR=f"{message['built']}/extensions",
        )
        keep = {0, 1, 2, sock.fileno()}
        for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208
            if int(entry) not in keep:
                with contextlib.suppress(OSError):
                    os.close(int(entry))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        Runner(sock, built, load_runner_platform(platform), loop).serve()
        status = 0
    except BaseException:
        traceback.print_exc()  # into the runner's log, which the referee quotes
    finally:
        os._exit(status)


def _limit(message: framing.Message) -> None:
    limits = (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, message["file_bytes"]),
        (resource.RLIMIT_AS, message["address_bytes"]),
        # Timers fire even while their process is stopped, and many timers take processor time from other processes.
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_SIGPENDING, _PENDING_SIGNALS),
    )
    for kind, wanted in limits:
        hard = resource.getrlimit(kind)[1]  # the sandbox may have set a tighter one
        if wanted == resource.RLIM_INFINITY:
            bound = hard
        else:
            bound = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (bound, bound))
