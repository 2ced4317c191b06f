"""The whole models that the project is tried on: valid tasks in plain PyTorch that depend on all inputs and export."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.load import load_task
from tasks.validate import validate

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "models"
BENCHMARKS = ROOT / "benchmarks" / "models"
FILES = sorted([*EXAMPLES.glob("*.py"), *BENCHMARKS.glob("*.py")])
MAY_IMPORT = {"torch", "math"}
MAKES_INPUTS = {"torch.rand", "torch.randn", "torch.randint"}
MAX_NODES = 1500
MAX_PARAMETERS_MB = 60
KEPT_WHOLE = {  # by the export of each model: a graph of their parts would hide what they are
    "decoder": {"linear", "scaled_dot_product_attention", "embedding"},
    "convnext": {"conv2d", "linear", "layer_norm", "gelu"},
    "dlrm": {"embedding_bag", "linear", "bmm"},
    "mlp": {"linear"},
    "gru": {"linear", "sigmoid", "tanh"},
    "resnet_block": {"conv2d", "_native_batch_norm_legit_no_training"},
    "mingpt_block": {"linear", "layer_norm", "matmul", "softmax"},
    "mamba_scan": {"conv1d", "linear", "cumsum", "matmul"},
    "vgg_part": {"conv2d", "max_pool2d", "linear"},
    "shufflenet_unit": {"conv2d", "_native_batch_norm_legit_no_training", "avg_pool2d"},
    "attention_kv_cache": {"linear", "matmul", "softmax"},
}

pytestmark = pytest.mark.xdist_group("whole_model_files")  # they share one run of all models
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)

RUN = """
import json, pathlib, runpy, sys
import torch

torch.set_num_threads(1)

def flat(output):
    return list(output) if isinstance(output, (tuple, list)) else [output]

def same(ours, theirs):
    return all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))

def wide(value):
    return value.double() if value.is_floating_point() else value

def operator(node):
    return str(node.target) if isinstance(node.target, torch._ops.OpOverload) else ""

def tried(path):
    file = runpy.run_path(path)
    torch.manual_seed(1)
    model, inputs, fresh = file["Model"](*file["get_init_inputs"]()), file["get_inputs"](), file["get_inputs"]()
    kept = [value.clone() for value in inputs]
    outputs = flat(model(*inputs))
    exported = torch.export.export(model, tuple(inputs)).run_decompositions({})
    signature = exported.graph_signature
    found = {
        "deterministic": same(flat(model(*inputs)), outputs),
        "inputs_kept": same(kept, inputs),
        "matters": [
            not same(flat(model(*inputs[:place], value, *inputs[place + 1 :])), outputs)
            for place, value in enumerate(fresh)
        ],
        "outputs": [
            {
                "dtype": str(output.dtype),
                "shape": list(output.shape),
                "finite": bool(output.isfinite().all()),
                "root_mean_square": output.double().square().mean().sqrt().item(),
                "deviation": output.double().std().item(),
            }
            for output in outputs
        ],
        "parameters_mb": sum(value.numel() * value.element_size() for value in model.parameters()) / 1e6,
        "parameter_dtypes": sorted({str(value.dtype) for value in model.parameters()}),
        "statistics_in_training": any(hasattr(part, "running_mean") and part.training for part in model.modules()),
        "nodes": len(exported.graph.nodes),
        "operators": sorted({name.split(".")[1] for name in map(operator, exported.graph.nodes) if name}),
        "writes": [*signature.buffers_to_mutate, *signature.user_inputs_to_mutate],
        "weights": sorted(signature.inputs_to_parameters.values()) == sorted(n for n, _ in model.named_parameters()),
        "export_is_the_model": same(flat(exported.module()(*inputs)), outputs),
    }
    exact = flat(model.double()(*map(wide, inputs)))
    found["errors"] = [
        ((narrow - output).abs().max() / output.abs().max()).item()
        for narrow, output in zip(outputs, exact, strict=True)
    ]
    return found

with torch.no_grad():
    results = {pathlib.Path(path).stem: tried(path) for path in sys.argv[2:]}
