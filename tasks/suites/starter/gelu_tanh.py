"""GELU by its tanh formula, written out as older transformer code has it: nine passes over memory in eager mode.

Category: activation
Dtype: float32
"""

import math

import torch
import torch.nn as nn

BATCH = 2048
FEATURES = 1024


class Model(nn.Module):
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""

    def forward(self, x):
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1.0 + torch.tanh(inner))


def get_inputs():
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs():
    return []
