"""One step of gradient descent with momentum and weight decay, without side effects.

Category: optimizer
Dtype: float32
"""

import torch
from torch import nn


class Model(nn.Module):
    """(new parameter, new momentum)."""

    def forward(
        self, parameter: torch.Tensor, gradient: torch.Tensor, momentum: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Three tensors of one shape."""
        moved = 0.9 * momentum + gradient + 0.01 * parameter
        return parameter - 0.1 * moved, moved


def get_inputs() -> list[torch.Tensor]:
    """One call's inputs."""
    return [torch.randn(20_000), torch.randn(20_000), torch.randn(20_000)]


def get_init_inputs() -> list[object]:
    """Arguments of the constructor."""
    return []
