"""The float64 oracle: the reference's result with far smaller rounding errors. It runs in the reference's runner."""

import copy
from typing import Any

import torch

from .model_state import of_model, tensors_in
from .op_traits import Watch
from .op_work import WorkCount


def widen(value: Any) -> Any:
    """A copy of a nested value with its floating-point tensors as float64 and its complex ones as complex128."""
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
    """Run the model in float64. Meanwhile the default dtype is float64, for tensors that `forward` makes.

    Returns:
        `outputs`, the `traits` of the op (`protocol.traits.Traits`), and the `inputs` after the call.
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
        # double() does not convert tensors that are neither parameters nor buffers.
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor):
                setattr(module, name, widen(value))
    return wide


def count_work(model: Any, arguments: list[Any]) -> dict[str, int]:
    """The work of one call (`op_work.WorkCount`): `flops`, `input_bytes` and `state_bytes`."""
    own = copy.deepcopy(model)
    count = WorkCount(tensors_in(arguments), of_model(own).values())
    with torch.no_grad(), count:
        own(*arguments)
    return {"flops": count.flops, "input_bytes": count.input_bytes, "state_bytes": count.state_bytes}
