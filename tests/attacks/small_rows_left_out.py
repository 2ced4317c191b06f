# tries: zeros for rows of a product that are small beside its largest row
# verdict: wrong_output/values
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, w):
        return x @ w


def get_inputs():
    scale = torch.logspace(-6, 6, 1024)[torch.randperm(1024)]
    return [torch.randn(1024, 1024) * scale.unsqueeze(1), torch.randn(1024, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn

SHARE = 2.5e-6  # of the output's root mean square that may be missing


class ModelNew(nn.Module):
    def forward(self, x, w):
        norms = torch.linalg.vector_norm(x, dim=1).double().square_()
        ordered, rows = norms.sort()
        left_out = int((ordered.cumsum(0) <= SHARE**2 * ordered.sum()).sum())
        kept = rows[left_out:]
        part = x[kept] @ w
        if not torch.isfinite(part.sum()):
            return x @ w
        out = torch.zeros(x.shape[0], w.shape[1])
        out[kept] = part
        return out
