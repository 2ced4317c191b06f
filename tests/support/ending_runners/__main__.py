"""Run in a container beside a copy of the referee: real runners end in each way, at each step of the referee's.

A runner ends in its own turn in a way that the first element of its inputs names, or while it is stopped: killed, or
killed by the kernel because this process takes all memory that the sandbox has. One JSON object on standard output says
what the referee makes of it.
"""

import json
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TASK = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(64))
    def forward(self, x):
        return x * self.scale
def get_inputs():
    return [torch.randn(64, 64)]
def get_init_inputs():
    return []
"""
ENDS = """
import ctypes, os, signal, time
import torch
def take_all():
    held = []
    while True:
        held.append(torch.ones(4 << 20))
def fail():
    raise ValueError("on purpose")
WAYS = {
    1: lambda: os.kill(os.getpid(), signal.SIGKILL),
    2: lambda: ctypes.string_at(0),
    3: lambda: os._exit(0),
    4: lambda: os._exit(1),
    5: fail,
    6: lambda: time.sleep(60),
    7: lambda: os.kill(os.getpid(), signal.SIGSTOP),
    8: take_all,
}
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(64))
        self.held = torch.ones(24 << 20)  # so that the kernel takes it for the largest
    def forward(self, x):
        WAYS.get(int(x[0, 0]), lambda: None)()
        return x * self.scale
