"""The weights that whoever asks has for the model: outputs are held to them once, in place of those that are drawn.

All else is judged and timed with the parameters that the referee draws, so that nothing can be derived from the given
ones. These may be of other sizes, say, and the accuracy rule is to hold for the model that is used.
"""

import math
from collections.abc import Sequence

import torch

from ..errors import Finding
from ..isolation.calls import copy_value
from ..isolation.handle import RunnerHandle
from ..pool.runner_pool import RunnerPool
from ..protocol.tensors import TensorRow, Tree
from .reference import Expected
from .state_check import rows_by_name

_NAMED = 4
_REMEDY = "give those of Model().state_dict()"


def load(pool: RunnerPool, reference: RunnerHandle) -> tuple[Tree, list[torch.Tensor]]:
    """Give the reference the weights of the request.

    Returns:
        Its state then: rounded to the model's dtypes, and the same under each name of a tensor that has several.

    Raises:
        Finding: their names or shapes are not those of the reference, or they take more than a third of the memory.
        RunnerFailed: the reference does not take them.
    """
    assert pool.state is not None
    held = rows_by_name(pool.state[0])
    pool.load_state(reference, _given(pool, held))
    tree, contents = copy_value(reference, reference.reveal({"op": "state"}, timeout_s=60), pool.memory_bytes // 3)
    reference.ask({"op": "release"}, timeout_s=60)
    of_row = {id(row): content for row, content in zip(tree.tensors, contents, strict=True)}
    rows = {name: row for name, row in rows_by_name(tree).items() if name in held}
    return _state(list(rows), list(rows.values())), [of_row[id(row)] for row in rows.values()]


def refuse_overflow(want: Expected) -> None:
    """See that the reference's outputs say something with the given weights.

    Raises:
        Finding: most of an output is NaN or infinite.
    """
    for path, own in want.own.items():
        if own.finite < 0.5 and path in want.values and want.values[path].numel() > 0:
            text = f"with the given weights most of output{path} is NaN or infinite"
            raise Finding("task_invalid", text, "weights")


def _given(pool: RunnerPool, held: dict[str, TensorRow]) -> tuple[Tree, list[torch.Tensor]]:
    told = pool.request.weights or []
    shapes = {name: tuple(shape) for name, _, shape, _, _ in told}
    same = {_place(held[name]) for name in shapes if name in held}  # of two names for one tensor a file has one
    missing = [name for name, row in held.items() if name not in shapes and _place(row) not in same]
    unexpected = [name for name in shapes if name not in held]
    misshapen = [
        f"{name} is {shape} in the file and {held[name].shape} in the model"
        for name, shape in shapes.items()
        if name in held and shape != held[name].shape
    ]
    problems = [
        f"{words} {_some(names)}"
        for words, names in (("missing:", missing), ("unexpected:", unexpected), ("of another shape:", misshapen))
        if names
    ]
    if problems:
        text = f"the weights are not those of this model; {'; '.join(problems)}; {_REMEDY}"
        raise Finding("task_invalid", text, "weights")
    size, limit = sum(end - begin for *_, begin, end in told), pool.weights_limit_bytes
    if size > limit:
        raise Finding(
            "task_invalid",
            f"the weights take {size >> 20} MiB, more than a third of the sandbox's {pool.request.memory_mb} MiB",
            "out_of_memory",
        )
    rows = [TensorRow(begin, dtype, tuple(shape), _strides(shape)) for _, dtype, shape, begin, _ in told]
    return _state(list(shapes), rows), [_content(pool.weights, row) for row in rows]


def _state(names: Sequence[str], rows: Sequence[TensorRow]) -> Tree:
    return Tree({"dict": [[name, {"tensor": number}] for number, name in enumerate(names)]}, tuple(rows))


def _content(elements: bytearray, row: TensorRow) -> torch.Tensor:
    if row.span_bytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    content = torch.frombuffer(elements, dtype=torch.uint8, count=row.span_bytes, offset=row.place)
    return content.ne(0).view(torch.uint8) if row.dtype == "bool" else content


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(max(size, 1) for size in shape[place + 1 :]) for place in range(len(shape)))


def _place(row: TensorRow) -> tuple[object, ...]:
    """The same for two names of one tensor."""
    return (row.place, row.dtype, row.shape, row.stride) if row.span_bytes else (id(row),)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(name[:200] for name in names[:_NAMED]) + more
