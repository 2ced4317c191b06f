"""The capture of a model: graphs, weights, values and times, and what it says of models that it cannot take."""

import base64
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sandbox.base import Command, Completed
from sandbox.docker.sandbox import DockerSandbox
from tasks.weights_file import read_weights
from tests.support.weights import state_file
from whole_models.capture_run import CaptureCancelled, capture
from whole_models.graph import Captured, CaptureFailed, Graph, Node, Ref

pytestmark = pytest.mark.xdist_group("model_capture")  # they share one process with torch

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
TAIL = """
def get_init_inputs():
    return []
"""


def model(body: str, inputs: str = "[torch.randn(3, 4)]", helpers: str = "") -> str:
    """A model's file: the body of its class, and the expression for its inputs."""
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return f"{HEAD}{helpers}\nclass Model(nn.Module):\n{lines}\ndef get_inputs():\n    return {inputs}\n{TAIL}"


class CaptureServer:
    """Stands in for a sandbox: a process that answers requests one after the other, with one import of torch.

    What captures is the program's own code; one test below runs it inside a sandbox.
    """

    name = "captures"
    promises: frozenset[Any] = frozenset()

    def __init__(self, folder: Path) -> None:
        root = Path(__file__).parents[2]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
        environment |= dict.fromkeys(("TMPDIR", "HOME"), str(folder))
        program = str(root / "tests" / "support" / "capture_server.py")
        self._process = subprocess.Popen(
            [sys.executable, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )

    def run(self, command: Command, *, on_stderr: Any = None, cancel: Any = None) -> Completed:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(command.stdin)
        self._process.stdin.flush()
        line = self._process.stdout.readline().strip()
        return Completed(0 if line else 1, line, b"", 0.1)

    def prepare(self, command: Command) -> None:
        pass

    def describe(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        assert self._process.stdin is not None
        with self._process:  # closes its pipes and waits
            self._process.stdin.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CaptureServer]:
    started = CaptureServer(tmp_path_factory.mktemp("captures"))
    try:
        yield started
    finally:
        started.close()


def of(server: CaptureServer, source: str, **options: Any) -> Captured:
    return capture(server, source, compile=False, budget_s=60.0, **options)


def whole(captured: Captured) -> Graph:
    assert captured.stays_eager == ()
    (graph,) = captured.graphs
    assert graph.path == ""
    return graph


def named(graph: Graph, operator: str) -> list[Node]:
    return [node for node in graph.nodes if node.operator == f"aten.{operator}"]


MLP = model(
    """
def __init__(self):
    super().__init__()
    self.first = nn.Linear(4, 8)
    self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(2)])

def forward(self, x):
    x = self.first(x)
    for block in self.blocks:
        x = block(x)
    return x
"""
)


def test_inputs_may_be_those_of_a_shape_group(server: CaptureServer) -> None:
    source = MLP + "\ndef get_input_groups():\n    return [[torch.randn(5, 4)], [torch.randn(1, 4)]]\n"
    own, other = of(server, source), of(server, source, shape_group=0)
    assert (own.shape_groups, of(server, MLP).shape_groups) == (2, 0)
    assert whole(other).nodes[-1].results[0].shape[0] == 5 != whole(own).nodes[-1].results[0].shape[0]
    with pytest.raises(CaptureFailed, match="inputs: IndexError"):
        of(server, source, shape_group=2)
    with pytest.raises(CaptureFailed, match=r"inputs: ZeroDivisionError: .*line \d+"):
        of(server, MLP + "\ndef get_input_groups():\n    return 1 / 0\n")


def test_a_model_is_described_by_its_operators_with_shapes_weights_and_modules(server: CaptureServer) -> None:
    captured = of(server, MLP)
    graph = whole(captured)
    assert [node.operator for node in graph.nodes] == [
        "aten.linear.default",
        *("aten.linear.default", "aten.relu.default") * 2,
    ]
    first, second, relu = graph.nodes[:3]
    assert (first.module, first.module_class, second.module) == ("first", "Linear", "blocks.0.0")
    assert [item.path for item in graph.inputs if item.kind == "parameter"] == [
        *("first.weight", "first.bias", "blocks.0.0.weight", "blocks.0.0.bias"),
        *("blocks.1.0.weight", "blocks.1.0.bias"),
    ]
    assert first.results[0].shape == (3, 8) and first.results[0].stride == (8, 1)
    assert relu.args == (Ref(second.name),)
    assert graph.outputs == (Ref(graph.nodes[-1].name),) and graph.result == ["leaf"]
    assert graph.module_class == "Model" and graph.calls == 1 and graph.mutations == ()
    assert set(graph.training) == {"", "first", "blocks", *(f"blocks.{n}{x}" for n in (0, 1) for x in ("", ".0", ".1"))}
    assert all(node.pure and node.eager_ms is not None for node in graph.nodes)
    assert captured.eager_ms > 0 and graph.eager_ms == captured.eager_ms
    assert captured.compile_ms is None and captured.compile_error


def test_the_values_that_were_seen_are_of_the_real_tensors(server: CaptureServer) -> None:
    source = model(
        "def forward(self, x, index):\n    return x.relu(), index * 2, x / 0",
        "[torch.arange(-50, 51) / 50, torch.arange(5, 10)]",
    )
    graph = whole(of(server, source))
    x, index = (item.tensor for item in graph.inputs)
    assert x is not None and x.values is not None and index is not None and index.values is not None
    assert (x.values.low, x.values.high, x.values.finite) == (-1.0, 1.0, 1.0)
    assert abs(x.values.mean) < 1e-6 and abs(x.values.std - 0.583) < 1e-3
    assert (index.dtype, index.values.low, index.values.high, index.values.mean) == ("int64", 5.0, 9.0, 7.0)
    relu, quotient = named(graph, "relu.default")[0].results[0].values, named(graph, "div.Tensor")[0].results[0].values
    assert relu is not None and abs(relu.zeros - 51 / 101) < 1e-6 and relu.low == 0.0
    assert quotient is not None and quotient.finite < 0.01 and quotient.low == 0.0


def test_a_weight_under_two_names_is_one_input_by_its_first(server: CaptureServer) -> None:
    source = model(
        """
def __init__(self):
    super().__init__()
    self.a = nn.Linear(4, 4, bias=False)
    self.b = nn.Linear(4, 4, bias=False)
    self.b.weight = self.a.weight

def forward(self, x):
    return self.b(self.a(x))
"""
    )
    graph = whole(of(server, source))
    weights = [item for item in graph.inputs if item.kind == "parameter"]
    assert [item.path for item in weights] == ["a.weight"]
    assert all(Ref(weights[0].name) in node.args for node in graph.nodes) and len(graph.nodes) == 2


def test_buffers_that_a_call_changes_are_mutations_and_are_put_back_between_calls(server: CaptureServer) -> None:
    source = model(
        """
def __init__(self):
    super().__init__()
    self.norm = nn.BatchNorm1d(4)
    self.register_buffer("cache", torch.zeros(2, 3, 4))
    self.register_buffer("position", torch.zeros((), dtype=torch.long))

def forward(self, x):
    self.cache.index_copy_(0, self.position[None], x[None])
    self.position += 1
    return self.norm(x), self.cache.sum(0)
"""
    )
    graph = whole(of(server, source))  # a third call in a row would be out of the cache's range
    assert {mutation.path for mutation in graph.mutations} == {
        *("cache", "position", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked")
    }
    assert {mutation.value for mutation in graph.mutations} <= graph.leaving
    (position,) = (item.tensor for item in graph.inputs if item.path == "position")
    assert position is not None and position.values is not None and position.values.high == 0.0


def test_changes_in_place_of_what_the_model_made_itself_become_values(server: CaptureServer) -> None:
    graph = whole(of(server, model("def forward(self, x):\n    y = x + 1\n    F.relu_(y)\n    y[0] = 3\n    return y")))
    assert all(node.pure for node in graph.nodes) and named(graph, "relu.default")


def test_trees_of_arguments_and_results(server: CaptureServer) -> None:
    source = model(
        """
def forward(self, pair, scale, name):
    x, y = pair
    assert name == "sum"
    return {"sum": x + y, "rest": [x * scale, (3, None, float("inf"))]}
""",
        '[(torch.randn(2), torch.randn(2)), 2.5, "sum"]',
    )
    graph = whole(of(server, source))
    leaf = ["leaf"]
    assert graph.arguments == ["tuple", [["tuple", [leaf, leaf]], leaf, leaf]] and graph.keywords == ()
    assert [(item.kind, item.value) for item in graph.inputs] == [
        *[("argument", None)] * 2,
        *(("scalar", 2.5), ("scalar", "sum")),
    ]
    assert graph.result == ["dict", ["sum", "rest"], [leaf, ["list", [leaf, ["tuple", [leaf] * 3]]]]]
    assert graph.outputs[2:] == (3, None, float("inf")) and isinstance(graph.outputs[0], Ref)


def test_inputs_keep_their_strides_and_are_held_once_each(server: CaptureServer) -> None:
    source = model(
        "def forward(self, x, y, z):\n    return x + y + z",
        "(lambda x: [x.T, x.T, torch.randn(4, 1).expand(4, 3)])(torch.randn(3, 8)[:, ::2])",
    )
    graph = whole(of(server, source))
    assert [item.kind for item in graph.inputs] == ["argument"] * 3
    assert [item.tensor.stride for item in graph.inputs if item.tensor] == [(2, 8), (2, 8), (1, 0)]


def test_tensors_that_the_code_makes_are_constants_with_their_bytes(server: CaptureServer) -> None:
    graph = whole(of(server, model("def forward(self, x):\n    return x + torch.tensor([1.0, 2.0, 3.0, 4.0])")))
    (constant,) = (item for item in graph.inputs if item.kind == "constant")
    assert constant.tensor is not None and constant.tensor.shape == (4,)
    assert base64.b64decode(constant.base64) == b"\0\0\x80?\0\0\0@\0\0@@\0\0\x80@"


def test_what_is_drawn_is_not_pure(server: CaptureServer) -> None:
    source = model(
        """
def __init__(self):
    super().__init__()
    self.drop, self.keep = nn.Dropout(0.5), nn.Dropout(0.0)
    self.off = nn.Dropout(0.5).eval()
    self.lstm = nn.LSTM(4, 4)

def forward(self, x):
    attended = F.scaled_dot_product_attention(x[None], x[None], x[None])
    return self.off(self.keep(self.drop(x))), attended, self.lstm(x), torch.bernoulli(x.sigmoid()), torch.rand(2)
"""
    )
    graph = whole(of(server, source))
    impure = {node.operator for node in graph.nodes if not node.pure}
    drop = "aten.native_dropout.default"
    assert impure >= {drop, "aten.rand.default"} and any("bernoulli" in name for name in impure)
    assert not impure & {"aten.scaled_dot_product_attention.default", "aten.lstm.input"}
    assert {node.args[1] for node in graph.nodes if node.operator == drop and not node.pure} == {0.5}


MODES = {
    "none looks": ("self.part = nn.Sequential(nn.Linear(4, 4), nn.GELU())", set(), False),
    "batch norm": ("self.part = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))", {"part.1"}, False),
    "dropout": ("self.part = nn.Dropout(0.5)", {"part"}, False),
    "an RNN that drops nothing": ("self.part = nn.RNN(4, 4)", {"part"}, True),
    "an RNN that drops": ("self.part = nn.RNN(4, 4, num_layers=2, dropout=0.5)", {"part"}, False),
    "its own code": ("self.part = Own()", {"part"}, False),
    "its own code that does the same": ("self.part = Same()", {"part"}, True),
    "a mode that fails": ("self.part = Fails()", {"part"}, False),
}


@pytest.mark.parametrize("name", MODES)
def test_submodules_that_look_at_their_mode_are_told_and_whether_it_matters(server: CaptureServer, name: str) -> None:
    part, looking, either = MODES[name]
    source = model(
        f"""
def __init__(self):
    super().__init__()
    {part}

def forward(self, x):
    return self.part(x)
""",
        helpers="""
class Own(nn.Module):
    def forward(self, x):
        return x * 2 if self.training else x * 3

class Same(nn.Module):
    def forward(self, x):
        return self.same(x) if self.training else x * 2

    def same(self, x):
        return x * 2

class Fails(nn.Module):
    def forward(self, x):
        assert self.training
        return x * 2
""",
    )
    graph = whole(of(server, source))
    assert graph.reads_mode is not None
    assert (set(graph.reads_mode), graph.either_mode) == (looking, either)
    assert "part" in graph.training


BRANCH = """
class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(512, 512)

    def forward(self, x, scale=1.0):
        if x.sum() > 1e9:
            return x
        return self.inner(x) * scale

class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(512))

    def forward(self, x, *, shift):
        return x * self.weight + shift
"""
PARTS = model(
    """
def __init__(self):
    super().__init__()
    self.start = nn.Sequential(nn.Linear(512, 512), nn.ReLU())
    self.branches = nn.ModuleList([Branch(), Branch()])
    self.twice = Twice()
    self.unused = nn.Linear(512, 512)

def forward(self, x):
    x = self.twice(self.start(x), shift=1.0)
    for branch in self.branches:
        x = branch(x)
    return self.twice(self.twice(x, shift=1.0), shift=1.0)
""",
    "[torch.randn(128, 512)]",
    BRANCH,
)


def test_where_control_flow_depends_on_data_the_largest_parts_are_captured(server: CaptureServer) -> None:
    captured = of(server, PARTS)
    assert [(part.path, part.module_class) for part in captured.stays_eager] == [
        *(("", "Model"), ("branches.0", "Branch"), ("branches.1", "Branch"))
    ]
    assert all("depend on the values of tensors, at line" in part.reason for part in captured.stays_eager)
    assert all("of the file: if x.sum() > 1e9:" in part.reason for part in captured.stays_eager)
    assert sorted((graph.path, graph.calls) for graph in captured.graphs) == [
        *(("branches.0.inner", 1), ("branches.1.inner", 1), ("start", 1), ("twice", 3))
    ]
    by_path = {(graph.path, graph.calls): graph for graph in captured.graphs}
    start, twice = by_path["start", 1], by_path["twice", 3]
    assert [item.path for item in start.inputs if item.kind == "parameter"] == ["0.weight", "0.bias"]
    assert [node.module for node in start.nodes] == ["0", "1"]
    assert twice.keywords == ("shift",) and twice.arguments == ["tuple", [["leaf"], ["leaf"]]]
    assert [item.value for item in twice.inputs if item.kind == "scalar"] == [1.0]
    assert all(graph.eager_ms is not None and 0 < graph.eager_ms < 1e5 for graph in captured.graphs)


def test_a_module_that_is_called_in_several_forms_stays_as_it_is(server: CaptureServer) -> None:
    captured = of(server, PARTS.replace("shift=1.0), shift=1.0)", "shift=1.0), shift=2.0)"))
    stays = {part.path: part.reason for part in captured.stays_eager}
    assert stays["twice"] == "it is called in 2 forms, of which a graph has one"
    assert "twice" not in {graph.path for graph in captured.graphs}


def test_a_model_that_cannot_be_exported_at_all_says_why(server: CaptureServer) -> None:
    captured = of(server, model("def forward(self, x):\n    return x.nonzero()"))
    assert captured.graphs == () and captured.eager_ms > 0
    assert [(part.path, part.module_class) for part in captured.stays_eager] == [("", "Model")]
    assert "depends on the values of tensors" in captured.stays_eager[0].reason


GATED = """
class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.rand(8))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        h = torch.tanh(x * self.scale) + x.sigmoid()
        if h.sum().item() > 1e9:
            h = h * 2
        return self.linear(h) + x
"""
IN_FRAGMENTS = model(
    """
def __init__(self):
    super().__init__()
    self.blocks = nn.ModuleList([Gated(), Gated(), Gated()])

def forward(self, x, *, shift=0.5):
    for block in self.blocks:
        x = block(x)
    return x * shift
""",
    "[torch.randn(8192, 8)]",  # most of the time is the blocks' own
    GATED,
)


def test_where_a_module_s_own_code_takes_its_time_dynamo_s_graphs_of_it_are_captured(server: CaptureServer) -> None:
    captured = of(server, IN_FRAGMENTS)
    assert [graph.path for graph in captured.graphs] == ["", ""]
    assert sorted(graph.key for graph in captured.graphs) == ["#1", "#2"]
    assert all(graph.calls == 3 and graph.eager_ms for graph in captured.graphs)
    by_size = sorted(captured.graphs, key=lambda graph: len(graph.nodes))
    after, before = ([node.operator for node in graph.nodes] for graph in by_size)
    assert after == ["aten.linear.default", "aten.add.Tensor"]
    assert before == [
        f"aten.{name}" for name in ("add.Tensor", "mul.Tensor", "tanh.default", "sigmoid.default", "add.Tensor")
    ] + ["aten.sum.default"]
    (stays,) = captured.stays_eager
    assert stays.path == "" and "of the file: if h.sum().item() > 1e9" in stays.reason
    assert stays.reason.endswith("; dynamo makes 2 graphs of it, of which 2 are captured")


def test_a_fragment_knows_its_weights_the_call_it_is_a_part_of_and_what_it_changes_in_place(
    server: CaptureServer,
) -> None:
    captured = of(server, IN_FRAGMENTS)
    after, before = sorted(captured.graphs, key=lambda graph: len(graph.nodes))
    assert before.fragment is not None and after.fragment is not None
    block = before.nodes[0].module
    assert block in ("blocks.0", "blocks.1", "blocks.2")
    assert {node.module for node in before.nodes} == {block}
    assert {node.module_class for node in before.nodes} == {"Gated"}
    assert sorted(before.fragment.given) == ["", f"{block}.calls", f"{block}.scale"]
    assert [mutation.path for mutation in before.mutations] == [f"{block}.calls"]
    ((output, place),) = before.fragment.returned
    assert before.outputs[output] == Ref(before.mutations[0].value)
    assert before.fragment.given[place] == f"{block}.calls"
    assert [node.module_class for node in after.nodes] == ["Linear", "Gated"]
    assert after.nodes[0].module == f"{after.nodes[1].module}.linear"
    arguments, keywords, leaves = before.called_with
    assert arguments == ["tuple", [["leaf"]]] and keywords == ()
    assert [leaf.tensor.shape for leaf in leaves if leaf.tensor] == [(8192, 8)]
    assert before.fragment.fingerprint != after.fragment.fingerprint


NO_KERNEL = {
    "it changes its input in place": "def forward(self, x):\n    y = (x * 2).relu()\n"
    "    if y.sum().item() > 1e9:\n        y = y + 1\n    return y.add_(1).tanh()",
    "it returns a view of what it changes in place": "def __init__(self):\n    super().__init__()\n"
    '    self.register_buffer("seen", torch.zeros(3, 4))\n'
    "def forward(self, x):\n    y = torch.tanh(x * 2)\n    if y.sum().item() > 1e9:\n        y = y + 1\n"
    "    self.seen.add_(y)\n    return self.seen[0], y.exp()",
    "it takes a parameter in one call, and in another a tensor that is computed": "def __init__(self):\n"
    "    super().__init__()\n    self.w = nn.Parameter(torch.rand(3, 4))\n"
    "def step(self, a, b):\n    if a.sum().item() > 1e9:\n        a = a + 1\n    return torch.tanh(a * b) + a\n"
    "def forward(self, x):\n    y = self.step(x, self.w)\n    return self.step(x, y) * 2",
}


@pytest.mark.parametrize("reason", NO_KERNEL)
def test_a_graph_of_dynamo_that_no_kernel_can_be_put_into_is_named(server: CaptureServer, reason: str) -> None:
    captured = of(server, model(NO_KERNEL[reason]))
    assert captured.graphs and all(graph.fragment is not None for graph in captured.graphs)
    assert captured.stays_eager[0].reason.endswith(f", and others not: {reason}")


def test_where_none_of_dynamo_s_graphs_can_be_captured_the_reason_is_named(server: CaptureServer) -> None:
    body = (
        "def forward(self, x):\n    x.add_(1)\n    if x.sum().item() > 1e9:\n        return x.mul_(2)\n"
        "    return x.mul_(3)"
    )
    captured = of(server, model(body))
    assert captured.graphs == ()
    reason = captured.stays_eager[0].reason
    assert reason.endswith("; none of dynamo's graphs of it can be captured: it changes its input in place")


def test_numbers_that_are_read_of_tensors_are_not_taken_for_constants(server: CaptureServer) -> None:
    source = model(
        "def forward(self, x):\n    y = torch.tanh(x * 2)\n    top = y.max().item()\n    return y.exp() / top"
    )
    captured = of(server, source)
    assert [[node.operator for node in graph.nodes][-1] for graph in captured.graphs] == ["aten.max.default"]


REFUSED = {
    "changes its input in place": model("def forward(self, x):\n    return x.add_(1) * 2"),
    "too large (register it as a buffer)": model(
        "def __init__(self):\n    super().__init__()\n    self.table = torch.zeros(600_000)\n"
        "def forward(self, x):\n    return x + self.table[:4]"
    ),
    "a result or an argument of type max": model("def forward(self, x):\n    return x.max(-1)"),
    "does not compute what it computes itself": model(
        "calls = 0\ndef forward(self, x):\n    self.calls += 1\n    return x * self.calls"
    ),
    "a call changes its attribute count: keep state in buffers of one shape": model(
        "def __init__(self):\n    super().__init__()\n    self.count = 0\n"
        "def forward(self, x):\n    self.count += 1\n    return x * self.count"
    ),
    "a call changes its attribute inner._cache: keep state in buffers of one shape": model(
        "def __init__(self):\n    super().__init__()\n    self.inner = Growing()\n"
        "def forward(self, x):\n    return self.inner(x)",
        helpers="class Growing(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self._cache = {}\n"
        "    def forward(self, x):\n"
        "        past = self._cache.get('x')\n"
        "        self._cache['x'] = x if past is None else torch.cat([past, x])\n"
        "        return self._cache['x'].sum(0)\n",
    ),
    "of type complex": model("def forward(self, x):\n    return x * 2j"),
    "torch.cond": model(
        "def forward(self, x):\n    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))"
    ),
    "it changes its parameters": model(
        "def __init__(self):\n    super().__init__()\n    self.w = nn.Parameter(torch.ones(4))\n"
        "def forward(self, x):\n    self.w.mul_(2)\n    return x * self.w"
    ),
    ", at line 7 of the file: return torch.from_numpy(x.numpy() + 1)": model(
        "def forward(self, x):\n    return torch.from_numpy(x.numpy() + 1)"
    ),
    "numpy": model("def forward(self, x):\n    return torch.from_numpy(x.numpy() + 1)"),
    "characters beyond letters": model(
        'def __init__(self):\n    super().__init__()\n    self.d = nn.ModuleDict({"a-b": nn.Linear(4, 4)})\n'
        'def forward(self, x):\n    return self.d["a-b"](x)'
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_modules_that_are_refused_name_the_reason_in_a_line(server: CaptureServer, reason: str) -> None:
    captured = of(server, REFUSED[reason])
    (root, *_) = captured.stays_eager
    assert root.path == "" and reason in root.reason and "\n" not in root.reason


FAILING = {
    "load: ValueError: no": HEAD + "raise ValueError('no')",
    "load: SystemExit: 3": HEAD + "raise SystemExit(3)",
    "load: TypeError": model("def __init__(self, x):\n    super().__init__()"),
    "load: Model is not": HEAD + "class Model:\n    pass\ndef get_inputs():\n    return []\n" + TAIL,
    "inputs: NameError": model("def forward(self, x):\n    return x", "[unknown]"),
    "call: RuntimeError: mat1 and mat2": model("def forward(self, x):\n    return x @ x"),
    "call: TypeError": model("def forward(self, x):\n    return x", "[]"),
    "call: forward returns no tensor (NoneType): return tensors": model("def forward(self, x):\n    torch.relu(x)"),
    "call: forward returns no tensor (dict of float, str)": model(
        "def forward(self, x):\n    return {'loss': float(x.sum()), 'unit': 'nats'}"
    ),
}


@pytest.mark.parametrize("message", FAILING)
def test_a_model_that_fails_says_where(server: CaptureServer, message: str) -> None:
    with pytest.raises(CaptureFailed) as failed:
        of(server, FAILING[message])
    assert str(failed.value).startswith(message) and failed.value.stage == message.partition(":")[0]


TIED = model(
    """
def __init__(self):
    super().__init__()
    self.weight = nn.Parameter(torch.zeros(2))
    self.same = self.weight
    self.other = nn.Parameter(torch.zeros(1, 2))
    self.register_buffer("mask", torch.zeros(2, dtype=torch.bool))

def forward(self, x):
    return x * self.weight + self.same + self.other + self.mask
""",
    "[torch.ones(2)]",
)
ONE_TWO = b"\0\0\x80?\0\0\0@"
STATE = {
    "weight": ("F32", [2], ONE_TWO),
    "other": ("BF16", [1, 2], b"\x80?\0@"),
    "mask": ("BOOL", [2], b"\0\1"),
}


def test_a_weight_file_gives_the_model_its_weights(server: CaptureServer) -> None:
    """`same` is the weight under another name, and such files hold a tensor once."""
    graph = whole(of(server, TIED, state=read_weights(state_file(STATE, __metadata__={"format": "pt"}))))
    highest = {item.path: item.tensor.values.high for item in graph.inputs if item.tensor and item.tensor.values}
    assert highest == {"weight": 2.0, "other": 2.0, "mask": 1.0, "": 1.0}
    (_, final) = graph.nodes[-1].results[0], graph.nodes[-1].results[0].values
    assert final is not None and (final.low, final.high) == (3.0, 7.0)


def test_weights_of_another_dtype_are_taken_over_and_that_is_said(server: CaptureServer) -> None:
    (note,) = of(server, TIED, state=read_weights(state_file(STATE))).notes
    assert note == "1 of the 3 weights is bfloat16 in the file and float32 in the model, which takes its values over"
    same = {**STATE, "other": ("F32", [1, 2], ONE_TWO)}
    assert of(server, TIED, state=read_weights(state_file(same))).notes == ()


WRONG_STATES = {
    "missing: other, mask": state_file({"weight": STATE["weight"]}),
    "unexpected: a, b, c, d and 1 more": state_file({**STATE, **{name: ("U8", [0], b"") for name in "abcde"}}),
    "of another shape: other is (2,) in the file and (1, 2) in the model": state_file(
        {**STATE, "other": ("F16", [2], b"abcd")}
    ),
}


@pytest.mark.parametrize("message", WRONG_STATES)
def test_a_weight_file_that_does_not_fit_is_refused_by_name(server: CaptureServer, message: str) -> None:
    with pytest.raises(CaptureFailed) as failed:
        of(server, TIED, state=read_weights(WRONG_STATES[message]))
    assert failed.value.stage == "state" and message in str(failed.value)


def test_waiting_for_a_core_that_another_program_uses_is_counted() -> None:
    core = min(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    core_waits = import_module("whole_models.capture.timing").RunWaits
    other = subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"])
    try:
        os.sched_setaffinity(0, [core])
        waits, until = core_waits(), time.monotonic() + 1.0
        while time.monotonic() < until:
            pass
        assert 0.1 < waits.share() < 1
    finally:
        os.sched_setaffinity(0, before)
        other.kill()
        other.wait()


def test_time_that_is_used_up_is_named(server: CaptureServer) -> None:
    captured = capture(server, PARTS, budget_s=0.001)
    assert captured.compile_ms is None and "used up" in captured.compile_error
    assert captured.eager_ms > 0 and any("used up" in part.reason for part in captured.stays_eager)


class EndedSandbox:
    """A sandbox whose commands all end the same way."""

    name = "ended"
    promises: frozenset[Any] = frozenset()

    def __init__(self, completed: Completed) -> None:
        self.completed = completed

    def run(self, command: Command, *, on_stderr: Any = None, cancel: Any = None) -> Completed:
        for line in self.completed.stderr.splitlines():
            on_stderr(line)
        return self.completed

    def prepare(self, command: Command) -> None:
        pass

    def describe(self) -> dict[str, str]:
        return {}


STDERR = b"progress: capturing\x1b[0m\nKilled by its own hand\n"
ENDS = {
    "did not finish within 70 s (at last: capturing [0m); use a smaller model": {"timed_out": True},
    "needs more than 512 MB (at last: capturing [0m); allow it more (KERNELWRIGHT_MEMORY_MB)": {"out_of_memory": True},
    "wrote more than 64 MiB": {"output_truncated": True, "stdout": b"{"},
    "ended the process (exit status 7; at last: capturing [0m) and must not: Killed by its own hand": {"exit_code": 7},
    "ended the process (killed;": {"exit_code": None},
    "ended the process (exit status 0;": {"stdout": b""},
    "unreadable result": {"stdout": b"hello"},
}


@pytest.mark.parametrize("message", ENDS)
def test_a_run_without_a_result_says_how_it_ended_and_what_to_do(message: str) -> None:
    ended = {"exit_code": 0, "stdout": b"{}", "stderr": STDERR, "wall_s": 1.0, **ENDS[message]}  # type: ignore[dict-item]
    told: list[str] = []
    with pytest.raises(CaptureFailed) as failed:
        capture(EndedSandbox(Completed(**ended)), MLP, budget_s=5.0, memory_mb=512, on_progress=told.append)  # type: ignore[arg-type]
    assert failed.value.stage == "sandbox" and message in str(failed.value) and str(failed.value).isprintable()
    assert told == ["capturing [0m"]


@pytest.mark.docker
def test_a_capture_in_the_sandbox_times_the_model_under_torch_compile(docker_sandbox: DockerSandbox) -> None:
    told: list[str] = []
    source = MLP.replace("x = self.first(x)", "print('hello')\n        x = self.first(x).exp().sin()")
    captured = capture(docker_sandbox, source, budget_s=120.0, on_progress=told.append)
    assert whole(captured).nodes and captured.torch and captured.threads >= 1
    assert told == ["loading the model", "running the model", "capturing", "timing operators", "torch.compile"]
    assert captured.compile_error == "" and captured.compile_ms is not None and captured.compile_s is not None
    assert any("fused" in name for name, _ in captured.kernels_ms)
    assert [name for name, _ in captured.cost_s] == ["load", "eager", "export", "operators", "compile"]


@pytest.mark.docker
def test_a_capture_that_is_cancelled_ends(docker_sandbox: DockerSandbox) -> None:
    cancel = threading.Event()
    source = model("def forward(self, x):\n    while True:\n        pass")
    with pytest.raises(CaptureCancelled):
        capture(docker_sandbox, source, on_progress=lambda text: cancel.set(), cancel=cancel)
