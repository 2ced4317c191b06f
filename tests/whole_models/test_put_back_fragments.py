"""Kernels in graphs that dynamo makes while a model runs: the model stays the same, on every way through its code."""

import copy
import gc
import pickle
import types
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from evaluator.evaluate import Effort, evaluate
from evaluator.platforms import load_platform
from sandbox.base import Sandbox
from tasks.build import task_from_source
from tasks.outcomes import Verdict
from tests.support.put_back_models import (
    calls,
    captured,
    captured_in_fragments,
    chosen,
    delivered_module,
    kernel,
    loaded,
    pair,
    region,
    runs_kernels,
)
from whole_models.graph import Captured, Graph
from whole_models.put_back import Chosen, Delivered, Variant, bundle, put_back
from whole_models.regions import choose, find_regions

SOURCE = """
import torch
class Gated(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = torch.nn.Linear(size, size)
        self.scale = torch.nn.Parameter(torch.rand(size))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.table = torch.rand(size)
    def forward(self, x):
        self.calls += 1
        h = torch.tanh(x * self.scale) + x.sigmoid() * torch.tensor([0.5] * x.shape[-1])
        if h.sum().item() > 30:
            h = h.exp() * 2
        return torch.nn.functional.dropout(self.linear(h), training=self.training) + x * self.table
class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Gated(size), Gated(size)])
        self.eval()
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
def get_inputs():
    return [torch.randn(4, 8)]
def get_init_inputs():
    return [8]
"""
BEFORE, AFTER = "r01_before", "r02_after"


def kernels(found: Captured) -> list[Chosen]:
    """A kernel for the tanh and what is around it, and one for the last sum."""
    of_graph = {any(node.operator.startswith("aten.tanh") for node in graph.nodes): graph for graph in found.graphs}
    first, last = of_graph[True], of_graph[False]
    chain = [node.name for node in first.nodes if node.operator.split(".")[1] in ("mul", "tanh", "sigmoid")]
    end = [node.name for node in last.nodes if node.operator.split(".")[1] in ("mul", "add")]
    return [*chosen(first, region(first, BEFORE, chain[:2])), *chosen(last, region(last, AFTER, end))]


@pytest.fixture(scope="module")
def of_gated() -> Delivered:
    found = captured_in_fragments(SOURCE)
    return put_back(SOURCE, [Variant(found, kernels(found))])


@pytest.fixture
def gated(tmp_path: Path, of_gated: Delivered) -> types.ModuleType:
    torch._dynamo.reset()
    return delivered_module(tmp_path, of_gated)


def counts(ours: Any, theirs: Any, *inputs: Any) -> tuple[int, int]:
    """How often a call, which must give what the original gives, calls each of the two kernels."""
    last = calls(AFTER)
    first = runs_kernels(ours, theirs, *inputs, name=BEFORE)
    assert all(map(torch.equal, ours.state_dict().values(), theirs.state_dict().values()))
    return first, calls(AFTER) - last


def test_kernels_run_in_every_call_of_the_graphs_that_they_are_for(gated):
    ours, theirs = pair(gated, SOURCE)
    held = ours.blocks[0].calls
    for _ in range(3):
        assert counts(ours, theirs, torch.randn(4, 8)) == (2, 2)
    assert ours.blocks[0].calls is held and int(held) == 3


def test_another_way_through_the_code_runs_what_it_has_of_the_known_graphs(gated):
    ours, theirs = pair(gated, SOURCE)
    for _ in range(2):
        first, last = counts(ours, theirs, torch.full((4, 8), 9.0))
        assert first == 2 and last < 2  # what follows is another graph
        assert counts(ours, theirs, torch.randn(4, 8)) == (2, 2)


@pytest.mark.parametrize("inputs", [torch.randn(3, 8), torch.randn(8, 4).t(), torch.randn(4, 8).double()])
def test_other_inputs_get_the_original_code(gated, inputs):
    ours, theirs = pair(gated, SOURCE)
    if inputs.dtype == torch.float64:
        ours, theirs = ours.double(), theirs.double()
    assert counts(ours, theirs, inputs) == (0, 0)


