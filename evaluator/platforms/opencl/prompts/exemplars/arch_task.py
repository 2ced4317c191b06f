"""Squeeze and excitation: channels weighted by a small network that sees their means, then a residual and ReLU.

Category: arch
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """relu(shortcut + x * sigmoid(expand(relu(squeeze(mean(x))))))."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.squeeze = nn.Linear(channels, hidden)
        self.expand = nn.Linear(hidden, channels)

    def forward(self, x: torch.Tensor, shortcut: torch.Tensor) -> torch.Tensor:
        """x, shortcut: (batch, channels, height, width)."""
        hidden = torch.relu(self.squeeze(x.mean(dim=(2, 3))))
        gates = torch.sigmoid(self.expand(hidden))
        return torch.relu(shortcut + x * gates[:, :, None, None])


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(8, 96, 40, 40), torch.randn(8, 96, 40, 40)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return [96, 6]
