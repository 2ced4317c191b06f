"""Convolution with bias, ReLU and max pooling: the stem of an image network.

Category: convolution
Dtype: float32
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4
IN_CHANNELS = 3
OUT_CHANNELS = 32
SIDE = 112


class Model(nn.Module):
    """MaxPool2x2(ReLU(Conv3x3(x)))."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1)

    def forward(self, x):
        return F.max_pool2d(F.relu(self.conv(x)), kernel_size=2)


def get_inputs():
    return [torch.randn(BATCH, IN_CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [IN_CHANNELS, OUT_CHANNELS]
