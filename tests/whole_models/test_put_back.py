"""Kernels put back into a model: it stays the same model, and what the kernels were not made for gets its own code."""

import copy
import difflib
import inspect
import itertools
import pickle
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.overrides import BaseTorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from tests.support import put_back_models
from tests.support.put_back_models import (
    calls,
    captured,
    chosen,
    delivered_module,
    kernel,
    loaded,
    pair,
    region,
    runs_kernels,
    same,
)
from whole_models.graph import Captured
from whole_models.put_back import Chosen, Delivered, PutBackError, Variant, bundle, put_back

NORMS = '''"""Two layers with a norm each."""
from __future__ import annotations

import torch
import torch.nn as nn


class Norm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(size) + 0.5)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Model(nn.Module):
    # A comment of the author's.
    def __init__(self, size, eps=1e-5, *, scale: float = 2.0):
        super(Model, self).__init__()
        self.__scale = scale
        self.first = nn.Linear(size, size)
        self.first_norm = Norm(size, eps)
        self.second = nn.Linear(size, size)
        self.second_norm = Norm(size, eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first_norm(self.first(x)) * self.__scale
        return self.second_norm(self.second(x))


def get_inputs():
    return [torch.randn(4, 16)]


def get_init_inputs():
    return [16]


if __name__ == "__main__":
    print(Model(*get_init_inputs())(*get_inputs()))
'''
BATCH_NORM = """
import torch
class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(size)
        self.register_buffer("seen", torch.zeros(size))
        self.register_buffer("before", torch.zeros(size))
    def forward(self, x):
        y = self.norm(x * 2 + 1)
        self.before.copy_(self.seen)
        self.seen.add_(x.sum(0))
        return torch.nn.functional.gelu(y) * 3 - 1
def get_inputs():
    return [torch.randn(8, 6)]
def get_init_inputs():
    return [6]
"""
PARTS = """
import torch
class Block(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = torch.nn.Linear(size, size)
    def forward(self, x):
        return torch.relu(self.linear(x)) * 2 + 1
class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(size), Block(size)])
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
            if x.sum() > 0:  # depends on data: the model itself cannot be exported
                x = -x
        return x
def get_inputs():
    return [torch.randn(3, 8)]
def get_init_inputs():
    return [8]
"""
TREES = """
import torch
class Model(torch.nn.Module):
    def forward(self, pair, options, *, scale=1.0):
        a, b = pair
        total = torch.tanh(a + options["shift"]) * scale
        return {"sum": total + b, "parts": [total, (b * 2,)], 3: a}
def get_inputs():
    return [(torch.randn(2, 3), torch.randn(2, 3)), {"shift": torch.randn(2, 3)}]
def get_init_inputs():
    return []
"""
HOSTILE = '''"""Names that the added text uses."""
from __future__ import annotations
import torch as _torch
_kw_source = _kw_Graph = "mine"
torch = isinstance = len = zip = "shadowed"
def all(values):
    raise RuntimeError("not the builtin")
def apply(x):
    return x + 1
def remove(x):
    return x * 2
OriginalModel = 5
class _Model:
    value = 3.0
class Model(_torch.nn.Module):
    def __init__(self, self_=1):
        super().__init__()
        self._kw_weight = _torch.nn.Parameter(_torch.ones(3))
        self.weights = _torch.nn.Parameter(_torch.full((3,), 0.5))
    def forward(self, leaves, float):
        return apply(remove(leaves * self._kw_weight)) * self.weights + float * _Model.value
def get_inputs():
    return [_torch.randn(2, 3), _torch.randn(2, 3)]
def get_init_inputs():
    return []
'''


def norms(found: Captured) -> list[Chosen]:
    """The two norms of NORMS as one region with a kernel."""
    graph = found.graphs[0]
    places = [[node.name for node in graph.nodes if node.module == path] for path in ("first_norm", "second_norm")]
    return chosen(graph, region(graph, "r01_rms_norm", *places))


@pytest.fixture(scope="module")
def of_norms() -> Delivered:
    found = captured(NORMS)
    return put_back(NORMS, [Variant(found, norms(found))])


@pytest.fixture
def norms_module(tmp_path: Path, of_norms: Delivered) -> types.ModuleType:
    return delivered_module(tmp_path, of_norms)


def test_the_model_is_the_same_and_runs_its_kernels_in_every_place(norms_module):
    ours, theirs = pair(norms_module, NORMS)
    for _ in range(3):
        assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 2


def test_constructor_signature_and_state_dict_are_the_original_s(norms_module):
    ours, theirs = pair(norms_module, NORMS)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert list(vars(ours)["_modules"]) == list(vars(theirs)["_modules"])
    assert inspect.signature(type(ours)) == inspect.signature(type(theirs))
    assert inspect.signature(type(ours).forward) == inspect.signature(type(theirs).forward)
    ours.load_state_dict(theirs.state_dict())


def test_the_source_stays_as_it_was_written_but_for_its_class_and_its_inputs(of_norms):
    text = of_norms.files["model.py"]
    changed = [line for line in difflib.ndiff(NORMS.splitlines(), text.splitlines()) if line[0] == "-"]
    kept = text.splitlines()
    assert '"""Two layers with a norm each."""' in kept
    assert "    # A comment of the author's." in kept
    assert [line for line in changed if line.strip("- ")] == [
        "- class Model(nn.Module):",
        "-         super(Model, self).__init__()",
        "- def get_inputs():",
        "-     return [torch.randn(4, 16)]",
        '- if __name__ == "__main__":',
        "-     print(Model(*get_init_inputs())(*get_inputs()))",
    ]
    assert "def get_init_inputs():" in kept


@pytest.mark.parametrize(
    "inputs",
    [
        (torch.randn(5, 16),),
        (torch.randn(2, 4, 16),),
        (torch.randn(16, 4).T,),
        (torch.randn(4, 32)[:, ::2],),
        (torch.randn(4, 16).as_subclass(type("Special", (torch.Tensor,), {})),),
    ],
    ids=["batch", "rank", "transposed", "strided", "subclass"],
)
def test_other_inputs_get_the_original_code(norms_module, inputs):
    ours, theirs = pair(norms_module, NORMS)
    assert runs_kernels(ours, theirs, *inputs) == 0
    assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 2


def test_other_dtypes_get_the_original_code(norms_module):
    ours, theirs = pair(norms_module, NORMS)
    assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 2
    assert runs_kernels(ours.double(), theirs.double(), torch.randn(4, 16, dtype=torch.float64)) == 0
    assert runs_kernels(ours.float(), theirs.float(), torch.randn(4, 16)) == 2


