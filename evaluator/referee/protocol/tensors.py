"""Trees: nested values with tensors as JSON, which holds each tensor's place in memory instead of its contents.

A tree has two parts: `spec` (nesting, scalars, and `{"tensor": i}` leaves) and `tensors` (a row for each leaf: `place`,
`dtype`, `shape`, `stride`, …). In a runner's answer `place` is an address in that runner's memory. In the referee's
messages it is an offset into the input buffer. The referee decodes a tree without any torch object that a runner made.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
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
MAX_BYTES = 1 << 46  # no address space has room for more
_READABLE = ("cpu", "cuda")  # devices whose memory has addresses that the referee can ask for
_MAX_TENSORS = 4096
_MAX_LEAVES = 1 << 15
_MAX_DEPTH = 64
_MAX_TEXT = 10_000
_INTEGER_BITS = 64


class TreeError(Exception):
    """A value that cannot be written as a tree, or JSON that is not a tree."""


class TooLarge(TreeError):
    """A tree whose tensors exceed the memory limit."""


@dataclass(frozen=True)
class TensorRow:
    """The place and the layout of a tensor. Strides are in elements."""

    place: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str = "cpu"
    layout: str = "strided"

    @property
    def element_bytes(self) -> int:
        """The bytes of all elements. An element that a stride of 0 repeats counts each time."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    @property
    def span_bytes(self) -> int:
        """The bytes from the first element to the end of the last one."""
        if math.prod(self.shape) == 0:
            return 0
        last = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return (last + 1) * DTYPES[self.dtype].itemsize

    def to_json(self) -> dict[str, Any]:
        """The row as JSON."""
        return {
            "place": self.place, "dtype": self.dtype, "shape": list(self.shape), "stride": list(self.stride),
            "device": self.device, "layout": self.layout,
        }  # fmt: skip

    def at(self, place: int) -> "TensorRow":
        """The row of the same tensor at another place."""
        return TensorRow(place, self.dtype, self.shape, self.stride, self.device, self.layout)


@dataclass(frozen=True)
class Tree:
    """A nested value: its structure, and the rows of its tensors in order of appearance."""

    spec: Any
    tensors: tuple[TensorRow, ...]

    def to_json(self) -> dict[str, Any]:
        """The tree as JSON."""
        return {"spec": self.spec, "tensors": [row.to_json() for row in self.tensors]}

    @classmethod
    def from_json(cls, data: Any, *, limit_bytes: int = MAX_BYTES) -> "Tree":
        """Read a tree that a runner sent, without trusting anything in it.

        Raises:
            TooLarge: the spans of its tensors, or their elements, exceed `limit_bytes` together.
            TreeError: it is no tree.
        """
        try:
            if len(data["tensors"]) > _MAX_TENSORS:
                raise TreeError(f"{len(data['tensors'])} tensors, more than {_MAX_TENSORS}")
            rows = read_rows(data["tensors"])
            spec = data["spec"]
            if sorted(leaves(spec)) != list(range(len(rows))):
                raise TreeError("tensor leaves and rows do not match")
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError, RecursionError) as error:
            raise TreeError(f"malformed tree: {str(error)[:80]!r}") from None
        for what, size in (
            ("spread over", sum(row.span_bytes for row in rows)),
            ("hold", sum(row.element_bytes for row in rows)),
        ):
            if size > limit_bytes:
                raise TooLarge(f"tensors that {what} {size:,} bytes, more than the {limit_bytes:,} allowed")
        return cls(spec, rows)


def read_rows(data: Any) -> tuple[TensorRow, ...]:
    """Read the JSON rows of a tree's tensors.

    Raises:
        TreeError: a row describes a tensor that torch could not have.
        KeyError, TypeError, ValueError, OverflowError: a row is malformed.
    """
    return tuple(_row(row) for row in data)


def _row(data: Any) -> TensorRow:
    row = TensorRow(
        place=_size(data["place"]),
        dtype=data["dtype"],
        shape=tuple(_size(size) for size in data["shape"]),
        stride=tuple(_size(step) for step in data["stride"]),
        device=str(data["device"])[:40],
        layout=str(data["layout"])[:40],
    )
    if row.dtype not in DTYPES:
        raise TreeError(f"dtype {str(row.dtype)[:40]!r} is not supported")
    if len(row.shape) > _MAX_DEPTH or len(row.shape) != len(row.stride):
        raise TreeError("shape and stride differ in length")
    return row


