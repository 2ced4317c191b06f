"""The float64 oracle: what the reference would compute if rounding were far smaller. Runs in the reference runner."""

import copy
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode


def widen(value: Any) -> Any:
    """Floating-point tensors as float64 (complex ones as complex128), through lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            return value.double()
        return value.to(torch.complex128) if value.is_complex() else value.clone()
    if isinstance(value, list | tuple):
        return type(value)(widen(item) for item in value)
    if isinstance(value, dict):
        return {key: widen(item) for key, item in value.items()}
    return value


def evaluate(model: Any, arguments: list[Any]) -> Any:
    """The model's outputs in float64. The default dtype is float64 meanwhile, for tensors that forward makes."""
    wide = copy.deepcopy(model).double() if isinstance(model, torch.nn.Module) else model
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            return wide(*widen(arguments))
    finally:
        torch.set_default_dtype(before)


def count_flops(model: Any, arguments: list[Any]) -> int:
    """FLOPs of one call as torch's FLOP counter sees them."""
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        copy.deepcopy(model)(*arguments)
    return int(counter.get_total_flops())
