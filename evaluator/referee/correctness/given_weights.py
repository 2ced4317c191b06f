"""The weights that whoever asks has for the model: outputs are held to them once, in place of those that are drawn.

All else is judged and timed with the parameters that the referee draws, so that nothing can be derived from the given
ones. These may be of other sizes, say, and the accuracy rule is to hold for the model that is used.
"""

from collections.abc import Sequence

import torch

from ..errors import Finding
from ..pool.runner_pool import RunnerPool
from ..protocol.tensors import TensorRow, Tree
from .state_check import rows_by_name

_NAMED = 4


def given(pool: RunnerPool) -> tuple[Tree, list[torch.Tensor]] | None:
    """The given weights as a state: a dict of tensors by the reference's names, and the bytes of each; None without.

    Raises:
        Finding: their names or shapes are not those of the reference, or they take more than a third of the memory.
    """
    told = pool.request.weights
    if not told:
        return None
    assert pool.state is not None
    rows = [TensorRow(begin, dtype, tuple(shape), _strides(shape)) for _, dtype, shape, begin, _ in told]
    named = dict(zip((name for name, *_ in told), rows, strict=True))
    held = rows_by_name(pool.state[0])
    unexpected = [name for name in named if name not in held]
    places = {held[name].place for name in named if name in held}  # of two names for one tensor a file has one
    missing = [name for name, row in held.items() if name not in named and not (row.span_bytes and row.place in places)]
    misshapen = [
        f"{name} is {row.shape} in the file and {held[name].shape} in the model"
        for name, row in named.items()
        if name in held and row.shape != held[name].shape
    ]
    problems = [
        f"{words} {_some(names)}"
        for words, names in (("missing:", missing), ("unexpected:", unexpected), ("of another shape:", misshapen))
        if names
    ]
    if problems:
        text = f"the weights are not those of this model; {'; '.join(problems)}; give those of Model().state_dict()"
        raise Finding("task_invalid", text)
    size, limit = sum(row.span_bytes for row in rows), pool.memory_bytes // 3
    if size > limit:
        raise Finding(
            "task_invalid",
            f"the weights take {size >> 20} MiB, more than a third of the sandbox's {pool.request.memory_mb} MiB",
            "out_of_memory",
        )
    spec = {"dict": [[name, {"tensor": number}] for number, name in enumerate(named)]}
    return Tree(spec, tuple(rows)), [_content(pool.weights, row) for row in rows]


def _content(elements: bytearray, row: TensorRow) -> torch.Tensor:
    if row.span_bytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    content = torch.frombuffer(elements, dtype=torch.uint8, count=row.span_bytes, offset=row.place)
    return content.ne(0).view(torch.uint8) if row.dtype == "bool" else content


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    return torch.empty(tuple(shape), device="meta").stride()


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(name[:200] for name in names[:_NAMED]) + more