def test_after_many_other_shapes_the_kernels_run_as_before(gated):
    ours, theirs = pair(gated, SOURCE)
    assert counts(ours, theirs, torch.randn(4, 8)) == (2, 2)
    for rows in range(5, 20):
        assert counts(ours, theirs, torch.randn(rows, 8)) == (0, 0)
    assert counts(ours, theirs, torch.randn(4, 8)) == (2, 2)


def test_numbers_that_are_read_of_tensors_may_differ_in_each_call(gated):
    ours, theirs = pair(gated, SOURCE)
    for _ in range(100):
        assert counts(ours, theirs, torch.randn(4, 8)) == (2, 2)


def test_another_mode_runs_its_own_code_and_a_warning_says_so_once(tmp_path):
    source = SOURCE.replace("h = torch.tanh(x * self.scale)", "h = torch.tanh(x * self.scale + self.training)")
    found = captured_in_fragments(source)
    (graph,) = [graph for graph in found.graphs if any("tanh" in node.operator for node in graph.nodes)]
    tanh = [node.name for node in graph.nodes if "tanh" in node.operator]
    torch._dynamo.reset()
    delivered = put_back(source, [Variant(found, chosen(graph, region(graph, BEFORE, tanh)))])
    ours, theirs = pair(delivered_module(tmp_path, delivered), source)
    ours.train(), theirs.train()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            torch.manual_seed(1)
            result = ours(torch.ones(4, 8))
            torch.manual_seed(1)
            assert torch.equal(result, theirs(torch.ones(4, 8)))
    assert calls(BEFORE) == 0
    assert [str(each.message)[:80] for each in told if each.category is UserWarning] == [
        "a call of the model itself ran none of the graphs that the kernels were made for"
    ]
    ours.eval(), theirs.eval()
    assert runs_kernels(ours, theirs, torch.randn(4, 8), name=BEFORE) == 2


@pytest.mark.parametrize("way", ["in place", "another parameter", "load", "buffer"])
def test_new_weights_are_seen(gated, way):
    ours, theirs = pair(gated, SOURCE)
    counts(ours, theirs, torch.randn(4, 8))
    for each in (ours, theirs):
        torch.manual_seed(7)
        with torch.no_grad():
            if way == "in place":
                each.blocks[1].scale.mul_(3)
            elif way == "another parameter":
                each.blocks[1].scale = torch.nn.Parameter(torch.rand(8))
            elif way == "load":
                each.load_state_dict({name: value * 2 for name, value in each.state_dict().items()})
            else:
                each.blocks[0].calls.fill_(10)
    assert counts(ours, theirs, torch.randn(4, 8)) == (2, 2)


def test_a_plain_tensor_of_the_model_is_an_input_like_others(gated):
    ours, theirs = pair(gated, SOURCE)
    for each in (ours, theirs):
        torch.manual_seed(9)
        each.blocks[0].table = torch.rand(8)
    assert counts(ours, theirs, torch.randn(4, 8)) == (2, 2)


def test_what_needs_gradients_is_refused_with_what_to_do(gated):
    ours, _ = pair(gated, SOURCE)
    with pytest.raises(RuntimeError, match="the kernels of this model give no gradients"):
        ours(torch.randn(4, 8))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_have_kernels_of_their_own(gated, copied):
    ours, theirs = pair(gated, SOURCE)
    counts(ours, theirs, torch.randn(4, 8))
    other, wanted = copied(ours), copy.deepcopy(theirs)
    with torch.no_grad():
        other.blocks[0].scale.add_(1), wanted.blocks[0].scale.add_(1)
    assert counts(other, wanted, torch.randn(4, 8)) == (2, 2)
    assert counts(ours, theirs, torch.randn(4, 8)) == (2, 2)


