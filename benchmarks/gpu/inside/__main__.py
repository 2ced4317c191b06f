"""Run as `python3 -m inside QUESTION UUID` in a sandbox, with a copy of the referee beside it in `referee`.

One JSON object goes to standard output. As the referee does, it imports torch and forks before it touches the GPU.
"""

import ctypes
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_UID = 20001  # a runner's
_PAGE = 2 << 20
_SLEEP_CYCLES = 4_000_000_000  # two seconds at 2 GHz


def files_of_the_device() -> list[str]:
    """Device files that this process has open: none may be open before a fork."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except OSError:
            continue
    return sorted({path for path in found if path.startswith("/dev/nvidia")})


def threads() -> list[str]:
    """The names of this process's threads."""
    return sorted((each / "comm").read_text().strip() for each in Path("/proc/self/task").iterdir())


def resident_mb() -> int:
    """What this process has in memory."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) >> 10


def timed(work: Callable[[], object], times: int = 20) -> list[float]:
    """The shortest and the median time in microseconds."""
    work()
    seen = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        seen.append((time.perf_counter() - start) * 1e6)
    return [round(min(seen), 1), round(statistics.median(seen), 1)]


def forked(work: Callable[[socket.socket], None], *, uid: int | None = _UID) -> tuple[int, socket.socket]:
    """A child of another user, with a runner's filter of system calls, that works on a connection's messages."""
    from .referee.fork_server import syscall_filter

    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        ours.settimeout(30)
        return pid, ours
    ours.close()
    try:
        if uid is not None:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            syscall_filter.refuse_work_while_stopped()
        work(theirs)
    except BaseException as error:
        told(theirs, error=f"{type(error).__name__}: {error}"[:500])
    finally:
        os._exit(0)


def told(sock: socket.socket, **answer: object) -> None:
    """Send an answer."""
    sock.sendall(json.dumps(answer).encode() + b"\n")


def heard(sock: socket.socket) -> Any:
    """Receive an answer."""
    return json.loads(sock.makefile("r").readline() or "null")


def starts() -> dict[str, Any]:
    """The driver's context in the sandbox, as the referee makes it."""
    from .referee.platforms.gpu.driver import open_driver

    before, start = resident_mb(), time.perf_counter()
    driver = open_driver()
    return {
        "context_s": round(time.perf_counter() - start, 3),
        "l2_bytes": driver.l2_bytes,
        "cuda": driver.version(),
        "host_mb": resident_mb() - before,
        "threads": len(threads()),
        "files": sorted(map(str, Path("/dev").glob("nvidia*"))),
        "open": files_of_the_device(),
        "uid_map": Path("/proc/self/uid_map").read_text().split(),
    }


def shared() -> dict[str, Any]:
    """Memory by a file descriptor, opened by a process of another user; then given back while that has it open."""
    import torch

    from .referee.platforms.gpu.driver import open_driver
    from .referee.runner.platforms.on_gpu.memory import CudaMemory

    def runner(sock: socket.socket) -> None:
        memory, start = CudaMemory(), time.perf_counter()
        torch.zeros(1, device="cuda")
        context_s = round(time.perf_counter() - start, 3)
        _, [fd], _, _ = socket.recv_fds(sock, 1, 1)
        start = time.perf_counter()
        seen = memory.at(memory.open(fd, _PAGE), _PAGE)
        open_ms = round((time.perf_counter() - start) * 1e3, 3)
        os.close(fd)
        first = seen[:4].tolist()
        seen.view(torch.float32)[1:].as_strided((4, 8), (8, 1)).fill_(2.0)
        memory.wait()
        told(sock, first=first, context_s=context_s, open_ms=open_ms, device=str(seen.device), host_mb=resident_mb())
        sock.recv(1)  # the referee has given it back
        told(sock, last=seen[:8].tolist())
        sock.recv(1)

    pid, sock = forked(runner)
    driver = open_driver()
    start = time.perf_counter()
    memory = driver.allocate(1)
    allocate_ms = round((time.perf_counter() - start) * 1e3, 3)
    driver.write(memory.address, torch.arange(8, dtype=torch.uint8))
    fd = driver.export(memory)
    socket.send_fds(sock, [b"x"], [fd])
    os.close(fd)
    reply = heard(sock)
    written = torch.empty(8, dtype=torch.uint8)
    driver.read(memory.address, written)
    start = time.perf_counter()
    driver.free(memory)
    free_ms = round((time.perf_counter() - start) * 1e3, 3)
    sock.sendall(b"!")
    after = heard(sock)
    os.kill(pid, signal.SIGKILL)
    start = time.perf_counter()
    os.waitpid(pid, 0)
    return {
        "runner": reply,
        "seen_by_the_referee": written.tolist(),
        "after_the_referee_gave_it_back": after,
        "allocate_ms": allocate_ms,
        "free_ms": free_ms,
        "end_of_a_killed_runner_s": round(time.perf_counter() - start, 3),
    }


