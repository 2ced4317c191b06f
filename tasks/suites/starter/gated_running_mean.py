"""Running mean of a sequence, weighted by a gate: the scan at the heart of attention-free transformers.

Category: scan
Dtype: float32
"""

import torch
import torch.nn as nn

BATCH = 4
LENGTH = 512
FEATURES = 512


class Model(nn.Module):
    """sigmoid(q_t) * sum over s <= t of g_s v_s / (sum over s <= t of g_s + eps), with g = sigmoid(k)."""

    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, q, k, v):
        gate = torch.sigmoid(k)
        weighted = torch.cumsum(gate * v, dim=1)
        total = torch.cumsum(gate, dim=1)
        return torch.sigmoid(q) * weighted / (total + self.eps)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, FEATURES) for _ in range(3)]


def get_init_inputs():
    return [1e-6]
