"""What the platforms' own tests run beside the kits: attacks, and honest candidates with their ops."""

from dataclasses import dataclass

from tasks.outcomes import Verdict


@dataclass(frozen=True)
class Attack:
    """A candidate for `kits.OP` that must not pass.

    Attributes:
        source: the candidate.
        verdict: what it must get.
        message: words of the message.
    """

    source: str
    verdict: Verdict
    message: str


@dataclass(frozen=True)
class Honest:
    """An op and a candidate that must pass."""

    op: str
    source: str


_OP = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {construct}

    def forward(self, {arguments}):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def op(body: str, *, arguments: str = "x", inputs: str = "torch.randn(32, 100)", construct: str = "pass") -> str:
    """An op without arguments of its constructor, whose `forward` has this body."""
    return _OP.format(body=body, arguments=arguments, inputs=inputs, construct=construct)
