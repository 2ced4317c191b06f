"""The float64 oracle: the reference's result with far smaller rounding errors. It runs in the reference's runner.

A kernel cannot be run in float64. What stands for its oracle is the kernel on inputs that differ in their last bits.
"""

import copy
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, cast

import torch

from ..protocol.input_families import is_mask
from .model_state import all_tensors, of_model, tensors_in
from .op_traits import Watch
from .op_work import WorkCount
from .perturb_values import ascends, in_order

RERUNS = 3
"""Of a kernel, on inputs that are nearly the task's."""


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


def evaluate(model: Any, arguments: list[Any], *, inputs_after: bool = True) -> dict[str, Any]:
    """Run the model in float64. Meanwhile the default dtype is float64, for tensors that `forward` makes.

    Returns:
        `outputs`, the `traits` of the op (`protocol.traits.Traits`), and the `inputs` after the call, if asked for.
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
    return {"outputs": outputs, "traits": watch.traits(), "inputs": given if inputs_after else []}


def held_alone(tensors: list[torch.Tensor]) -> list[int]:
    """The places in a list of tensors to whose memory nothing else refers but one container beside the list.

    The memory of others may be another tensor's, or be needed later: a constant of the task's, say.
    """
    with torch.no_grad():
        usual = [torch.empty(2), torch.empty(2).view(1, 2)]
    beside = list(usual)
    alone = [_references(usual, number) for number in range(len(usual))]
    del beside
    # No tensor has a name here, which would count as one more that refers to it.
    return [
        number
        for number in range(len(tensors))
        if tensors[number].device.type == "cpu"
        and tensors[number].untyped_storage().resizable()  # else the memory is another's, such as an array's of NumPy
        and _references(tensors, number) in alone
    ]


def _references(tensors: list[torch.Tensor], number: int) -> tuple[int, ...]:
    """How many refer to a tensor of a list in Python and in C++, to its storage, and to what it is a view of."""
    used = torch._C._storage_Use_Count(tensors[number].untyped_storage()._cdata)
    counts = (sys.getrefcount(tensors[number]), cast(Any, tensors[number])._use_count(), used)
    whole = tensors[number]._base
    return counts if whole is None else (*counts, sys.getrefcount(whole), cast(Any, whole)._use_count())


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


def rerun(
    model: Any, arguments: list[Any], seed: int, foreign_code: Callable[[], AbstractContextManager[None]]
) -> dict[str, Any]:
    """Run a kernel on the inputs and `RERUNS` times on inputs nearly the same; its state is as before afterwards.

    Args:
        model: the kernel's model.
        arguments: the inputs of a call.
        seed: of the call.
        foreign_code: the context in which it is called.

    Returns:
        As `evaluate`, without traits. Each element is that of the run in which it lies farthest from that on the
        inputs themselves, in float64.
    """
    generator = torch.Generator().manual_seed(seed)
    state = {name: value.clone() for name, value in all_tensors(model).items()}
    runs: list[dict[str, Any]] = []
    for number in range(1 + RERUNS):
        given = _copied(arguments) if number == 0 else _nearly(arguments, generator)
        torch.manual_seed(seed)
        with torch.no_grad():
            with foreign_code():
                outputs = model(*given)
            runs.append(widen({"outputs": outputs, "inputs": given}))
            for name, value in all_tensors(model).items():
                if name in state and value.shape == state[name].shape:
                    value.copy_(state[name])
    farthest = runs[0]
    for run in runs[1:]:
        farthest = _farther(runs[0], farthest, run)
    return {**farthest, "traits": {}}


def _copied(value: Any) -> Any:
    """A nested value with copies of its tensors, laid out as they are."""
    return _each_tensor(value, lambda tensor: tensor.clone())


def _nearly(value: Any, generator: torch.Generator) -> Any:
    """A copy whose floating-point numbers are larger or smaller by a relative rounding error of their type, or equal.

    Masks of 0 and 1 stay, and what is in ascending order stays so.
    """

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or is_mask(tensor):
            return tensor.clone()
        step = torch.randint(-1, 2, tensor.shape, generator=generator).double() * torch.finfo(tensor.dtype).eps
        made = (tensor.double() * (1.0 + step)).to(tensor.dtype)
        made = in_order(made) if ascends(tensor) else made
        return tensor.clone().copy_(made)

    return _each_tensor(value, changed)


def _each_tensor(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(_each_tensor(item, change) for item in value)
    if isinstance(value, dict):
        return {key: _each_tensor(item, change) for key, item in value.items()}
    return value


def _farther(first: Any, far: Any, new: Any) -> Any:
    """Of two values of one form, what differs more from a first one, element by element; NaN differs from nothing."""
    if isinstance(first, torch.Tensor):
        if not isinstance(new, torch.Tensor) or (new.shape, new.dtype) != (first.shape, first.dtype):
            return far
        if not (first.is_floating_point() or first.is_complex()):
            return torch.where(new != first, new, far)
        return torch.where((new - first).abs() > (far - first).abs(), new, far)
    if isinstance(first, list | tuple) and isinstance(new, list | tuple) and len(new) == len(first):
        return type(first)(_farther(*each) for each in zip(first, far, new, strict=True))
    if isinstance(first, dict) and isinstance(new, dict) and new.keys() == first.keys():
        return {key: _farther(first[key], far[key], new[key]) for key in first}
    if isinstance(first, float) and isinstance(new, float):
        return new if abs(new - first) > abs(far - first) else far
    return far


def count_work(model: Any, arguments: list[Any]) -> dict[str, int]:
    """The work of one call (`op_work.WorkCount`): `flops`, `input_bytes` and `state_bytes`."""
    own = copy.deepcopy(model)
    count = WorkCount(tensors_in(arguments), of_model(own).values())
    with torch.no_grad(), count:
        own(*arguments)
    return {"flops": count.flops, "input_bytes": count.input_bytes, "state_bytes": count.state_bytes}