def legacy() -> dict[str, Any]:
    """CUDA's interprocess memory between users: it is not used, since it is said to fail."""
    import torch

    class Handle(ctypes.Structure):
        _fields_ = (("bytes", ctypes.c_ubyte * 64),)

    def runner(sock: socket.socket) -> None:
        torch.zeros(1, device="cuda")
        handle, address = Handle.from_buffer_copy(sock.recv(64)), ctypes.c_ulonglong()
        library = ctypes.CDLL("libcuda.so.1")
        told(sock, status=int(library.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, ctypes.c_uint(1))))
        sock.recv(1)

    found = {}
    children = [("another user", *forked(runner)), ("same user", *forked(runner, uid=None))]
    library = ctypes.CDLL("libcuda.so.1")
    torch.zeros(1, device="cuda")
    for who, pid, sock in children:
        address, handle = ctypes.c_ulonglong(), Handle()
        library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(_PAGE))
        library.cuIpcGetMemHandle(ctypes.byref(handle), address)
        sock.sendall(bytes(handle))
        found[who] = heard(sock)
        os.kill(pid, signal.SIGKILL)
    return found


def idle() -> dict[str, Any]:
    """What it takes to fill a few bytes: alone, beside a stopped process with a context, beside its kernel."""
    import torch

    from .referee.platforms.gpu.clock import _probe_s, is_idle
    from .referee.platforms.gpu.driver import open_driver

    def runner(sock: socket.socket) -> None:
        torch.ones(1 << 20, device="cuda").sum().item()
        told(sock, ready=True)
        sock.recv(1)
        torch.cuda._sleep(_SLEEP_CYCLES)
        told(sock, launched=True)
        sock.recv(1)

    pid, sock = forked(runner)
    driver = open_driver()
    address = driver.allocate(1).address

    def probes() -> dict[str, Any]:
        seen = sorted(_probe_s(driver, address) * 1e6 for _ in range(30))
        return {"us": [round(seen[0], 1), round(seen[15], 1), round(seen[-1], 1)], "idle": is_idle(driver, address)}

    found: dict[str, Any] = {"alone": probes(), "ready": heard(sock)}
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.05)
    found["beside a stopped context"] = probes()
    os.kill(pid, signal.SIGCONT)
    sock.sendall(b"!")
    found["launched"], start = heard(sock), time.perf_counter()
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.05)
    found["beside a kernel of a stopped process"] = probes()
    os.kill(pid, signal.SIGKILL)
    killed = time.perf_counter()
    os.waitpid(pid, 0)
    ended = time.perf_counter()
    while _probe_s(driver, address) > 0.0005 and time.perf_counter() - killed < 10:
        time.sleep(0.001)
    found["killed after s"] = round(killed - start, 3)
    found["ended after s"] = round(ended - killed, 3)
    found["idle after s"] = round(time.perf_counter() - killed, 3)
    return found


