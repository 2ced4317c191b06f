"""The float64 oracle: what the reference would compute if rounding were far smaller. Runs in the reference runner."""

import copy
from typing import Any

import torch

from .op_traits import FlopCount, Watch


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


def evaluate(model: Any, arguments: list[Any]) -> dict[str, Any]:
    """The model's `outputs` in float64, the `traits` of the op as `tolerances.Traits` has them, and the `inputs` after.

    The default dtype is float64 meanwhile, for tensors that forward makes.
    """
    wide, given = _wide_model(model), widen(arguments)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    watch = Watch()
    try:
        with torch.no_grad(), watch:
            outputs = wide(*given)
    finally:
        torch.set_default_dtype(before)
    return {"outputs": outputs, "traits": watch.traits(), "inputs": given}


def _wide_model(model: Any) -> Any:
    if not isinstance(model, torch.nn.Module):
        return model
    wide = copy.deepcopy(model).double()
    for module in wide.modules():
        # Tables that are neither parameters nor buffers are not moved by double().
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor):
                setattr(module, name, widen(value))
    return wide


def count_flops(model: Any, arguments: list[Any]) -> int:
    """FLOPs of one call as torch's FLOP counter sees them."""
    counter = FlopCount()
    with torch.no_grad(), counter:
        copy.deepcopy(model)(*arguments)
    return counter.total
