"""Candidates in C++ that export `forward`, made into Python: how the function is called, and what is refused."""

import ast
import re
from pathlib import Path

import pytest
import torch

from tasks.build import task_from_source
from tasks.native_candidate import python_candidate
from tasks.task import LOCAL_SUITE, Task, TaskError
from tests.support.fast_batches import OP

FUNCTIONAL = """
import torch
import torch.nn as nn

def module_fn(x, weight):
    return torch.relu(x) * weight

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.full((features,), 3.0))

    def forward(self, x, fn=module_fn):
        return fn(x, self.weight)

def get_inputs():
    return [torch.randn(8, 16)]

def get_init_inputs():
    return [16]

SOURCE_KERNEL = {"platform": "cuda", "source": "__global__ void f() {}"}
"""
CPP = """#include <torch/extension.h>
torch::Tensor forward(torch::Tensor x, torch::Tensor weight) { return torch::relu(x) * weight; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "quotes \\" and ''' too"); }
"""


def task_of(source: str) -> Task:
    return task_from_source(source, name="op", suite=LOCAL_SUITE)


def run_with(source: str, forward: object) -> dict[str, object]:
    """Execute a candidate with an extension whose `forward` is this; nothing is built."""
    plain = re.sub(r"(?s)\nextension = load_inline\(.*?\n\)\n", "\n", source)
    assert plain != source
    namespace: dict[str, object] = {"extension": type("extension", (), {"forward": staticmethod(forward)})}  # type: ignore[arg-type]
    exec(compile(plain, "candidate.py", "exec"), namespace)
    return namespace


def arguments_of_load_inline(source: str) -> dict[str, object]:
    [call] = [
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
    ]
    return {each.arg: ast.literal_eval(each.value) for each in call.keywords if each.arg}


def test_the_function_of_the_file_stands_for_the_one_that_the_model_is_given() -> None:
    source = python_candidate(task_of(FUNCTIONAL), CPP, Path("kernel.cpp"))
    seen: list[tuple[int, ...]] = []

    def forward(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        seen.append((x.numel(), weight.numel()))
        return x * 0 + weight

    model = run_with(source, forward)["ModelNew"](16)  # type: ignore[operator]
    assert list(model.state_dict()) == ["weight"]
    assert torch.equal(model(torch.ones(8, 16)), torch.full((8, 16), 3.0))
    assert seen == [(128, 16)]
    assert "SOURCE_KERNEL = ..." in source


def test_the_text_is_built_as_it_is_and_its_own_module_is_kept() -> None:
    given = arguments_of_load_inline(python_candidate(task_of(FUNCTIONAL), CPP, Path("kernel.cpp")))
    assert given["cpp_sources"] == [CPP]
    assert given["functions"] is None
    bare = CPP[: CPP.index("PYBIND11")]
    assert arguments_of_load_inline(python_candidate(task_of(FUNCTIONAL), bare, Path("k.cpp")))["functions"] == [
        "forward"
    ]


def test_a_model_without_parameters_takes_a_function_of_its_inputs() -> None:
    source = python_candidate(task_of(OP.format(factor=2)), CPP, Path("kernel.cpp"))
    model = run_with(source, lambda x: x + 1)["ModelNew"]()  # type: ignore[operator]
    assert model(torch.zeros(2)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("op", "code", "problem"),
    [
        (FUNCTIONAL, "int main() {}", "defines no function forward"),
        (FUNCTIONAL, CPP + "\0", "holds a null byte"),
        (FUNCTIONAL.replace("fn=module_fn", "").replace("fn(x", "module_fn(x"), CPP, "takes no function fn"),
    ],
)
def test_what_has_no_such_function_or_takes_none_is_refused(op: str, code: str, problem: str) -> None:
    with pytest.raises(TaskError, match=rf"^kernel.cpp: .*{problem}.*; "):
        python_candidate(task_of(op), code, Path("kernel.cpp"))


def test_c_is_refused_for_an_op_whose_reference_is_in_torch() -> None:
    with pytest.raises(TaskError, match=r"is C, and the reference of local/op is no kernel in C; give a .cpp file"):
        python_candidate(task_of(FUNCTIONAL), "void default_function_kernel(float* x) {}", Path("kernel.c"))
