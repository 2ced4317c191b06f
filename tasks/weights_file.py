"""A model's weights in a safetensors file: an 8-byte length, a JSON header of that length, raw elements.

The format is described at https://huggingface.co/docs/safetensors. The host reads the header, which is text; what makes
tensors of the elements runs in a sandbox. Every length and offset is checked before use.
"""

import hashlib
import io
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, BinaryIO

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

    @classmethod
    def from_json(cls, row: list[Any]) -> "WeightRow":
        """The row of which `to_json` made this."""
        name, dtype, shape, begin, end = row
        return cls(name, dtype, tuple(shape), begin, end)


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
        return digest_of(self.rows, (self.elements,))


def digest_of(rows: Iterable[WeightRow], elements: Iterable[bytes]) -> str:
    """`Weights.digest` of weights whose elements come in pieces."""
    digest = hashlib.sha256(json.dumps([row.to_json() for row in rows]).encode())
    for piece in elements:
        digest.update(piece)
    return digest.hexdigest()


def read_rows(file: BinaryIO, size_bytes: int) -> tuple[WeightRow, ...]:
    """The tensors that the header of a safetensors file names. The file is then at the first of its elements.

    Args:
        file: the file, at its beginning.
        size_bytes: its size.

    Raises:
        WeightsError: the file is none, or too large; or a dtype is unknown.
        OSError: it cannot be read.
    """
    if size_bytes > MAX_STATE_BYTES:
        raise WeightsError(f"larger than {MAX_STATE_BYTES >> 30} GiB; optimize a part of the model")
    try:
        head = file.read(8)
        text = file.read(_header_bytes(head, size_bytes))
        return _rows(text, file.tell(), size_bytes)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, MemoryError) as error:
        raise WeightsError(f"cannot be read as a safetensors file: {str(error)[:400]}; {_REMEDY}") from error


def read_weights(data: bytes) -> Weights:
    """The weights in the bytes of a safetensors file.

    Raises:
        WeightsError: the bytes are not such a file, or a dtype is unknown.
    """
    file = io.BytesIO(data)
    rows = read_rows(file, len(data))
    return Weights(rows, data[file.tell() :])


def _header_bytes(head: bytes, size_bytes: int) -> int:
    """The length of the header of a file that begins with `head`."""
    if len(head) < 8:
        raise ValueError("it is shorter than 8 bytes")
    length = int.from_bytes(head, "little")
    if not 2 <= length <= min(size_bytes - 8, _MAX_HEADER_BYTES):
        raise ValueError(f"its header would have {length} bytes of {size_bytes}: it is another format, or cut off")
    return length


def _rows(text: bytes, begin: int, size_bytes: int) -> tuple[WeightRow, ...]:
    """The tensors that a header names. Their elements are the bytes from `begin` to the end of the file."""
    held_bytes = size_bytes - begin
    header = json.loads(text.decode(), object_pairs_hook=_unique)
    header.pop("__metadata__", None)
    if not header:
        raise ValueError("it holds no tensor")
    rows = [_row(name, entry, held_bytes) for name, entry in header.items()]
    rows.sort(key=lambda row: (row.begin, row.end))
    position = 0
    for row in rows:
        if row.begin != position:
            raise ValueError("its tensors overlap, or leave bytes between them")
        position = row.end
    if position != held_bytes:
        raise ValueError(f"it has {held_bytes} bytes of elements and names {position}")
    return tuple(rows)


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
