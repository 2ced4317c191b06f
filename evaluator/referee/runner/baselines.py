"""The reference as baselines other than eager run it: compiled by torch, or exported and run by another library."""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..protocol.baselines import BASELINES

Run = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
"""An exported graph: its input tensors, its output tensors."""


def as_baseline(name: str, model: Any, folder: Path) -> Callable[..., Any]:
    """The model as a baseline runs it. It is compiled or exported in the first call on inputs of a new form.

    Args:
        name: the baseline (`protocol.baselines`), not eager.
        model: the task's Model.
        folder: a new folder below it takes the files of exported models.

    Raises:
        ModuleNotFoundError: a module that the baseline needs is not installed here.
    """
    for module in BASELINES[name].modules:
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(f"{module} is not installed where kernels are evaluated")
    if name == "compile":
        return torch.compile(model, dynamic=False)
    if name == "compile-max-autotune":
        # Without CUDA graphs, whose outputs the next call overwrites: a baseline must be what a candidate must be.
        return torch.compile(model, dynamic=False, mode="max-autotune-no-cudagraphs")
    return Exported(model, {"onnxruntime": onnxruntime, "openvino": openvino}[name], folder / "exported")


class Exported:
    """A model that is exported to ONNX for each form of its inputs, and run by another library.

    The form is all that is not an element of a tensor: nesting, numbers, shapes, dtypes. An exported file holds the
    parameters, which each evaluation draws anew, so no other evaluation can use it.
    """

    def __init__(self, model: Any, library: Callable[[Path, Sequence[torch.Tensor]], Run], folder: Path) -> None:
        self.model = model
        self.library = library
        self.folder = folder
        self.known: dict[str, tuple[Run, pytree.TreeSpec]] = {}

    def __call__(self, *inputs: Any) -> Any:
        """The outputs.

        Raises:
            Exception: it cannot be exported, or the library cannot run it.
        """
        leaves, spec = pytree.tree_flatten(inputs)
        form = repr([spec, *(form_of(leaf) for leaf in leaves)])
        if form not in self.known:
            self.known[form] = self._export(leaves, spec)
        run, out_spec = self.known[form]
        return pytree.tree_unflatten(run([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]), out_spec)

    def _export(self, leaves: list[Any], spec: pytree.TreeSpec) -> tuple[Run, pytree.TreeSpec]:
        flat = Flat(self.model, leaves, spec)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        outputs = flat(*(tensor.clone() for tensor in tensors))  # for their form; it may change its inputs
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{len(self.known)}.onnx"
        torch.onnx.export(flat, tuple(tensors), str(path), dynamo=True, external_data=False, verbose=False)
        assert flat.out_spec is not None
        return self.library(path, outputs), flat.out_spec


class Flat(torch.nn.Module):
    """A model that takes and gives tensors only; numbers among its inputs are part of it."""

    def __init__(self, model: Any, leaves: list[Any], spec: pytree.TreeSpec) -> None:
        super().__init__()
        self.model = model
        self.leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.spec = spec
        self.out_spec: pytree.TreeSpec | None = None

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the model.

        Raises:
            TypeError: it gives something else than tensors.
        """
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        outputs, self.out_spec = pytree.tree_flatten(self.model(*pytree.tree_unflatten(leaves, self.spec)))
        if not all(isinstance(output, torch.Tensor) for output in outputs):
            raise TypeError("an exported model gives tensors only")
        return tuple(outputs)


def form_of(leaf: Any) -> Any:
    """What of a leaf of the inputs an exported graph depends on."""
    return (tuple(leaf.shape), str(leaf.dtype)) if isinstance(leaf, torch.Tensor) else leaf


def onnxruntime(path: Path, outputs: Sequence[torch.Tensor]) -> Run:
    """Run an ONNX file by ONNX Runtime, as many threads as torch has; `outputs` are of the form to expect.

    Tensors are given and taken by address, so that nothing is copied.
    """
    import onnx
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    codes = {
        dtype: getattr(onnx.TensorProto, name)
        for dtype, name in (
            (torch.float32, "FLOAT"), (torch.float64, "DOUBLE"), (torch.float16, "FLOAT16"),
            (torch.bfloat16, "BFLOAT16"), (torch.int64, "INT64"), (torch.int32, "INT32"), (torch.int16, "INT16"),
            (torch.int8, "INT8"), (torch.uint8, "UINT8"), (torch.bool, "BOOL"),
        )
    }  # fmt: skip
    names = [each.name for each in session.get_inputs()], [each.name for each in session.get_outputs()]
    forms = [(tuple(output.shape), output.dtype) for output in outputs]

    def run(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        binding = session.io_binding()
        held = [tensor.contiguous() for tensor in inputs]
        made = [torch.empty(shape, dtype=dtype) for shape, dtype in forms]
        for name, tensor in zip(names[0], held, strict=True):
            binding.bind_input(name, "cpu", 0, codes[tensor.dtype], tuple(tensor.shape), tensor.data_ptr())
        for name, tensor in zip(names[1], made, strict=True):
            binding.bind_output(name, "cpu", 0, codes[tensor.dtype], tuple(tensor.shape), tensor.data_ptr())
        session.run_with_iobinding(binding)
        return made

    return run


def openvino(path: Path, outputs: Sequence[torch.Tensor]) -> Run:
    """Run an ONNX file by OpenVINO's CPU plugin for latency, in the precision of the file.

    `outputs` are of the form to expect. Tensors share memory with OpenVINO's, so that nothing is copied.
    """
    import openvino as ov

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "EXECUTION_MODE_HINT": "ACCURACY",  # no narrower type than the file's
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
    }
    compiled = ov.compile_model(str(path), "CPU", settings)
    request = compiled.create_infer_request()
    forms = [(tuple(output.shape), output.dtype) for output in outputs]

    def run(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        held = [tensor.contiguous() for tensor in inputs]
        made = [torch.empty(shape, dtype=dtype) for shape, dtype in forms]
        for index, tensor in enumerate(held):
            request.set_input_tensor(index, ov.Tensor(tensor.numpy(), shared_memory=True))
        for index, tensor in enumerate(made):
            request.set_output_tensor(index, ov.Tensor(tensor.numpy(), shared_memory=True))
        request.infer()
        return made

    return run
