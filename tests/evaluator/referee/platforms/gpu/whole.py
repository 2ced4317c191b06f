"""Run as a program in a sandbox: an evaluation or a profile by the referee's part for GPUs, on files in memory.

Referee, fork servers and runners are the real ones, each runner a process that is sent descriptors of these files.
Only the driver and torch's CUDA are stood in for, so tensors of the device are the host's to torch. A JSON object with
settings of the request comes on standard input; the result goes to standard output. Beside them, `mode` is the
referee's, and `programs` are scripts of Python, by name, that stand for NVIDIA's tools.
"""

import ctypes
import json
import mmap
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GRANULE = 2 << 20


def mapped(fd: int, nbytes: int) -> ctypes.Array[ctypes.c_char]:
    """A file as memory."""
    return (ctypes.c_char * nbytes).from_buffer(mmap.mmap(fd, nbytes))


@dataclass
class FileDriver:
    """See `driver.Driver`."""

    l2_bytes: int = 1 << 20
    memory: dict[int, tuple[int, Any]] = field(default_factory=dict)
    marks: dict[int, float] = field(default_factory=dict)
    marked: int = 0

    def allocate(self, nbytes: int) -> Any:
        from evaluator.referee.platforms.gpu.driver import Allocation

        size = max(1, -(-nbytes // GRANULE)) * GRANULE
        fd = os.memfd_create("device", os.MFD_CLOEXEC)
        os.ftruncate(fd, size)
        held = mapped(fd, size)
        self.memory[ctypes.addressof(held)] = fd, held
        return Allocation(ctypes.addressof(held), size)

    def free(self, allocation: Any) -> None:
        os.close(self.memory.pop(allocation.address)[0])

    def export(self, allocation: Any) -> int:
        return os.dup(self.memory[allocation.address][0])

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        ctypes.memset(address, byte, nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        ctypes.memmove(target, source, nbytes)

    def write(self, address: int, content: Any) -> None:
        ctypes.memmove(address, content.data_ptr(), content.numel())

    def read(self, address: int, into: Any) -> None:
        ctypes.memmove(into.data_ptr(), address, into.numel())

    def mark(self) -> int:
        self.marked += 1
        self.marks[self.marked] = time.perf_counter()
        return self.marked

    def between_s(self, first: int, second: int) -> float:
        return self.marks.pop(second) - self.marks.pop(first)

    def wait(self) -> None:
        """Everything is done when it is asked for."""

    def forget_persistence(self) -> None:
        """Nothing persists."""

    def version(self) -> str:
        return "0"


class FileMemory:
    """See `on_gpu.memory.Memory`."""

    device = "cpu"

    def __init__(self) -> None:
        self._opened: list[Any] = []

    def open(self, fd: int, nbytes: int) -> int:
        held = mapped(fd, nbytes)
        self._opened.append(held)
        return ctypes.addressof(held)

    def close(self, address: int) -> None:
        """It stays open."""

    def at(self, address: int, nbytes: int) -> Any:
        import torch

        if not nbytes:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer((ctypes.c_ubyte * nbytes).from_address(address), dtype=torch.uint8)

    def wait(self) -> None:
        """Everything is done when it is asked for."""


LAUNCHES = [
    ["own(float*)", 30.0, 40, 1024, 50, 4.0, 32.0, [64, 1, 1], [256, 1, 1]],
    ["own(float*)", 20.0, 40, 1024, 50, 4.0, 32.0, [64, 1, 1], [256, 1, 1]],
    ["Memcpy DtoD (Device -> Device)", 50.0, None, None, None, None, None, None, None],
]
"""What torch's profiler would tell of the kernels of a call."""


def install(programs: dict[str, str]) -> None:
    """Put scripts on PATH, where runners find them."""
    folder = Path(os.environ["TMPDIR"]) / "programs"
    folder.mkdir()
    for name, script in programs.items():
        (folder / name).write_text(f"#!{sys.executable}\n{script}")
        (folder / name).chmod(0o755)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"


def main() -> None:
    """Stand in for what needs a GPU, then do as `evaluator/referee/__main__.py` does."""
    asked = json.loads(sys.stdin.read())
    mode = asked.pop("mode", "evaluate")
    install(asked.pop("programs", {}))
    sys.path.insert(0, str(Path(__file__).parent))  # the referee lies beside this program in the sandbox
    from evaluator.referee.fork_server import imports
    from evaluator.referee.runner.platforms.cpu.imports import CpuImports

    stand_in: Any = lambda name: CpuImports()  # noqa: E731
    setattr(imports, "load_imports", stand_in)  # noqa: B010
    imports.import_torch("cuda@stand-in")
    import torch

    from evaluator.referee.evaluate import Evaluation
    from evaluator.referee.fork_server import server
    from evaluator.referee.isolation import procfs
    from evaluator.referee.platforms.gpu import clock, platform
    from evaluator.referee.pool import runner_pool
    from evaluator.referee.runner.platforms.cpu.platform import CpuRunner
    from evaluator.referee.runner.platforms.on_gpu import calls
    from evaluator.referee.runner.platforms.on_gpu.profiling import launches
    from evaluator.referee.sanitize import plain

    class Stand(CpuRunner):
        def commands(self, runner: Any) -> Any:
            device = calls.DeviceCalls(runner, FileMemory())
            return {**super().commands(runner), **device.commands(), "kernels": lambda _: {"kernels": [["own", 1.0]]}}

    setattr(server, "load_imports", stand_in)  # noqa: B010
    setattr(launches, "observe", lambda call, file: [call(), LAUNCHES][1])  # noqa: B010
    setattr(server, "load_runner_platform", lambda name: Stand())  # noqa: B010
    for module in (clock, platform, calls):
        setattr(module, "on_device", lambda row: True)  # noqa: B010
    torch.version.cuda = "stand-in"
    gpu = platform.GpuPlatform("cuda", "GPU-stand-in", 0, driver=FileDriver())
    setattr(runner_pool, "load_platform", lambda name, device: gpu)  # noqa: B010
    servers = [imports.start_fork_server("cuda"), imports.start_fork_server("cuda", compiler=True)]
    torch.set_num_threads(1)
    procfs.sleep_exactly()
    request = runner_pool.Request.from_json({"platform": "cuda@stand-in", **asked})
    pool = runner_pool.RunnerPool(request, servers[0][1], servers[1][1], scratch=os.environ["TMPDIR"])
    result = Evaluation(pool).run() if mode == "evaluate" else gpu.profile(pool)
    for pid, connection in servers:
        connection.close()
        os.kill(pid, 9)
    print(json.dumps(plain(result)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
