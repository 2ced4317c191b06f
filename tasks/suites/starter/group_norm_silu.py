"""GroupNorm, a time embedding's shift and SiLU: the start of a diffusion U-Net's residual block.

Category: normalization
Dtype: float32
"""

import torch
import torch.nn as nn

BATCH = 4
CHANNELS = 128
GROUPS = 32
SIDE = 64


class Model(nn.Module):
    """SiLU(GroupNorm(x) + embedding), the embedding being one value for each image and channel."""

    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x, embedding):
        shifted = self.norm(x) + embedding[:, :, None, None]
        return shifted * torch.sigmoid(shifted)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE), torch.randn(BATCH, CHANNELS)]


def get_init_inputs():
    return [GROUPS, CHANNELS]