def test_hooks_of_submodules_are_called(gated):
    ours, theirs = pair(gated, SOURCE)
    counts(ours, theirs, torch.randn(4, 8))
    seen = []
    handle = ours.blocks[0].register_forward_hook(lambda *_: seen.append(1))
    assert counts(ours, theirs, torch.randn(4, 8)) == (2, 2) and seen == [1]
    handle.remove()
    assert counts(ours, theirs, torch.randn(4, 8)) == (2, 2)


def test_torch_compile_sees_the_original_code(gated):
    ours, theirs = pair(gated, SOURCE)
    compiled = torch.compile(ours, backend="eager")
    assert counts(compiled, theirs, torch.randn(4, 8)) == (0, 0)
    assert counts(ours, theirs, torch.randn(4, 8)) == (2, 2)


def test_apply_and_remove_on_a_live_model(gated):
    user = loaded(SOURCE)
    model = user.Model(8)
    theirs = copy.deepcopy(model)
    ours = gated.apply(model)
    assert counts(ours, theirs, torch.randn(4, 8)) == (2, 2)
    gated.remove(model)
    assert type(model) is user.Model and counts(model, theirs, torch.randn(4, 8)) == (0, 0)


def test_a_model_that_is_gone_leaves_its_weights(gated):
    ours, theirs = pair(gated, SOURCE)
    counts(ours, theirs, torch.randn(4, 8))
    gone = weakref.ref(ours.blocks[0].scale)
    del ours
    gc.collect()
    assert gone() is None


VIEWS = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        h = torch.tanh(x * 2) + 1
        rows = h.view(-1)
        if h.sum().item() > 1e9:
            h = h + 1
        rows.add_(1)  # changes h as well
        if rows.sum().item() > 1e9:
            rows = rows + 1
        return h * 3, x.relu().exp()
def get_inputs():
    return [torch.randn(4, 8)]
def get_init_inputs():
    return []
"""


def test_what_lies_in_the_memory_of_another_result_still_does(tmp_path):
    found = captured_in_fragments(VIEWS)
    (first,) = [graph for graph in found.graphs if any("tanh" in node.operator for node in graph.nodes)]
    names = {node.operator.split(".")[1]: node.name for node in first.nodes}
    regions = [each for each in find_regions(found, min_share=0.0) if each.graph == first.key]
    assert regions and all(names["view"] not in place.nodes for each in regions for place in each.occurrences)
    held = region(first, BEFORE, [names["mul"], names["tanh"], names["add"]])
    torch._dynamo.reset()
    module = delivered_module(tmp_path, put_back(VIEWS, [Variant(found, chosen(first, held))]))
    ours, theirs = pair(module, VIEWS)
    assert runs_kernels(ours, theirs, torch.randn(4, 8), name=BEFORE) == 1


def delivered_whole(folder: Path, source: str, wrap: Callable[[str], str] = str) -> tuple[Any, Any]:
    """The delivered and the original model, with a kernel for each region that can have one beside the others."""
    found = captured_in_fragments(source)
    places = choose(found, find_regions(found, min_share=0.0))
    graphs = {graph.key: graph for graph in found.graphs}
    made = [Chosen(each, wrap(kernel(graphs[each.graph], each))) for each in places]
    torch._dynamo.reset()
    assert made
    return pair(delivered_module(folder, put_back(source, [Variant(found, made)])), source)


def branching(body: str, init: str = "pass") -> str:
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return f"""
import numpy, torch
class Inner(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) * 2
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {init}
{lines}
def get_inputs():
    return [torch.randn(4, 8)]
def get_init_inputs():
    return []
