"""The short causal convolution of a state-space model: one 4-tap filter for each channel, then SiLU.

Category: convolution
Dtype: float32
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4
CHANNELS = 512
LENGTH = 1024
TAPS = 4


class Model(nn.Module):
    """SiLU(sum over t of weight[c, t] x[c, l - TAPS + 1 + t] + bias[c])."""

    def __init__(self, channels, taps):
        super().__init__()
        self.taps = taps
        self.weight = nn.Parameter(torch.randn(channels, 1, taps) / taps)
        self.bias = nn.Parameter(torch.randn(channels) * 0.1)

    def forward(self, x):
        padded = F.pad(x, (self.taps - 1, 0))
        filtered = F.conv1d(padded, self.weight, self.bias, groups=x.shape[1])
        return filtered * torch.sigmoid(filtered)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return [CHANNELS, TAPS]