pathlib.Path(sys.argv[1]).write_text(json.dumps(results))
"""


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What one run of each model at its own size shows, by its name. The files are the project's own."""
    folder = tmp_path_factory.mktemp("tried")
    command = [sys.executable, "-c", RUN, str(folder / "found.json"), *map(str, FILES)]
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(folder)}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "", "a file prints"
    yield json.loads((folder / "found.json").read_text())


def foreign_imports(source: str) -> set[str]:
    """The packages that a file imports and that are not allowed to it; relative ones as dots."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or "").split(".")[0])
    return found - MAY_IMPORT


def test_there_are_three_examples_and_eight_layouts_of_the_field() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"decoder", "convnext", "dlrm"}
    assert {path.stem for path in FILES} == set(KEPT_WHOLE)
    assert len(FILES) == 11


@each_file
def test_each_file_is_a_valid_task_in_the_kernelbench_form(path: Path) -> None:
    task = load_task(path)
    assert (task.name, task.category, task.dtype) == (path.stem, "arch", "float32")
    op = validate(path.read_bytes(), path.name)
    assert op.function is None, "the op is a function and not Model"
    assert not op.needs_init_inputs


@each_file
def test_each_file_says_what_its_model_computes(path: Path) -> None:
    tree = ast.parse(path.read_text())
    (model,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"]
    assert ast.unparse(model.bases[0]) == "nn.Module"
    header = ast.get_docstring(tree)
    assert header is not None
    assert "Category: arch" in header
    assert "Dtype: float32" in header
    assert ast.get_docstring(model)


@each_file
def test_each_file_needs_pytorch_and_no_more(path: Path) -> None:
    assert foreign_imports(path.read_text()) == set()


@pytest.mark.parametrize(
    "line", ["import os", "import torch, numpy", "from einops import rearrange", "from . import op"]
)
def test_the_check_for_other_imports_finds_them(line: str) -> None:
    assert foreign_imports(line)


@each_file
def test_each_input_is_drawn_at_random(path: Path) -> None:
    """Their shapes are in the file, so the inputs of a region can be made anew."""
    tree = ast.parse(path.read_text())
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "get_inputs"]
    calls = {ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    assert calls
    assert calls <= MAKES_INPUTS


@each_file
def test_each_model_is_deterministic_and_keeps_its_inputs(path: Path, tried: dict[str, Any]) -> None:
    assert tried[path.stem]["deterministic"]
    assert tried[path.stem]["inputs_kept"]


@each_file
def test_each_model_depends_on_every_input(path: Path, tried: dict[str, Any]) -> None:
    assert all(tried[path.stem]["matters"])


@each_file
def test_outputs_are_float32_of_a_reasonable_scale(path: Path, tried: dict[str, Any]) -> None:
    for output in tried[path.stem]["outputs"]:
        assert output["dtype"] == "torch.float32"
        assert output["finite"]
        assert 0.1 < output["root_mean_square"] < 10, "activations vanish or grow"
        assert output["deviation"] > 0.05, "the output is all but constant"


@each_file
def test_each_model_knows_float64_and_rounds_as_float32_does(path: Path, tried: dict[str, Any]) -> None:
    assert all(0 < error < 1e-5 for error in tried[path.stem]["errors"])


@each_file
def test_weights_are_float32_and_of_moderate_size(path: Path, tried: dict[str, Any]) -> None:
    assert tried[path.stem]["parameter_dtypes"] == ["torch.float32"]
    assert 0 < tried[path.stem]["parameters_mb"] < MAX_PARAMETERS_MB


@each_file
def test_batch_norms_use_their_stored_statistics(path: Path, tried: dict[str, Any]) -> None:
    assert not tried[path.stem]["statistics_in_training"]


@each_file
def test_each_model_exports_as_a_functional_graph_of_moderate_size(path: Path, tried: dict[str, Any]) -> None:
    found = tried[path.stem]
    assert found["nodes"] < MAX_NODES
    assert found["writes"] == []
    assert found["weights"], "a parameter has no part in the graph"
    assert found["export_is_the_model"]


@each_file
def test_the_graph_names_the_operators_that_were_written(path: Path, tried: dict[str, Any]) -> None:
    names = set(tried[path.stem]["operators"])
    assert names >= KEPT_WHOLE[path.stem]
    assert not any(name.endswith("_") for name in names), "an operator writes in place"
