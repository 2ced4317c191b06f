"""Convolutions that candidates compute with kernels of their own, in place of torch's."""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any
from unittest import mock

import torch

WINOGRAD = "kernelwright.winograd"
"""Option: convolutions with 3 x 3 kernels and stride 1 become calls of `extern_kernels.winograd`."""
LEAST_CHANNELS = 16  # below, changing the inputs takes longer than the multiplications that it saves

aten = torch.ops.aten


@contextlib.contextmanager
def winograd_convolutions(wanted: bool, lanes: int, parameters: Collection[int]) -> Iterator[None]:
    """If `wanted`, lower suitable convolutions to calls of `extern_kernels.winograd` while the context is open.

    Such a call is `extern_kernels.winograd(x, weight[, bias], padding=(y, x))`. Channels are the last dimension of `x`
    and of the result in memory; `weight` is contiguous.

    Args:
        wanted: whether to do so.
        lanes: elements of a vector, which the numbers of channels must be multiples of.
        parameters: the positions of the graph's inputs that are parameters. What is made of other weights would have
            to be made anew in each call.
    """
    if not wanted:
        yield
        return
    from torch._inductor import ir, lowering
    from torch._inductor.select_algorithm import ExternKernelChoice
    from torch._inductor.virtualized import V

    known: Any = lowering.lowerings[aten.convolution.default]
    new_choice: Any = ExternKernelChoice
    choice = new_choice(_only_named, None, name="winograd", has_out_variant=False)

    def is_parameter(weight: Any) -> bool:
        """Whether it is a parameter as it is, whose elements lie one after the other."""
        held: Any = getattr(getattr(weight, "data", None), "data", None)
        is_input = isinstance(held, ir.InputBuffer)
        layout: Any = held.layout if is_input else None
        return is_input and layout.is_contiguous() and V.graph.graph_input_names.index(held.get_name()) in parameters

    def convolution(x: Any, weight: Any, bias: Any, *rest: Any) -> Any:
        stride, padding, dilation, transposed, _, groups = rest
        if not V.graph.layout_opt or not _is_float32(x, weight, bias) or not is_parameter(weight):
            return known(x, weight, bias, *rest)
        guard: Any = V.graph.sizevars.guard_int_seq
        sizes, weights = guard(x.get_size()), guard(weight.get_size())
        if len(sizes) != 4 or not _fits(weights, stride, padding, dilation, transposed, groups, lanes):
            return known(x, weight, bias, *rest)
        pads = [int(pad) for pad in (padding * 2 if len(padding) == 1 else padding)]
        batch, _, height, width = sizes
        channels, rows, columns = weights[0], height + 2 * pads[0] - 2, width + 2 * pads[1] - 2
        if batch < 1 or rows < 2 or columns < 2:
            return known(x, weight, bias, *rest)
        x.realize()
        outside: Any = ir.ExternKernel
        dense = [height * width * weights[1], 1, width * weights[1], weights[1]]
        operands = [outside.require_exact_strides(x, dense), weight]
        if bias is not None:
            operands.append(outside.require_contiguous(outside.realize_input(bias)))
        strides = [rows * columns * channels, 1, columns * channels, channels]
        new_layout: Any = ir.FixedLayout
        layout = new_layout(x.get_device(), x.get_dtype(), [batch, channels, rows, columns], strides)
        return choice.bind(operands, layout, padding=tuple(pads)).output_node()

    with mock.patch.dict(lowering.lowerings, {aten.convolution.default: convolution}):
        yield


def _only_named(*_: Any, **__: Any) -> None:
    """What `extern_kernels.winograd` stands for: the generated module is read and not run."""


def _is_float32(*operands: Any) -> bool:
    return all(operand is None or operand.get_dtype() is torch.float32 for operand in operands)


def _fits(
    weights: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
    lanes: int,
) -> bool:
    outputs, inputs, *kernel = weights
    return (
        list(kernel) == [3, 3]
        and set(stride) == {1}
        and set(dilation) == {1}
        and all(0 <= pad <= 2 for pad in padding)
        and not transposed
        and groups == 1
        and min(inputs, outputs) >= LEAST_CHANNELS
        and inputs % lanes == 0
        and outputs % lanes == 0
    )
