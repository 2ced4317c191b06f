"""Kernels in graphs that dynamo makes while a model runs: the model stays the same, on every way through its code."""

import copy
import gc
import pickle
import types
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from evaluator.evaluate import Effort, evaluate
from evaluator.platforms import load_platform
from sandbox.base import Sandbox
from tasks.build import task_from_source
from tasks.outcomes import Verdict
from tests.support.put_back_models import captured, captured_in_fragments, chosen, loaded, region
from tests.whole_models.test_put_back import calls, delivered_module, pair, runs_kernels
from whole_models.graph import Captured, Graph
from whole_models.put_back import Chosen, Delivered, Variant, bundle, put_back
from whole_models.regions import find_regions

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
    assert counts(ours, theirs, torch.randn(4, 8)) == (0, 0) and seen == [1]
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
