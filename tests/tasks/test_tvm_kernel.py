"""Ops made of HPCTransEval's records: parameters in the callers' order, what is refused, and what they compute."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.build import task_from_source
from tasks.declarations import declarations_of
from tasks.importers import read_clone
from tasks.native_candidate import python_candidate
from tasks.source_kernel import source_kernel_of
from tasks.task import LOCAL_SUITE, Task, TaskError
from tasks.tvm_kernel import MAX_RECORDS, Record, read_records

C_CODE = """void default_function_kernel(float* compute, float* data, int32_t* places) {
  float wide[6000];
  #pragma omp parallel for
  for (int32_t i = 0; i < 6000; ++i) {
    wide[i] = max(expf(data[i]), 1.500000e+00f);
  }
  for (int32_t i = 0; i < 6000; ++i) {
    int32_t bits = ((int32_t)(floorf(2.500000e+00f)) + 127) << 23;
    if (i < 6000) {
      compute[i] = wide[i] * (*(float *)(&(bits))) + data[places[(i & 1)]];
    }
  }
}
"""
IR_CODE = """# from tvm.script import tir as T

@I.ir_module
class Module:
    @T.prim_func
    def main(data: T.Buffer((60, 100), "float32"), places: T.Buffer((2,), "int32"), compute: OUT):
        T.func_attr({"tir.noalias": T.bool(True)})
        wide = T.allocate([6000], "float32", "global")
        wide_1 = T.Buffer((6000,), data=wide)
        data_1 = T.Buffer((6000,), data=data.data)
        for i in T.parallel(6000):
            wide_1[i] = T.max(T.exp(data_1[i]), T.float32(1.5))
        for i in range(6000):
            if i < 6000:
                compute_1 = T.Buffer((6000,), data=compute.data)
                compute_1[i] = wide_1[i] * T.float32(4) + data_1[places[i % 2]]
""".replace("OUT", 'T.Buffer((60, 100), "float32")')
CUDA = 'extern "C" __global__ void default_function_kernel(float* compute, float* data, int* places) {}\n'


def record(**changed: Any) -> dict[str, Any]:
    return {"op_name": "exp then gather", "c_code": C_CODE, "cuda_code": CUDA, "ir_code": IR_CODE} | changed


def written(folder: Path, content: Any, file: str = "IndependentOperator") -> Path:
    path = folder / f"{file}.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def read_one(folder: Path, **changed: Any) -> Record:
    [found] = read_records(written(folder, [record(**changed)]))
    return found


def op_of(folder: Path, **changed: Any) -> Task:
    found = read_one(folder, **changed)
    assert found.problem == ""
    return task_from_source(found.source, name=found.name, suite=LOCAL_SUITE)


def executed(source: str) -> ModuleType:
    """The module of a source of this file's own; on the host nothing but tests does this."""
    module = ModuleType("op")
    exec(compile(source, "op.py", "exec"), module.__dict__)
    return module


def expected(data: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """What `C_CODE` says, in torch."""
    flat = data.flatten()
    added = flat[places.long()].repeat(3000)
    return (flat.exp().clamp(min=1.5) * 4 + added).reshape(60, 100)


def test_an_op_takes_inputs_as_the_intermediate_code_orders_them_and_returns_outputs(tmp_path: Path) -> None:
    module = executed(op_of(tmp_path).source)
    data, places = module.get_inputs()
    assert (data.shape, data.dtype, places.shape, places.dtype) == ((60, 100), torch.float32, (2,), torch.int32)
    assert 0 <= int(places.min()) <= int(places.max()) < 60
    found = module.Model(*module.get_init_inputs())(data, places)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected(data, places), rtol=1e-6, atol=1e-6)


def test_in_float64_the_kernel_computes_in_double_but_where_bits_are_taken_for_a_float(tmp_path: Path) -> None:
    module = executed(op_of(tmp_path).source)
    data, places = module.get_inputs()
    found = module.Model()(data.double(), places)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected(data.double(), places), rtol=1e-14, atol=1e-14)