def test_what_the_original_refuses_is_refused_with_its_words(norms_module):
    ours, theirs = pair(norms_module, NORMS)
    for wrong in ((torch.randn(4, 7),), (), (torch.randn(4, 16), 3), ("text",)):
        with torch.no_grad(), pytest.raises(Exception) as expected:
            theirs(*wrong)
        with torch.no_grad(), pytest.raises(type(expected.value)) as seen:
            ours(*wrong)
        assert str(seen.value).replace("_Model", "Model") == str(expected.value)


def test_an_argument_by_name_is_the_same_argument(norms_module):
    ours, theirs = pair(norms_module, NORMS)
    assert runs_kernels(ours, theirs, x=torch.randn(4, 16)) == 2


@pytest.mark.parametrize("path", ["", "first_norm", "second"])
def test_another_mode_gets_the_original_code(norms_module, path):
    ours, theirs = pair(norms_module, NORMS)
    ours.get_submodule(path).eval()
    first = path or "the model itself"
    with pytest.warns(UserWarning, match=rf"^{first} .*is in eval mode, .* training mode.*the original code runs"):
        assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 0
    assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 0  # which is said once
    ours.train()
    assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 2


@pytest.fixture(scope="module")
def two_look(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, types.ModuleType]:
    """The model whose two norms look at their mode, by whether the other mode computes the same."""
    found = {}
    for either in (False, True):
        model = captured(NORMS, reads_mode=("first_norm", "second_norm"), either_mode=either)
        delivered = put_back(NORMS, [Variant(model, norms(model))])
        found[either] = delivered_module(tmp_path_factory.mktemp("modes"), delivered)
    return found


def test_a_mode_that_nothing_looks_at_may_be_any(two_look):
    """A whole model in eval mode runs its kernels, unless an operator of it depends on that."""
    ours, theirs = pair(two_look[False], NORMS)
    ours.first.eval(), ours.second.eval()
    vars(ours)["training"] = False
    assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 2
    ours.first_norm.eval()
    with pytest.warns(UserWarning, match=r"^first_norm \(Norm\) is in eval mode"):
        assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 0


def test_where_the_other_mode_computes_the_same_all_may_be_in_it(two_look):
    ours, theirs = pair(two_look[True], NORMS)
    ours.eval()
    assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 2
    ours.first_norm.train()  # nobody has seen what they compute in different modes
    with pytest.warns(UserWarning, match=r"^second_norm \(Norm\) is in eval mode"):
        assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 0
    ours.train()
    assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 2


@pytest.mark.parametrize("arguments", [(16, 1e-1), (8,)], ids=["a number", "a size"])
def test_other_arguments_of_the_constructor_get_the_original_code(norms_module, arguments):
    """A number that the constructor is given is part of the graph, and no shape tells of it."""
    ours, theirs = pair(norms_module, NORMS, *arguments)
    assert runs_kernels(ours, theirs, torch.randn(4, arguments[0])) == 0
    assert runs_kernels(*pair(norms_module, NORMS, 16, 1e-5), torch.randn(4, 16)) == 2


def test_an_attribute_that_is_changed_later_is_noticed(norms_module):
    ours, theirs = pair(norms_module, NORMS)
    assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 2
    ours.first_norm.eps = theirs.first_norm.eps = 0.5
    assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 0
    ours.first_norm.eps = theirs.first_norm.eps = 1e-5
    assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 2


CONFIGURED = """
import dataclasses
import enum
import torch
class Kind(enum.Enum):
    DOUBLE = 2.0
    HALF = 0.5
class Config:
    def __init__(self, scale=2.0):
        self.scale, self.more, self.kind = scale, {"shift": [1.0, 3.0]}, Kind.DOUBLE
class Part(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.by_name = {"offset": 1.0}
        self.cache = {}
    def forward(self, x):
        scaled = torch.relu(x) * self.config.scale * self.config.kind.value
        return scaled + self.config.more["shift"][1] + self.by_name["offset"]
class Model(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.first, self.second = Part(config), Part(config)
    def forward(self, x):
        return self.second(self.first(x))
def get_inputs():
    return [torch.randn(2, 4)]
def get_init_inputs():
    return [Config()]
"""


@pytest.mark.parametrize(
    "change",
    [
        lambda module, model: setattr(model.first.config, "scale", 3.0),
        lambda module, model: model.second.config.more["shift"].__setitem__(1, 5.0),
        lambda module, model: setattr(model.second.config, "kind", module.Kind.HALF),
        lambda module, model: setattr(model.second, "config", module.Config(4.0)),
        lambda module, model: model.second.by_name.update(offset=7.0),
    ],
)
def test_a_configuration_that_is_changed_later_is_noticed(tmp_path, change):
    found = captured(CONFIGURED)
    graph = found.graphs[0]
    where = region(graph, "r01_all", [node.name for node in graph.nodes])
    module = delivered_module(tmp_path, put_back(CONFIGURED, [Variant(found, chosen(graph, where))]))
    user = loaded(CONFIGURED)
    ours, theirs = module.Model(module.Config()), user.Model(user.Config())
    x = torch.randn(2, 4)
    assert runs_kernels(ours, theirs, x, name="r01_all") == 1
    ours.first.cache["rows"] = torch.ones(3)
    assert runs_kernels(ours, theirs, x, name="r01_all") == 1
    live = module.apply(user.Model(user.Config()))
    assert runs_kernels(live, theirs, x, name="r01_all") == 1
    for model, names in ((ours, module), (live, user), (theirs, user)):
        change(names, model)
    assert runs_kernels(ours, theirs, x, name="r01_all") == 0
    assert runs_kernels(live, theirs, x, name="r01_all") == 0
    other = module.Model(module.Config(3.0)), user.Model(user.Config(3.0))
    assert runs_kernels(*other, x, name="r01_all") == 0


def test_an_attribute_that_is_added_changes_nothing(norms_module):
    ours, theirs = pair(norms_module, NORMS)
    ours.first_norm.label = "mine"
    assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 2
    assert runs_kernels(copy.deepcopy(ours), theirs, torch.randn(4, 16)) == 2


def test_vmap_and_modes_that_record_operators_see_the_original_code(norms_module):
    ours, theirs = pair(norms_module, NORMS)
    x, before = torch.randn(3, 4, 16), calls()
    with torch.no_grad():
        assert same(torch.vmap(ours)(x), theirs(x))
        with FlopCounterMode(display=False) as counted:
            ours(x[0])
        with FlopCounterMode(display=False) as expected:
            theirs(x[0])
    assert counted.get_total_flops() == expected.get_total_flops() > 0
    assert calls() == before
    state = {name: torch.randn_like(value) for name, value in theirs.state_dict().items()}
    with torch.no_grad():
        have = torch.func.functional_call(ours, state, (x[0],))
        assert same(have, torch.func.functional_call(theirs, state, (x[0],)))
    assert runs_kernels(ours, theirs, x[0]) == 2


