"""GELU by its tanh formula, written out as older transformer code has it: nine passes over memory in eager mode.

The function form: the function named `op` is what gets optimized.

Category: activation
Dtype: float32
"""

import math

import torch

BATCH = 2048
FEATURES = 1024


def op(x):
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + torch.tanh(inner))


def get_inputs():
    return [torch.randn(BATCH, FEATURES)]
