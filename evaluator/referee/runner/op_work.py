"""Counts the work of one call: floating-point operations, and bytes of what it was given that it touches.

This runs in the reference's runner.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from .op_traits import Mode, kind_of, tensors_in

_Args = tuple[Any, ...]


class WorkCount(Mode):
    """Counts operations and touched bytes of the operators that run while the mode is entered.

    Matrix products and convolutions count by the formulas of torch's counter, element-wise operators as one operation
    for each element that they make, sums and their like as one for each element that they take. A view touches
    nothing. An operator that looks elements up by an index touches those, any other touches all that it takes.

    Args:
        inputs: tensors whose touched bytes are counted.
        state: the same, of the model.
    """

    def __init__(self, inputs: Iterable[torch.Tensor], state: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0
        self._inputs = [_Touched(tensor) for tensor in inputs]
        self._state = [_Touched(tensor) for tensor in state]

    @property
    def input_bytes(self) -> int:
        """The bytes of the inputs that were touched, each counted once."""
        return sum(each.nbytes() for each in self._inputs)

    @property
    def state_bytes(self) -> int:
        """The bytes of the state that were touched, each counted once."""
        return sum(each.nbytes() for each in self._state)

    def __torch_dispatch__(self, func: Any, types: Any, args: _Args = (), kwargs: Any = None) -> Any:
        """Run the operator, or the operators that it decomposes into, and count."""
        kwargs = kwargs or {}
        formula = flop_registry.get(func._overloadpacket)
        if formula is None:
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        self._touch(func, args, kwargs)
        out = func(*args, **kwargs)
        self.flops += _simple_flops(func, args, out) if formula is None else int(formula(*args, **kwargs, out_val=out))
        return out

    def _touch(self, func: Any, args: _Args, kwargs: Mapping[str, Any]) -> None:
        if func.is_view:
            return
        look_up = _LOOK_UPS.get(func._overloadpacket.__name__)
        for place, value in enumerate((*args, *kwargs.values())):
            for tensor in tensors_in(value):
                touched = next((each for each in (*self._inputs, *self._state) if each.holds(tensor)), None)
                if touched is not None:
                    # What cannot be found out is not counted: too high a limit would accuse honest candidates.
                    with contextlib.suppress(RuntimeError, IndexError, TypeError):
                        touched.mark(tensor, args, look_up if place == 0 else None)


class _Touched:
    """Which elements of a tensor were touched."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self._itemsize = tensor.element_size()
        self._start = tensor.data_ptr() if tensor.numel() else 0
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        self._elements = last + 1 if tensor.numel() else 0
        self._seen: torch.Tensor | None = None
        self._all = False

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor begins in this one's memory."""
        if self._elements == 0 or tensor.layout != torch.strided or tensor.device != self._tensor.device:
            return False
        return tensor.numel() > 0 and 0 <= tensor.data_ptr() - self._start < self._elements * self._itemsize

    def mark(self, tensor: torch.Tensor, args: _Args, look_up: "_LookUp | None") -> None:
        """Mark the elements of a tensor that lies here, or those of them that an operator looks up.

        Raises:
            RuntimeError, IndexError, TypeError: they cannot be told.
        """
        if self._all:
            return
        if self._seen is None:
            self._seen = torch.zeros(self._elements, dtype=torch.bool, device=self._tensor.device)
        start = tensor.data_ptr() - self._start
        if tensor.element_size() != self._itemsize:  # the same bytes as another type
            if look_up is None and tensor.is_contiguous():
                self._seen[-(-start // self._itemsize) : (start + tensor.nbytes) // self._itemsize] = True
        elif look_up is not None:
            if not any(stride == 0 for stride in tensor.stride()):  # else one element lies at several places
                look_up(self._seen.as_strided(tensor.shape, tensor.stride(), start // self._itemsize), args)
        else:
            sizes = [1 if stride == 0 else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
            self._seen.as_strided(sizes, tensor.stride(), start // self._itemsize).fill_(True)
            self._all = tensor.is_contiguous() and tensor.numel() == self._elements

    def nbytes(self) -> int:
        """The bytes of the elements that were touched."""
        if self._all:
            return self._elements * self._itemsize
        return 0 if self._seen is None else int(self._seen.count_nonzero()) * self._itemsize


_LookUp = Callable[[torch.Tensor, _Args], object]
"""Marks in a mask of an operator's first argument what it looks up there."""


def _slices(seen: torch.Tensor, args: _Args) -> None:
    seen.index_fill_(args[1], args[2].long(), True)


def _rows(seen: torch.Tensor, args: _Args) -> None:
    seen.index_fill_(0, args[1].flatten().long(), True)


def _bags(seen: torch.Tensor, args: _Args) -> None:
    """`_embedding_bag` has nine arguments, of which the last names a row that is left out."""
    index = args[1].flatten().long()
    seen.index_fill_(0, index[index != args[8]] if len(args) > 8 else index, True)


def _elements(seen: torch.Tensor, args: _Args) -> None:
    seen.scatter_(args[1], args[2], True)


def _indexed(seen: torch.Tensor, args: _Args) -> None:
    seen[tuple(slice(None) if index is None else index for index in args[1])] = True


def _flat(seen: torch.Tensor, args: _Args) -> None:
    seen.view(-1)[args[1]] = True


def _classes(seen: torch.Tensor, args: _Args) -> None:
    """`nll_loss` takes the element of each target's class; its fifth argument is a class that is left out."""
    target = args[1] if seen.dim() > 1 else args[1].reshape(1)
    by_class = seen.movedim(1, -1) if seen.dim() > 1 else seen.unsqueeze(0)
    counted = target != args[4]
    by_class[(*counted.nonzero(as_tuple=True), target[counted])] = True


def _nobody_knows(seen: torch.Tensor, args: _Args) -> None:
    """It depends on values where the operator reads."""


_LOOK_UPS: dict[str, _LookUp] = {
    **dict.fromkeys(("index_select", "index_add_", "index_copy_", "index_fill_", "index_reduce_"), _slices),
    **dict.fromkeys(("gather", "scatter_", "scatter_add_", "scatter_reduce_"), _elements),
    **dict.fromkeys(("index", "index_put_", "_index_put_impl_"), _indexed),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), _bags),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _classes),
    **dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d", "searchsorted", "masked_select"), _nobody_knows),
    "embedding": _rows,
    "take": _flat,
}


def _simple_flops(func: Any, args: _Args, out: Any) -> int:
    """At least so many operations an operator needs that has no formula."""
    kind = kind_of(func, func._overloadpacket.__name__, out)
    if kind not in ("elementwise", "reduction", "scan"):
        return 0
    counted = out if kind == "elementwise" else args[:1]
    return sum(tensor.numel() for tensor in tensors_in(counted) if tensor.is_floating_point())
