"""A gated recurrent network of two layers with its recurrence written out, one cell after the other.

The gates are those of torch.nn.GRU. The products with the inputs of a layer are one product for all steps.

Category: arch
Dtype: float32
"""

import torch
import torch.nn as nn

BATCH = 64
STEPS = 16
INPUTS = 128
HIDDEN = 256
LAYERS = 2


class Layer(nn.Module):
    """h = (1 - z) * n + z * h, with r, z = sigmoid(W x + U h) and n = tanh(W x + r * (U h)) at each step."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.of_input = nn.Linear(inputs, 3 * hidden)
        self.of_state = nn.Linear(hidden, 3 * hidden)
        nn.init.normal_(self.of_input.weight, std=inputs**-0.5)
        nn.init.normal_(self.of_state.weight, std=hidden**-0.5)

    def forward(self, x, state):
        states = []
        for step in self.of_input(x).unbind(dim=1):
            reset_in, update_in, new_in = step.chunk(3, dim=1)
            reset_state, update_state, new_state = self.of_state(state).chunk(3, dim=1)
            reset = torch.sigmoid(reset_in + reset_state)
            update = torch.sigmoid(update_in + update_state)
            new = torch.tanh(new_in + reset * new_state)
            state = (1 - update) * new + update * state
            states.append(state)
        return torch.stack(states, dim=1), state


class Model(nn.Module):
    """The states of the last layer at all steps, and the last state of each layer."""

    def __init__(self, inputs, hidden, layers):
        super().__init__()
        self.layers = nn.ModuleList(Layer(hidden if number else inputs, hidden) for number in range(layers))

    def forward(self, x, first):
        last = []
        for layer, state in zip(self.layers, first.unbind(0), strict=True):
            x, state = layer(x, state)
            last.append(state)
        return x, torch.stack(last)


def get_inputs():
    return [torch.randn(BATCH, STEPS, INPUTS), torch.rand(LAYERS, BATCH, HIDDEN) * 2 - 1]


def get_init_inputs():
    return [INPUTS, HIDDEN, LAYERS]