def test_inputs_of_other_shapes_are_refused_by_the_op(tmp_path: Path) -> None:
    module = executed(op_of(tmp_path).source)
    with pytest.raises(ValueError, match=r"takes data of shape \(60, 100\) only"):
        module.Model()(torch.rand(61, 100), torch.zeros(2, dtype=torch.int32))


def short_ir(parameters: str, *lines: str) -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return f"class Module:\n    def main({parameters}):\n{body}"


def test_parameters_that_the_two_codes_number_differently_are_those_of_the_same_use(tmp_path: Path) -> None:
    code = (
        "void default_function_kernel(float* out, float* ph, float* ph_1) {\n"
        "  out[0] = ph[0] - ph_1[0];\n  out[1] = ph[1] - ph_1[1];\n}\n"
    )
    one = 'T.Buffer((2,), "float32")'
    parameters = f"ph: {one}, ph_1: {one}, ph_2: {one}, out: {one}"
    lines = ("a = T.Buffer((2,), data=ph_2.data)", "out[0] = a[0] - ph[0]", "out[1] = a[1] - ph[1]")
    module = executed(op_of(tmp_path, c_code=code, ir_code=short_ir(parameters, *lines)).source)
    first, unused, third = torch.tensor([1.0, 2.0]), torch.tensor([9.0, 9.0]), torch.tensor([10.0, 20.0])
    assert len(module.get_inputs()) == 3
    assert module.Model()(first, unused, third).tolist() == [9.0, 18.0]


def test_an_input_that_the_kernel_writes_to_is_left_as_it_was(tmp_path: Path) -> None:
    code = (
        "void default_function_kernel(float* data, float* out) {\n  data[0] = 7.0f;\n  out[0] = data[0] + data[1];\n}\n"
    )
    ir = short_ir(
        'data: T.Buffer((2,), "float32"), out: T.Buffer((), "float32")', "data[0] = 7", "out[0] = data[0] + data[1]"
    )
    module = executed(op_of(tmp_path, c_code=code, ir_code=ir).source)
    data = torch.tensor([1.0, 2.0])
    assert module.Model()(data).item() == 9.0
    assert data.tolist() == [1.0, 2.0]


def test_the_cuda_kernel_is_brought_and_domains_are_declared(tmp_path: Path) -> None:
    task = op_of(tmp_path)
    kernel = source_kernel_of(task.source)
    assert kernel is not None and (kernel.platform, kernel.source) == ("cuda", CUDA)
    assert "launch" in kernel.notes
    assert declarations_of(task.source).domain == ("finite", "fixed")
    assert task.category == "index"


@pytest.mark.parametrize(("file", "category"), [("ComputationGraph", "fuse"), ("ModelBuildingBlock", "arch")])
def test_graphs_and_blocks_have_categories_of_their_own(tmp_path: Path, file: str, category: str) -> None:
    [found] = read_records(written(tmp_path, [record()], file))
    assert task_from_source(found.source, name="x", suite="y").category == category


def changed_ir(old: str, new: str) -> dict[str, str]:
    assert old in IR_CODE
    return {"ir_code": IR_CODE.replace(old, new)}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"c_code": None}, "has no text 'c_code'"),
        ({"cuda_code": " "}, "has no text 'cuda_code'"),
        ({"ir_code": 3}, "has no text 'ir_code'"),
        ({"c_code": C_CODE + "\0"}, "holds a null byte"),
        ({"c_code": "int main() {}"}, "does not begin with the function default_function_kernel"),
        ({"c_code": C_CODE.replace("float* data", "half* data")}, "has a parameter 'half* data'"),
        ({"c_code": C_CODE.replace("compute[i] =", "wide[i] =")}, "uses other parameters than its intermediate code"),
        ({"c_code": C_CODE.replace(", int32_t* places", "")}, "uses other parameters than its intermediate code"),
        (changed_ir("compute_1[i] = ", "x = compute_1[i] + "), "uses other parameters than its intermediate code"),
        ({"cuda_code": "x" * 70_000}, "over 64 KiB"),
        (changed_ir("def main", "def start"), "no one function main"),
        (changed_ir("(60, 100)", "(60, -1)"), "no buffer that is known"),
        (changed_ir("(60, 100)", "open('x')"), "no buffer that is known"),
        (changed_ir('"int32"', '"bool"'), "is bool in one code and int32_t in the other"),
        (changed_ir('"float32"', '"float8"'), "no buffer that is known"),
        (changed_ir("class Module:", "class"), "cannot be parsed"),
        (changed_ir("T.bool(True)", "(" * 4000 + ")" * 4000), "cannot be parsed"),
    ],
)
def test_a_record_that_cannot_be_made_an_op_says_why(tmp_path: Path, changed: dict[str, Any], problem: str) -> None:
    found = read_one(tmp_path, **changed)
    assert found.source == ""
    assert problem in found.problem


