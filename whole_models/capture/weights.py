"""Gives a model the weights of a file, whose header the host has read and checked (`tasks/weights_file.py`)."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from .errors import CaptureError

_NAMED = 4  # weights that a message names
_REMEDY = "save Model().state_dict() of the model's file by safetensors.torch.save_file"


def load_state(model: torch.nn.Module, rows: Sequence[Sequence[Any]], elements: bytes) -> list[str]:
    """Give a model the weights of a file. A weight under two names may be in the file under one of them.

    Args:
        model: the model.
        rows: of each tensor its name, its dtype, its shape, and its bytes' beginning and end among the elements.
        elements: the bytes of all tensors.

    Returns:
        What there is to say of it: that values were taken over into another dtype.

    Raises:
        CaptureError: the names or shapes are not those of the model.
    """
    view = memoryview(elements)
    found = {name: _tensor(view, dtype, shape, begin, end) for name, dtype, shape, begin, end in rows}
    held = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    given = {_place(held[name]) for name in found if name in held}
    missing = [name for name, value in held.items() if name not in found and _place(value) not in given]
    unexpected = [name for name in found if name not in held]
    misshapen = [
        f"{name} is {tuple(value.shape)} in the file and {tuple(held[name].shape)} in the model"
        for name, value in found.items()
        if name in held and value.shape != held[name].shape
    ]
    problems = [
        f"{words} {_some(names)}"
        for words, names in (("missing:", missing), ("unexpected:", unexpected), ("of another shape:", misshapen))
        if names
    ]
    if problems:
        raise CaptureError("state", f"the weights are not those of this model; {'; '.join(problems)}; {_REMEDY}")
    try:
        model.load_state_dict(found, strict=False)
    except Exception as error:
        raise CaptureError("state", f"{type(error).__name__}: {error}") from error
    pairs = ((_dtype(value), _dtype(held[name])) for name, value in found.items())
    cast = Counter(pair for pair in pairs if pair[0] != pair[1])
    return [
        f"{count} of the {len(found)} weights {'is' if count == 1 else 'are'} {theirs} in the file and {ours} in the "
        f"model, which takes {'its' if count == 1 else 'their'} values over"
        for (theirs, ours), count in cast.items()
    ]


def _dtype(value: torch.Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _tensor(elements: memoryview, dtype: str, shape: Sequence[int], begin: int, end: int) -> torch.Tensor:
    kind: torch.dtype = getattr(torch, dtype)
    if begin == end:
        return torch.empty(shape, dtype=kind)
    raw = torch.frombuffer(bytearray(elements[begin:end]), dtype=torch.uint8)
    return raw.ne(0).reshape(shape) if kind == torch.bool else raw.view(kind).reshape(shape)


def _place(value: torch.Tensor) -> tuple[Any, ...]:
    """The same for two names of one tensor."""
    if value.numel() == 0:
        return (id(value),)
    return (value.data_ptr(), value.dtype, value.shape, value.stride())


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(name[:200] for name in names[:_NAMED]) + more
