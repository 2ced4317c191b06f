"""Cross entropy with label smoothing and a weight for each sample, written out from log-softmax.

Category: loss
Dtype: float32
"""

import torch
import torch.nn as nn

SAMPLES = 4096
CLASSES = 1000
SMOOTHING = 0.1


class Model(nn.Module):
    """sum of w_i ((1 - s) nll_i + s mean over classes of -log p_i) / sum of w_i."""

    def forward(self, logits, targets, weights):
        log_probabilities = torch.log_softmax(logits, dim=-1)
        picked = -log_probabilities.gather(1, targets[:, None]).squeeze(1)
        uniform = -log_probabilities.mean(dim=-1)
        losses = (1.0 - SMOOTHING) * picked + SMOOTHING * uniform
        return (losses * weights).sum() / weights.sum()


def get_inputs():
    return [
        torch.randn(SAMPLES, CLASSES) * 3.0,
        torch.randint(0, CLASSES, (SAMPLES,)),
        torch.rand(SAMPLES) + 0.1,
    ]


def get_init_inputs():
    return []
