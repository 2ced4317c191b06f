"""Candidates that only a GPU can judge, for the op of the kits: attacks on its clock and memory, and honest ones.

They are Python with torch, so that they build at once in either language. None has run: no GPU was at hand.
"""

from dataclasses import dataclass

from tests.platforms.kits import OP

_CANDIDATE = """
import ctypes
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.kept, self.graph, self.side, self.seen = None, None, None, {{}}
        self.calls = 0

    def right(self, x):
        return F.relu(x * self.weight) + x

    def forward(self, x):
        self.calls += 1
{body}
"""


def _with(body: str) -> str:
    lines = body.strip("\n").splitlines()
    return _CANDIDATE.format(body="\n".join(f"        {line}" for line in lines))


@dataclass(frozen=True)
class Attack:
    """A candidate that must not pass, and the verdicts that it may get."""

    source: str
    verdicts: tuple[str, ...] = ("wrong_output", "integrity")


ATTACKS = {
    "a side stream that nobody joins": Attack(
        _with("""
self.side = self.side or torch.cuda.Stream()
y = torch.empty_like(x)
with torch.cuda.stream(self.side):
    torch.cuda._sleep(20_000_000)
    y.copy_(self.right(x))
return y
""")
    ),
    "waits for nothing: torch's synchronize does nothing": Attack(
        _with("""
torch.cuda.synchronize = lambda *_: None
y = torch.zeros_like(x)
torch.cuda._sleep(50_000_000)
y.copy_(self.right(x))
return y
""")
    ),
    "leaves work running behind its answer": Attack(
        _with("""
torch.cuda.synchronize = lambda *_: None
y = self.right(x)
self.side = self.side or torch.cuda.Stream()
with torch.cuda.stream(self.side):
    torch.cuda._sleep(1_000_000_000)
return y
""")
    ),
    "a graph that is replayed on old inputs": Attack(
        _with("""
if self.calls < 4:
    return self.right(x)
if self.graph is None:
    self.kept = x.clone()
    self.graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(self.graph):
        self.first = self.right(self.kept)
self.graph.replay()
return self.first.clone()
""")
    ),
    "the answer to the last inputs at this address": Attack(
        _with("""
key = x.data_ptr()
if key not in self.seen:
    self.seen[key] = self.right(x)
return self.seen[key].clone()
""")
    ),
    "uninitialised memory": Attack(_with("return torch.empty_like(x)")),
    "one output for all calls": Attack(
        _with("""
self.kept = torch.empty_like(x) if self.kept is None or self.kept.shape != x.shape else self.kept
return self.kept.copy_(self.right(x))
""")
    ),
    "half of the work, in bfloat16": Attack(
        _with("return (F.relu(x.bfloat16() * self.weight.bfloat16()) + x.bfloat16()).float()")
    ),
    "writes to its inputs": Attack(_with("return x.copy_(self.right(x)).clone()")),
    "an output on the host": Attack(_with("return self.right(x).cpu()")),
    "changes the inputs that it was given for others": Attack(_with("y = self.right(x); x.zero_(); return y")),
}

HONEST = {
    "torch": _with("return self.right(x)"),
    "a side stream that is joined": _with("""
self.side = self.side or torch.cuda.Stream()
self.side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(self.side):
    y = self.right(x)
torch.cuda.current_stream().wait_stream(self.side)
return y
"""),
    "torch.compile": _with("""
self.kept = self.kept or torch.compile(self.right, dynamic=False)
return self.kept(x)
"""),
    "in place, on memory of its own": _with("""
y = torch.mul(x, self.weight)
return y.relu_().add_(x)
"""),
}

LARGE = OP.replace("randn(64, 256)", "randn(8192, 4096)").replace("[256]", "[4096]")
"""The op of the kits on 128 MiB, which takes far longer than a hand-over."""