def test_modes_that_see_functions_and_forward_derivatives_see_the_original_code(norms_module):
    ours, theirs = pair(norms_module, NORMS)
    x = torch.randn(4, 16)
    with BaseTorchFunctionMode():
        assert runs_kernels(ours, theirs, x) == 0
    with torch.device("cpu"):
        assert runs_kernels(ours, theirs, x) == 2
    with torch.device("meta"):
        assert runs_kernels(ours, theirs, x) == 0
    tangents = []
    for model in (ours, theirs):
        with forward_ad.dual_level(), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls what it has deprecated itself
            tangents.append(forward_ad.unpack_dual(model(forward_ad.make_dual(x, torch.ones_like(x)))).tangent)
    assert tangents[1] is not None and same(*tangents)
    assert runs_kernels(ours, theirs, x) == 2


def test_a_submodule_that_is_replaced_is_noticed(norms_module):
    ours, theirs = pair(norms_module, NORMS)
    assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 2
    ours.second = theirs.second = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU())
    assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 0
    ours.second = theirs.second = torch.nn.Linear(16, 16)
    assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 2


def test_hooks_of_submodules_are_called(norms_module):
    ours, theirs = pair(norms_module, NORMS)
    seen: list[Any] = []
    hook = ours.first_norm.register_forward_hook(lambda module, args, result: seen.append(result))
    assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 0
    assert len(seen) == 1
    hook.remove()
    outer = ours.register_forward_hook(lambda module, args, result: result * 0 + 7)
    with torch.no_grad():
        assert bool((ours(torch.randn(4, 16)) == 7).all())
    outer.remove()
    assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 2


def test_autocast_and_export_see_the_original_code(norms_module):
    ours, theirs = pair(norms_module, NORMS)
    with torch.autocast("cpu", torch.bfloat16):
        assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 0
    before = calls()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls what it has deprecated itself
        exported = torch.export.export(ours, (torch.randn(4, 16),)).module()
        traced = torch.jit.trace(ours, (torch.randn(4, 16),), check_trace=False)
    assert calls() == before
    x = torch.randn(4, 16)
    with torch.no_grad():
        assert same(exported(x), theirs(x))
        assert same(traced(x), theirs(x))


WAYS = {
    "load_state_dict": lambda model, state: model.load_state_dict(state),
    "assigned": lambda model, state: model.load_state_dict(state, assign=True),
    "in place": lambda model, state: [value.copy_(state[name]) for name, value in model.named_parameters()],
    "through data": lambda model, state: [
        setattr(value, "data", state[name].clone()) for name, value in model.named_parameters()
    ],
    "replaced": lambda model, state: [
        setattr(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], torch.nn.Parameter(state[name]))
        for name in state
    ],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_new_weights_are_seen(norms_module, way, mode):
    ours, theirs = pair(norms_module, NORMS)
    for seed in range(3):
        x = torch.randn(4, 16)
        assert runs_kernels(ours, theirs, x) == 2
        torch.manual_seed(seed)
        state = {name: torch.randn_like(value) for name, value in theirs.state_dict().items()}
        with mode():
            theirs.load_state_dict(state)
            WAYS[way](ours, state)
        assert runs_kernels(ours, theirs, x) == 2


TIED = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(4, 4, bias=False)
        self.decoder = torch.nn.Linear(4, 4, bias=False)
        self.decoder.weight = self.encoder.weight
    def forward(self, x):
        return self.decoder(torch.relu(self.encoder(x)))
def get_inputs():
    return [torch.randn(2, 4)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    "copied", [lambda model: model, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))]
)
def test_a_weight_under_two_names_that_becomes_two_weights_is_noticed(tmp_path, copied):
    found = captured(TIED)
    graph = found.graphs[0]
    where = region(graph, "r01_all", [node.name for node in graph.nodes])
    module = delivered_module(tmp_path, put_back(TIED, [Variant(found, chosen(graph, where))]))
    ours, theirs = pair(module, TIED)
    x = torch.randn(2, 4)
    assert runs_kernels(ours, theirs, x, name="r01_all") == 1
    ours = copied(ours)
    assert runs_kernels(ours, theirs, x, name="r01_all") == 1
    one = {"encoder.weight": (weight := torch.randn(4, 4)), "decoder.weight": weight}
    for model in (ours, theirs):
        model.load_state_dict(one, assign=True)
    assert runs_kernels(ours, theirs, x, name="r01_all") == 1
    two = {name: torch.randn(4, 4) for name in one}
    for model in (ours, theirs):
        model.load_state_dict(two, assign=True)
    assert runs_kernels(ours, theirs, x, name="r01_all") == 0
    with pytest.raises(ValueError, match="are two tensors, and the kernels need one"):
        module.apply(theirs)
    for model in (ours, theirs):
        model.decoder.weight = model.encoder.weight
    assert runs_kernels(ours, theirs, x, name="r01_all") == 1
    assert runs_kernels(module.apply(theirs), ours, x, name="r01_all") == 2


def test_a_kernel_that_keeps_what_its_first_call_computes_of_the_weights_is_made_anew(tmp_path):
    """The referee lets a kernel do so: the parameters of an op do not change between its calls."""
    found = captured(NORMS)
    (each,) = norms(found)
    source = each.kernel_source.replace("calls.append(1)", "calls.append(1); self.kept = getattr(self, 'kept', None)")
    source = source.replace("* self.w0", "* self.first()").replace(
        "    def forward",
        "    def first(self):\n        if self.kept is None:\n"
        "            self.kept = self.w0.detach().clone()\n        return self.kept\n\n    def forward",
    )
    module = delivered_module(tmp_path, put_back(NORMS, [Variant(found, [Chosen(each.region, source)])]))
    ours, theirs = pair(module, NORMS)
    for way in WAYS.values():
        assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 2
        state = {name: torch.randn_like(value) for name, value in theirs.state_dict().items()}
        with torch.no_grad():
            theirs.load_state_dict(state)
            way(ours, state)
        assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 2


def test_weights_made_in_inference_mode_whose_changes_nobody_counts_are_seen(tmp_path):
    found = captured(NORMS)
    graph = found.graphs[0]
    where = region(graph, "r01_rms_norm", [node.name for node in graph.nodes if node.module == "first_norm"])
    text = kernel(graph, where).replace(
        "self.w0 = torch.nn.Parameter", "self.kept = None\n        self.w0 = torch.nn.Parameter"
    )
    keeps = "self.kept = self.w0 * 1 if self.kept is None else self.kept\n        calls.append(1)"
    text = text.replace("calls.append(1)", keeps).replace("* self.w0", "* self.kept")
    module = delivered_module(tmp_path, put_back(NORMS, [Variant(found, [Chosen(where, text)])]))
    with torch.inference_mode():
        ours, theirs = pair(module, NORMS)
        x = torch.randn(4, 16)
        for _ in range(3):
            assert runs_kernels(ours, theirs, x) == 1
            ours.first_norm.weight.mul_(2)
            theirs.first_norm.weight.mul_(2)


