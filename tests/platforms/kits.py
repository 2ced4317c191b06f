"""Candidates of every kind for one small op, for each platform: what the conformance suite runs."""

from dataclasses import dataclass

OP = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        return F.relu(x * self.weight) + x


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return [256]
"""


@dataclass(frozen=True)
class Kit:
    """Candidates for `OP` on one platform.

    Attributes:
        right: passes.
        wrong: differs from the reference in a few elements.
        slower: is right, and takes much longer than `right`.
        raises: fails in each call.
        broken: is no Python.
        cheats: by name, candidates that must not pass, or must gain nothing by it.
    """

    right: str
    slower: str
    wrong: str
    raises: str
    cheats: dict[str, str]
    broken: str = "class ModelNew(:\n"


_TORCH = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.first = None

    def forward(self, x):
        {body}
"""

CPU = Kit(
    right=_TORCH.format(body="return F.relu(x * self.weight) + x"),
    slower=_TORCH.format(body="return [F.relu(x * self.weight) + x for _ in range(50)][-1]"),
    wrong=_TORCH.format(body="return F.relu(x * self.weight).clamp(max=3.0) + x"),
    raises=_TORCH.format(body="raise RuntimeError('no such kernel')"),
    cheats={
        "the first answer for every call": _TORCH.format(
            body="self.first = F.relu(x * self.weight) + x if self.first is None else self.first; return self.first"
        ),
        "nothing": _TORCH.format(body="return torch.empty_like(x)"),
    },
)

_PROGRAM = """
import array_machine as am


class ModelNew:
    def __init__(self, features):
        self.first = None

    def __call__(self, x):
        {body}
"""

_FORGED = """
import array_machine as am
import gc


class ModelNew:
    def __init__(self, features):
        pass

    def __call__(self, x):
        y = am.relu(x * am.state("weight")) + x
        program = x._program
        {forgery}
        return y
"""

SIMULATED = Kit(
    right=_PROGRAM.format(body='return am.relu(x * am.state("weight")) + x'),
    slower=_PROGRAM.format(body='y = am.relu(x * am.state("weight")) + x; return am.maximum(am.minimum(y, y), y)'),
    wrong=_PROGRAM.format(body='return am.minimum(am.relu(x * am.state("weight")), 3.0) + x'),
    raises=_PROGRAM.format(body="raise RuntimeError('no such program')"),
    cheats={
        "computes with torch": _PROGRAM.format(body="import torch; return torch.relu(x)"),
        "looks at numbers": _PROGRAM.format(body="return x if x.item() > 0 else -x"),
        "an array of another call": _PROGRAM.format(
            body='self.first = self.first or am.relu(x * am.state("weight")) + x; return self.first'
        ),
        "no instructions": _FORGED.format(forgery="program.instructions.clear()"),
        "an instruction that there is not": _FORGED.format(
            forgery='program.instructions[-1] = type(program.instructions[-1])("free", (0,), {})'
        ),
        "a value that does not come before": _FORGED.format(
            forgery="make = type(program.instructions[1]); "
            "program.instructions[1] = make('relu', (len(program.instructions) - 1,), {})"
        ),
        "a state that there is not": _FORGED.format(
            forgery='program.instructions[-1] = type(program.instructions[-1])("state", (), {"name": "answer"})'
        ),
    },
)

KITS = {"cpu": CPU, "simulated": SIMULATED}
