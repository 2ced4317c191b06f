"""One RMSprop step with momentum, without side effects: new parameters and state from old ones.

Category: optimizer
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """(parameter', square', momentum') after one step."""

    def __init__(self, rate: float, alpha: float, beta: float, eps: float) -> None:
        super().__init__()
        self.rate, self.alpha, self.beta, self.eps = rate, alpha, beta, eps

    def forward(
        self, parameter: torch.Tensor, gradient: torch.Tensor, square: torch.Tensor, momentum: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Four tensors of one shape."""
        square = self.alpha * square + (1.0 - self.alpha) * gradient.square()
        momentum = self.beta * momentum + gradient / (square.sqrt() + self.eps)
        return parameter - self.rate * momentum, square, momentum


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [
        torch.randn(750_000),
        torch.randn(750_000),
        torch.rand(750_000) + 0.5,
        torch.randn(750_000),
    ]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return [1e-2, 0.99, 0.9, 1e-8]
