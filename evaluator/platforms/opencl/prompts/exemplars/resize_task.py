"""Bicubic resize of images, cut off at 0 and 1.

Category: resize
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """clamp(bicubic(images), 0, 1)."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.size = (height, width)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """images: (batch, channels, height, width)."""
        resized = nn.functional.interpolate(images, size=self.size, mode="bicubic", align_corners=False)
        return resized.clamp(0.0, 1.0)


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.rand(2, 3, 192, 192)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return [256, 310]