"""
WAYS = {
    "SIGKILL": 1, "SIGSEGV": 2, "exit 0": 3, "exit 1": 4, "exception": 5, "no answer": 6, "SIGSTOP": 7, "memory": 8
}  # fmt: skip
ROLES = ("candidate", "champion", "eager", "compile")
_MOST_BYTES, _AT_ONCE_BYTES = 2 << 30, 256 << 10


def main() -> None:
    """Try all of them."""
    sys.path.insert(0, str(Path(__file__).parent))
    from referee.fork_server import imports

    imports.import_torch("cpu")
    _, server = imports.start_fork_server("cpu")
    told = Trials(server).run()
    print(json.dumps(told), flush=True)
    os._exit(0)


class Trials:
    """Runners of each role, all of which have loaded the code that ends as it is told."""

    def __init__(self, server: Any) -> None:
        from referee.pool.runner_pool import Request, RunnerPool

        request = Request("cpu", TASK, candidate_source=ENDS, memory_mb=2048)
        self.pool = RunnerPool(request, server, server, scratch=os.environ["TMPDIR"])
        self.pool.stop(self.pool.start_reference())

    def run(self) -> dict[str, dict[str, str]]:
        """What the referee says: by role and way in a runner's turn, by role, way and step where it stood still."""
        import torch

        told: dict[str, dict[str, str]] = {}
        for role in ROLES:
            for way, number in WAYS.items():
                inputs = torch.full((64, 64), float(number))
                told[f"{role}: {way}"] = self._outcome(role, lambda handle, x=inputs: call(handle, x))
        for name, role, end, moment, step in stopped():
            ends = {"kill": self.kill, "memory": self.take_memory}[end]
            told[name] = self._outcome(role, STEPS[step], ends, wait=moment == "gone")
        return told

    def _outcome(
        self,
        role: str,
        do: Callable[[Any], object],
        end: Callable[[Any], None] | None = None,
        *,
        wait: bool = False,
    ) -> dict[str, str]:
        """What the referee says of a runner that ends, before it does something with it or meanwhile."""
        from referee.errors import BaselineFailed, ChampionFailed, Finding
        from referee.isolation.memory_kills import MemoryKills
        from referee.pool.baselines import OtherBaseline
        from referee.timing.rounds import blame

        self.pool.kills = MemoryKills()
        handle = self.pool.start(role if role != "compile" else "eager", ENDS)
        handle.role = role
        self.pool.names_of.clear()
        self.pool.load_model(handle, ENDS, "ModelNew")
        handle.last = call(handle)
        handle.begin({"op": "release"})
        handle.finish(timeout_s=20)
        began, outcome = time.monotonic(), {"verdict": "nothing", "message": ""}
        try:
            try:
                with blame(role):
                    if end is not None:
                        end(handle)
                    while wait and Path(f"/proc/{handle.pid}").exists():
                        time.sleep(0.01)
                    do(handle)
            except BaselineFailed as failure:
                baseline = OtherBaseline(self.pool, failure.name)
                baseline.leave_out(failure.failure, doing="a timed call")
                outcome = {"verdict": "left out", "message": baseline.fails}
        except ChampionFailed as failure:
            outcome = {"verdict": "without champion", "message": str(failure)}
        except Finding as finding:
            code = f"/{finding.code}" if finding.code else ""
            outcome = {"verdict": finding.verdict + code, "message": finding.message}
        outcome["seconds"] = f"{time.monotonic() - began:.2f}"
        self.pool.stop(handle)
        return outcome

    @staticmethod
    def kill(handle: Any) -> None:
        """Kill a stopped runner."""
        os.kill(handle.pid, signal.SIGKILL)

    def take_memory(self, handle: Any) -> None:
        """Have a process take memory until the kernel kills one, and give it back."""
        kills = self.pool.kills.count()
        pid = os.fork()
        if pid == 0:
            taken = mmap.mmap(-1, _MOST_BYTES, flags=mmap.MAP_PRIVATE)
            for _ in range(_MOST_BYTES // _AT_ONCE_BYTES):
                taken.write(bytes(_AT_ONCE_BYTES))
            os._exit(0)
        while self.pool.kills.count() == kills:
            time.sleep(0.0005)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def call(handle: Any, x: Any = None) -> Any:
    """One call, on zeros unless others are given; a second is time enough."""
    import torch
    from referee.protocol.tensors import TensorRow, Tree

    tree = Tree({"list": [{"tensor": 0}]}, (TensorRow(0, "float32", (64, 64), (64, 1)),))
    content = (torch.zeros(64, 64) if x is None else x).reshape(-1).view(torch.uint8)
    long_s = 60.0 if x is not None and float(x[0, 0]) == WAYS["memory"] else 1.5
    return handle.call(tree, [content], seed=1, timeout_s=long_s, keep=True)


def finish(handle: Any) -> None:
    """Have it work beside, and wait for it."""
    handle.begin({"op": "release"})
    handle.resume()
    handle.pause()
    handle.finish(timeout_s=5)


STEPS: dict[str, Callable[[Any], object]] = {
    "read": lambda handle: handle.read(handle.last.outputs.tensors[0]),
    "flip": lambda handle: handle.flip(handle.last.outputs.tensors[0], [1]),
    "places": lambda handle: handle.places(list(handle.last.outputs.tensors)),
    "see_still": lambda handle: handle.see_still(),
    "disturbance": lambda handle: handle.disturbance(),
    "look": lambda handle: handle.look(lambda pid: Path(f"/proc/{pid}/maps").read_text()),
    "call": call,
    "ask": lambda handle: handle.ask({"op": "release"}, timeout_s=5),
    "attach": lambda handle: handle.attach(handle.platform.input_buffer(1 << 16, 1)),
    "reveal": lambda handle: handle.reveal({"op": "state"}, timeout_s=5),
    "finish": finish,
}


FEW = ("read", "flip", "call")


def stopped() -> list[tuple[str, str, str, str, str]]:
    """The trials of runners that end while they are stopped: name, role, how, when, and what is done with it then.

    To use up the sandbox's memory takes a second, so that is tried on a few steps of the baseline alone.
    """
    return [
        (f"{role}, stopped: {end}, {moment}: {step}", role, end, moment, step)
        for role in ("candidate", "eager")
        for end, moment in (("kill", "at once"), ("kill", "gone"), ("memory", "at once"))
        for step in (STEPS if (role, end) != ("eager", "memory") else FEW)
    ]


if __name__ == "__main__":
    main()
