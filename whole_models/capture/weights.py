"""Weights from the bytes of a safetensors file: an 8-byte length, a JSON header of that length, raw elements.

The format is described at https://huggingface.co/docs/safetensors. Every length and offset is checked before use.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

import torch

from .errors import CaptureError

MAX_HEADER_BYTES = 32 << 20
MAX_DIMENSIONS = 64
_NAMED = 4  # weights that a message names
_REMEDY = "save Model().state_dict() of the model's file by safetensors.torch.save_file"
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def load_state(model: torch.nn.Module, data: bytes) -> None:
    """Give a model the weights of a file. A weight under two names may be in the file under one of them.

    Raises:
        CaptureError: it is no safetensors file, or its names or shapes are not those of the model.
    """
    try:
        found = read_safetensors(data)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise CaptureError("state", f"the weights cannot be read as a safetensors file: {error}; {_REMEDY}") from error
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


def read_safetensors(data: bytes) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file by name.

    Raises:
        ValueError: the bytes are not such a file, or a dtype is unknown. Other errors of reading JSON may come as well.
    """
    if len(data) < 8:
        raise ValueError("it is shorter than 8 bytes")
    length = int.from_bytes(data[:8], "little")
    if not 2 <= length <= min(len(data) - 8, MAX_HEADER_BYTES):
        raise ValueError(f"its header would have {length} bytes of {len(data)}: it is another format, or cut off")
    header = json.loads(data[8 : 8 + length].decode(), object_pairs_hook=_unique)
    elements = memoryview(data)[8 + length :]
    header.pop("__metadata__", None)
    tensors, ranges = {}, []
    for name, entry in header.items():
        begin, end = (_whole(offset) for offset in entry["data_offsets"])
        tensors[name] = _tensor(name, entry, elements, begin, end)
        ranges.append((begin, end))
    position = 0
    for begin, end in sorted(ranges):
        if begin != position:
            raise ValueError("its tensors overlap, or leave bytes between them")
        position = end
    if position != len(elements):
        raise ValueError(f"it has {len(elements)} bytes of elements and names {position}")
    return tensors


def _tensor(name: str, entry: Any, elements: memoryview, begin: int, end: int) -> torch.Tensor:
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"{name[:200]} is of the dtype {str(entry['dtype'])[:20]}, which cannot be read")
    dtype = _DTYPES[entry["dtype"]]
    shape = [_whole(size) for size in entry["shape"]]
    if end > len(elements):
        raise ValueError(
            f"it is cut off: {name[:200]} ends at byte {end} of its elements, and there are {len(elements)}"
        )
    if len(shape) > MAX_DIMENSIONS or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"the bytes of {name[:200]} do not fit its shape")
    if begin == end:
        return torch.empty(shape, dtype=dtype)
    raw = torch.frombuffer(bytearray(elements[begin:end]), dtype=torch.uint8)
    return raw.ne(0).reshape(shape) if dtype == torch.bool else raw.view(dtype).reshape(shape)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError("a size or an offset that is none")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name twice")
    return found


def _place(value: torch.Tensor) -> tuple[Any, ...]:
    """The same for two names of one tensor."""
    if value.numel() == 0:
        return (id(value),)
    return (value.data_ptr(), value.dtype, value.shape, value.stride())


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(name[:200] for name in names[:_NAMED]) + more