"""


OTHER_WAYS = {
    "two results that are one": branching(
        "def forward(self, x):\n    h = torch.tanh(x * 2) * 3\n    y = self.drop(h)\n"
        "    if h.sum().item() > 60:\n        y += 1\n    return y.exp() + h",
        "self.drop = torch.nn.Dropout(0.1).eval()",
    ),
    "a view of a buffer that is changed": branching(
        "def forward(self, x):\n    v = self.buf.view(-1) if x.sum().item() > 60 else x[0] * 1\n"
        "    torch._dynamo.graph_break()\n    self.buf.add_(1)\n    return torch.tanh(v * 2) * 3 + self.buf",
        'self.register_buffer("buf", torch.rand(8))',
    ),
    "a caught error": branching(
        "def forward(self, x):\n    h = torch.tanh(x * 2)\n"
        "    w = torch.ones(8, 3) if h.sum().item() < 20 else torch.ones(7, 3)\n    try:\n        self.n += 1\n"
        "        return (h @ w) * 2\n    except RuntimeError:\n        return h * 5",
        'self.register_buffer("n", torch.zeros(()))',
    ),
    "what dynamo cannot follow": branching(
        "def forward(self, x):\n    h = torch.tanh(x * 2)\n    def r(n): return h if n == 0 else r(n - 1) + 1\n"
        "    if h.sum().item() > 20:\n        h = r(150)\n    return h.exp() * 2"
    ),
    "numbers of numpy": branching(
        "def forward(self, x):\n    h = torch.tanh(x * 2)\n    if h.sum().item() > 20:\n"
        "        numpy.random.seed(3)\n        h = h + torch.from_numpy(numpy.random.rand(8) / 3)\n"
        "    return h.exp() * 2"
    ),
    "gradients that it computes itself": branching(
        "def tail(self, x):\n    torch._dynamo.graph_break()\n    return self.l(torch.tanh(x)) * 2\n"
        "def forward(self, x):\n    if x.sum().item() > 20:\n        with torch.enable_grad():\n"
        "            (g,) = torch.autograd.grad(self.tail(x).sum(), self.l.weight)\n        return g\n"
        "    return self.tail(x)",
        "self.l = torch.nn.Linear(8, 8)",
    ),
}


NONE_RAN = pytest.mark.filterwarnings("ignore:a call of the model itself ran none of the graphs")


@NONE_RAN
@pytest.mark.parametrize("source", OTHER_WAYS.values(), ids=OTHER_WAYS)
def test_ways_that_no_capture_saw_compute_what_the_original_does(tmp_path, source):
    ours, theirs = delivered_whole(tmp_path, source)
    with torch.no_grad():
        for _ in range(2):
            for x in (torch.randn(4, 8), torch.full((4, 8), 9.0)):
                torch.testing.assert_close(ours(x.clone()), theirs(x.clone()), rtol=1e-5, atol=1e-6)
                assert all(map(torch.equal, ours.state_dict().values(), theirs.state_dict().values()))


def test_a_kernel_that_reads_bits_as_they_lie_gets_no_tensor_whose_sign_is_a_flag(tmp_path):
    source = branching(
        "def forward(self, x):\n    z = torch.complex(x, x * 2)\n"
        "    v = z.imag if x.sum().item() < 60 else z.conj().imag\n    torch._dynamo.graph_break()\n"
        "    return torch.tanh(v) * 2"
    )
    raw = "x0 = torch.empty(0).set_(x0.untyped_storage(), x0.storage_offset(), x0.shape, x0.stride())"
    ours, theirs = delivered_whole(tmp_path, source, lambda text: text.replace("calls.append(1)", raw))
    with torch.no_grad():
        for x in (torch.randn(4, 8), torch.full((4, 8), 9.0)):
            torch.testing.assert_close(ours(x), theirs(x))


def test_where_the_code_itself_turns_autocast_on_the_original_code_runs(tmp_path):
    source = branching(
        "def tail(self, x):\n    return self.l(torch.tanh(x)) * 2\n"
        "def forward(self, x):\n    if x.sum().item() < 60:\n        return self.tail(x)\n    try:\n"
        '        with torch.autocast("cpu", dtype=torch.bfloat16):\n            print(end="")\n'
        "            return self.tail(x)\n    finally:\n        pass",
        "self.l = torch.nn.Linear(8, 8)",
    )
    unaware = "calls.append(torch.set_autocast_enabled('cpu', False))"
    ours, theirs = delivered_whole(tmp_path, source, lambda text: text.replace("calls.append(1)", unaware))
    with torch.no_grad():
        for x in (torch.randn(4, 8), torch.full((4, 8), 9.0)):
            assert torch.equal(ours(x), theirs(x))


@NONE_RAN
@pytest.mark.parametrize("whole", [False, True], ids=["fragments", "whole"])
def test_an_input_that_lies_in_a_buffer_which_the_call_changes_gets_the_original_code(tmp_path, whole):
    branch = "" if whole else "    if x.sum().item() > 1e9:\n        x = x + 1\n"
    source = branching(
        f"def forward(self, x):\n{branch}    self.state.mul_(0.5).add_(1)\n    return torch.tanh(x * 2) * 3",
        'self.register_buffer("state", torch.zeros(4, 8))',
    )
    found = captured(source) if whole else captured_in_fragments(source)
    graph = next(graph for graph in found.graphs if any("tanh" in node.operator for node in graph.nodes))
    tanh = [node.name for node in graph.nodes if "tanh" in node.operator]
    torch._dynamo.reset()
    delivered = put_back(source, [Variant(found, chosen(graph, region(graph, BEFORE, tanh)))])
    ours, theirs = pair(delivered_module(tmp_path, delivered), source)
    assert runs_kernels(ours, theirs, torch.randn(4, 8), name=BEFORE) == 1
    with torch.no_grad():
        for part in (lambda state: state, lambda state: state[:]):
            torch.testing.assert_close(ours(part(ours.state)), theirs(part(theirs.state)))


def test_hooks_of_modules_that_are_in_no_module_are_called(tmp_path):
    source = branching(
        "def forward(self, x):\n    h = torch.sin(x) * 3\n    if h.sum().item() > 1e9:\n        h = h + 1\n"
        "    return self.parts[0](h) + 1",
        "self.parts = [Inner()]",
    )
    ours, theirs = delivered_whole(tmp_path, source)
    with torch.no_grad():
        torch.testing.assert_close(ours(torch.ones(4, 8)), theirs(torch.ones(4, 8)))
        for each in (ours, theirs):
            each.parts[0].register_forward_hook(lambda module, args, result: result * 7)
        torch.testing.assert_close(ours(torch.ones(4, 8)), theirs(torch.ones(4, 8)))


def test_weights_that_were_replaced_are_not_kept(gated):
    ours, theirs = pair(gated, SOURCE)
    with torch.no_grad():
        for _ in range(20):
            ours.blocks[0].scale = torch.nn.Parameter(torch.rand(8))
            ours(torch.randn(4, 8))
    assert all(len(held) <= 4 for held in ours._kw_place.held.values())
    theirs.load_state_dict(ours.state_dict())
    assert counts(ours, theirs, torch.randn(4, 8)) == (2, 2)


def test_a_shallow_copy_runs_its_own_code_and_the_model_keeps_its_kernels(gated):
    ours, theirs = pair(gated, SOURCE)
    counts(ours, theirs, torch.randn(4, 8))
    other, wanted = copy.copy(ours), copy.copy(theirs)
    for _ in range(3):
        assert counts(other, wanted, torch.randn(4, 8)) == (0, 0)
        assert counts(ours, theirs, torch.randn(4, 8)) == (2, 2)


def test_while_dynamo_is_turned_off_the_original_code_runs_and_the_kernels_again_afterwards(gated):
    ours, theirs = pair(gated, SOURCE)
    with torch._dynamo.config.patch(disable=True):
        assert counts(ours, theirs, torch.randn(4, 8)) == (0, 0)
    with torch._dynamo.config.patch(error_on_recompile=True, assume_static_by_default=False):
        assert counts(ours, theirs, torch.randn(4, 8)) == (2, 2)
        assert counts(ours, theirs, torch.full((4, 8), 9.0))[0] == 2


def test_fragments_of_a_submodule_and_a_graph_of_another(tmp_path):
    source = SOURCE.replace("Gated(size), Gated(size)]", "Gated(size), torch.nn.Tanh()]")
    ends = captured(source, ["blocks.1"])
    found = captured_in_fragments(source, "blocks.0")
    both = Captured(**{**vars(found), "graphs": (*found.graphs, *ends.graphs)})
    (tanh,) = ends.graphs
    last = chosen(tanh, region(tanh, "r03_tanh", [tanh.nodes[0].name]))
    torch._dynamo.reset()
    module = delivered_module(tmp_path, put_back(source, [Variant(both, [*kernels(found), *last])]))
    ours, theirs = pair(module, source)
    before = calls("r03_tanh")
    assert counts(ours, theirs, torch.randn(4, 8)) == (1, 1) and calls("r03_tanh") == before + 1


@pytest.mark.parametrize("whole_first", [False, True])
def test_lists_of_inputs_may_have_fragments_or_a_graph_of_the_whole(tmp_path, whole_first):
    source = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        h = torch.tanh(x * 2) + 1
        if x.shape[0] > 1 and h.sum().item() > 1e9:
            h = h + 1
        return h.exp() * 3
def get_inputs():
    return [torch.randn(4, 8)]
def get_init_inputs():
    return []
"""
    several, one = captured_in_fragments(source), captured(source, inputs=[torch.randn(1, 8)])
    (graph,) = [each for each in several.graphs if any("tanh" in node.operator for node in each.nodes)]
    (whole,) = one.graphs

    def of(graph: Graph, name: str) -> list[Chosen]:
        named = {node.operator.split(".")[1]: node.name for node in graph.nodes}
        return chosen(graph, region(graph, name, [named["tanh"]]))

    variants = [Variant(several, of(graph, "r01_several")), Variant(one, of(whole, "r02_one"))]
    torch._dynamo.reset()
    module = delivered_module(tmp_path, put_back(source, variants[::-1] if whole_first else variants))
    ours, theirs = pair(module, source)
    assert runs_kernels(ours, theirs, torch.randn(4, 8), name="r01_several") == 1
    assert runs_kernels(ours, theirs, torch.randn(1, 8), name="r02_one") == 1
    assert calls("r01_several") == 1
    assert runs_kernels(ours, theirs, torch.randn(2, 8), name="r01_several") == 0


