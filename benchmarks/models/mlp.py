"""A deep perceptron: many narrow linear layers with ReLU between them.

Category: arch
Dtype: float32
"""

import torch
import torch.nn as nn

BATCH = 2048
INPUTS = 384
HIDDEN = [256] * 10
OUTPUTS = 64


class Model(nn.Module):
    """Linear layers of the given sizes, ReLU after each but the last."""

    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(before, after) for before, after in zip([inputs, *hidden], [*hidden, outputs], strict=True)
        )
        for layer in self.layers:
            nn.init.kaiming_normal_(layer.weight)  # keeps the scale through ReLU, which the default does not

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


def get_inputs():
    return [torch.randn(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, HIDDEN, OUTPUTS]
