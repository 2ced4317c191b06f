"""The model of a file, its inputs, and what a call of it changes."""

import linecache
import sys
import types
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .errors import FILE, CaptureError, line_of

SEED = 0


def load_model(source: str) -> tuple[torch.nn.Module, types.ModuleType]:
    """Execute a model's file and make the model, in the mode in which the file leaves it.

    Raises:
        CaptureError: the file or the constructor fails.
    """
    module = types.ModuleType("model")
    module.__file__ = FILE
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        exec(compile(source, FILE, "exec"), module.__dict__)  # noqa: S102 (inside the sandbox only)
        torch.manual_seed(SEED)
        model = module.Model(*module.get_init_inputs())
    except BaseException as error:
        raise CaptureError("load", f"{type(error).__name__}: {error}{line_of(error)}") from error
    if not isinstance(model, torch.nn.Module):
        raise CaptureError("load", "Model is not a torch.nn.Module")
    return model, module


def make_inputs(module: types.ModuleType, shape_group: int | None) -> list[Any]:
    """The inputs of the model's file, or those of one of its shape groups, each tensor in a storage of its own.

    The same tensor given twice would be exported as one input.

    Raises:
        CaptureError: `get_inputs` or `get_input_groups` fails, or returns no list.
    """
    try:
        torch.manual_seed(SEED)
        inputs = module.get_inputs() if shape_group is None else module.get_input_groups()[shape_group]
        return list(copied(list(inputs)))
    except BaseException as error:
        raise CaptureError("inputs", f"{type(error).__name__}: {error}{line_of(error)}") from error


def count_groups(module: types.ModuleType) -> int:
    """How many lists of inputs `get_input_groups` returns; 0 if the file has none.

    Raises:
        CaptureError: it fails, or returns no list.
    """
    try:
        return len(module.get_input_groups()) if hasattr(module, "get_input_groups") else 0
    except BaseException as error:
        raise CaptureError("inputs", f"{type(error).__name__}: {error}{line_of(error)}") from error


def copied(values: Any) -> Any:
    """A tree of values in which each tensor is a copy with the same shape and strides."""
    return pytree.tree_map_only(torch.Tensor, _copy, values)


def _copy(value: torch.Tensor) -> torch.Tensor:
    value = value.detach()
    if value.layout != torch.strided:
        return value.clone()
    once = _held_once(value)
    try:
        held = torch.empty_strided(once.shape, once.stride(), dtype=value.dtype).copy_(once)
    except RuntimeError:  # elements that overlap
        return value.clone()
    return held.expand(value.shape)


def _held_once(value: torch.Tensor) -> torch.Tensor:
    """A view of a tensor without the repetitions of its expanded dimensions."""
    if value.layout == torch.strided:
        for dimension, (size, step) in enumerate(zip(value.shape, value.stride(), strict=True)):
            if step == 0 and size > 1:
                value = value.narrow(dimension, 0, 1)
    return value


class Originals:
    """What a model's buffers and its inputs hold before a call, to be put back where a call changes it."""

    def __init__(self, model: torch.nn.Module, inputs: list[Any]) -> None:
        """Keep a copy of every buffer and every input."""
        buffers = [
            (module, name, value)
            for module in model.modules()
            for name, value in module.named_buffers(recurse=False, remove_duplicate=False)
        ]
        self._buffers = [(module, name, value, _copy(value)) for module, name, value in buffers]
        tensors = [value for value in pytree.tree_leaves(inputs) if isinstance(value, torch.Tensor)]
        self._inputs = [(value, _copy(value)) for value in tensors]

    def forget_unchanged(self) -> None:
        """After a first call: drop the copies of what it did not change."""
        self._buffers = [
            kept for kept in self._buffers if kept[0]._buffers.get(kept[1]) is not kept[2] or not _same(*kept[2:])
        ]
        self._inputs = [kept for kept in self._inputs if not _same(*kept)]

    def restore(self) -> None:
        """Put everything back as it was."""
        for module, name, value, before in self._buffers:
            module._buffers[name] = value
            _held_once(value).copy_(_held_once(before))
        for value, before in self._inputs:
            if not _same(value, before):  # elements that overlap cannot be written
                _held_once(value).copy_(_held_once(before))


def _same(value: torch.Tensor, before: torch.Tensor) -> bool:
    if value.shape != before.shape or value.dtype != before.dtype:
        return False
    if value.layout != torch.strided:
        return True
    return bool(torch.equal(value, before)) or bool(torch.allclose(value, before, rtol=0, atol=0, equal_nan=True))
