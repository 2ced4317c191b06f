"""Models captured in the test's own process: the same description as the capture program gives, without its clock."""

import base64
import json
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind

from whole_models.graph import Captured, read_captured

_KINDS = {
    InputKind.USER_INPUT: "argument",
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}
Cost = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], float]


def megabytes(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> float:
    """A time for a node, in place of a clock: a millisecond for each million bytes that it reads or writes."""
    return sum(each.numel() * each.element_size() for each in (*inputs, *outputs)) / 1e6


def captured_model(model: torch.nn.Module, inputs: Sequence[Any], *, cost: Cost = megabytes) -> Captured:
    """A model as it would be captured; times are made up by `cost`, and views take none."""
    return captured_and_values(model, inputs, cost=cost)[0]


def captured_and_values(
    model: torch.nn.Module, inputs: Sequence[Any], *, cost: Cost = megabytes
) -> tuple[Captured, dict[str, Any]]:
    """A model as it would be captured, and the value of each input and node by name."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model, tuple(inputs)).run_decompositions({})
        values = _values(program, inputs)
    item_of = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    described_inputs, nodes, outputs = [], [], []
    for node in program.graph.nodes:
        if node.op == "placeholder":
            described_inputs.append(_input(item_of[node.name], node.name, values[node.name], program))
        elif node.op == "call_function" and values[node.name] is not None:  # an assertion gives nothing
            nodes.append(_node(node, values, cost))
        elif node.op == "output":
            outputs = list(node.args[0])
    specs = program.graph_signature.output_specs
    results = [
        _argument(each) for each, spec in zip(outputs, specs, strict=True) if spec.kind == OutputKind.USER_OUTPUT
    ]
    mutations = [
        {"path": spec.target, "value": spec.arg.name} for spec in specs if spec.kind == OutputKind.BUFFER_MUTATION
    ]
    total = sum(node["eager_ms"] for node in nodes)
    graph = {
        "path": "", "module_class": type(model).__name__, "training": [], "calls": 1,
        "arguments": ["tuple", [["leaf"] for each in inputs]], "keywords": [],
        "result": ["tuple", [["leaf"] for _ in results]],
        "inputs": described_inputs, "nodes": nodes, "outputs": results, "mutations": mutations, "eager_ms": total,
    }  # fmt: skip
    data = {
        "ok": True, "torch": torch.__version__, "threads": 1, "graphs": [graph], "stays_eager": [], "eager_ms": total,
        "compile_ms": None, "compile_s": None, "compile_error": "", "kernels_ms": [], "cost_s": [],
    }  # fmt: skip
    return read_captured(json.dumps(data).encode()), values


def _values(program: Any, inputs: Sequence[Any]) -> dict[str, Any]:
    state = {**program.state_dict, **program.constants}
    remaining = iter(inputs)
    found: dict[str, Any] = {}
    for spec in program.graph_signature.input_specs:
        given = spec.kind == InputKind.USER_INPUT
        found[spec.arg.name] = next(remaining) if given else state[spec.target]
    for node in program.graph.nodes:
        if node.op == "call_function":
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda each: found[each.name])
            found[node.name] = node.target(*args, **kwargs)
    return found


def _input(spec: Any, name: str, value: Any, program: Any) -> dict[str, Any]:
    if not isinstance(value, torch.Tensor):
        return {"name": name, "kind": "scalar", "value": value}
    found = {"name": name, "kind": _KINDS[spec.kind], "tensor": _facts(value)}
    if spec.kind != InputKind.USER_INPUT:
        found["path"] = spec.target
    if spec.kind == InputKind.CONSTANT_TENSOR:
        elements = value.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        found["base64"] = base64.b64encode(elements).decode()
    return found


def _node(node: Any, values: dict[str, Any], cost: Cost) -> dict[str, Any]:
    value = values[node.name]
    several = isinstance(value, tuple | list)
    results = [each for each in (value if several else [value]) if isinstance(each, torch.Tensor)]
    operator = "getitem" if "getitem" in str(node.target) else str(node.target)
    taken = [values[each.name] for each in node.all_input_nodes if isinstance(values[each.name], torch.Tensor)]
    is_view = operator == "getitem" or bool(taken and results and _same_memory(taken[0], results[0]))
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    module, module_class = stack[-1] if stack else ("", "")
    return {
        "name": node.name,
        "operator": operator,
        "args": [_argument(each) for each in node.args],
        "kwargs": {name: _argument(each) for name, each in node.kwargs.items()},
        "results": [_facts(each) for each in results],
        "several": several,
        "module": module,
        "module_class": module_class if isinstance(module_class, str) else module_class.__name__,
        "pure": _is_pure(node),
        "eager_ms": 0.0 if is_view else cost(taken, results),
    }


def _is_pure(node: Any) -> bool:
    """Whether it draws no random number; attention does only where it drops something, and no test's model does."""
    seeded = isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags
    return not seeded or "scaled_dot_product" in str(node.target)


def _same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _argument(value: Any) -> Any:
    if isinstance(value, torch.fx.Node):
        return {"node": value.name}
    if isinstance(value, list | tuple):
        return [_argument(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        return {type(value).__name__: str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": value.type}
    return value


def _facts(value: torch.Tensor) -> dict[str, Any]:
    return {
        "shape": list(value.shape),
        "stride": list(value.stride()),
        "dtype": str(value.dtype).removeprefix("torch."),
        "values": _statistics(value.detach()),
    }


def _statistics(value: torch.Tensor) -> dict[str, float] | None:
    if value.numel() == 0 or value.is_complex():
        return None
    numbers = value.double()
    finite = numbers[numbers.isfinite()]
    if finite.numel() == 0:
        finite = torch.zeros(1, dtype=torch.float64)
    return {
        "low": finite.min().item(),
        "high": finite.max().item(),
        "mean": finite.mean().item(),
        "std": finite.std(correction=0).item(),
        "zeros": (numbers == 0).double().mean().item(),
        "finite": numbers.isfinite().double().mean().item(),
    }
