"""Mean, variance and largest magnitude of each channel: what activation quantization calibrates itself with.

Category: reduce
Dtype: float32
"""

import torch
import torch.nn as nn

BATCH = 8
CHANNELS = 64
SIDE = 96


class Model(nn.Module):
    """Three reductions of one tensor over everything but its channels."""

    def forward(self, x):
        mean = x.mean(dim=(0, 2, 3))
        centered = x - mean[:, None, None]
        variance = (centered * centered).mean(dim=(0, 2, 3))
        largest = x.abs().amax(dim=(0, 2, 3))
        return mean, variance, largest


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return []
