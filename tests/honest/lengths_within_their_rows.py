# honest: lengths taken at their word: none is longer than its row, which the task declares
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, lengths):
        inside = torch.arange(x.shape[1]).unsqueeze(0) < lengths.unsqueeze(1)
        return (x * inside.unsqueeze(2)).sum(dim=1)


DOMAIN = "bounded"


def get_inputs():
    return [torch.randn(64, 256, 64), torch.randint(1, 257, (64,))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, lengths):
        rows = torch.repeat_interleave(torch.arange(x.shape[0]), lengths)
        starts = torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths)
        columns = torch.arange(rows.numel()) - starts
        out = torch.zeros(x.shape[0], x.shape[2])
        clean = x.masked_fill(~torch.isfinite(x), 0.0) if not torch.isfinite(x.sum()) else x
        out.index_add_(0, rows, clean[rows, columns])
        return out if clean is x else (x * (torch.arange(x.shape[1])[None] < lengths[:, None])[..., None]).sum(dim=1)