def costs() -> dict[str, Any]:
    """What the referee's own steps take, each in microseconds: the shortest and the median."""
    import torch

    from .referee.platforms.gpu.driver import open_driver

    driver = open_driver()

    def marks() -> None:
        first, second = driver.mark(), driver.mark()
        driver.wait()
        driver.between_s(first, second)

    first, second = driver.mark(), driver.mark()
    driver.wait()
    found: dict[str, Any] = {
        "wait": timed(driver.wait),
        "two marks and a wait": timed(marks),
        "between two marks, by the device": round(driver.between_s(first, second) * 1e6, 1),
        "forget_persistence": timed(driver.forget_persistence),
    }
    for name, nbytes in (("1 KB", 1 << 10), ("1 MB", 1 << 20), ("64 MB", 64 << 20), ("twice L2", 2 * driver.l2_bytes)):
        source, target = driver.allocate(nbytes), driver.allocate(nbytes)
        of_host = torch.zeros(nbytes, dtype=torch.uint8)
        works: dict[str, Callable[[], object]] = {
            "fill": lambda at=source, size=nbytes: driver.fill(at.address, 0, size),
            "copy": lambda at=source, to=target, size=nbytes: driver.copy(to.address, at.address, size),
            "write": lambda at=source, content=of_host: driver.write(at.address, content),
            "read": lambda at=source, content=of_host: driver.read(at.address, content),
        }
        for doing, work in works.items():
            found[f"{doing} {name}"] = timed(lambda work=work: (work(), driver.wait()), times=8)  # type: ignore[misc]
        driver.free(source)
        driver.free(target)

    def fresh() -> None:
        memory = driver.allocate(64 << 20)
        os.close(driver.export(memory))
        driver.free(memory)

    found["allocate, export and free 64 MB"] = timed(fresh, times=5)
    return found


def forks() -> dict[str, Any]:
    """What importing torch.compile leaves of the GPU, and whether a process forked afterwards can use it."""
    import torch

    from .referee.fork_server import imports

    start = time.perf_counter()
    imports.import_compiler(sys.argv[2])
    found: dict[str, Any] = {
        "import_s": round(time.perf_counter() - start, 2),
        "initialized": torch.cuda.is_initialized(),
        "open": files_of_the_device(),
        "threads": threads(),
    }

    def runner(sock: socket.socket) -> None:
        home = tempfile.mkdtemp()
        os.environ.update(HOME=home, TMPDIR=home, USER="runner", TORCHINDUCTOR_CACHE_DIR=f"{home}/i")
        os.environ["TRITON_CACHE_DIR"] = f"{home}/t"
        x = torch.ones(1 << 20, device="cuda")
        began = time.perf_counter()
        value = float(torch.compile(lambda x: torch.tanh(x) * 2 + 1)(x).sum())
        told(sock, compiled=value, seconds=round(time.perf_counter() - began, 2), available=torch.cuda.is_available())

    _, sock = forked(runner)
    found["forked"] = heard(sock)
    return found


def tools() -> dict[str, Any]:
    """Compilers and headers as candidates find them, and nvcc on a small kernel."""
    from torch.utils import cpp_extension

    include = Path(sysconfig.get_paths()["include"]) / "Python.h"
    found: dict[str, Any] = {name: shutil.which(name) for name in ("gcc", "g++", "ninja", "nvcc", "ldconfig")}
    found |= {"CUDA_HOME": cpp_extension.CUDA_HOME, "Python.h": include.is_file()}
    found["LD_LIBRARY_PATH"] = os.environ.get("LD_LIBRARY_PATH")
    nvcc = Path(cpp_extension.CUDA_HOME or "/none") / "bin" / "nvcc"
    if nvcc.is_file():
        with tempfile.TemporaryDirectory() as folder:
            source, start = Path(folder) / "k.cu", time.perf_counter()
            source.write_text("__global__ void k(float *x) { x[threadIdx.x] *= 2; }\n")
            done = subprocess.run(
                [nvcc, "-arch=sm_90a", "-cubin", "-o", f"{folder}/k.cubin", source], capture_output=True
            )
            found["nvcc"] = {"status": done.returncode, "s": round(time.perf_counter() - start, 2)}
            found["nvcc says"] = done.stderr.decode("utf-8", "replace")[-500:]
    return found


QUESTIONS = {each.__name__: each for each in (starts, shared, legacy, idle, costs, forks, tools)}


def main() -> None:
    """Answer one question, with the imports of a fork server before it."""
    from .referee.fork_server import imports

    question, part = sys.argv[1:]
    start = time.perf_counter()
    imports.import_torch(part)
    import_s = round(time.perf_counter() - start, 2)
    print(json.dumps({**QUESTIONS[question](), "import_torch_s": import_s}))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
