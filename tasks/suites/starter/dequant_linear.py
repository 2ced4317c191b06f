"""A linear layer with 8-bit weights and a scale for each group, at the few tokens of a decoding step: weight-bound.

Category: matmul
Dtype: float32
"""

import torch
import torch.nn as nn

TOKENS = 4
IN_FEATURES = 2048
OUT_FEATURES = 2048
GROUP = 128


class Model(nn.Module):
    """x @ (weight * scale)^T + bias, the weight stored as int8 and unpacked on the way."""

    def __init__(self, in_features, out_features, group):
        super().__init__()
        self.group = group
        weight = torch.randint(-127, 128, (out_features, in_features), dtype=torch.int8)
        self.register_buffer("weight", weight)
        self.scale = nn.Parameter((torch.rand(out_features, in_features // group) + 0.5) / 1000)
        self.bias = nn.Parameter(torch.randn(out_features) * 0.1)

    def forward(self, x):
        groups = self.weight.to(x.dtype).unflatten(1, (-1, self.group))
        weight = (groups * self.scale[:, :, None]).flatten(1)
        return torch.matmul(x, weight.t()) + self.bias


def get_inputs():
    return [torch.randn(TOKENS, IN_FEATURES)]


def get_init_inputs():
    return [IN_FEATURES, OUT_FEATURES, GROUP]
