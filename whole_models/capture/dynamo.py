"""How dynamo is asked for its graphs, and what two of them share that compute the same.

The capture program calls these functions here. Files that are delivered hold their text
(`whole_models/model_runtime.py`), because dynamo makes the graphs anew where the model runs, and they are found again
by their fingerprints.
"""

import hashlib
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch


def in_graphs(forward: Callable[..., Any], backend: Callable[..., Any]) -> Any:
    """A forward that dynamo splits into graphs, each of which `backend` is given once with its first inputs.

    More than the usual 8 graphs of one piece of code are kept, where this version of torch can be told so.
    """
    limits = {"recompile_limit": 64, "isolate_recompiles": True}
    known = inspect.signature(torch.compile).parameters
    limits = {name: value for name, value in limits.items() if name in known}
    return torch.compile(forward, backend=backend, **limits)  # type: ignore[call-overload]


def settings() -> dict[str, Any]:
    """The settings of dynamo under which such a forward is called, as far as this version has them.

    What dynamo cannot follow runs as it is, numpy's functions among it; guards look at hooks; and sizes are taken for
    fixed at first, whatever the user's own settings are.
    """
    wanted = {"suppress_errors": True, "trace_numpy": False, "skip_nnmodule_hook_guards": False}
    wanted.update(error_on_recompile=False, assume_static_by_default=True)
    return {name: value for name, value in wanted.items() if hasattr(torch._dynamo.config, name)}


def fingerprint(traced: Any, inputs: Iterable[Any]) -> str:
    """A hash of a graph of dynamo and of the form of its inputs; empty: its form is not fixed.

    Names do not enter. Operators, their order and arguments, shapes, strides and dtypes of the inputs, and the elements
    of constants do.
    """
    place = dict[torch.fx.Node, int]()
    rows = list[object]()
    left = list(inputs)

    def words(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return ["node", place[value]]
        if isinstance(value, (list, tuple)):
            return [type(value).__name__, *map(words, value)]
        if isinstance(value, dict):
            return ["dict", *([words(key), words(item)] for key, item in value.items())]
        if isinstance(value, slice):
            return ["slice", *map(words, (value.start, value.stop, value.step))]
        return [type(value).__name__, re.sub(" at 0x[0-9a-f]+", "", repr(value))]

    def form(tensor: Any) -> Any:
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
        if not plain or any(type(size) is not int for size in (*tensor.shape, *tensor.stride())):
            raise TypeError
        bits = [tensor.is_conj(), tensor.is_neg()]
        return [list(tensor.shape), list(tensor.stride()), str(tensor.dtype), tensor.device.type, bits]

    try:
        for node in traced.graph.nodes:
            place[node] = len(place)
            row = [node.op]
            if node.op == "placeholder":
                row += form(left.pop(0))
            elif node.op == "get_attr":
                tensor = getattr(traced, node.target)
                raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                row += [form(tensor), hashlib.sha256(raw).hexdigest()]
            elif node.op == "call_module":
                return ""
            else:
                row += [getattr(node.target, "__module__", None), words(node.target), words(node.args)]
                row.append(words(node.kwargs))
            rows.append(row)
    except (TypeError, AttributeError, RuntimeError, IndexError):
        return ""
    return hashlib.sha256(repr(rows).encode()).hexdigest()
