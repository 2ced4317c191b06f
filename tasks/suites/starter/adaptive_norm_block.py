"""A diffusion transformer's modulated branch: LayerNorm, a shift and scale from the condition, GELU, a gated residual.

Category: fuse
Dtype: float32
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4
TOKENS = 512
FEATURES = 768


class Model(nn.Module):
    """x + gate * GELU(LayerNorm(x) * (1 + scale) + shift), with shift, scale and gate for each sample."""

    def __init__(self, features, eps):
        super().__init__()
        self.features = features
        self.eps = eps

    def forward(self, x, shift, scale, gate):
        normed = F.layer_norm(x, (self.features,), eps=self.eps)
        modulated = normed * (1.0 + scale[:, None, :]) + shift[:, None, :]
        return x + gate[:, None, :] * F.gelu(modulated, approximate="tanh")


def get_inputs():
    return [torch.randn(BATCH, TOKENS, FEATURES)] + [torch.randn(BATCH, FEATURES) for _ in range(3)]


def get_init_inputs():
    return [FEATURES, 1e-6]
