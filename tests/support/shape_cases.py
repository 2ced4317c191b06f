"""A task as MultiKernelBench's npukernelbench has them, whose inputs come from cases in a JSON file."""

import json

SOURCE = """import json
import os

import torch


class Model(torch.nn.Module):
    def forward(self, x, alpha):
        return torch.nn.functional.elu(x, alpha)


def get_input_groups():
    json_path = os.path.join(os.path.dirname(__file__), {name})
    with open(json_path, "r") as f:
        cases = [json.loads(line) for line in f if line.strip()]
    groups = []
    for case in cases:
        x, alpha = case["inputs"]
        groups.append([torch.randn(x["shape"], dtype=getattr(torch, x["dtype"])), float(alpha["value"])])
    return groups


def get_init_inputs():
    return []
"""


def case(*shape: int, dtype: str = "float16", value: float = 1.0) -> str:
    inputs = [{"name": "x", "dtype": dtype, "shape": list(shape)}, {"name": "alpha", "value": value}]
    return json.dumps({"inputs": inputs})
