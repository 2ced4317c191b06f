"""An exported module as plain JSON, in the form that the host reads: inputs, nodes, outputs, trees of containers."""

import base64
import hashlib
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from .errors import Refused

MAX_CONSTANT_BYTES = 1 << 20
MAX_CONSTANTS_BYTES = 8 << 20  # of one graph
_PATH = re.compile(r"[A-Za-z0-9_]\w{0,199}(\.[A-Za-z0-9_]\w{0,199}){0,60}", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w{0,199}", re.ASCII)
_CHECKS = "aten._assert_tensor_metadata.default"
"""Checks what static shapes and dtypes already say, and returns nothing."""
_MODES = ("train", "training")
"""What operators call the mode that they are told."""
_WEIGHTS = {InputKind.PARAMETER: "parameter", InputKind.BUFFER: "buffer"}


@dataclass
class Described:
    """An exported module: its description, and what is needed to run it.

    Attributes:
        data: the description, without what is seen when it runs.
        graph: the module that computes it, of operators alone.
        values: its arguments in order.
        names: the name in the description of each node and input.
        mutated: the paths of the buffers whose new values are its first results.
        random: whether a node's result is drawn.
        meaning: what it computes (`meaning_of`).
    """

    data: dict[str, Any]
    graph: torch.fx.GraphModule
    values: list[Any]
    names: dict[str, str]
    mutated: list[str] = field(default_factory=list)
    random: bool = False
    meaning: Any = None


def describe(
    module: torch.nn.Module,
    program: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    module_of: Callable[[Any], tuple[str, str]] | None = None,
) -> Described:
    """Describe a program that was exported of a module with these arguments.

    Args:
        module: the module.
        program: what `torch.export` made of it.
        args, kwargs: the arguments of the call that was exported.
        module_of: the path and the class of the innermost module whose code called a node; None: the node says it.

    Raises:
        Refused: something of it has no description.
    """
    spec_of_args, spec_of_kwargs = program.call_spec.in_spec.children()
    arguments, keywords = _arguments(spec_of_args, spec_of_kwargs)
    leaves = pytree.tree_leaves((args, {name: kwargs[name] for name in keywords}))
    graph = program.graph_module
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    inputs, values, names = _inputs(module, program, placeholders, leaves)
    described = Described({}, graph, values, names)
    outputs, mutations = _outputs(program, described)
    nodes = [
        _node(node, names, module_of or _module_of)
        for node in graph.graph.nodes
        if node.op not in ("placeholder", "output") and str(node.target) != _CHECKS
    ]
    used = {ref for node in nodes for ref in _refs([node["args"], list(node["kwargs"].values())])}
    used |= _refs(outputs) | {mutation["value"] for mutation in mutations}
    described.meaning = meaning_of(program)
    described.random = any(_is_random(node) for node in graph.graph.nodes)
    described.data = {
        "module_class": type(module).__name__,
        "training": [path for path, child in module.named_modules() if child.training and plain_path(path)],
        "arguments": arguments,
        "keywords": keywords,
        "result": _tree(program.call_spec.out_spec),
        "inputs": [item for item in inputs if item["kind"] in ("argument", "scalar") or item["name"] in used],
        "nodes": nodes,
        "outputs": outputs,
        "mutations": mutations,
    }
    return described


def describe_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The trees of the arguments of a call, the names of those that were given by name, and their leaves.

    Raises:
        Refused: something of it has no description.
    """
    leaves, spec = pytree.tree_flatten((args, kwargs))
    arguments, keywords = _arguments(*spec.children())
    inputs = [_argument_input(f"leaf_{number}", leaf) for number, leaf in enumerate(leaves)]
    return {"arguments": arguments, "keywords": keywords, "leaves": inputs}


def describe_tensor(value: torch.Tensor) -> dict[str, Any]:
    """The shape, strides and dtype of a tensor.

    Raises:
        Refused: its sizes are not fixed, or it is not dense.
    """
    sizes = (*value.shape, *value.stride()) if value.layout == torch.strided else ()
    if value.layout != torch.strided:
        raise Refused(f"it has a tensor of layout {value.layout}")
    if not all(isinstance(size, int) for size in sizes):
        raise Refused("a shape depends on the values of tensors")
    return {
        "shape": list(value.shape),
        "stride": list(value.stride()),
        "dtype": str(value.dtype).removeprefix("torch."),
    }


def describe_results(value: Any) -> tuple[list[dict[str, Any]], bool]:
    """The tensors that a node returns, and whether it returns them as a tuple or list.

    Raises:
        Refused: it returns something else.
    """
    if isinstance(value, torch.Tensor):
        return [describe_tensor(value)], False
    if isinstance(value, (tuple, list)) and all(isinstance(each, torch.Tensor) for each in value):
        return [describe_tensor(each) for each in value], True
    if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
        raise Refused("a shape or a number depends on the values of tensors")
    raise Refused(f"an operator returns a value of type {type(value).__name__}")


def checked_path(path: str) -> str:
    """A path in a module; empty for the module itself.

    Raises:
        Refused: it has characters that a path in generated code cannot have.
    """
    return path if path == "" else _checked(_PATH, path)


def tensor_at(module: torch.nn.Module, path: str) -> Any:
    """The parameter, buffer or attribute of a module at a dotted path."""
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _arguments(spec_of_args: pytree.TreeSpec, spec_of_kwargs: pytree.TreeSpec) -> tuple[Any, list[str]]:
    """The tree of all arguments, and the names of the last ones, which were given by name."""
    names = list(spec_of_kwargs.context) if spec_of_kwargs.children() else []
    positional, named = _tree(spec_of_args), _tree(spec_of_kwargs)
    children = [*positional[1], *(named[2] if named[0] == "dict" else [])]
    return ["tuple", children], [_checked(_NAME, name) for name in names]


def _inputs(
    module: torch.nn.Module, program: Any, placeholders: list[Any], leaves: list[Any]
) -> tuple[list[dict[str, Any]], list[Any], dict[str, str]]:
    """The descriptions of the inputs, their values in the order of the graph, and the names of their nodes.

    A tensor that the module holds under several names is one input; its path is the first.
    """
    first_path = first_paths(module)
    remaining = iter(leaves)
    inputs: list[dict[str, Any]] = []
    values: list[Any] = []
    names: dict[str, str] = {}
    name_of: dict[int, str] = {}
    constants = 0
    for spec, placeholder in zip(program.graph_signature.input_specs, placeholders, strict=True):
        name = _checked(_NAME, placeholder.name)
        names[placeholder.name] = name
        if spec.kind == InputKind.USER_INPUT:
            value = next(remaining)
            values.append(value)
            inputs.append(_argument_input(name, value))
            continue
        if spec.kind in _WEIGHTS:
            value = tensor_at(module, spec.target)
            values.append(value)
            if id(value) in name_of:
                names[placeholder.name] = name_of[id(value)]
                continue
            name_of[id(value)] = name
            path = checked_path(first_path.get(id(value), spec.target))
            inputs.append({"name": name, "kind": _WEIGHTS[spec.kind], "path": path, "tensor": describe_tensor(value)})
        elif spec.kind == InputKind.CONSTANT_TENSOR:
            value = program.constants[spec.target]
            values.append(value)
            constants += value.numel() * value.element_size()
            if value.numel() * value.element_size() > MAX_CONSTANT_BYTES or constants > MAX_CONSTANTS_BYTES:
                raise Refused(f"its code holds a tensor, {spec.target}, that is too large (register it as a buffer)")
            inputs.append(
                {
                    "name": name,
                    "kind": "constant",
                    "path": spec.target if plain_path(spec.target) else "",
                    "tensor": describe_tensor(value),
                    "base64": _base64(value),
                }
            )
        else:
            raise Refused(f"an input of kind {spec.kind.name.lower()} has no description")
    return inputs, values, names


def first_paths(module: torch.nn.Module) -> dict[int, str]:
    """The first path of each parameter and buffer by its identity."""
    found: dict[int, str] = {}
    for path, parameter in module.named_parameters(remove_duplicate=False):
        found.setdefault(id(parameter), path)
    for path, buffer in module.named_buffers(remove_duplicate=False):
        found.setdefault(id(buffer), path)
    return found


def _argument_input(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, torch.Tensor):
        return {"name": name, "kind": "argument", "tensor": describe_tensor(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"name": name, "kind": "scalar", "value": value}
    raise Refused(f"it is given an argument of type {type(value).__name__}")


def _outputs(program: Any, described: Described) -> tuple[list[Any], list[dict[str, Any]]]:
    """The results for the caller, and the buffers that are changed."""
    (results,) = next(iter(reversed(program.graph_module.graph.nodes))).args
    outputs: list[Any] = []
    mutations: list[dict[str, Any]] = []
    for spec, result in zip(program.graph_signature.output_specs, results, strict=True):
        if spec.kind == OutputKind.USER_OUTPUT:
            outputs.append(_argument(result, described.names))
        elif spec.kind == OutputKind.BUFFER_MUTATION:
            if not isinstance(result, torch.fx.Node):
                raise Refused("a buffer is set to a value that is no tensor")
            described.mutated.append(spec.target)
            mutations.append(
                {"path": checked_path(spec.target), "value": described.names.get(result.name, result.name)}
            )
        elif spec.kind == OutputKind.USER_INPUT_MUTATION:
            raise Refused("it changes its input in place")
        elif spec.kind.name == "PARAMETER_MUTATION":
            raise Refused("it changes its parameters")
        else:
            raise Refused(f"a result of kind {spec.kind.name.lower()} has no description")
    return outputs, mutations


def _node(node: Any, names: dict[str, str], module_of: Callable[[Any], tuple[str, str]]) -> dict[str, Any]:
    if node.op != "call_function":
        raise Refused("it uses an operator that runs a graph of its own, such as torch.cond")
    if node.target is operator.getitem:
        called = "getitem"
    elif isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "aten":
        called = str(node.target)
    elif isinstance(node.target, torch._ops.OpOverload):
        raise Refused(f"it calls {node.target}, which is not one of PyTorch's own operators")
    elif isinstance(node.target, torch._ops.HigherOrderOperator):
        raise Refused(f"it uses an operator that runs a graph of its own: {node.name}")
    else:
        raise Refused("a shape or a number depends on the values of tensors")
    results, several = describe_results(node.meta.get("val"))
    path, module_class = module_of(node)
    return {
        "name": _checked(_NAME, node.name),
        "operator": called,
        "args": [_argument(value, names) for value in node.args],
        "kwargs": {name: _argument(value, names) for name, value in node.kwargs.items()},
        "results": results,
        "several": several,
        "module": path,
        "module_class": module_class,
        "pure": _is_pure(node),
        "eager_ms": None,
    }


def _module_of(node: Any) -> tuple[str, str]:
    """The path and the class of the innermost module whose code called the node."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return "", ""
    path, module_class = stack[-1]
    if not isinstance(module_class, str):
        module_class = module_class.__name__
    return path if plain_path(path) else "", module_class.rpartition(".")[2]


def _is_pure(node: Any) -> bool:
    """Whether the same arguments give the same result, and nothing else changes."""
    if node.target is operator.getitem:
        return True
    name = node.target._schema.name
    uninitialized = name.startswith(("aten::empty", "aten::new_empty"))
    return not (node.target._schema.is_mutable or uninitialized or _is_random(node))


def _is_random(node: Any) -> bool:
    """Whether the result is drawn. An operator that can draw does not if it is told so: `train=False`, `p=0`."""
    if not isinstance(node.target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    given = _settings(node)
    return not any(given.get(name, True) is False for name in _MODES) and not _draws_nothing(given)


def _settings(node: Any) -> dict[str, Any]:
    """The arguments of a call of an operator by name, with defaults."""
    arguments = node.target._schema.arguments
    given = {argument.name: argument.default_value for argument in arguments}
    return given | dict(zip(given, node.args, strict=False)) | dict(node.kwargs)


def _draws_nothing(given: dict[str, Any]) -> bool:
    """Whether an operator is told to drop nothing, so that it does the same in every mode."""
    return any(given[name] == 0 for name in ("p", "dropout", "dropout_p") if name in given)


def meaning_of(program: Any) -> Any:
    """What an exported program computes: equal for two exports of a module that compute the same, step by step."""
    nodes = []
    for node in program.graph_module.graph.nodes:
        given: Any = [node.args, node.kwargs]
        if isinstance(node.target, torch._ops.OpOverload):
            given = _settings(node)
            if _draws_nothing(given):
                given = {name: value for name, value in given.items() if name not in _MODES}
        nodes.append((node.name, str(node.target), repr(given)))
    tensors = {name: value for name, value in program.constants.items() if isinstance(value, torch.Tensor)}
    constants = {name: hashlib.sha256(_base64(value).encode()).digest() for name, value in tensors.items()}
    return nodes, str(program.graph_signature), constants


def _argument(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, torch.fx.Node):
        return {"node": names.get(value.name, value.name)}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, (list, tuple)):
        return [_argument(each, names) for each in value]
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.memory_format):
        return {"memory_format": str(value).removeprefix("torch.")}
    if isinstance(value, torch.layout):
        return {"layout": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": value.type}
    raise Refused(f"an operator is given an argument of type {type(value).__name__}")


def _refs(value: Any) -> set[str]:
    """The names of nodes in described arguments."""
    if isinstance(value, dict):
        return {value["node"]} if "node" in value else set()
    if isinstance(value, list):
        return {ref for each in value for ref in _refs(each)}
    return set()


def _tree(spec: pytree.TreeSpec) -> Any:
    """A tree of containers: `["leaf"]`, `["tuple", [children]]`, `["list", …]`, `["dict", keys, children]`."""
    if spec.is_leaf():
        return ["leaf"]
    children = [_tree(child) for child in spec.children()]
    if spec.type is tuple:
        return ["tuple", children]
    if spec.type is list:
        return ["list", children]
    if spec.type is dict and all(isinstance(key, (str, int)) for key in spec.context):
        return ["dict", list(spec.context), children]
    raise Refused(f"a result or an argument of type {getattr(spec.type, '__name__', spec.type)} has no description")


def _base64(value: torch.Tensor) -> str:
    raw = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return base64.b64encode(raw).decode()


def plain_path(path: str) -> bool:
    """Whether a path can be part of generated code; empty for the module itself."""
    return path == "" or _PATH.fullmatch(path) is not None


def _checked(pattern: re.Pattern[str], name: str) -> str:
    if not pattern.fullmatch(name):
        raise Refused(f"{name[:80]!r} is a name with characters beyond letters, digits and _")
    return name