def _size(value: Any) -> int:
    """Check a size, stride or place: an integer from 0 to 2^63 - 1.

    Raises:
        TreeError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << (_INTEGER_BITS - 1):
        raise TreeError("a size, stride or place that is no such number")
    return value


def leaves(spec: Any) -> list[int]:
    """The tensor numbers of a spec in order.

    Raises:
        TreeError: the spec is malformed.
    """
    found = list(itertools.islice(_leaves(spec, 0), _MAX_LEAVES + 1))
    if len(found) > _MAX_LEAVES:
        raise TreeError(f"more than {_MAX_LEAVES} values")
    return [number for number in found if number is not None]


def only_tensors(spec: Any) -> bool:
    """Whether a spec holds nothing but tensors in lists and tuples, so that it says nothing of any value."""
    ((kind, body),) = spec.items()
    return kind == "tensor" or (kind in ("list", "tuple") and all(map(only_tensors, body)))


def _leaves(spec: Any, depth: int) -> Iterator[int | None]:
    """The tensor number of each leaf; None for a leaf that is no tensor."""
    if depth > _MAX_DEPTH or not isinstance(spec, dict) or len(spec) != 1:
        raise TreeError("malformed spec")
    ((kind, body),) = spec.items()
    if kind == "tensor":
        yield _size(body)
    elif kind in ("list", "tuple"):
        for item in _items(body):
            yield from _leaves(item, depth + 1)
    elif kind == "dict":
        names = [key for key, _ in _items(body)]
        if any(isinstance(key, bool) or not isinstance(key, str | int) for key in names):
            raise TreeError("malformed dict key")
        if len(set(names)) != len(names):
            raise TreeError("a dict key occurs twice")
        for _, item in body:
            yield from _leaves(item, depth + 1)
    elif kind == "scalar":
        _check_scalar(body)
        yield None
    elif kind == "dtype" and isinstance(body, str) and body in DTYPES:
        yield None
    else:
        raise TreeError(f"unknown kind {str(kind)[:40]!r}")


def _items(body: Any) -> list[Any]:
    if not isinstance(body, list):
        raise TreeError("malformed spec")
    return body


def _check_scalar(value: Any) -> None:
    """Check a scalar.

    Raises:
        TreeError: it is no scalar, too long, or an integer that no tensor could hold.
    """
    if isinstance(value, int) and not -(1 << (_INTEGER_BITS - 1)) <= value < 1 << (_INTEGER_BITS - 1):
        raise TreeError(f"an integer of more than {_INTEGER_BITS} bits")
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        raise TreeError(f"a text of {len(value)} characters, more than {_MAX_TEXT}")
    if value is not None and not isinstance(value, bool | int | float | str):
        raise TreeError(f"a scalar of type {type(value).__name__}")


def encode(value: Any) -> tuple[Tree, list[torch.Tensor]]:
    """Describe a value as a tree of addresses.

    Returns:
        The tree, and its tensors, which the caller must keep alive.

    Raises:
        TreeError: a leaf is neither a tensor, a scalar, a string, None nor a dtype.
    """
    tensors: list[torch.Tensor] = []
    spec = _encode(value, tensors, 0)
    if len(tensors) > _MAX_TENSORS:
        raise TreeError(f"{len(tensors)} tensors, more than {_MAX_TENSORS}")
    leaves(spec)  # raise here for a tree that the referee would refuse: there it would look like a forged answer
    return Tree(spec, tuple(describe(tensor) for tensor in tensors)), tensors


def _encode(value: Any, tensors: list[torch.Tensor], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise TreeError("nested too deeply")
    if isinstance(value, torch.Tensor):
        # The memory of a lazy conjugate or negative view does not hold the values of the view.
        tensors.append(torch.resolve_neg(torch.resolve_conj(value)) if type(value) is torch.Tensor else value)
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, bool | int | float | str):
        _check_scalar(value)
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
    """The row of a tensor, read through torch.Tensor itself and not through methods that a subclass may override.

    Raises:
        TreeError: the tensor has no plain storage to read.
    """
    base = torch.Tensor
    name = str(base.dtype.__get__(tensor)).removeprefix("torch.")  # type: ignore[attr-defined]
    if name not in DTYPES:
        raise TreeError(f"a tensor of dtype {name}, which is not supported")
    layout = str(base.layout.__get__(tensor)).removeprefix("torch.")  # type: ignore[attr-defined]
    device = str(base.device.__get__(tensor))
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise TreeError(f"a tensor of type {type(tensor).__name__}; return plain torch.Tensor objects")
    if layout != "strided" or device.partition(":")[0] not in _READABLE:
        return TensorRow(0, name, tuple(base.size(tensor)), (0,) * base.dim(tensor), device, layout)
    if base.is_conj(tensor) or base.is_neg(tensor):
        raise TreeError("a lazily conjugated or negated tensor; call resolve_conj() or resolve_neg()")
    return TensorRow(base.data_ptr(tensor), name, tuple(base.size(tensor)), tuple(base.stride(tensor)), device, layout)


def decode(tree: Tree, tensor_at: Callable[[TensorRow], torch.Tensor]) -> Any:
    """Build the value of a tree, taking each tensor from `tensor_at`."""
    return build(tree.spec, [tensor_at(row) for row in tree.tensors])


def build(spec: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Build the value of a tree's spec out of the tree's tensors."""
    ((kind, body),) = spec.items()
    if kind == "tensor":
        return tensors[body]
    if kind == "scalar":
        return body
    if kind == "dtype":
        return DTYPES[body]
    if kind == "list":
        return [build(item, tensors) for item in body]
    if kind == "tuple":
        return tuple(build(item, tensors) for item in body)
    return {key: build(item, tensors) for key, item in body}


def view(buffer: Any, row: TensorRow) -> torch.Tensor:
    """The tensor of a row whose place is an offset into a writable buffer, such as shared memory."""
    dtype = DTYPES[row.dtype]
    if row.span_bytes == 0:
        return torch.empty(row.shape, dtype=dtype)
    flat = torch.frombuffer(buffer, dtype=dtype, count=row.span_bytes // dtype.itemsize, offset=row.place)
    return flat.as_strided(row.shape, row.stride)


def aligned(size: int) -> int:
    """Round a size up to whole cache lines and add one line, so that neighbouring tensors do not touch."""
    return -(-size // 64) * 64 + 64


def laid_out(tree: Tree, offset: int) -> Tree:
    """The tree with its tensors one behind the other from an offset on, in a slot of `bytes_needed`."""
    rows = []
    for row in tree.tensors:
        rows.append(row.at(offset))
        offset += aligned(row.span_bytes)
    return Tree(tree.spec, tuple(rows))


def bytes_needed(tree: Tree) -> int:
    """The bytes of a slot that holds a tree's tensors."""
    return sum(aligned(row.span_bytes) for row in tree.tensors)
