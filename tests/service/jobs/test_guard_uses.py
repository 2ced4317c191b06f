"""Exported files in use: whatever is done with a model, its numbers are those of the task's own code."""

import copy
import inspect
import itertools
import math
import pickle
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils import prune

from service.jobs.guard import guard_text
from tests.service.jobs.test_guard import LEAF, imported, neighbours

pytestmark = pytest.mark.filterwarnings("ignore:the task's own code answers:UserWarning")
Exported = Callable[..., types.ModuleType]

TASK = """
import torch


class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.lin = torch.nn.Linear(size, size)

    def forward(self, x):
        return self.lin(x)
"""
KEEPS = """
import torch


class ModelNew(torch.nn.Module):
    calls = 0

    def __init__(self, size):
        super().__init__()
        self.lin = torch.nn.Linear(size, size)
        self.kept = None

    def forward(self, x):
        ModelNew.calls += 1
        if self.kept is None:
            self.kept = self.lin.weight.detach().t().clone(), self.lin.bias.detach().clone()
        return torch.addmm(self.kept[1], x, self.kept[0])
"""
READS = KEEPS.replace("        if self.kept is None:\n    ", "")


@pytest.fixture
def exported(tmp_path: Path) -> Iterator[Exported]:
    """Makes an exported file of a kernel and of what is known of it, and imports it."""
    names = [f"exported_{number}" for number in range(9)]
    numbers = iter(names)

    def made(kernel: str, found: dict[str, Any] | None = None, task: str = TASK) -> types.ModuleType:
        file = tmp_path / f"{next(numbers)}.py"
        file.write_text(kernel + guard_text(found or neighbours(), task))
        return imported(file)

    yield made
    for name in names:
        sys.modules.pop(name, None)


def right(model: Any, x: torch.Tensor | None = None) -> bool:
    x = torch.rand(4, 8) if x is None else x
    with torch.no_grad():
        return torch.allclose(model(x), torch.nn.functional.linear(x, model.lin.weight, model.lin.bias), atol=1e-6)


def ones() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.ones(8, 8))


def by_fused_optimizer(model: Any) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
    model.train()
    model(torch.rand(4, 8)).sum().backward()
    optimizer.step()
    model.eval()


