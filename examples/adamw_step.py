"""One AdamW step without side effects: new parameters and moments out of old ones and a gradient.

The function form, with several outputs.

Category: optimizer
Dtype: float32
"""

import torch

PARAMETERS = 1 << 20
LEARNING_RATE = 1e-2
BETA1 = 0.9
BETA2 = 0.999
EPS = 1e-8
WEIGHT_DECAY = 0.01
STEP = 10


def adamw_step(parameter, gradient, moment1, moment2):
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