def test_the_bundle_computes_what_the_model_does(of_gated):
    torch._dynamo.reset()
    module = loaded(bundle(of_gated), "bundle")
    user = loaded(SOURCE)
    torch.manual_seed(3)
    ours = module.ModelNew(8)
    torch.manual_seed(3)
    theirs = user.Model(8)
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(4, 8)
            torch.testing.assert_close(ours(x), theirs(x))
    assert calls(BEFORE, "bundle") == 4


@pytest.mark.docker
def test_the_referee_judges_such_a_model_like_any_other(shared_docker_sandbox: Sandbox) -> None:
    source = SOURCE.replace("torch.randn(4, 8)", "torch.randn(256, 8)")
    found = captured_in_fragments(source)
    candidate = bundle(put_back(source, [Variant(found, kernels(found))]))
    effort = Effort(wall_s=120, memory_mb=4096, measure_budget_s=0.3, baselines=("eager",))
    task = task_from_source(source, name="gated")
    judged = evaluate(task, candidate, sandbox=shared_docker_sandbox, platform=load_platform("cpu"), effort=effort)
    assert judged.verdict is Verdict.PASSED, judged.message
    assert judged.correctness.state is not None
    assert judged.correctness.state["changed_by_calls"] == ["blocks.0.calls", "blocks.1.calls"]


def test_a_kernel_that_cannot_be_built_is_named_when_the_model_is_made(tmp_path):
    found = captured_in_fragments(SOURCE)
    (first, _) = kernels(found)
    broken = Chosen(first.region, first.kernel_source.replace("super().__init__()", "raise ValueError('no compiler')"))
    module = delivered_module(tmp_path, put_back(SOURCE, [Variant(found, [broken])]))
    with pytest.raises(RuntimeError, match="the kernel r01_before cannot be built: no compiler"):
        module.Model(8)
