"""Finds the traits of an op from the operators that its float64 run calls. This runs in the reference's runner.

The op's kind selects the row of the table in `tolerances`. The kind follows from the operators that run and not from
the task's category, which is a label that a user may have guessed. An operator that is not known counts as `other`,
which has the wider floors.
"""

import math
from dataclasses import asdict
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..protocol.traits import EPSILON, Traits

_EXACT = """
_local_scalar_dense _reshape_alias _unsafe_view abs alias amax amin aminmax arange argmax argmin argsort bernoulli
bernoulli_ bitwise_and bitwise_not bitwise_or bitwise_xor bucketize cat clamp clamp_max clamp_min clone
constant_pad_nd copy copy_ cummax cummin detach embedding empty empty_like empty_strided eq equal eye fill fill_ flip
full full_like gather ge gt hardtanh im2col index index_copy index_fill index_put index_put_ index_select isinf isnan
item kthvalue le lift_fresh logical_and logical_not logical_or logical_xor lt masked_fill masked_fill_ masked_scatter
masked_select max max_pool2d_with_indices max_pool3d_with_indices maximum median min minimum mode narrow_copy
native_dropout ne neg neg_ new_empty new_full new_ones new_zeros nonzero ones ones_like rand rand_like randint randn
randn_like randperm reflection_pad1d reflection_pad2d relu relu_ repeat repeat_interleave replication_pad1d
replication_pad2d resize_ roll scalar_tensor scatter scatter_ searchsorted select_scatter sgn sign slice_scatter sort
threshold topk tril triu unfold upsample_nearest1d upsample_nearest2d upsample_nearest3d where zero_ zeros zeros_like
"""
_MATMUL = """
_cdist_forward _convolution _scaled_dot_product_attention_math _scaled_dot_product_flash_attention_for_cpu _trilinear
addbmm addmm addmv addr baddbmm bmm convolution convolution_overrideable dot linalg_matrix_exp linear matmul
mkldnn_rnn_layer mm mv vdot
"""
_SCAN = """
_cumsum _logcumsumexp cumprod cumprod_ cumsum cumsum_ logcumsumexp
"""
_REDUCTION = """
_adaptive_avg_pool2d _adaptive_avg_pool3d _batch_norm_with_update _embedding_bag _embedding_bag_forward_only
_fused_rms_norm _log_softmax _native_batch_norm_legit _softmax adaptive_avg_pool1d adaptive_avg_pool2d
adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d binary_cross_entropy huber_loss index_add index_add_
linalg_vector_norm logsumexp mean mse_loss native_batch_norm native_group_norm native_layer_norm nll_loss2d_forward
nll_loss_forward norm prod scatter_add scatter_add_ scatter_reduce smooth_l1_loss std std_mean sum trace
upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_trilinear3d var var_mean
"""
_KIND_OF = {
    name: kind
    for kind, names in (("exact", _EXACT), ("matmul", _MATMUL), ("scan", _SCAN), ("reduction", _REDUCTION))
    for name in names.split()
}
_UNSTABLE = frozenset({"sort", "topk", "kthvalue", "median", "mode", "argsort"})
# An op with several kinds of operators gets the last of these kinds that occurs.
_ORDER = ("exact", "elementwise", "other", "reduction", "scan", "matmul")


class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that does not make torch import torch.compile's modules."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise torch imports Dynamo when the first operator runs, only to skip this mode: 0.5 s in each runner.
        return False


class Watch(Mode):
    """Records the traits of the operators that run while the mode is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kinds = {"exact"}
        self._terms = 1
        self._narrowest: str | None = None
        self._unstable = False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Run the operator and record its traits."""
        out = func(*args, **(kwargs or {}))
        self._note(func, args, out)
        self._note_narrow([*args, *(kwargs or {}).values()], out)
        return out

    def traits(self) -> dict[str, Any]:
        """The recorded `Traits` as plain values."""
        kind = next(kind for kind in reversed(_ORDER) if kind in self._kinds)
        return asdict(Traits(kind, self._terms, self._narrowest, self._unstable))

    def _note(self, func: Any, args: tuple[Any, ...], out: Any) -> None:
        name = func._schema.name.rpartition("::")[2]
        kind = "reduction" if _adds_up(func, name, args) else kind_of(func, name, out)
        self._kinds.add(kind)
        self._unstable |= name in _UNSTABLE
        self._terms = max(self._terms, _terms(name, kind, args, out))

    def _note_narrow(self, given: list[Any], out: Any) -> None:
        """Record the type of an argument that the op itself has narrowed. All other values are float64 in this run.

        It counts only if the operator's result is of a finer type, or of a type without rounding. An output of the
        narrow type is judged by its own type anyway, and other outputs do not become less exact by it.
        """
        made = min((EPSILON.get(_dtype(tensor), 0.0) for tensor in tensors_in(out)), default=0.0)
        for value in given:
            for tensor in tensors_in(value):
                epsilon = EPSILON.get(_dtype(tensor), 0.0)
                if epsilon > max(made, EPSILON[self._narrowest or "float64"]):
                    self._narrowest = _dtype(tensor)


def _adds_up(func: Any, name: str, args: tuple[Any, ...]) -> bool:
    """Whether the arguments make an operator that usually moves values add or multiply them."""
    if name in ("index_put", "index_put_"):
        return len(args) > 3 and bool(args[3])
    return name in ("scatter", "scatter_") and "reduce" in func._overloadname


def kind_of(func: Any, name: str, out: Any) -> str:
    """The kind of an operator, by its name and what it made."""
    if name in _KIND_OF:
        return _KIND_OF[name]
    if func.is_view or not any(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors_in(out)):
        return "exact"
    if torch.Tag.pointwise in func.tags or name == "_to_copy":
        return "elementwise"
    return "other"


def _terms(name: str, kind: str, args: tuple[Any, ...], out: Any) -> int:
    """The number of terms of one sum of this operator, as far as its shapes show it; else 1."""
    given = [value for value in args if isinstance(value, torch.Tensor)]
    made = tensors_in(out)
    if not given or not made:
        return 1
    if kind == "matmul":
        if name in ("convolution", "_convolution") and len(given) > 1:
            return given[1].numel() // max(1, given[1].shape[0])
        left = given[1] if name in ("addmm", "baddbmm", "addbmm", "addmv") and len(given) > 1 else given[0]
        return left.shape[-1] if left.dim() > 0 else 1
    if kind == "scan":
        dim = args[1] if len(args) > 1 and isinstance(args[1], int) else -1
        return given[0].shape[dim] if given[0].dim() > 0 else 1
    if kind == "reduction":
        return math.ceil(given[0].numel() / max(1, made[0].numel()))
    return 1


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def tensors_in(out: Any) -> list[torch.Tensor]:
    """The tensors in a value that is one or a sequence of them."""
    values = out if isinstance(out, list | tuple) else (out,)
    return [value for value in values if isinstance(value, torch.Tensor)]
