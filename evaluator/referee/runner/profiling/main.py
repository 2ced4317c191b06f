"""What runs in a profiled runner: the candidate, called for observers that would disturb a timed call.

Started as `python3 -m referee.runner.profiling.main SOCKET`. All that it answers is a claim:
the candidate shares this process.
"""

import socket
import sys
import time
from pathlib import Path
from typing import Any

from ...fork_server import imports
from ...protocol import framing
from ..main import Commands, Runner
from . import operators, stack_sampler

_MAX_CALLS = 100_000


class ProfiledRunner(Runner):
    """A runner with other commands for its calls."""

    def __init__(self, sock: socket.socket, built: Path, scratch: Path) -> None:
        super().__init__(sock, built)
        self.scratch = scratch
        self.arguments: list[Any] = []  # of the calls to come, in turn

    def commands(self) -> Commands:
        """What the referee may ask for, by name."""
        return {
            "attach": self.attach,
            "load": self.load,
            "construct": self.construct,
            "load_state": self.load_state,
            "settle": self.settle,
            "arguments": self.take_arguments,
            "repeat": self.repeat,
            "operators": self.operators,
            "sample": self.sample,
        }

    def take_arguments(self, message: framing.Message) -> framing.Message:
        """Keep one more set of inputs (they lie in the inbox) for the calls to come."""
        self.arguments.append(self._decode(message["tree"]))
        return {}

    def repeat(self, message: framing.Message) -> framing.Message:
        """Call again and again for some time."""
        start = time.perf_counter()
        calls = 0
        while calls < _MAX_CALLS and (calls < message["calls_min"] or time.perf_counter() - start < message["seconds"]):
            self._call(calls)
            calls += 1
        return {"calls": calls, "compiles": "torch._inductor.compile_fx" in sys.modules}

    def operators(self, message: framing.Message) -> framing.Message:
        """Time, calls and allocations by torch operator."""
        return operators.observe(self._call, message["calls"])

    def sample(self, message: framing.Message) -> framing.Message:
        """Where processor time goes, by shared object and function."""
        library = stack_sampler.build(self.scratch)
        seconds = message["seconds"]
        addresses = stack_sampler.sample(library, lambda: self.repeat({"calls_min": 1, "seconds": seconds}))
        return stack_sampler.attribute(addresses, own=str(self.scratch.parent.parent))

    def _call(self, number: int) -> None:
        import torch

        with torch.no_grad():
            self.model(*self.arguments[number % len(self.arguments)])


def main() -> None:
    """Import torch, say so, serve."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    imports.import_torch(timed=False)
    home = Path.cwd()
    scratch = home / "profile"
    framing.send(sock, {"ok": True})
    ProfiledRunner(sock, home / "built", scratch).serve()


if __name__ == "__main__":
    main()
