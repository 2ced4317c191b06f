"""Ops of the candidates that only a GPU can judge, beside that of the kits, and kernels that several of them launch."""

from tests.platforms.kits import OP

LARGE = OP.replace("randn(64, 256)", "randn(8192, 4096)").replace("[256]", "[4096]")
"""The op of the kits on 128 MiB, which takes far longer than a hand-over."""

_NO_STATE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, {arguments}):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def without_state(arguments: str, result: str, inputs: str) -> str:
    """An op that is an expression of its arguments; `inputs` are expressions, by commas."""
    return _NO_STATE.format(arguments=arguments, result=result, inputs=inputs)


DEEP_PRODUCT = without_state("a, b", "a @ b", "torch.randn(512, 4096), torch.randn(4096, 512)")
"""Its inner dimension is large, so that what narrower types round does not hide in few terms."""

PRODUCT = without_state("a, b", "a @ b", "torch.randn(64, 256), torch.randn(256, 64)")
"""Small enough for an emulation."""

FINITE_PRODUCT = f'{PRODUCT}\n\nDOMAIN = "finite"\n'
"""Infinite numbers have no parts that add up to them."""

ROW_SUM = without_state("x", "x.sum(-1)", "torch.randn(96, 1000)")
SOFTMAX = without_state("x", "torch.softmax(x, -1)", "torch.randn(48, 300)")
PAIR = without_state("x, y", "torch.sigmoid(x) * torch.tanh(y)", "torch.randn(64, 200), torch.randn(64, 200)")

LINEAR = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, width) / width**0.5)

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight)


def get_inputs():
    return [torch.randn(32, 96)]


def get_init_inputs():
    return [96, 64]
"""

RMS_NORM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def get_inputs():
    return [torch.randn(40, 250)]


def get_init_inputs():
    return [250]
"""