def test_kernels_are_made_once_as_long_as_weights_stay(tmp_path):
    found = captured(NORMS)
    (each,) = norms(found)
    source = each.kernel_source.replace("super().__init__()", "super().__init__(); made.append(1)") + "\nmade = []\n"
    module = delivered_module(tmp_path, put_back(NORMS, [Variant(found, [Chosen(each.region, source)])]))
    ours, theirs = pair(module, NORMS)
    made = sys.modules["model_r01_rms_norm"].made
    assert len(made) == 2  # when the model is made: compiling takes time, and the first call should not
    ours.load_state_dict(theirs.state_dict())
    for _ in range(3):
        assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 2
    assert len(made) == 2


def test_a_kernel_with_other_names_for_its_weights(tmp_path):
    found = captured(NORMS)
    (each,) = norms(found)
    renamed = each.kernel_source.replace("self.w0", "self.gain")
    module = delivered_module(
        tmp_path, put_back(NORMS, [Variant(found, [Chosen(each.region, renamed, (("w0", "gain"),))])])
    )
    assert runs_kernels(*pair(module, NORMS), torch.randn(4, 16)) == 2
    listed = each.kernel_source.replace("self.w0 = torch.nn.Parameter(", "self.all = list([").replace("32))", "32)])")
    listed = listed.replace("self.w0", "self.all[0]")
    module = delivered_module(
        tmp_path, put_back(NORMS, [Variant(found, [Chosen(each.region, listed, (("w0", "all[0]"),))])])
    )
    assert runs_kernels(*pair(module, NORMS), torch.randn(4, 16)) == 2
    module = delivered_module(tmp_path, put_back(NORMS, [Variant(found, [Chosen(each.region, renamed)])]))
    with pytest.raises(RuntimeError, match="the kernel r01_rms_norm has no parameter w0"):
        module.Model(16)


def test_what_needs_gradients_is_refused_with_what_to_do(norms_module):
    ours, theirs = pair(norms_module, NORMS)
    with pytest.raises(RuntimeError, match=r"torch\.no_grad"):
        ours(torch.randn(4, 16))
    for parameter in ours.parameters():
        parameter.requires_grad_(False)
    assert same(ours(torch.randn(4, 16) * 0), theirs(torch.randn(4, 16) * 0).detach())
    with pytest.raises(RuntimeError, match="remove"):
        ours(torch.randn(4, 16, requires_grad=True))


def test_where_the_original_code_answers_it_gives_gradients(norms_module):
    ours, theirs = pair(norms_module, NORMS)
    ours.eval()
    x = torch.randn(4, 16)
    with pytest.warns(UserWarning, match="eval mode"):
        ours(x)
    ours(x).sum().backward()
    theirs(x).sum().backward()
    assert same(ours.first.weight.grad, theirs.first.weight.grad)
    removed = norms_module.remove(ours.train())
    removed(x).sum().backward()
    original = norms_module.OriginalModel(16)
    original(x).sum().backward()


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, copy.copy, lambda model: pickle.loads(pickle.dumps(model))],
    ids=["deepcopy", "copy", "pickle"],
)
def test_copies_have_kernels_of_their_own(norms_module, copied):
    ours, theirs = pair(norms_module, NORMS)
    x = torch.randn(4, 16)
    assert runs_kernels(ours, theirs, x) == 2
    other = copied(ours)
    assert type(other) is type(ours)
    assert runs_kernels(other, theirs, x) == 2
    twin = copy.deepcopy(theirs)
    if copied is not copy.copy:  # which shares the parameters
        with torch.no_grad():
            for model in (other, twin):
                model.first_norm.weight.mul_(3)
    assert runs_kernels(other, twin, x) == 2
    assert runs_kernels(ours, theirs, x) == 2
    assert list(other.state_dict()) == list(ours.state_dict())


def test_batch_norm_in_training_mode_changes_its_buffers_as_the_original(tmp_path):
    found = captured(BATCH_NORM)
    graph = found.graphs[0]
    last = [node.name for node in graph.nodes if "gelu" in node.operator]
    tail = [*last, *itertools.chain(*(graph.users_of[name] for name in last))]
    first = [node.name for node in graph.nodes if node.operator in ("aten.mul.Tensor", "aten.add.Tensor")][:1]
    regions = [region(graph, "r01_rms_norm", tail), region(graph, "r02_scale", first)]
    module = delivered_module(tmp_path, put_back(BATCH_NORM, [Variant(found, chosen(graph, *regions))]))
    ours, theirs = pair(module, BATCH_NORM)
    for _ in range(4):
        assert runs_kernels(ours, theirs, torch.randn(8, 6)) == 1
        assert same(dict(ours.state_dict()), dict(theirs.state_dict()))
    assert int(ours.norm.num_batches_tracked) == 4
    assert bool((ours.before != ours.seen).all())
    ours.eval(), theirs.eval()
    with pytest.warns(UserWarning, match="eval mode"):
        assert runs_kernels(ours, theirs, torch.randn(8, 6)) == 0
    assert same(dict(ours.state_dict()), dict(theirs.state_dict()))


@pytest.mark.parametrize("old", ["self.seen.type_as(x)", "torch.broadcast_tensors(x, self.seen)[1]"])
def test_what_was_in_a_buffer_is_returned_as_it_was(tmp_path, old):
    source = f"""
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.arange(4.0))
    def forward(self, x):
        old = {old}
        y = torch.relu(x) * 2
        self.seen = self.seen + y
        return old, y + 1
def get_inputs():
    return [torch.randn(4)]
def get_init_inputs():
    return []
"""
    found = captured(source)
    graph = found.graphs[0]
    where = region(graph, "r01_all", [node.name for node in graph.nodes if node.operator == "aten.relu.default"])
    module = delivered_module(tmp_path, put_back(source, [Variant(found, chosen(graph, where))]))
    ours, theirs = pair(module, source)
    for _ in range(2):
        assert runs_kernels(ours, theirs, torch.randn(4), name="r01_all") == 1
    assert same(ours.seen, theirs.seen)


