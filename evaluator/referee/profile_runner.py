"""What runs in a profiled runner: the candidate, called for observers that would disturb a timed call.

Started as `python3 -m referee.profile_runner SOCKET`, if need be under valgrind. All that it answers is a claim: the
candidate shares this process.
"""

import socket
import sys
import time
from pathlib import Path
from typing import Any

from . import profile_callgrind, profile_counters, profile_operators, profile_sampler, warmup, wire
from .runner import Commands, Runner

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
            "counters": self.counters,
            "count": self.count,
        }

    def take_arguments(self, message: wire.Message) -> wire.Message:
        """Keep one more set of inputs (they lie in the inbox) for the calls to come."""
        self.arguments.append(self._decode(message["tree"]))
        return {}

    def repeat(self, message: wire.Message) -> wire.Message:
        """Call again and again for some time."""
        start = time.perf_counter()
        calls = 0
        while calls < _MAX_CALLS and (calls < message["calls_min"] or time.perf_counter() - start < message["seconds"]):
            self._call(calls)
            calls += 1
        return {"calls": calls, "compiles": "torch._inductor.compile_fx" in sys.modules}

    def operators(self, message: wire.Message) -> wire.Message:
        """Time, calls and allocations by torch operator."""
        return profile_operators.observe(self._call, message["calls"])

    def sample(self, message: wire.Message) -> wire.Message:
        """Where processor time goes, by shared object and function."""
        library = profile_sampler.build(self.scratch)
        seconds = message["seconds"]
        addresses = profile_sampler.sample(library, lambda: self.repeat({"calls_min": 1, "seconds": seconds}))
        return profile_sampler.attribute(addresses, own=str(self.scratch.parent.parent))

    def counters(self, _: wire.Message) -> wire.Message:
        """What the processor's own counters say about one call."""
        return profile_counters.count(lambda: self._call(0))

    def count(self, message: wire.Message) -> wire.Message:
        """One call under callgrind, after another one that fills the simulated caches."""
        requests = profile_callgrind.build_requests(self.scratch)
        if message["warm"]:
            requests.start()
            self._call(0)
            requests.zero()
        else:
            requests.start()
        self._call(1)
        requests.dump()
        profile_callgrind.output(self.scratch).chmod(0o644)
        return {}

    def _call(self, number: int) -> None:
        import torch

        with torch.no_grad():
            self.model(*self.arguments[number % len(self.arguments)])


def main() -> None:
    """Import torch, say so, serve."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    warmup.import_torch(timed=False)
    home = Path.cwd()
    scratch = home / "profile"
    wire.send(sock, {"ok": True})
    ProfiledRunner(sock, home / "built", scratch).serve()


if __name__ == "__main__":
    main()
