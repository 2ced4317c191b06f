"""Mixed pooling: a learned blend, for each channel, of max and average pooling of the same windows.

Category: pooling
Dtype: float32
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8
CHANNELS = 32
SIDE = 96


class Model(nn.Module):
    """s max(windows) + (1 - s) mean(windows), with s = sigmoid(blend)."""

    def __init__(self, channels):
        super().__init__()
        self.blend = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        share = torch.sigmoid(self.blend)
        highest = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)
        average = F.avg_pool2d(x, kernel_size=3, stride=2, padding=1)
        return share * highest + (1.0 - share) * average


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