def test_a_kernel_that_takes_buffers_which_calls_change_is_made_once(tmp_path):
    found = captured(BATCH_NORM)
    graph = found.graphs[0]
    where = region(graph, "r01_all", [node.name for node in graph.nodes])
    assert {"norm.running_mean", "norm.running_var", "seen"} <= {
        graph.input_of[name].path for _, name in where.occurrences[0].weights
    }
    source = kernel(graph, where).replace("super().__init__()", "super().__init__(); made.append(1)") + "\nmade = []\n"
    module = delivered_module(tmp_path, put_back(BATCH_NORM, [Variant(found, [Chosen(where, source)])]))
    ours, theirs = pair(module, BATCH_NORM)
    for _ in range(3):
        assert runs_kernels(ours, theirs, torch.randn(8, 6), name="r01_all") == 1
        assert same(dict(ours.state_dict()), dict(theirs.state_dict()))
    assert len(sys.modules["model_r01_all"].made) == 1


KEEPS = """
import torch
calls = []
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w0 = torch.nn.Parameter(torch.ones(4))
        self.kept = None
    def forward(self, x):
        calls.append(1)
        if self.kept is None:
            self.kept = self.w0.detach().clone()
        return x * self.kept
"""
SCALED = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.level = torch.nn.Parameter(torch.ones(4))
    def forward(self, x):
        return x * self.level
def get_inputs():
    return [torch.randn(2, 4)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("refused", ["no gradients", "cannot be built"])
def test_weights_that_changed_before_a_call_that_was_refused_are_taken_by_the_next_one(tmp_path, monkeypatch, refused):
    found = captured(SCALED)
    graph = found.graphs[0]
    where = region(graph, "r01_scale", [graph.nodes[0].name])
    module = delivered_module(tmp_path, put_back(SCALED, [Variant(found, [Chosen(where, KEEPS)])]))
    ours, theirs = pair(module, SCALED)
    x = torch.randn(2, 4)
    assert runs_kernels(ours, theirs, x, name="r01_scale") == 1
    with torch.no_grad():
        for model in (ours, theirs):
            model.level.mul_(5)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match=refused):
        if refused == "no gradients":
            ours(x)
        else:
            patch.setattr(sys.modules["model_r01_scale"].ModelNew, "__init__", lambda self: 1 / 0)
            with torch.no_grad():
                ours(x)
    assert runs_kernels(ours, theirs, x, name="r01_scale") == 1


def test_a_buffer_that_another_graph_changes_is_taken_anew(tmp_path):
    source = SCALED.replace("torch.nn.Parameter(torch.ones(4))", "None").replace(
        "self.level = None", 'self.register_buffer("level", torch.ones(4))'
    )
    source = source.replace(
        "        return x * self.level",
        "        y = x * self.level\n"
        "        self.level.clamp_(0) if len(x) == 2 else self.level.add_(1)\n"
        "        return y",
    )
    few, many = captured(source), captured(source, inputs=[torch.randn(8, 4)])
    keeps = KEEPS.replace("self.w0 = torch.nn.Parameter(torch.ones(4))", 'self.register_buffer("w0", torch.ones(4))')

    def scale(found: Captured, name: str, text: str) -> list[Chosen]:
        graph = found.graphs[0]
        (first,) = [node.name for node in graph.nodes if node.operator == "aten.mul.Tensor"]
        return [Chosen(region(graph, name, [first]), text)]

    kept, plain = (
        scale(few, "r01_scale", keeps),
        scale(many, "g0_r01_scale", keeps.replace("self.kept is None", "True")),
    )
    module = delivered_module(tmp_path, put_back(source, [Variant(few, kept), Variant(many, plain)]))
    ours, theirs = pair(module, source)
    for rows, name in ((2, "r01_scale"), (2, "r01_scale"), (8, "g0_r01_scale"), (2, "r01_scale"), (8, "g0_r01_scale")):
        assert runs_kernels(ours, theirs, torch.randn(rows, 4), name=name) == 1
        assert same(ours.level, theirs.level)


@pytest.fixture(scope="module")
def of_parts() -> Delivered:
    found = captured(PARTS, ("blocks.0", "blocks.1"))
    every = []
    for number, graph in enumerate(found.graphs):
        nodes = [node.name for node in graph.nodes if "linear" not in node.operator]
        every += chosen(graph, region(graph, f"r0{number + 1}_tail", nodes))
    return put_back(PARTS, [Variant(found, every)])


@pytest.fixture(scope="module")
def of_two_shapes() -> Delivered:
    few, many = captured(NORMS), captured(NORMS, inputs=[torch.randn(9, 16)])
    more = [put_back_models.with_name(each, "g0_rms_norm") for each in norms(many)]
    return put_back(NORMS, [Variant(few, norms(few)), Variant(many, more)])


