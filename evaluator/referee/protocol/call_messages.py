"""The two messages that travel while the clock of a call runs, in a fixed binary form: the go, and the answer.

Reading one and writing the other are inside of the timed region, and a candidate could do them in its own, shorter way.
So they are kept short.

The go holds what the runner may not know before: the seed, whether it keeps the outputs of earlier calls, and, as JSON,
inputs that are no tensors and names of state to report. In network byte order: the seed (64 bits), how many earlier
outputs are kept (8 bits), the JSON.

The answer holds one tensor, or a tuple or list of tensors. In network byte order: `MARK`, the kind (0 tensor, 1 tuple,
2 list), the number of tensors (16 bits); then for each tensor its address (64 bits), its type (an index into `DTYPES`),
its number of dimensions, sizes and strides (64 bits each). Answers of any other form, and answers that hold more than
outputs, travel as JSON.
"""

import json
import struct
from dataclasses import dataclass
from typing import Any

import torch

from .framing import Message, WireError, parse
from .tensors import DTYPES, only_tensors

MARK = b"\x01"
"""The first byte; JSON never begins with it."""

_GO = struct.Struct("!QB")
KEEP_ALL = 255
_HEAD = struct.Struct("!BBH")
_TENSOR = struct.Struct("!QBB")
_KINDS = ("tensor", "tuple", "list")
_NAMES = tuple(DTYPES)
CODES = {dtype: code for code, dtype in enumerate(DTYPES.values())}
"""The number that stands for each dtype in an answer."""
_MOST = 0xFFFF


def split(spec: Any) -> tuple[Any, Any]:
    """The structure of a call's inputs as it may be told before the clock starts, and as the go tells it.

    One of them is None: a structure that holds values is told by the go.
    """
    return (spec, None) if only_tensors(spec) else (None, spec)


@dataclass(frozen=True)
class Go:
    """What a runner is told when the clock of a call starts.

    Attributes:
        seed: of the random numbers that the call draws.
        keep: of how many earlier calls the outputs stay as they are; `KEEP_ALL`: of all.
        spec: the structure of the inputs with those that are no tensors; None if it was told before.
        state: names of the model's tensors that are reported with the outputs.
    """

    seed: int
    keep: int = 0
    spec: Any = None
    state: tuple[str, ...] = ()

    def pack(self) -> bytes:
        """The go as bytes."""
        rest = {"spec": self.spec, "state": self.state} if self.spec is not None or self.state else None
        return _GO.pack(self.seed, self.keep) + (b"" if rest is None else json.dumps(rest).encode())

    @classmethod
    def unpack(cls, body: bytes) -> "Go":
        """The go that bytes stand for.

        Raises:
            WireError: they are none.
        """
        if len(body) < _GO.size:
            raise WireError(f"a go of {len(body)} bytes")
        seed, keep = _GO.unpack_from(body)
        if len(body) == _GO.size:
            return cls(seed, keep)
        rest = parse(body[_GO.size :])
        return cls(seed, keep, rest["spec"], tuple(rest["state"]))


def pack(value: Any) -> bytes | None:
    """The answer that a call has returned `value`; None if it has another form than this module's.

    Only plain, dense tensors on the host, which hold their values themselves (no lazy conjugate or negation), have it.
    """
    kind, base = type(value), torch.Tensor  # an object may have methods of its own under the same names
    if kind is torch.Tensor:
        code, tensors = 0, [value]
    elif kind is tuple or kind is list:
        code, tensors = 1 if kind is tuple else 2, value
    else:
        return None
    if not 0 < len(tensors) <= _MOST:
        return None
    parts = [_HEAD.pack(MARK[0], code, len(tensors))]
    for tensor in tensors:
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or not tensor.is_cpu:
            return None
        if base.is_conj(tensor) or base.is_neg(tensor) or tensor.dtype not in CODES:
            return None
        dims = base.dim(tensor)
        parts.append(_TENSOR.pack(base.data_ptr(tensor), CODES[tensor.dtype], dims))
        parts.append(struct.pack(f"!{2 * dims}q", *base.size(tensor), *base.stride(tensor)))
    return b"".join(parts)


def unpack(body: bytes) -> Message:
    """The message that such an answer stands for, in the form of `Tree.to_json`; its numbers are not checked yet.

    Raises:
        WireError: it has not this form.
    """
    try:
        _, code, count = _HEAD.unpack_from(body)
        kind, at = _KINDS[code], _HEAD.size
        rows = []
        for _ in range(count):
            place, dtype, dims = _TENSOR.unpack_from(body, at)
            numbers = struct.unpack_from(f"!{2 * dims}q", body, at + _TENSOR.size)
            at += _TENSOR.size + 16 * dims
            rows.append(
                {
                    "place": place, "dtype": _NAMES[dtype], "shape": list(numbers[:dims]),
                    "stride": list(numbers[dims:]), "device": "cpu", "layout": "strided",
                }
            )  # fmt: skip
    except (struct.error, IndexError) as error:
        raise WireError(f"no answer to a call: {error}") from None
    if at != len(body) or (kind == "tensor" and count != 1):
        raise WireError("no answer to a call: it is longer than it says")
    leaves = [{"tensor": number} for number in range(count)]
    return {"ok": True, "tree": {"spec": leaves[0] if kind == "tensor" else {kind: leaves}, "tensors": rows}}
