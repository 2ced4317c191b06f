"""One RMSprop step with momentum."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """New parameter, new mean square and new momentum from old ones; nothing is changed in place."""

    def __init__(self, rate, alpha, beta, eps):
        super().__init__()
        self.rate, self.alpha, self.beta, self.eps = rate, alpha, beta, eps

    def forward(self, parameter, gradient, square, momentum):
        """Take one step."""
        square = self.alpha * square + (1.0 - self.alpha) * gradient.square()
        momentum = self.beta * momentum + gradient / (square.sqrt() + self.eps)
        return parameter - self.rate * momentum, square, momentum


def get_inputs():
    """Four vectors whose length is no multiple of four."""
    return [torch.randn(20_003), torch.randn(20_003), torch.rand(20_003) + 0.5, torch.randn(20_003)]


def get_init_inputs():
    """Learning rate, decay of the mean square, decay of the momentum, and what is added to the root."""
    return [1e-2, 0.99, 0.9, 1e-8]