def test_a_call_runs_the_graph_for_the_shapes_of_its_inputs(tmp_path, of_two_shapes):
    module = delivered_module(tmp_path, of_two_shapes)
    ours, theirs = pair(module, NORMS)
    for other in (ours, copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        for _ in range(2):
            assert runs_kernels(other, theirs, torch.randn(4, 16)) == 2
            assert runs_kernels(other, theirs, torch.randn(4, 16), name="g0_rms_norm") == 0
            assert runs_kernels(other, theirs, torch.randn(9, 16), name="g0_rms_norm") == 2
            assert runs_kernels(other, theirs, torch.randn(9, 16)) == 0
        assert runs_kernels(other, theirs, torch.randn(5, 16), name="g0_rms_norm") == 0
    for model in (ours, theirs):
        torch.nn.init.ones_(model.first_norm.weight)
    assert runs_kernels(ours, theirs, torch.randn(9, 16), name="g0_rms_norm") == 2
    assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 2
    module.remove(ours)
    assert runs_kernels(ours, theirs, torch.randn(9, 16), name="g0_rms_norm") == 0


def test_graphs_for_other_shapes_may_be_of_other_parts_of_the_model(tmp_path):
    data_dependent = "if x.sum() > 0:  # depends on data: the model itself cannot be exported\n                x = -x"
    source = PARTS.replace(data_dependent, "x = -x")
    whole, parts = captured(source), captured(source, ("blocks.0", "blocks.1"), inputs=[torch.randn(7, 8)])

    def tails(found: Captured, prefix: str) -> list[Chosen]:
        every = []
        for number, graph in enumerate(found.graphs):
            nodes = [node.name for node in graph.nodes if "tanh" in node.operator or "relu" in node.operator][:1]
            every += chosen(graph, region(graph, f"{prefix}{number + 1}_tail", nodes))
        return every

    delivered = put_back(source, [Variant(whole, tails(whole, "r0")), Variant(parts, tails(parts, "g0_r0"))])
    ours, theirs = pair(delivered_module(tmp_path, delivered), source)
    for _ in range(2):
        assert runs_kernels(ours, theirs, torch.randn(3, 8), name="r01_tail") == 1
        assert runs_kernels(ours, theirs, torch.randn(7, 8), name="g0_r01_tail") == 1
        assert runs_kernels(ours, theirs, torch.randn(7, 8), name="g0_r02_tail") == 1
        assert runs_kernels(ours, theirs, torch.randn(3, 8), name="g0_r02_tail") == 0


def test_variants_whose_regions_share_a_name_are_refused():
    few = captured(NORMS)
    with pytest.raises(PutBackError, match="two regions have the same name"):
        put_back(NORMS, [Variant(few, norms(few)), Variant(few, norms(few))])


def test_parts_of_a_model_that_could_not_be_exported_whole(tmp_path, of_parts):
    module = delivered_module(tmp_path, of_parts)
    ours, theirs = pair(module, PARTS)
    for _ in range(3):
        assert runs_kernels(ours, theirs, torch.randn(3, 8), name="r02_tail") == 1
    assert runs_kernels(ours, theirs, torch.randn(5, 8), name="r01_tail") == 0
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert type(other.blocks[0]) is type(ours.blocks[0])
        assert runs_kernels(other, theirs, torch.randn(3, 8), name="r01_tail") == 1
    ours.blocks[0].eval()
    x = torch.randn(3, 8)
    with pytest.warns(UserWarning, match="eval mode"):
        assert runs_kernels(ours, theirs, x, name="r01_tail") == 0
    assert runs_kernels(ours, theirs, x, name="r01_tail") == 0
    assert runs_kernels(ours, theirs, x, name="r02_tail") == 1
    module.remove(ours)
    assert type(ours.blocks[0]) is module.Block
    assert runs_kernels(ours, theirs, x, name="r02_tail") == 0


def test_trees_of_arguments_and_results(tmp_path):
    found = captured(TREES)
    graph = found.graphs[0]
    nodes = [node.name for node in graph.nodes if node.operator in ("aten.add.Tensor", "aten.tanh.default")][:2]
    module = delivered_module(
        tmp_path, put_back(TREES, [Variant(found, chosen(graph, region(graph, "r01_tanh", nodes)))])
    )
    ours, theirs = pair(module, TREES)
    user = loaded(TREES)
    (a, b), options = user.get_inputs()
    assert runs_kernels(ours, theirs, (a, b), options, name="r01_tanh") == 1
    assert runs_kernels(ours, theirs, (a, b), options=options, name="r01_tanh") == 1
    assert runs_kernels(ours, theirs, options=options, pair=(a, b), name="r01_tanh") == 1
    assert runs_kernels(ours, theirs, [a, b], options, name="r01_tanh") == 0
    assert runs_kernels(ours, theirs, (a, b), {**options, "more": a}, name="r01_tanh") == 0
    assert runs_kernels(ours, theirs, (a, b), options, scale=2.0, name="r01_tanh") == 0
    assert runs_kernels(ours, theirs, (a, b), options, scale=torch.tensor(3.0), name="r01_tanh") == 0


def test_any_number_of_arguments_is_not_one_argument_that_is_a_tuple(tmp_path):
    source = """
import torch
class Model(torch.nn.Module):
    def forward(self, *xs):
        first, second = xs[0] if len(xs) == 1 else reversed(xs)
        return torch.relu(first) * 2 + second
def get_inputs():
    return [(torch.randn(2, 4), torch.randn(2, 4))]
def get_init_inputs():
    return []
"""
    found = captured(source)
    graph = found.graphs[0]
    where = region(graph, "r01_all", [node.name for node in graph.nodes])
    module = delivered_module(tmp_path, put_back(source, [Variant(found, chosen(graph, where))]))
    ours, theirs = pair(module, source)
    inputs = torch.randn(2, 4), torch.randn(2, 4)
    assert runs_kernels(ours, theirs, inputs, name="r01_all") == 1
    assert runs_kernels(ours, theirs, *inputs, name="r01_all") == 0


def test_scalars_are_equal_to_what_was_captured(tmp_path):
    source = TREES.replace("*, scale=1.0", "scale, flag").replace("* scale", "* (scale if flag else 1)")
    (a, b), options = loaded(TREES).get_inputs()
    found = captured(source, inputs=((a, b), options, 2.0, True))
    graph = found.graphs[0]
    nodes = [node.name for node in graph.nodes if node.operator == "aten.tanh.default"]
    module = delivered_module(
        tmp_path, put_back(source, [Variant(found, chosen(graph, region(graph, "r01_tanh", nodes)))])
    )
    ours, theirs = pair(module, source)
    assert runs_kernels(ours, theirs, (a, b), options, 2.0, True, name="r01_tanh") == 1
    assert runs_kernels(ours, theirs, (a, b), options, 2.5, True, name="r01_tanh") == 0
    assert runs_kernels(ours, theirs, (a, b), options, 2.0, False, name="r01_tanh") == 0
    assert runs_kernels(ours, theirs, (a, b), options, 2, True, name="r01_tanh") == 0


def test_tensors_that_the_code_makes_and_random_numbers_stay_in_their_order(tmp_path):
    source = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.arange(6.0).reshape(3, 2).T
        self.drop = torch.nn.Dropout(0.5)
    def forward(self, x):
        y = torch.exp(self.drop(x) + torch.tensor([1.0, 2.0, 4.0]))
        z = self.drop(x * 2) * self.table
        return y - torch.exp(z)
def get_inputs():
    return [torch.randn(2, 3)]
def get_init_inputs():
    return []
"""
    found = captured(source)
    graph = found.graphs[0]
    for names in ([node.name for node in graph.nodes if node.operator == "aten.mul.Tensor"][-1:], ["sub"]):
        module = delivered_module(
            tmp_path, put_back(source, [Variant(found, chosen(graph, region(graph, "r01_late", names)))])
        )
        ours, theirs = pair(module, source)
        x = torch.randn(2, 3)
        with torch.no_grad():
            torch.manual_seed(5)
            have = ours(x)
            torch.manual_seed(5)
            assert same(have, theirs(x))
        assert calls("r01_late") == 1
        if names != ["sub"]:
            ours.table = theirs.table = torch.full((3, 2), 9.0).T
            with torch.no_grad():
                torch.manual_seed(5)
                have = ours(x)
                torch.manual_seed(5)
                assert same(have, theirs(x))


def test_a_compiled_kernel(tmp_path):
    """A kernel in C++, as they are delivered: compiled when its file is executed, and called through ctypes."""
    found = captured(NORMS)
    (each,) = norms(found)
    source = '''
import ctypes, subprocess, tempfile
from pathlib import Path
import torch
CPP = r"""
#include <cmath>
extern "C" void norm(const float* x, const float* w, float* y, long rows, long n) {
    for (long i = 0; i < rows; ++i) {
        float sum = 0;
        for (long j = 0; j < n; ++j) sum += x[i * n + j] * x[i * n + j];
        for (long j = 0; j < n; ++j) y[i * n + j] = x[i * n + j] / std::sqrt(sum / n + 1e-5f) * w[j];
    }
}
"""
FOLDER = Path(tempfile.mkdtemp())
(FOLDER / "k.cpp").write_text(CPP)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", str(FOLDER / "k.cpp"), "-o", str(FOLDER / "k.so")], check=True)
NORM = ctypes.CDLL(str(FOLDER / "k.so")).norm
NORM.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2
calls = []
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w0 = torch.nn.Parameter(torch.ones(16))
    def forward(self, x):
        calls.append(1)
        y = torch.empty_like(x)
        NORM(x.data_ptr(), self.w0.data_ptr(), y.data_ptr(), 4, 16)
        return y
'''
    delivered = put_back(NORMS, [Variant(found, [Chosen(each.region, source)])])
    assert delivered.files["kernels/r01_rms_norm.py"] == source
    module = delivered_module(tmp_path, delivered)
    ours, theirs = pair(module, NORMS)
    assert runs_kernels(ours, theirs, torch.randn(4, 16)) == 2
    assert runs_kernels(copy.deepcopy(ours), theirs, torch.randn(4, 16)) == 2
    candidate = loaded(bundle(delivered), "candidate")
    torch.manual_seed(3)
    other = candidate.ModelNew(16)
    x = torch.randn(4, 16)
    with torch.no_grad():
        assert same(other(x), theirs(x))


def test_every_choice_of_regions_gives_the_same_model(tmp_path):
    """Any region may be taken out again, and kernels are called where all that they take is there."""
    found = captured(NORMS)
    graph = found.graphs[0]
    names = [node.name for node in graph.nodes]
    linear = [node.name for node in graph.nodes if "linear" in node.operator]
    split = names.index(linear[1])
    pieces = [names[:2], names[2:split], names[split : split + 3], names[split + 3 :]]
    every = chosen(graph, *(region(graph, f"r0{number}_piece", nodes) for number, nodes in enumerate(pieces)))
    for count in range(len(every) + 1):
        for some in itertools.combinations(every, count):
            module = delivered_module(tmp_path, put_back(NORMS, [Variant(found, some)]))
            ours, theirs = pair(module, NORMS)
            with torch.no_grad():
                x = torch.randn(4, 16)
                assert same(ours(x), theirs(x))
            for each in some:
                assert calls(each.region.name) == 1
    whole = chosen(graph, region(graph, "r01_whole", names))
    assert (
        runs_kernels(
            *pair(delivered_module(tmp_path, put_back(NORMS, [Variant(found, whole)])), NORMS), x, name="r01_whole"
        )
        == 1
    )


def test_a_kernel_is_called_before_what_takes_its_results_and_after_what_it_takes(tmp_path):
    source = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, z):
        a = torch.exp(x)
        early = torch.sin(a)
        b = torch.cos(z)
        c = a * 2
        late = torch.tanh(b)
        d = c + late
        return early + b, d - a
def get_inputs():
    return [torch.randn(2, 3), torch.randn(2, 3)]
def get_init_inputs():
    return []
"""
    found = captured(source)
    graph = found.graphs[0]
    # `exp` comes first and is taken before the region's last node is reached, which takes what comes in between.
    some = chosen(
        graph,
        region(
            graph,
            "r01_around",
            ["exp", "mul", "add", "sub"][0:2],
        ),
    )
    apart = chosen(graph, region(graph, "r02_apart", ["sin", "tanh"]))
    for each in (some, apart, [*some, *apart]):
        module = delivered_module(tmp_path, put_back(source, [Variant(found, each)]))
        ours, theirs = pair(module, source)
        inputs = loaded(source).get_inputs()
        assert runs_kernels(ours, theirs, *inputs, name=each[0].region.name) == 1
    around = region(graph, "r03_both", ["exp", "add"])
    between = region(graph, "r04_between", ["mul", "sin"])
    with pytest.raises(PutBackError, match="need each other's results: r03_both"):
        put_back(source, [Variant(found, chosen(graph, around, between))])


def test_apply_and_remove_on_a_live_model_of_another_file(norms_module):
    user = loaded(NORMS)
    live, twin = user.Model(16), user.Model(16)
    twin.load_state_dict(live.state_dict())
    state = torch.random.get_rng_state()
    assert norms_module.apply(live) is live
    assert torch.equal(state, torch.random.get_rng_state())
    assert isinstance(live, user.Model)
    x = torch.randn(4, 16)
    assert runs_kernels(live, twin, x) == 2
    assert runs_kernels(norms_module.apply(live), twin, x) == 2
    for other in (copy.deepcopy(live), pickle.loads(pickle.dumps(live))):
        assert runs_kernels(other, twin, x) == 2
    live.first_norm.weight.data.mul_(2)
    twin.first_norm.weight.data.mul_(2)
    assert runs_kernels(norms_module.apply(live), twin, x) == 2
    norms_module.remove(live)
    assert type(live) is user.Model
    assert runs_kernels(live, twin, x) == 0
    assert list(vars(live)) == list(vars(twin))


@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        (lambda user: "text", TypeError, "torch.nn.Module"),
        (lambda user: torch.nn.Linear(16, 16), ValueError, "lacks first"),
        (lambda user: user.Model(8), ValueError, r"first.weight is \(8, 8\)"),
        (lambda user: user.Model(16, 0.5), ValueError, "eps of first_norm is 0.5"),
        (lambda user: user.Model(16).double(), ValueError, "torch.float64"),
        (lambda user: setattr(model := user.Model(16), "more", torch.nn.Linear(1, 1)) or model, ValueError, "has also"),
        (
            lambda user: loaded(NORMS.replace("keepdim=True) +", "keepdim=True) -"), "other").Model(16),
            ValueError,
            "the forward of first_norm is other code",
        ),
    ],
    ids=["text", "linear", "size", "number", "dtype", "more", "code"],
)
def test_apply_refuses_what_the_kernels_were_not_made_for(norms_module, change, error, word):
    model = change(loaded(NORMS))
    with pytest.raises(error, match=word):
        norms_module.apply(model)
    if isinstance(model, torch.nn.Module):
        assert not any("_kw_place" in vars(part) for part in model.modules())


