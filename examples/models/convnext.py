"""A small ConvNeXt-style image classifier: wide depthwise convolutions, and MLPs over channels at each pixel.

Category: arch
Dtype: float32
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 6
SIDE = 96
COLOURS = 3
WIDTHS = [48, 96, 192]
DEPTHS = [2, 3, 2]
CLASSES = 100


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of each pixel, for tensors with the channels second."""

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-6)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    """x + scale * contract(GELU(expand(norm(depthwise(x))))), with one scale for each channel."""

    def __init__(self, channels):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, kernel_size=7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.expand = nn.Linear(channels, 4 * channels)
        self.contract = nn.Linear(4 * channels, channels)
        for layer in (self.expand, self.contract):
            nn.init.kaiming_normal_(layer.weight)
        self.scale = nn.Parameter(0.1 + 0.5 * torch.rand(channels))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.contract(F.gelu(self.expand(y)))
        return x + y.permute(0, 3, 1, 2)


class Model(nn.Module):
    """Logits of the classes of each image: a stem of patches, stages of blocks with downsampling between, a head."""

    def __init__(self, colours, widths, depths, classes):
        super().__init__()
        stem = nn.Sequential(nn.Conv2d(colours, widths[0], kernel_size=4, stride=4), ChannelNorm(widths[0]))
        self.entries = nn.ModuleList([stem])
        for stage in range(1, len(widths)):
            halved = nn.Conv2d(widths[stage - 1], widths[stage], kernel_size=2, stride=2)
            self.entries.append(nn.Sequential(ChannelNorm(widths[stage - 1]), halved))
        self.stages = nn.ModuleList(
            nn.Sequential(*(Block(width) for _ in range(depth))) for width, depth in zip(widths, depths, strict=True)
        )
        self.norm = nn.LayerNorm(widths[-1], eps=1e-6)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, images):
        x = images
        for entry, stage in zip(self.entries, self.stages, strict=True):
            x = stage(entry(x))
        return self.head(self.norm(x.mean(dim=(2, 3))))


def get_inputs():
    return [torch.randn(BATCH, COLOURS, SIDE, SIDE)]


def get_init_inputs():
    return [COLOURS, WIDTHS, DEPTHS, CLASSES]
