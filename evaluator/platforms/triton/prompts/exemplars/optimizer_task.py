"""One RMSprop step with momentum, without side effects: new parameters and state from old ones."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """(parameter', square', momentum') after one step."""

    def __init__(self, rate, alpha, beta, eps):
        super().__init__()
        self.rate, self.alpha, self.beta, self.eps = rate, alpha, beta, eps

    def forward(self, parameter, gradient, square, momentum):
        """Make the step with four tensors of one shape."""
        square = self.alpha * square + (1.0 - self.alpha) * gradient.square()
        momentum = self.beta * momentum + gradient / (square.sqrt() + self.eps)
        return parameter - self.rate * momentum, square, momentum


def get_inputs():
    """Parameters, their gradients and the optimizer's state."""
    return [torch.randn(50_000), torch.randn(50_000), torch.rand(50_000) + 0.5, torch.randn(50_000)]


def get_init_inputs():
    """Learning rate, both decays and what keeps the divisor from zero."""
    return [1e-2, 0.99, 0.9, 1e-8]
