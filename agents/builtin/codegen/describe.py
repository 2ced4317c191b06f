"""Descriptions of tensors, trees of arguments and outputs, as plain JSON."""

import base64
from typing import Any

import torch
from torch.utils import _pytree as pytree


def describe_tensor(value: torch.Tensor) -> dict[str, Any]:
    """The shape, strides and dtype that the kernels assume."""
    return {
        "shape": list(value.shape),
        "stride": list(value.stride()),
        "dtype": str(value.dtype).removeprefix("torch."),
    }


def describe_constant(value: torch.Tensor) -> dict[str, Any]:
    """The bytes of a constant that the op creates, such as `torch.tensor([1, 2])` in `forward`."""
    raw = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return {"base64": base64.b64encode(raw).decode()}


def describe_tree(spec: pytree.TreeSpec) -> Any:
    """A tree of containers as JSON: `["leaf"]`, `["tuple", [children]]`, `["list", …]`, `["dict", keys, children]`.

    Raises:
        ValueError: a container of another kind (a named tuple, a dataclass).
    """
    if spec.is_leaf():
        return ["leaf"]
    children = [describe_tree(child) for child in spec.children()]
    if spec.type is tuple:
        return ["tuple", children]
    if spec.type is list:
        return ["list", children]
    if spec.type is dict and all(isinstance(key, (str, int)) for key in spec.context):
        return ["dict", list(spec.context), children]
    raise ValueError(f"a result or argument of type {spec.type.__name__} is not supported")


def describe_outputs(program: Any, metadata: Any) -> list[dict[str, Any]]:
    """The leaves of the result: each is computed by the kernels, an input itself, or a view of an input."""
    outputs = []
    for spec, info in zip(program.graph_signature.output_specs, metadata.output_info, strict=True):
        kind = info.output_type.name
        if kind == "is_input":
            outputs.append({"kind": "input", "index": info.base_idx})
        elif kind == "alias_of_input":
            view = _value_of_output(program, len(outputs))
            outputs.append(
                {
                    "kind": "view_of_input",
                    "index": info.base_idx,
                    "shape": list(view.shape),
                    "stride": list(view.stride()),
                    "offset": int(view.storage_offset()),
                }
            )
        else:
            outputs.append({"kind": "computed", "constant": not isinstance(spec.arg, _tensor_argument())})
    return outputs


def _tensor_argument() -> type:
    from torch.export.graph_signature import TensorArgument

    return TensorArgument


def _value_of_output(program: Any, position: int) -> torch.Tensor:
    result = next(iter(reversed(program.graph_module.graph.nodes)))
    value: torch.Tensor = result.args[0][position].meta["val"]
    return value