def test_the_source_s_own_names_stay_its_own(tmp_path):
    found = captured(HOSTILE)
    graph = found.graphs[0]
    names = [node.name for node in graph.nodes][1:3]
    delivered = put_back(HOSTILE, [Variant(found, chosen(graph, region(graph, "r01_tail", names)))])
    module = delivered_module(tmp_path, delivered)
    assert (module._kw_source, module.OriginalModel, module.torch) == ("mine", 5, "shadowed")
    ours, theirs = pair(module, HOSTILE)
    inputs = (torch.randn(2, 3), torch.randn(2, 3))
    assert runs_kernels(ours, theirs, *inputs, name="r01_tail") == 1
    assert runs_kernels(ours, theirs, *(torch.randn(4, 3), torch.randn(4, 3)), name="r01_tail") == 0
    live = loaded(HOSTILE).Model()
    theirs.load_state_dict(live.state_dict())
    assert runs_kernels(module.kernelwright_apply(live), theirs, *inputs, name="r01_tail") == 1
    assert type(module.kernelwright_remove(live)) is sys.modules["user_model"].Model
    candidate = loaded(bundle(delivered), "candidate")
    with torch.no_grad():
        assert same(candidate.ModelNew()(*inputs), theirs(*inputs))


def test_a_source_that_imports_all_names_of_a_module(tmp_path):
    source = NORMS.replace("import torch\n", "import torch\nfrom torch import *\n")
    found = captured(source)
    delivered = put_back(source, [Variant(found, norms(found))])
    assert "# Kernel r01_rms_norm (chain), place 2 of 2: second_norm" in delivered.files["model.py"]
    module = delivered_module(tmp_path, delivered)
    assert runs_kernels(*pair(module, source), torch.randn(4, 16)) == 2


