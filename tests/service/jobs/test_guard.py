"""The guard of an exported file: calls that the kernel was not judged on go to the task's own code."""

import copy
import math
import pickle
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from service.jobs.export import MARK, without_header
from service.jobs.guard import guard_text, without_guard

TASK = '''"""A task whose text has {braces}, "quotes" and a \\\\ in it."""
import torch


class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.lin = torch.nn.Linear(size, size)

    def forward(self, x, *, scale=1):
        return scale * self.lin(x)
'''
KERNEL = """
import torch


class ModelNew(torch.nn.Module):
    calls = 0

    def __init__(self, size):
        super(ModelNew, self).__init__()
        self.lin = torch.nn.Linear(size, size)

    def forward(self, x):
        ModelNew.calls += 1
        return torch.nn.functional.linear(x, self.lin.weight, self.lin.bias)
"""
LEAF = {"dtype": "float32", "device": "cpu", "shape": [4, 8], "stride": [8, 1], "contiguous": True}


def neighbours(*guards: str, judged: list[Any] | None = None, names: dict[str, str] | None = None) -> dict[str, Any]:
    return {"guards": list(guards), "checks": [], "judged": judged or [[LEAF]], "names": names or {}}


@pytest.fixture
def module(request: pytest.FixtureRequest) -> Iterator[types.ModuleType]:
    """An exported file as an imported module: by default of `KERNEL`, with shapes guarded."""
    kernel, found = getattr(request, "param", (KERNEL, neighbours("shape")))
    made = types.ModuleType("exported_kernel")
    sys.modules[made.__name__] = made  # as pickle wants it
    exec(kernel + guard_text(found, TASK), made.__dict__)
    yield made
    del sys.modules[made.__name__]


def same(model: Any, x: torch.Tensor) -> bool:
    return torch.allclose(model(x), torch.nn.functional.linear(x, model.lin.weight, model.lin.bias))


def test_the_kernel_answers_where_it_was_judged_and_the_task_elsewhere(module: types.ModuleType) -> None:
    model = module.ModelNew(8)
    assert same(model, torch.rand(4, 8))
    assert module.ModelNew.calls == 1
    for other in (torch.rand(5, 8), torch.rand(8), torch.rand(2, 4, 8)):
        assert same(model, other)
    with torch.no_grad():
        model.lin.weight.mul_(2)  # the task's code uses the kernel's parameters
    assert same(model, torch.rand(5, 8))
    assert module.ModelNew.calls == 1
    x = torch.rand(4, 8)
    assert torch.equal(model(x=x), model.lin(x)), "the kernel was judged on inputs by position"
    assert torch.equal(model(x, scale=2), 2 * model.lin(x))
    assert module.ModelNew.calls == 1


def test_its_parameters_are_the_kernels_own(module: types.ModuleType) -> None:
    model = module.ModelNew(8)
    model(torch.rand(5, 8))
    assert list(model.state_dict()) == ["lin.weight", "lin.bias"]
    assert [name for name, _ in model.named_modules()] == ["", "lin"]
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert same(other, torch.rand(4, 8))
        assert same(other, torch.rand(5, 8))
    assert model.double()(torch.rand(5, 8).double()).dtype == torch.float64


OWN_FORWARD = KERNEL.replace("self.lin = ", "self.forward = self.fast\n        self.lin = ").replace(
    "def forward(", "def fast("
)
OTHER_NAME = KERNEL.replace("self.lin", "self.inner")


@pytest.mark.parametrize("module", [(OWN_FORWARD, neighbours("shape"))], indirect=True)
def test_a_function_chosen_in_the_constructor_is_guarded_too(module: types.ModuleType) -> None:
    model = module.ModelNew(8)
    assert same(model, torch.rand(4, 8))
    assert same(model, torch.rand(3, 8))
    assert module.ModelNew.calls == 1


NAMES = {"inner.weight": "lin.weight", "inner.bias": "lin.bias"}


@pytest.mark.parametrize("module", [(OTHER_NAME, neighbours("shape", names=NAMES))], indirect=True)
def test_parameters_under_other_names_reach_the_task(module: types.ModuleType) -> None:
    model, x = module.ModelNew(8), torch.rand(3, 8)
    assert torch.equal(model(x), model.inner(x))
    assert module.ModelNew.calls == 0


SWAPPED = {**LEAF, "stride": [1, 4], "contiguous": False}


@pytest.mark.parametrize(
    ("module", "takes"),
    [
        ((KERNEL, neighbours("shape")), [True, True, True, False]),
        ((KERNEL, neighbours("stride")), [True, False, True, True]),
        ((KERNEL, neighbours("alignment")), [True, True, False, True]),
        ((KERNEL, neighbours("shape", "stride", "alignment")), [True, False, False, False]),
        ((KERNEL, neighbours("stride", judged=[[SWAPPED]])), [False, True, False, False]),
        ((KERNEL, neighbours("shape", judged=[[LEAF], [{**LEAF, "shape": [5, 8]}]])), [True, True, True, True]),
    ],
    indirect=["module"],
)
def test_the_guard_looks_at_what_the_kernel_takes_for_granted(module: types.ModuleType, takes: list[bool]) -> None:
    backing = torch.empty(64)
    start = -backing.data_ptr() % 64 // 4
    backing = torch.empty(80)
    start = -backing.data_ptr() % 64 // 4
    aligned, behind = backing[start : start + 32].view(4, 8), backing[start + 1 : start + 33].view(4, 8)
    larger = torch.empty(96)
    first = -larger.data_ptr() % 64 // 4
    tried = (aligned, aligned.view(8, 4).t(), behind, larger[first : first + 40].view(5, 8))
    assert [module._guard_takes((x,), {}) for x in tried] == takes
    assert not module._guard_takes((aligned.double(),), {})
    assert not module._guard_takes((aligned, aligned), {})
    assert not module._guard_takes((3.0,), {})


VALUES = [[{"value": 3}, {"value": 0.5}, {"value": None}, {"value": "sum"}, {"value": "float32"}]]


@pytest.mark.parametrize("module", [(KERNEL, neighbours("shape", judged=VALUES))], indirect=True)
def test_numbers_that_were_not_varied_must_be_the_same(module: types.ModuleType) -> None:
    def takes(*values: Any) -> bool:
        return bool(module._guard_takes(values, {}))

    assert takes(3, 0.5, None, "sum", torch.float32)
    assert takes(3, math.pi, None, "sum", torch.float32), "floats are varied when the kernel is judged"
    assert not takes(4, 0.5, None, "sum", torch.float32)
    assert not takes(3, 0.5, None, "mean", torch.float32)
    assert not takes(3, 0.5, None, "sum", torch.float64)


def test_only_a_specialised_kernel_has_a_guard() -> None:
    assert guard_text(None, TASK) == guard_text(neighbours(), TASK) == ""
    assert "shapes, strides or alignment go to the task's own code" in " ".join(
        guard_text(neighbours("shape", "stride", "alignment"), TASK).replace("#", "").split()
    )


def test_an_exported_file_measures_as_the_candidate_alone() -> None:
    exported = f"{MARK} 1.0\n# more\n\n{KERNEL}" + guard_text(neighbours("shape"), TASK)
    assert without_header(exported) == KERNEL
    assert without_guard(KERNEL) == KERNEL
