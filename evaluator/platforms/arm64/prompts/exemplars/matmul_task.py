"""A linear layer with squared ReLU.

Category: matmul
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """relu(x W^T + b)^2."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (rows, inputs)."""
        return torch.relu(self.linear(x)).square()


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(48, 40)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return [40, 96]