@pytest.mark.parametrize("content", ["", "{", '{"a": 1}', json.dumps([1] * (MAX_RECORDS + 1))])
def test_a_file_that_is_no_list_of_records_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(TaskError, match="is not"):
        list(read_records(written(tmp_path, content)))


@given(text=st.text(max_size=400))
@settings(max_examples=60, deadline=None)
def test_hostile_text_in_a_record_ends_in_a_source_or_in_a_problem(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("records")
    for key in ("op_name", "c_code", "cuda_code", "ir_code"):
        [found] = read_records(written(folder, [record(**{key: text})]))
        assert bool(found.source) != bool(found.problem)
        if found.source:
            task_from_source(found.source, name="x", suite="y")


def test_quotes_and_backslashes_in_a_kernel_stay_text(tmp_path: Path) -> None:
    ends = '// """; raise SystemExit\n// \\'
    module = executed(op_of(tmp_path, c_code=C_CODE + ends, op_name='"""\nraise SystemExit\n"""').source)
    assert module.C_KERNEL.strip() == (C_CODE + ends).strip()


def test_the_records_of_a_clone_become_three_suites(tmp_path: Path) -> None:
    (tmp_path / "EvalEngine/torch_functionals/level1").mkdir(parents=True)
    (tmp_path / "HPCTransEval").mkdir()
    for file in ("IndependentOperator", "ComputationGraph", "ModelBuildingBlock"):
        written(tmp_path / "HPCTransEval", [record(), record(c_code="")], file)
    found = read_clone("hpctranscompile", tmp_path)
    assert [each.task.id for each in found if each.task] == [
        "hpctranscompile-operators/1_exp_then_gather",
        "hpctranscompile-graphs/1_exp_then_gather",
        "hpctranscompile-blocks/1_exp_then_gather",
    ]
    refused = [each for each in found if each.task is None]
    assert refused[0].where == "HPCTransEval/IndependentOperator.json#2"
    assert len(refused) == 3


def test_a_c_file_is_a_candidate_for_such_an_op(tmp_path: Path) -> None:
    task = op_of(tmp_path)
    faster = C_CODE.replace("max(expf(data[i]), 1.500000e+00f)", "fmaxf(expf(data[i]), 1.5f)")
    source = python_candidate(task, faster, Path("kernel.c"))
    candidate, op = executed(source), executed(task.source)
    assert "class Model(" not in source and "fmaxf" in source and "SOURCE_KERNEL" not in source
    inputs = op.get_inputs()
    assert torch.equal(candidate.ModelNew()(*inputs), op.Model()(*inputs))


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("int main() {}", "does not begin with the function default_function_kernel"),
        (C_CODE.replace("float* data", "float* other"), "parameter float[*] other, which the op's kernel has not"),
        (C_CODE.replace("int32_t* places", "float* places"), "parameter float[*] places"),
        (C_CODE + "\0", "null byte"),
    ],
)
def test_a_c_file_without_the_ops_function_is_refused(tmp_path: Path, code: str, problem: str) -> None:
    with pytest.raises(TaskError, match=rf"^kernel.c: .*{problem}"):
        python_candidate(op_of(tmp_path), code, Path("kernel.c"))


def test_an_intermediate_code_that_writes_main_in_another_way_is_refused(tmp_path: Path) -> None:
    found = read_one(tmp_path, ir_code=IR_CODE.replace("def main(", "def main ("))
    assert found.source == "" and "main" in found.problem
