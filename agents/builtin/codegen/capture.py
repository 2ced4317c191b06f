"""Loads an op, exports it, lowers it by TorchInductor, and describes the generated module."""

import copy
import types
from typing import Any
from unittest import mock

import torch
from torch.utils import _pytree as pytree

from .convolutions import WINOGRAD, winograd_convolutions
from .decompose import SMALL_PRODUCTS, decompositions, interpolate_linear
from .describe import describe_constant, describe_outputs, describe_tensor, describe_tree
from .vectors import OUTER_VECTORS, inductor_settings, vector_bytes, vectors_along_results

MAX_CONSTANT_BYTES = 1 << 20


class CaptureError(Exception):
    """The op could not be turned into kernels; `stage` is load, inputs, export or lower."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


def generate(source: str, options: dict[str, Any]) -> dict[str, Any]:
    """All that the host needs to write candidates for the op with these options of TorchInductor.

    Returns:
        `torch`: its version; `text`: the generated Python module; `inputs`: the flat arguments of its `call` in order
        (each a parameter, buffer, constant, tensor argument or fixed scalar); `arguments`: the tree of the arguments of
        `forward`; `outputs`: the leaves of the result; `result`: their tree; `training`: the mode in which the op was
        captured; `vector_bytes`: width of the vectors in the kernels; `threads`: the number of threads.

    Raises:
        CaptureError: the op fails, or cannot be exported or lowered; the text names the cause.
    """
    model, arguments = _load(source)
    with torch.no_grad():
        program = _export(model, arguments)
        flat = _flat_inputs(program, arguments)
        settings = inductor_settings(options)
        # Lower a copy: the descriptions of outputs need the graph as it was exported.
        parameters = {number for number, (described, _) in enumerate(flat) if described["kind"] == "parameter"}
        values = [value for _, value in flat]
        text, metadata = _lower(copy.deepcopy(program.graph_module), values, parameters, options, settings)
    return {
        "torch": torch.__version__,
        "text": text,
        "inputs": [description for description, _ in flat],
        "arguments": describe_tree(program.call_spec.in_spec.children()[0]),
        "outputs": describe_outputs(program, metadata),
        "result": describe_tree(program.call_spec.out_spec),
        "training": bool(model.training),
        "vector_bytes": vector_bytes(settings),
        "threads": torch.get_num_threads(),
    }


def _load(source: str) -> tuple[torch.nn.Module, list[Any]]:
    module = types.ModuleType("task")
    try:
        exec(compile(source, "task.py", "exec"), module.__dict__)  # noqa: S102 (inside the sandbox only)
        torch.manual_seed(0)
        model = module.Model(*module.get_init_inputs())
    except BaseException as error:
        raise CaptureError("load", f"{type(error).__name__}: {error}") from error
    try:
        inputs = module.get_inputs()
        # Give each input a storage of its own: the same tensor given twice would be exported as one input.
        inputs = [value.clone() if isinstance(value, torch.Tensor) and _dense(value) else value for value in inputs]
    except BaseException as error:
        raise CaptureError("inputs", f"{type(error).__name__}: {error}") from error
    return model, inputs


def _dense(value: torch.Tensor) -> bool:
    return value.is_contiguous()


def _export(model: torch.nn.Module, arguments: list[Any]) -> Any:
    try:
        return torch.export.export(model, tuple(arguments))
    except BaseException as error:
        raise CaptureError("export", f"{type(error).__name__}: {error}") from error


def _flat_inputs(program: Any, arguments: list[Any]) -> list[tuple[dict[str, Any], Any]]:
    """The flat inputs of the exported graph: the description of each for the host, and its value for TorchInductor."""
    user_values = iter(pytree.tree_leaves((tuple(arguments), {})))
    flat: list[tuple[dict[str, Any], Any]] = []
    for spec in program.graph_signature.input_specs:
        kind = spec.kind.name
        if kind == "USER_INPUT":
            value = next(user_values)
            if isinstance(value, torch.Tensor):
                description = {"kind": "argument", **describe_tensor(value)}
            else:
                description = {"kind": "scalar", "value": value if isinstance(value, (bool, int, float, str)) else None}
        elif kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            held = program.state_dict if spec.target in program.state_dict else program.constants
            value = held[spec.target]
            description = {"kind": kind.lower(), "name": spec.target, **describe_tensor(value)}
            if kind == "CONSTANT_TENSOR":
                if value.numel() * value.element_size() > MAX_CONSTANT_BYTES:
                    raise CaptureError(
                        "export", f"the constant {spec.target} is larger than {MAX_CONSTANT_BYTES} bytes"
                    )
                description |= describe_constant(value)
        else:
            raise CaptureError("export", f"an input of kind {kind} is not supported")
        flat.append((description, value))
    return flat


def _lower(
    graph: torch.fx.GraphModule,
    values: list[Any],
    parameters: set[int],
    options: dict[str, Any],
    patches: dict[str, Any],
) -> tuple[str, Any]:
    """The text of TorchInductor's module, which is not compiled, and AOTAutograd's metadata on outputs and aliases."""
    import torch._inductor.config as settings
    from torch._guards import TracingContext, tracing
    from torch._inductor import compile_fx
    from torch._inductor.graph import GraphLowering
    from torch._subclasses import FakeTensorMode

    texts: list[str] = []
    notes: list[Any] = []

    class NotCompiled:
        def call(self, *_: Any) -> None:
            raise RuntimeError("this module was generated to be read, not run")

    def keep_text(lowering: Any) -> NotCompiled:
        wrapper, _ = lowering.codegen()
        texts.append(wrapper.value)
        return NotCompiled()

    def inner(inner_graph: Any, example: Any, **kwargs: Any) -> Any:
        context = TracingContext.try_get()
        notes.append(context.fw_metadata if context else None)
        return compile_fx.compile_fx_inner(inner_graph, example, **kwargs)

    try:
        with (
            mock.patch.object(GraphLowering, "compile_to_module", keep_text),
            mock.patch("torch._decomp.decompositions._upsample_linear", interpolate_linear),
            vectors_along_results(bool(options.get(OUTER_VECTORS))),
            winograd_convolutions(bool(options.get(WINOGRAD)), max(4, vector_bytes(patches) // 4), parameters),
            settings.patch(patches),
            tracing(TracingContext(FakeTensorMode())),
        ):
            table = decompositions(int(options.get(SMALL_PRODUCTS, 0)))
            compile_fx.compile_fx(graph, values, inner_compile=inner, decompositions=table)
    except BaseException as error:
        raise CaptureError("lower", f"{type(error).__name__}: {error}") from error
    if len(texts) != 1 or notes[0] is None:
        raise CaptureError("lower", f"expected one module from TorchInductor and got {len(texts)}")
    return texts[0], notes[0]