CHANGES: dict[str, Callable[[Any], object]] = {
    "another parameter": lambda model: setattr(model.lin, "weight", ones()),
    "another module": lambda model: setattr(model, "lin", torch.nn.Linear(8, 8)),
    "pruned": lambda model: prune.l1_unstructured(model.lin, "weight", 0.5),
    "tied": lambda model: setattr(model.lin, "weight", torch.nn.Embedding(8, 8).weight),
    "fused optimizer": by_fused_optimizer,
    "loaded twice at the same address": lambda model: [
        model.load_state_dict({"lin.weight": torch.rand(8, 8), "lin.bias": torch.rand(8)}, assign=True)
        for _ in range(2)
    ],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_changes_parameters_after_the_first_call_is_seen(exported: Exported, change: Any) -> None:
    module = exported(KEEPS)
    model = module.ModelNew(8).eval()
    assert right(model)
    change(model)
    for _ in range(2):
        assert right(model)
    assert module.ModelNew.calls == 1


def test_tensors_of_one_call_alone_are_not_those_of_others(exported: Exported) -> None:
    module = exported(KEEPS)
    model, x = module.ModelNew(8).eval(), torch.rand(4, 8)
    other = {"lin.weight": torch.rand(8, 8), "lin.bias": torch.rand(8)}
    want = torch.nn.functional.linear(x, other["lin.weight"], other["lin.bias"])
    assert right(model)
    assert torch.allclose(torch.func.functional_call(model, other, (x,)), want)
    assert right(model)


@pytest.mark.parametrize("source", [KEEPS, READS])
def test_copies_compute_with_their_own_weights(exported: Exported, source: str) -> None:
    model = exported(source).ModelNew(8).eval()
    for called in (False, True):
        for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            copied.load_state_dict({"lin.weight": torch.ones(8, 8), "lin.bias": torch.ones(8)})
            assert right(copied), called
        assert right(model)


def test_a_model_of_another_default_dtype_has_no_kernel(exported: Exported) -> None:
    module = exported(KEEPS)
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = module.ModelNew(8).eval()
    finally:
        torch.set_default_dtype(torch.float32)
    with pytest.raises(RuntimeError, match="dtype"):
        model(torch.rand(4, 8))
    assert module.ModelNew.calls == 0


POWER = "import torch\nclass {}(torch.nn.Module):\n    def forward(self, x, p, s):\n        return {}\n"


@pytest.mark.parametrize("given", [(0.5, None), (2.0, None), (True, None), (2, 3.0), (2, math.inf), (3, None)])
def test_a_value_of_another_type_is_another_value(exported: Exported, given: tuple[Any, Any]) -> None:
    judged = [[LEAF, {"value": 2}, {"value": None}]]
    task = POWER.format("Model", "x**p if s is None else x**p * s")
    module = exported(POWER.format("ModelNew", "x * x"), neighbours(judged=judged, state={}), task)
    x = torch.rand(4, 8)
    assert torch.equal(module.ModelNew()(x, 2, None), x * x)
    assert torch.equal(module.ModelNew()(x, *given), x ** given[0] if given[1] is None else x ** given[0] * given[1])


@pytest.mark.parametrize("value", [math.inf, math.nan, -math.inf, 1.5])
def test_any_float_stands_for_a_float(exported: Exported, value: float) -> None:
    module = exported(
        POWER.format("ModelNew", "x + p"),
        neighbours(judged=[[LEAF, {"value": value}, {"value": None}]], state={}),
        TASK,
    )
    assert torch.equal(module.ModelNew()(x := torch.zeros(4, 8), 0.5, None), x + 0.5)


NORMS = """
import torch


class {}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.BatchNorm1d(8), torch.nn.BatchNorm1d(8)
        self.second.eval()

    def forward(self, x):
        return self.second(self.first(x))
"""


@pytest.mark.parametrize("frozen", [False, True])
def test_modes_of_parts_are_those_of_the_kernels_parts(exported: Exported, frozen: bool) -> None:
    module, plain = exported(NORMS.format("ModelNew"), neighbours("shape"), NORMS.format("Model")), {}
    exec(NORMS.format("Model"), plain)
    model, original = module.ModelNew(), plain["Model"]()
    x = torch.rand(5, 8)
    for each in (model, original):
        if frozen:
            each.train()
            each.first.eval()
    with torch.no_grad():
        assert torch.allclose(model(x), original(x))
    for name, want in original.state_dict().items():
        assert torch.equal(model.state_dict()[name], want), name


SLOW = TASK.replace("        return", "        import time\n\n        time.sleep(float(x[0, 0]))\n        return")


def test_threads_that_call_one_model_have_its_weights(exported: Exported) -> None:
    model = exported(READS, neighbours("shape"), SLOW).ModelNew(8).eval()
    found: list[bool] = []

    def call(wait_s: float) -> None:
        found.append(right(model, torch.full((5, 8), wait_s)))

    threads = [threading.Thread(target=call, args=(wait_s,)) for wait_s in (0.05, 0.15, 0.1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 3


DRAWS = """
from __future__ import annotations

import dataclasses

import torch


@dataclasses.dataclass
class Settings:
    width: int = 8


class {}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.{} = torch.randn(Settings().width)
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        self.total = self.total + x.sum()
        return x * self.{}
"""


def test_what_a_constructor_draws_is_the_same_and_buffers_that_calls_make_anew_are_kept(exported: Exported) -> None:
    found = {**neighbours("shape", state={"total": ["float32", "cpu", []]}), "changing": ["total"]}
    module = exported(DRAWS.format("ModelNew", "drawn", "drawn"), found, DRAWS.format("Model", "table", "table"))
    model = module.ModelNew()
    before = torch.get_rng_state()
    for rows in (4, 5, 4, 6):
        assert torch.equal(model(torch.ones(rows, 8)), model.drawn.expand(rows, 8))
    assert torch.equal(torch.get_rng_state(), before)
    assert float(model.total) == 8 * (4 + 5 + 4 + 6)


FORMS = {
    "called directly": READS + "\n    __call__ = forward\n",
    "chosen in its first call": READS.replace(
        "ModelNew.calls += 1", "ModelNew.calls += 1\n        self.forward = self.fast"
    )
    + "\n    def fast(self, x):\n        ModelNew.calls += 1\n        return self.lin(x)\n",
    "chosen in its constructor": READS.replace("self.kept = None", "self.forward = self.fast")
    + "\n    def fast(self, x):\n        ModelNew.calls += 1\n        return self.lin(x)\n",
    "tried in its constructor": READS.replace(
        "self.kept = None", "self(torch.rand(4, size))\n        ModelNew.calls -= 1"
    ),
    "a static method": "import torch\nLINEAR = torch.nn.functional.linear\n"
    + READS.replace("    def forward(self, x):", "    def fast(self, x):").replace(
        "self.kept = None", "STATE.append(self)"
    )
    + "\n    @staticmethod\n    def forward(x):\n        return STATE[-1].fast(x)\n\nSTATE = []\n",
    "in halves": READS.replace(
        "ModelNew.calls += 1",
        "if len(x) > 2:\n            return torch.cat([self(x[:2]), self(x[2:])])\n        ModelNew.calls += 0.5",
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_kernel_is_guarded(exported: Exported, form: str) -> None:
    module = exported(
        FORMS[form].replace("self.kept = ", "kept = ").replace("self.kept[", "kept["), neighbours("shape")
    )
    with torch.no_grad():
        model = module.ModelNew(8).eval()
        for calls, rows in zip(itertools.accumulate((1, 0, 1, 0)), (4, 5, 4, 3), strict=True):
            assert right(model, torch.rand(rows, 8))
            assert module.ModelNew.calls == calls, rows
    copied = copy.deepcopy(model)
    with torch.no_grad():
        copied.lin.weight.zero_()
    assert right(copied)
    assert right(copied, torch.rand(5, 8))
    assert right(model)


def test_parameters_that_say_no_version_have_no_kernel(exported: Exported) -> None:
    module = exported(KEEPS)
    with torch.inference_mode():
        model = module.ModelNew(8).eval()
        assert right(model)
        model.load_state_dict({"lin.weight": torch.ones(8, 8), "lin.bias": torch.ones(8)})
        assert right(model)
    assert module.ModelNew.calls == 0


CLASSES = {
    "__new__": "    def __new__(cls, size):\n        return super().__new__(cls)\n",
    "__eq__": "    def __eq__(self, other):\n        return True\n",
}


@pytest.mark.parametrize("body", CLASSES.values(), ids=CLASSES)
def test_plain_classes_are_guarded(exported: Exported, body: str) -> None:
    source = f"import torch\nclass ModelNew:\n{body}    def __call__(self, x):\n        return x + 1\n"
    task = "class Model:\n    def __init__(self, size=8): ...\n    def __call__(self, x): return x + 1.0\n"
    module = exported(source, neighbours("shape", state={}), task)
    model = module.ModelNew(8) if "__new__" in body else module.ModelNew()
    for rows in (4, 5):
        assert torch.equal(model(torch.zeros(rows, 8)), torch.ones(rows, 8))


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # by torch.func.jvp
def test_torch_func_and_autocast_get_what_the_task_gives(exported: Exported) -> None:
    module = exported(KEEPS)
    model, x = module.ModelNew(8).eval(), torch.rand(4, 8)
    original = torch.nn.Linear(8, 8)
    original.load_state_dict(model.lin.state_dict())
    assert right(model)
    with torch.no_grad():
        batch = torch.rand(3, 4, 8)
        assert torch.allclose(torch.func.vmap(model)(batch), original(batch))
        _, tangent = torch.func.jvp(model, (x,), (x,))
        assert torch.allclose(tangent, torch.func.jvp(original, (x,), (x,))[1])
        with torch.autocast("cpu", torch.bfloat16):
            assert model(x).dtype == original(x).dtype == torch.bfloat16
    assert module.ModelNew.calls == 1


def test_numbers_that_only_seem_to_lie_there_go_to_the_task(exported: Exported) -> None:
    source = "import torch\nclass {}(torch.nn.Module):\n    def forward(self, x):\n        return {}\n"
    judged = [[{**LEAF, "dtype": "complex64"}]]
    module = exported(
        source.format("ModelNew", "x + 1"), neighbours(judged=judged, state={}), source.format("Model", "x + 2")
    )
    z = torch.ones(4, 8, dtype=torch.complex64)
    assert torch.equal(module.ModelNew()(z), z + 1)
    assert torch.equal(module.ModelNew()(z.conj()), z + 2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_compiled_model_around_a_kernel_runs_it(exported: Exported) -> None:
    module = exported(READS.replace("self.kept = ", "kept = ").replace("self.kept[", "kept["), neighbours("shape"))
    model = module.ModelNew(8).eval()
    compiled = torch.compile(torch.nn.Sequential(model, torch.nn.ReLU()), backend="eager")
    with torch.no_grad():
        for rows in (4, 5, 4):
            x = torch.rand(rows, 8)
            assert torch.allclose(compiled(x), torch.relu(model.lin(x)))
    assert module.ModelNew.calls == 2


def test_signatures_stay(exported: Exported) -> None:
    module = exported(KEEPS)
    assert list(inspect.signature(module.ModelNew).parameters) == ["size"]
    assert list(inspect.signature(module.ModelNew(8).forward).parameters) == ["x"]


SIZES: dict[str, tuple[list[Any], list[Any], list[list[torch.Size]], list[list[torch.Size]]]] = {
    # judged shapes, what may vary, shapes that are taken, shapes that are not
    "rows": ([(4, 8)], [([[0, 0]], 1)], [[(5, 8)]], [[(4, 9)], [(1, 8)], [(0, 8)], [(5, 9)]]),
    "two tensors together": (
        [(4, 8), (4, 8)],
        [([[0, 0], [1, 0]], 1)],
        [[(5, 8), (5, 8)]],
        [[(5, 8), (4, 8)], [(5, 8), (6, 8)], [(4, 8), (1, 8)]],
    ),
    "square factors": (
        [(16, 16), (16, 16)],
        [([[0, 1], [1, 0], [0, 0], [1, 1]], 1), ([[0, 0]], 1)],
        [[(20, 16), (16, 16)], [(20, 20), (20, 20)], [(24, 20), (20, 20)]],
        [[(16, 16), (16, 20)], [(16, 20), (20, 16)]],
    ),
    "blocks": ([(4, 8)], [([[0, 1]], 8)], [[(4, 16)], [(4, 24)]], [[(4, 10)], [(4, 4)]]),
    "nothing": ([(4, 8)], [], [[(4, 8)]], [[(5, 8)]]),
}  # type: ignore[assignment]


@pytest.mark.parametrize(("judged", "variable", "taken", "refused"), SIZES.values(), ids=SIZES)
def test_only_sizes_that_were_tried_together_are_the_kernels(
    exported: Exported, judged: Any, variable: Any, taken: Any, refused: Any
) -> None:
    leaves = [{**LEAF, "shape": list(shape), "stride": [shape[1], 1]} for shape in judged]
    found = neighbours(judged=[leaves], state={})
    found["variable"] = [{"dims": dims, "multiple_of": number} for dims, number in variable]
    guard = exported(READS, found).ModelNew._guard
    for shapes, expected in [*((each, True) for each in taken), *((each, False) for each in refused)]:
        assert guard.takes([torch.empty(shape) for shape in shapes]) == expected, shapes


def test_a_wrapper_that_a_user_puts_around_forward_stays_there(exported: Exported) -> None:
    model = exported(READS).ModelNew(8).eval()
    inner = model.forward
    model.forward = lambda x: inner(x) * 2
    x = torch.rand(4, 8)
    with torch.no_grad():
        for _ in range(3):
            assert torch.allclose(model(x), model.lin(x) * 2, atol=1e-6)


def test_modes_of_parts_count(exported: Exported) -> None:
    kernel, task = (NORMS.format(name).replace("self.second.eval()", "pass") for name in ("ModelNew", "Model"))
    kernel = (
        kernel.replace("    def forward(self, x):", "    def forward(self, x):\n        CALLS.append(1)")
        + "\nCALLS = []\n"
    )
    module = exported(kernel, neighbours("mode", state={}), task)
    model = module.ModelNew()
    model(torch.rand(4, 8))
    assert len(module.CALLS) == 1
    for change in (lambda: model.second.eval(), lambda: model.eval(), lambda: model.train().first.eval()):
        change()
        model(torch.rand(4, 8))
        assert len(module.CALLS) == 1
    model.train()(torch.rand(4, 8))
    assert len(module.CALLS) == 2


OWN_TENSORS = {
    "a buffer for what it has packed": (
        "self.register_buffer('packed', None, persistent=False)",
        "self.packed = x.sum()",
    ),
    "a counter": ("self.register_buffer('count', torch.zeros(()))", "self.count += 1"),
    "one for its outputs": ("self.register_buffer('out', torch.zeros(4, 8))", "torch.mul(x, 2, out=self.out)"),
}


@pytest.mark.parametrize(("make", "use"), OWN_TENSORS.values(), ids=OWN_TENSORS)
def test_tensors_that_the_task_does_not_have_may_change(exported: Exported, make: str, use: str) -> None:
    module = exported(
        READS.replace("self.kept = None", make)
        .replace("ModelNew.calls += 1", f"ModelNew.calls += 1\n        {use}")
        .replace("self.kept", "kept")
    )
    model = module.ModelNew(8).eval()
    assert all(right(model) for _ in range(4))
    assert module.ModelNew.calls == 4


@pytest.mark.parametrize(
    "layout", ["self.lin.weight.data = self.lin.weight.data.t().contiguous().t()", "self.lin.bfloat16()"]
)
def test_a_kernel_is_held_to_the_dtypes_and_strides_that_its_own_tensors_had(exported: Exported, layout: str) -> None:
    source = (
        READS.replace("self.kept = None", layout)
        .replace("self.kept", "kept")
        .replace("x, kept[0]", "x, kept[0].float()")
        .replace("kept[1],", "kept[1].float(),")
    )
    dtype = "bfloat16" if "bfloat16" in layout else "float32"
    strides = [8, 1] if dtype == "bfloat16" else [1, 8]
    module = exported(
        source, neighbours(state={"lin.weight": [dtype, "cpu", strides], "lin.bias": [dtype, "cpu", [1]]})
    )
    model, x = module.ModelNew(8).eval(), torch.rand(4, 8)
    with torch.no_grad():
        want = torch.nn.functional.linear(x, model.lin.weight.float(), model.lin.bias.float())
        assert torch.allclose(model(x), want, atol=1e-6)
    assert module.ModelNew.calls == 1


@pytest.mark.parametrize("parameters", [True, False])
def test_a_gradient_of_an_input_costs_that_call_alone(exported: Exported, parameters: bool) -> None:
    module = exported(READS.replace("self.kept", "kept").replace("kept = None", "pass"))
    model = module.ModelNew(8).eval().requires_grad_(parameters)
    for needed in (False, True, False):
        model(torch.rand(4, 8, requires_grad=needed))
    assert module.ModelNew.calls == (1 if parameters else 2), "an optimizer may have changed parameters"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_what_has_no_memory_to_look_at_goes_to_the_task(exported: Exported) -> None:
    module = exported(
        READS.replace("self.kept", "kept").replace("kept = None", "pass"), neighbours("alignment", "negative", "stride")
    )
    model, x = module.ModelNew(8).eval().requires_grad_(False), torch.rand(3, 4, 8)
    assert torch.allclose(torch.func.vmap(model)(x), model.lin(x))
    nested = torch.nested.nested_tensor([torch.rand(2, 8), torch.rand(3, 8)])
    assert torch.allclose(model(nested)[1], model.lin(nested[1]))
    assert module.ModelNew.calls == 0


@pytest.mark.filterwarnings("ignore:.torch.jit.trace:DeprecationWarning")
def test_a_trace_holds_the_tasks_code(exported: Exported) -> None:
    source = (
        READS.replace("self.kept", "kept")
        .replace("kept = None", "pass")
        .replace("x, kept[0])", "torch.tensor(x.tolist()), kept[0])")
    )
    model = exported(source).ModelNew(8).eval().requires_grad_(False)
    traced = torch.jit.trace(model, torch.rand(4, 8))
    x = torch.rand(4, 8)
    assert torch.allclose(traced(x), model.lin(x))


def test_first_calls_in_many_threads_leave_the_kernel_in_use(exported: Exported) -> None:
    module = exported(READS.replace("self.kept", "kept").replace("kept = None", "pass"))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(60):
            model = module.ModelNew(8).eval()
            threads = [threading.Thread(target=right, args=(model,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            calls = module.ModelNew.calls
            assert right(model)
            assert module.ModelNew.calls == calls + 1
    finally:
        sys.setswitchinterval(before)


def test_the_tasks_model_is_made_as_the_kernel_was(exported: Exported) -> None:
    task = TASK.replace("Linear(size, size)", "Linear(size.pop(), 8)")
    module = exported(READS.replace("Linear(size, size)", "Linear(size.pop(), 8)"), neighbours("shape"), task)
    torch.set_default_dtype(torch.float64)
    try:
        model = module.ModelNew([8]).eval()
    finally:
        torch.set_default_dtype(torch.float32)
    x = torch.rand(5, 8, dtype=torch.float64)
    with torch.no_grad():
        assert torch.allclose(model(x), model.lin(x))