def test_the_bundle_differs_in_its_class_and_in_how_it_reads_kernels_and_in_nothing_else(of_norms):
    candidate, model = bundle(of_norms), of_norms.files["model.py"]
    start, end = "def _kw_source(name):\n", "\n\n\n_kw_loaded"
    assert model.count(start) == candidate.count(start) == 1
    assert model.partition(start)[0] == candidate.partition(start)[0]
    rest = [text.partition(start)[2].partition(end)[2] for text in (model, candidate)]
    assert rest[0].count("class Model(_Model):") == 1
    assert rest[0].replace("class Model(_Model):", "class ModelNew(_Model):") == rest[1]
    assert "get_inputs" not in candidate
    reader: dict[str, Any] = {}
    exec(start + candidate.partition(start)[2].partition(end)[0], reader)
    assert reader["_kw_source"]("r01_rms_norm")[0] == of_norms.files["kernels/r01_rms_norm.py"]


def test_the_bundle_computes_what_the_model_does(of_norms):
    candidate = loaded(bundle(of_norms), "candidate")
    user = loaded(NORMS)
    torch.manual_seed(3)
    ours = candidate.ModelNew(16)
    torch.manual_seed(3)
    theirs = user.Model(16)
    x = torch.randn(4, 16)
    with torch.no_grad():
        assert same(ours(x), theirs(x))
    assert calls(module="candidate") == 2


NASTY = (
    "'''\n\"\"\"\n\\N{BULLET} \\x00 \f\x85\u2028{name} {{}}\r\nclass Model(_Model):\ndef _kw_source(name):\n"
    + "\n# ==== What"
)


def test_kernels_are_data_in_the_bundle(of_norms):
    """Whatever a kernel's text holds, it comes out as it was and ends nothing around it."""
    files = {**of_norms.files, "kernels/r01_rms_norm.py": NASTY + of_norms.files["kernels/r01_rms_norm.py"]}
    candidate = loaded(bundle(Delivered(files)), "candidate")
    assert candidate._kw_source("r01_rms_norm")[0] == files["kernels/r01_rms_norm.py"]


def test_a_source_that_imitates_the_added_text_is_kept_apart(tmp_path):
    imitation = (
        '\nTEXT = """\n# ==== What follows was added by Kernelwright ====\n\ndef _kw_source(name):\n'
        '    return 1\n\n\nclass Model(_Model):\n"""\n'
    )
    source = NORMS.replace("\n\nclass Norm", imitation + "\n\nclass Norm", 1)
    found = captured(source)
    delivered = put_back(source, [Variant(found, norms(found))])
    assert runs_kernels(*pair(delivered_module(tmp_path, delivered), source), torch.randn(4, 16)) == 2
    candidate = loaded(bundle(delivered), "candidate")
    assert candidate.TEXT == sys.modules["model"].TEXT
    with torch.no_grad():
        candidate.ModelNew(16)(torch.randn(4, 16))
    assert calls(module="candidate") == 2


def test_what_does_not_fit_is_refused():
    found = captured(NORMS)
    graph = found.graphs[0]
    (each,) = norms(found)
    with pytest.raises(PutBackError, match="no class Model"):
        put_back(NORMS.replace("class Model(", "class Other("), [Variant(found, [each])])
    with pytest.raises(PutBackError, match="not Python"):
        put_back("class Model(:", [Variant(found, [each])])
    with pytest.raises(PutBackError, match="same name"):
        put_back(NORMS, [Variant(found, [each, each])])
    with pytest.raises(PutBackError, match="is in two regions"):
        put_back(NORMS, [Variant(found, [each, *chosen(graph, region(graph, "r02_other", each.region.nodes[-1:]))])])
    for name in ("../up", "r01/x", "", "r01\n", "R01", "r" * 200):
        with pytest.raises(PutBackError, match="no name of a file"):
            put_back(NORMS, [Variant(found, [put_back_models.with_name(each, name)])])
    with pytest.raises(PutBackError, match="no graph"):
        put_back(NORMS, [Variant(found, [put_back_models.with_graph(each, "first")])])
    for changed, word in (
        ({"outputs": ()}, "outputs that are not in its graph"),
        ({"outputs": ("nothing",)}, "outputs that are not in its graph"),
        ({"inputs": ()}, "does not say that it takes linear"),
        ({"weights": ()}, "does not say that it takes p_first_norm_weight"),
        ({"inputs": ("nothing",)}, "takes what is not in its graph"),
        ({"outputs": each.region.nodes[:1]}, "does not give back"),
    ):
        with pytest.raises(PutBackError, match=word):
            put_back(NORMS, [Variant(found, [put_back_models.with_first_place(each, **changed)])])
    with pytest.raises(PutBackError, match="no name of a weight"):
        put_back(NORMS, [Variant(found, [Chosen(each.region, each.kernel_source, (("w0", "x; import os"),))])])


def test_no_kernel_may_draw_random_numbers():
    source = NORMS.replace("self.second(x))", "self.second(torch.nn.functional.dropout(x)))")
    found = captured(source)
    graph = found.graphs[0]
    random = [node.name for node in graph.nodes if not node.pure]
    assert random
    with pytest.raises(PutBackError, match="which no kernel may compute"):
        put_back(source, [Variant(found, [Chosen(where := region(graph, "r01_drop", random), kernel(graph, where))])])


def test_no_kernel_at_all(tmp_path):
    found = captured(NORMS)
    delivered = put_back(NORMS, [Variant(found, [])])
    assert list(delivered.files) == ["model.py"]
    module = delivered_module(tmp_path, delivered)
    ours, theirs = pair(module, NORMS)
    x = torch.randn(4, 16)
    ours(x).sum().backward()
    assert same(ours(x), theirs(x))
    assert same(loaded(bundle(delivered), "candidate").ModelNew(16)(x).shape, x.shape)
