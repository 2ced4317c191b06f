"""One AdamW step without side effects: new parameters and moments out of old ones and a gradient.

Category: optimizer
Dtype: float32
"""

import torch
import torch.nn as nn

PARAMETERS = 1 << 20
LEARNING_RATE = 1e-2
BETA1 = 0.9
BETA2 = 0.999
EPS = 1e-8
WEIGHT_DECAY = 0.01
STEP = 10


class Model(nn.Module):
    """(parameter', first moment', second moment') after step STEP."""

    def forward(self, parameter, gradient, moment1, moment2):
        moment1 = BETA1 * moment1 + (1.0 - BETA1) * gradient
        moment2 = BETA2 * moment2 + (1.0 - BETA2) * gradient * gradient
        direction = moment1 / (1.0 - BETA1**STEP)
        spread = torch.sqrt(moment2 / (1.0 - BETA2**STEP)) + EPS
        decayed = parameter * (1.0 - LEARNING_RATE * WEIGHT_DECAY)
        return decayed - LEARNING_RATE * direction / spread, moment1, moment2


def get_inputs():
    return [
        torch.randn(PARAMETERS),
        torch.randn(PARAMETERS),
        torch.randn(PARAMETERS) * 0.1,
        torch.rand(PARAMETERS) * 0.01,
    ]


def get_init_inputs():
    return []
