"""The guard of an exported file: calls that the kernel was not judged on go to the task's own code."""

import copy
import importlib.util
import math
import pickle
import sys
import types
from collections.abc import Iterator
from pathlib import Path
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


STATE = {"lin.weight": ["float32", "cpu", [8, 1]], "lin.bias": ["float32", "cpu", [1]]}
FIRST_SIZE = {"dims": [[0, 0]], "multiple_of": 1}


def neighbours(
    *guards: str,
    judged: list[Any] | None = None,
    names: dict[str, str] | None = None,
    state: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What an evaluation found; the first size may be another one, unless shapes are guarded."""
    own = {known: own for own, known in (names or {}).items()}
    state = {own.get(name, name): each for name, each in STATE.items()} if state is None else state
    found = {"checks": [], "judged": judged or [[LEAF]], "names": names or {}, "state": state, "changing": []}
    return {"guards": list(guards), "variable": [] if "shape" in guards else [FIRST_SIZE], **found}


def imported(file: Path) -> types.ModuleType:
    """A file as an imported module, which pickle finds by its name."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = made
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def module(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[types.ModuleType]:
    """An exported file as an imported module: by default of `KERNEL`, with shapes guarded."""
    kernel, found = getattr(request, "param", (KERNEL, neighbours("shape")))
    file = tmp_path / "exported_kernel.py"
    file.write_text(kernel + guard_text(found, TASK))
    yield imported(file)
    del sys.modules[file.stem]


OTHERS_ANSWER = pytest.mark.filterwarnings("ignore:the task's own code answers:UserWarning")


def same(model: Any, x: torch.Tensor) -> bool:
    with torch.no_grad():
        return torch.allclose(model(x), torch.nn.functional.linear(x, model.lin.weight, model.lin.bias))


@OTHERS_ANSWER
def test_the_kernel_answers_where_it_was_judged_and_the_task_elsewhere(module: types.ModuleType) -> None:
    model = module.ModelNew(8)
    with torch.no_grad():
        model.lin.weight.mul_(2)  # the task's code uses the kernel's parameters
        assert same(model, torch.rand(4, 8))
        assert module.ModelNew.calls == 1
        for other in (torch.rand(5, 8), torch.rand(8), torch.rand(2, 4, 8)):
            assert same(model, other)
        assert module.ModelNew.calls == 1
        x = torch.rand(4, 8)
        assert torch.equal(model(x=x), model.lin(x)), "the kernel was judged on inputs by position"
        assert torch.equal(model(x, scale=2), 2 * model.lin(x))
        assert module.ModelNew.calls == 1


@OTHERS_ANSWER
def test_its_parameters_are_the_kernels_own(module: types.ModuleType) -> None:
    model = module.ModelNew(8)
    model(torch.rand(5, 8))
    assert list(model.state_dict()) == ["lin.weight", "lin.bias"]
    assert [name for name, _ in model.named_modules()] == ["", "lin"]
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert same(other, torch.rand(4, 8))
        assert same(other, torch.rand(5, 8))
    assert model.double()(torch.rand(5, 8).double()).dtype == torch.float64


UNGUARDED = (KERNEL, neighbours())


@pytest.mark.parametrize("module", [UNGUARDED], indirect=True)
def test_a_kernel_that_takes_any_shape_gets_it_and_no_other_dtype(module: types.ModuleType) -> None:
    model = module.ModelNew(8).eval()
    assert same(model, torch.rand(5, 8))
    assert module.ModelNew.calls == 1
    with pytest.warns(UserWarning, match="its inputs are not like those"), pytest.raises(RuntimeError, match="dtype"):
        model(torch.rand(5, 8).double())  # so the task's own code says it
    assert module.ModelNew.calls == 1


CASTS = {
    "cast": lambda model: model.double(),
    "cast within another module": lambda model: torch.nn.Sequential(model).bfloat16(),
    "a part of it": lambda model: model.lin.double(),
    "other strides": lambda model: model._apply(lambda tensor: tensor.t().contiguous().t()),
}


@pytest.mark.parametrize("change", CASTS.values(), ids=CASTS)
@pytest.mark.parametrize("module", [UNGUARDED], indirect=True)
def test_parameters_of_another_dtype_or_layout_have_no_kernel(module: types.ModuleType, change: Any) -> None:
    model = module.ModelNew(8).eval()
    change(model)
    x = torch.rand(4, 8)
    if model.lin.weight.dtype == torch.float32:
        with pytest.warns(UserWarning, match="its parameters are not of the dtypes"):
            assert same(model, x)
    else:
        with pytest.warns(UserWarning, match="its parameters are not"), pytest.raises(RuntimeError, match="dtype"):
            model(x)
    assert module.ModelNew.calls == 0
    other = module.ModelNew(8).eval().double().float().to("cpu").requires_grad_(False)
    assert same(other, x)
    assert module.ModelNew.calls == 1, "it is as it was"


CHANGES = {
    "in place": lambda model: model.lin.weight.mul_(2),
    "loaded": lambda model: model.load_state_dict({"lin.weight": torch.ones(8, 8), "lin.bias": torch.ones(8)}),
    "put in their places": lambda model: model.load_state_dict(
        {"lin.weight": torch.ones(8, 8), "lin.bias": torch.ones(8)}, assign=True
    ),
    "by .data": lambda model: setattr(model.lin.weight, "data", torch.ones(8, 8)),
}


@torch.no_grad()
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("module", [UNGUARDED], indirect=True)
def test_parameters_that_change_before_the_first_call_are_the_kernels_and_later_the_tasks(
    module: types.ModuleType, change: Any
) -> None:
    model = module.ModelNew(8)
    change(model)
    for _ in range(2):
        assert same(model, torch.rand(4, 8))
    assert module.ModelNew.calls == 2
    change(model)
    with pytest.warns(UserWarning, match="make the model anew"):
        assert same(model, torch.rand(4, 8))
    assert module.ModelNew.calls == 2


@pytest.mark.parametrize("module", [UNGUARDED], indirect=True)
def test_gradients_are_the_tasks(module: types.ModuleType) -> None:
    x = torch.rand(4, 8, requires_grad=True)
    for model, inputs in ((module.ModelNew(8), x.detach()), (module.ModelNew(8).eval(), x)):
        with pytest.warns(UserWarning, match="gradients are wanted"):
            model(inputs).sum().backward()
        assert model.lin.weight.grad is not None
    assert module.ModelNew.calls == 0
    model(x.detach())
    with torch.no_grad():
        model.train()(x)
    assert module.ModelNew.calls == 2


@pytest.mark.parametrize("module", [(KERNEL, neighbours("mode"))], indirect=True)
def test_a_kernel_that_is_wrong_in_eval_mode_is_not_used_in_it(module: types.ModuleType) -> None:
    model = module.ModelNew(8)
    assert same(model, torch.rand(4, 8))
    with pytest.warns(UserWarning, match="in another mode"):
        assert same(model.eval(), torch.rand(4, 8))
    assert module.ModelNew.calls == 1


NO_MODULE = """
class ModelNew:
    calls = 0

    def __init__(self, size):
        self.weights = [torch.eye(size), {{"b": torch.zeros(size)}}]

    def __call__(self, x):
        ModelNew.calls += 1
        return torch.nn.functional.linear(x, self.weights[0], self.weights[1]["b"])
"""
LISTED = {"weights[0]": "lin.weight", "weights[1]['b']": "lin.bias"}


@OTHERS_ANSWER
@pytest.mark.parametrize(
    "module",
    [("import torch\n" + NO_MODULE.replace("{{", "{").replace("}}", "}"), neighbours("shape", names=LISTED))],
    indirect=True,
)
def test_a_kernel_that_is_no_module_is_guarded_and_its_tensors_are_found(module: types.ModuleType) -> None:
    model, x = module.ModelNew(8), torch.rand(5, 8)
    assert torch.equal(model(x), x)
    assert module.ModelNew.calls == 0
    assert torch.equal(model(x[:4]), x[:4])
    assert module.ModelNew.calls == 1
    del model.weights[1]
    with pytest.raises(RuntimeError, match=r"no tensor of its own for 'lin.bias'"):
        model(x)


ODD = {
    "slots": "class ModelNew:\n    __slots__ = ()\n    def __call__(self, x):\n        return x\n",
    "a function": "def ModelNew():\n    return lambda x: x\n",
    "TorchScript": "import torch\nclass ModelNew(torch.jit.ScriptModule):\n"
    "    @torch.jit.script_method\n    def forward(self, x):\n        return x\n",
}


@pytest.mark.filterwarnings("ignore:.*jit.*:DeprecationWarning")
@pytest.mark.parametrize("module", [(source, neighbours("shape")) for source in ODD.values()], indirect=True, ids=ODD)
def test_what_cannot_be_guarded_stays_as_it_is(module: types.ModuleType) -> None:
    x = torch.rand(4, 8)
    assert module.ModelNew()(x) is x or torch.equal(module.ModelNew()(x), x)


OWN_FORWARD = KERNEL.replace("self.lin = ", "self.forward = self.fast\n        self.lin = ").replace(
    "def forward(", "def fast("
)
OTHER_NAME = KERNEL.replace("self.lin", "self.inner")


@OTHERS_ANSWER
@pytest.mark.parametrize("module", [(OWN_FORWARD, neighbours("shape"))], indirect=True)
def test_a_function_chosen_in_the_constructor_is_guarded_too(module: types.ModuleType) -> None:
    model = module.ModelNew(8)
    assert same(model, torch.rand(4, 8))
    assert same(model, torch.rand(3, 8))
    assert module.ModelNew.calls == 1


NAMES = {"inner.weight": "lin.weight", "inner.bias": "lin.bias"}


@OTHERS_ANSWER
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
    takes_all = module.ModelNew._guard.takes
    backing = torch.empty(80)
    start = -backing.data_ptr() % 64 // 4
    aligned, behind = backing[start : start + 32].view(4, 8), backing[start + 1 : start + 33].view(4, 8)
    larger = torch.empty(96)
    first = -larger.data_ptr() % 64 // 4
    tried = (aligned, aligned.view(8, 4).t(), behind, larger[first : first + 40].view(5, 8))
    assert [takes_all([x]) for x in tried] == takes
    assert not takes_all([aligned.double()])
    assert not takes_all([aligned, aligned])
    assert not takes_all([3.0])


VALUES = [[{"value": 3}, {"value": 0.5}, {"value": None}, {"value": "sum"}, {"value": "float32"}]]


@pytest.mark.parametrize("module", [(KERNEL, neighbours("shape", judged=VALUES))], indirect=True)
def test_numbers_that_were_not_varied_must_be_the_same(module: types.ModuleType) -> None:
    def takes(*values: Any) -> bool:
        return bool(module.ModelNew._guard.takes(list(values)))

    assert takes(3, 0.5, None, "sum", torch.float32)
    assert takes(3, math.pi, None, "sum", torch.float32), "floats are varied when the kernel is judged"
    assert not takes(4, 0.5, None, "sum", torch.float32)
    assert not takes(3, 0.5, None, "mean", torch.float32)
    assert not takes(3, 0.5, None, "sum", torch.float64)
    assert not takes(torch.full((4,), 3), 0.5, None, "sum", torch.float32)


def test_the_guard_says_which_calls_the_task_answers() -> None:
    assert guard_text(None, TASK) == guard_text({**neighbours(), "judged": []}, TASK) == ""
    always = guard_text(neighbours(), TASK)
    assert "# - where autograd, autocast or torch.func has a part in it\n" in always
    assert "with other strides" not in always
    text = guard_text(neighbours("shape", "stride", "alignment", "mode"), TASK)
    words = (
        "with other sizes than those that may vary (`variable` below)",
        "with other strides",
        "with other alignment",
        "in another mode (training or eval)",
    )
    assert all(f"# - {each}\n" in text for each in words)


def test_an_exported_file_measures_as_the_candidate_alone() -> None:
    exported = f"{MARK} 1.0\n# more\n\n{KERNEL}" + guard_text(neighbours("shape"), TASK)
    assert without_header(exported) == KERNEL
    assert without_guard(KERNEL) == KERNEL
