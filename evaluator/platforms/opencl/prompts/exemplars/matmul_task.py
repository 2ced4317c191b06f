"""A linear layer with squared ReLU, a gate and a residual.

Category: matmul
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """residual + gate * relu(x W^T + b)^2."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor, gate: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """x: (..., inputs); gate, residual: (..., outputs)."""
        return residual + gate * torch.relu(self.linear(x)).square()


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(1280, 32), torch.randn(1280, 1024), torch.randn(1280, 1024)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return [32, 1024]
