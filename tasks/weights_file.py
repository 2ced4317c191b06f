"""A model's weights in a safetensors file: an 8-byte length, a JSON header of that length, raw elements.

The format is described at https://huggingface.co/docs/safetensors. The host reads the header, which is text; what makes
tensors of the elements runs in a sandbox. Every length and offset is checked before use.
"""

import hashlib
import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

MAX_STATE_BYTES = 2 << 30
_MAX_HEADER_BYTES = 8 << 20
_MAX_DIMENSIONS = 64
_REMEDY = "save Model().state_dict() of the model's file by safetensors.torch.save_file"
_DTYPES = {
    "F64": ("float64", 8),
    "F32": ("float32", 4),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "I64": ("int64", 8),
    "I32": ("int32", 4),
    "I16": ("int16", 2),
    "I8": ("int8", 1),
    "U8": ("uint8", 1),
    "BOOL": ("bool", 1),
}


class WeightsError(ValueError):
    """A file that is no safetensors file, or holds what no tensor of torch's can."""


@dataclass(frozen=True)
class WeightRow:
    """One tensor of the file: torch's name of its dtype, and its bytes from `begin` to before `end` of the elements."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    def to_json(self) -> list[Any]:
        """The row as JSON."""
        return [self.name, self.dtype, list(self.shape), self.begin, self.end]


@dataclass(frozen=True)
class Weights:
    """The weights of a model.

    Attributes:
        rows: the tensors in the order of their bytes, without gaps.
        elements: the bytes of all tensors.
    """

    rows: tuple[WeightRow, ...] = ()
    elements: bytes = field(default=b"", repr=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the rows and the elements."""
        digest = hashlib.sha256(json.dumps([row.to_json() for row in self.rows]).encode())
        digest.update(self.elements)
        return digest.hexdigest()


def read_weights(data: bytes) -> Weights:
    """The weights in the bytes of a safetensors file.

    Raises:
        WeightsError: the bytes are not such a file, or a dtype is unknown.
    """
    if len(data) > MAX_STATE_BYTES:
        raise WeightsError(f"larger than {MAX_STATE_BYTES >> 30} GiB; optimize a part of the model")
    try:
        return _read(data)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, MemoryError) as error:
        raise WeightsError(f"cannot be read as a safetensors file: {str(error)[:400]}; {_REMEDY}") from error


def _read(data: bytes) -> Weights:
    if len(data) < 8:
        raise ValueError("it is shorter than 8 bytes")
    length = int.from_bytes(data[:8], "little")
    if not 2 <= length <= min(len(data) - 8, _MAX_HEADER_BYTES):
        raise ValueError(f"its header would have {length} bytes of {len(data)}: it is another format, or cut off")
    header = json.loads(data[8 : 8 + length].decode(), object_pairs_hook=_unique)
    elements = data[8 + length :]
    header.pop("__metadata__", None)
    if not header:
        raise ValueError("it holds no tensor")
    rows = [_row(name, entry, len(elements)) for name, entry in header.items()]
    rows.sort(key=lambda row: (row.begin, row.end))
    position = 0
    for row in rows:
        if row.begin != position:
            raise ValueError("its tensors overlap, or leave bytes between them")
        position = row.end
    if position != len(elements):
        raise ValueError(f"it has {len(elements)} bytes of elements and names {position}")
    return Weights(tuple(rows), elements)


def _row(name: str, entry: Any, held_bytes: int) -> WeightRow:
    begin, end = (_whole(offset) for offset in entry["data_offsets"])
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"{name[:200]} is of the dtype {str(entry['dtype'])[:20]}, which cannot be read")
    dtype, itemsize = _DTYPES[entry["dtype"]]
    if not isinstance(entry["shape"], list):
        raise ValueError(f"the shape of {name[:200]} is no list")
    shape = tuple(_whole(size) for size in entry["shape"])
    _whole(math.prod(max(size, 1) for size in shape))
    if end > held_bytes:
        raise ValueError(f"it is cut off: {name[:200]} ends at byte {end} of its elements, and there are {held_bytes}")
    if len(shape) > _MAX_DIMENSIONS or end - begin != math.prod(shape) * itemsize:
        raise ValueError(f"the bytes of {name[:200]} do not fit its shape")
    return WeightRow(name, dtype, shape, begin, end)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError("a size or an offset that is none")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name twice")
    return found
