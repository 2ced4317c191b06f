"""Nested values with tensors, as JSON that names each tensor's place in memory instead of carrying it.

A tree has two parts: `spec` (nesting, scalars, and `{"tensor": i}` leaves) and `tensors` (a row for each leaf: `place`,
`dtype`, `shape`, `stride`, …). In a runner's answer `place` is an address in that runner's memory; in what the referee
sends it is an offset into the shared inbox. The referee decodes trees without torch objects of the runner's making.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip
_MAX_TENSORS = 4096
_MAX_DEPTH = 64


class TreeError(Exception):
    """A value that has no such form, or JSON that is not a tree."""


@dataclass(frozen=True)
class TensorRow:
    """Where a tensor lies and how its elements are laid out (strides in elements)."""

    place: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str = "cpu"
    layout: str = "strided"

    @property
    def span_bytes(self) -> int:
        """Bytes from the first element to the end of the last one."""
        if math.prod(self.shape) == 0:
            return 0
        last = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return (last + 1) * DTYPES[self.dtype].itemsize

    def to_json(self) -> dict[str, Any]:
        """The row as it travels."""
        return {
            "place": self.place, "dtype": self.dtype, "shape": list(self.shape), "stride": list(self.stride),
            "device": self.device, "layout": self.layout,
        }  # fmt: skip

    def at(self, place: int) -> "TensorRow":
        """The same tensor somewhere else."""
        return TensorRow(place, self.dtype, self.shape, self.stride, self.device, self.layout)


@dataclass(frozen=True)
class Tree:
    """A nested value: its structure, and the rows of its tensors in order of appearance."""

    spec: Any
    tensors: tuple[TensorRow, ...]

    def to_json(self) -> dict[str, Any]:
        """The tree as it travels."""
        return {"spec": self.spec, "tensors": [row.to_json() for row in self.tensors]}

    @classmethod
    def from_json(cls, data: Any) -> "Tree":
        """Read a tree that a runner sent, trusting nothing in it.

        Raises:
            TreeError: it is no tree.
        """
        try:
            rows = tuple(_row(row) for row in data["tensors"])
            if len(rows) > _MAX_TENSORS:
                raise TreeError(f"{len(rows)} tensors, more than {_MAX_TENSORS}")
            spec = data["spec"]
            if sorted(leaves(spec)) != list(range(len(rows))):
                raise TreeError("tensor leaves and rows do not match")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise TreeError(f"malformed tree: {error!r}") from None
        return cls(spec, rows)


def _row(data: Any) -> TensorRow:
    row = TensorRow(
        place=int(data["place"]),
        dtype=str(data["dtype"]),
        shape=tuple(int(size) for size in data["shape"]),
        stride=tuple(int(step) for step in data["stride"]),
        device=str(data["device"]),
        layout=str(data["layout"]),
    )
    if len(row.shape) > _MAX_DEPTH or len(row.shape) != len(row.stride):
        raise TreeError("shape and stride differ in length")
    if any(size < 0 for size in row.shape) or any(step < 0 for step in row.stride) or row.place < 0:
        raise TreeError("negative size, stride or place")
    return row


def leaves(spec: Any, depth: int = 0) -> Iterator[int]:
    """The tensor numbers of a spec in order.

    Raises:
        TreeError: the spec is malformed.
    """
    if depth > _MAX_DEPTH or not isinstance(spec, dict) or len(spec) != 1:
        raise TreeError("malformed spec")
    ((kind, body),) = spec.items()
    if kind == "tensor":
        yield int(body)
    elif kind in ("list", "tuple"):
        for item in body:
            yield from leaves(item, depth + 1)
    elif kind == "dict":
        for key, item in body:
            if not isinstance(key, str | int):
                raise TreeError("malformed dict key")
            yield from leaves(item, depth + 1)
    elif kind not in ("scalar", "dtype"):
        raise TreeError(f"unknown kind {kind!r}")


def encode(value: Any) -> tuple[Tree, list[torch.Tensor]]:
    """A value as a tree of addresses, with the tensors themselves (to be kept alive by the caller).

    Raises:
        TreeError: a leaf is neither a tensor, a scalar, a string, None nor a dtype.
    """
    tensors: list[torch.Tensor] = []
    spec = _encode(value, tensors, 0)
    return Tree(spec, tuple(describe(tensor) for tensor in tensors)), tensors


def _encode(value: Any, tensors: list[torch.Tensor], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise TreeError("nested too deeply")
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, bool | int | float | str):
        return {"scalar": value}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_encode(item, tensors, depth + 1) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[key, _encode(item, tensors, depth + 1)] for key, item in value.items()]}
    raise TreeError(f"a value of type {type(value).__name__}; use tensors, numbers, strings, lists, tuples and dicts")


def describe(tensor: torch.Tensor) -> TensorRow:
    """The row of a tensor. Goes through torch.Tensor itself, not through methods that a subclass may override.

    Raises:
        TreeError: the tensor has no plain storage to read.
    """
    base = torch.Tensor
    name = str(base.dtype.__get__(tensor)).removeprefix("torch.")  # type: ignore[attr-defined]
    layout = str(base.layout.__get__(tensor)).removeprefix("torch.")  # type: ignore[attr-defined]
    device = str(base.device.__get__(tensor))
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise TreeError(f"a tensor of type {type(tensor).__name__}; return plain torch.Tensor objects")
    if layout != "strided" or device != "cpu":
        return TensorRow(0, name, tuple(base.size(tensor)), (0,) * base.dim(tensor), device, layout)
    # `x.conj()` and `x.neg()` views describe values that the memory does not hold yet.
    if base.is_conj(tensor) or base.is_neg(tensor):
        raise TreeError("a lazily conjugated or negated tensor; call resolve_conj() or resolve_neg()")
    return TensorRow(base.data_ptr(tensor), name, tuple(base.size(tensor)), tuple(base.stride(tensor)), device, layout)


def decode(tree: Tree, tensor_at: Callable[[TensorRow], torch.Tensor]) -> Any:
    """Build the value of a tree, taking each tensor from `tensor_at`."""
    return _decode(tree.spec, tree.tensors, tensor_at)


def _decode(spec: Any, rows: tuple[TensorRow, ...], tensor_at: Callable[[TensorRow], torch.Tensor]) -> Any:
    ((kind, body),) = spec.items()
    if kind == "tensor":
        return tensor_at(rows[body])
    if kind == "scalar":
        return body
    if kind == "dtype":
        return DTYPES[body]
    if kind == "list":
        return [_decode(item, rows, tensor_at) for item in body]
    if kind == "tuple":
        return tuple(_decode(item, rows, tensor_at) for item in body)
    return {key: _decode(item, rows, tensor_at) for key, item in body}


def view(buffer: Any, row: TensorRow) -> torch.Tensor:
    """The tensor of a row whose place is an offset into a writable buffer (shared memory)."""
    dtype = DTYPES[row.dtype]
    if row.span_bytes == 0:
        return torch.empty(row.shape, dtype=dtype)
    flat = torch.frombuffer(buffer, dtype=dtype, count=row.span_bytes // dtype.itemsize, offset=row.place)
    return flat.as_strided(row.shape, row.stride)
