"""What is read of a capture: a valid one, and one in which anything may have been replaced by anything."""

import copy
import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whole_models.aliases import may_alias
from whole_models.graph import CaptureFailed, Node, Ref, TensorFacts, TorchName, read_captured

TENSOR = {
    "shape": [2, 4],
    "stride": [4, 1],
    "dtype": "float32",
    "values": {"low": -1.0, "high": 1.0, "mean": 0.0, "std": 0.5, "zeros": 0.0, "finite": 1.0},
}
NODE = {
    "name": "scaled",
    "operator": "aten.mul.Tensor",
    "args": [{"node": "x"}, {"node": "p_weight"}],
    "kwargs": {},
    "results": [TENSOR],
    "several": False,
    "module": "blocks.0",
    "module_class": "Block",
    "pure": True,
    "eager_ms": 0.25,
}
CAST = {
    **NODE,
    "name": "cast",
    "operator": "aten._to_copy.default",
    "args": [{"node": "scaled"}],
    "kwargs": {"dtype": {"dtype": "float64"}, "device": {"device": "cpu"}},
}
PARTS = {**NODE, "name": "parts", "operator": "aten.split.Tensor", "args": [{"node": "cast"}, 2], "several": True}
PART = {**NODE, "name": "part", "operator": "getitem", "args": [{"node": "parts"}, 1]}
GRAPH = {
    "path": "",
    "module_class": "Model",
    "training": ["", "blocks.0"],
    "calls": 1,
    "arguments": ["tuple", [["leaf"], ["leaf"]]],
    "keywords": ["scale"],
    "result": ["dict", ["y", 2], [["leaf"], ["list", [["leaf"]]]]],
    "inputs": [
        {"name": "p_weight", "kind": "parameter", "path": "weight", "tensor": TENSOR},
        {"name": "c_ones", "kind": "constant", "path": "ones", "tensor": TENSOR, "base64": "AACAPw=="},
        {"name": "x", "kind": "argument", "tensor": TENSOR},
        {"name": "scale", "kind": "scalar", "value": 2.5},
    ],
    "nodes": [NODE, CAST, PARTS, PART],
    "outputs": [{"node": "part"}, {"float": "-inf"}],
    "mutations": [{"path": "seen", "value": "cast"}],
    "eager_ms": 1.5,
}
CAPTURE = {
    "ok": True,
    "torch": "2.13.0",
    "threads": 2,
    "graphs": [GRAPH],
    "stays_eager": [{"path": "blocks.1", "module_class": "Block", "reason": "its control flow depends on values"}],
    "eager_ms": 2.0,
    "compile_ms": 1.0,
    "compile_s": 3.0,
    "compile_error": "",
    "kernels_ms": [["cpp_fused_mul", 0.5]],
    "cost_s": [["load", 0.1]],
    "waited_share": 0.02,
}
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**400),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["a.b", "x", "part", "__import__('os')", "a\nb", "leaf", "aten.mul", "aten.os.system", "\ud800"]),
    st.just([]),
    st.just({}),
    st.just([[]]),
    st.just({"node": "x"}),
    st.just({"node": ["x"]}),
    st.just({"dtype": "os"}),
    st.lists(st.integers(), max_size=3),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, child in inner for found in places(child, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    """A copy of a JSON value with another value at a path."""
    if not path:
        return junk
    made = copy.copy(value)
    made[path[0]] = replaced(value[path[0]], path[1:], junk)
    return made


def without(value: Any, path: tuple[Any, ...]) -> Any:
    """A copy of a JSON value without what is at a path."""
    made = copy.deepcopy(value)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return made


def read(value: Any) -> Any:
    return read_captured(json.dumps(value).encode())


def test_a_capture_is_read_as_it_was_written() -> None:
    captured = read(CAPTURE)
    (graph,) = captured.graphs
    scaled, cast, parts, part = graph.nodes
    assert scaled.args == (Ref("x"), Ref("p_weight")) and scaled.results[0].shape == (2, 4)
    assert dict(cast.kwargs) == {"dtype": TorchName("dtype", "float64"), "device": TorchName("device", "cpu")}
    assert parts.several and graph.tensor_of("parts") is None and graph.tensor_of("part") is not None
    assert part.args == (Ref("parts"), 1) and graph.outputs == (Ref("part"), -math.inf)
    assert graph.users_of["scaled"] == ("cast",) and graph.leaving == {"part", "cast"}
    assert captured.kernels_ms == (("cpp_fused_mul", 0.5),) and captured.stays_eager[0].path == "blocks.1"


def test_a_capture_whose_threads_waited_for_cores_is_noisy() -> None:
    assert not read(CAPTURE).is_noisy
    assert read(CAPTURE | {"waited_share": 0.4}).is_noisy


@pytest.mark.parametrize(("alone_ms", "contradicts"), [(1.2, False), (3.9, False), (4.1, True), (0.9, True)])
def test_a_model_whose_operators_take_another_time_than_its_call_was_disturbed(alone_ms, contradicts) -> None:
    """The call takes 2 ms. Short times are uncertain by themselves."""
    nodes = [NODE | {"eager_ms": alone_ms - 0.75}, *({**each, "eager_ms": 0.25} for each in (CAST, PARTS, PART))]
    captured = read(CAPTURE | {"graphs": [GRAPH | {"nodes": nodes}]})
    assert captured.contradicts is captured.is_noisy is contradicts
    assert not read(CAPTURE | {"graphs": [GRAPH | {"nodes": nodes, "path": "part"}]}).contradicts
    short = [{**each, "eager_ms": each["eager_ms"] / 10} for each in nodes]
    assert not read(CAPTURE | {"eager_ms": 0.2, "graphs": [GRAPH | {"nodes": short}]}).contradicts


@settings(max_examples=300, deadline=None)
@given(path=st.sampled_from(places(CAPTURE)), junk=JUNK)
def test_a_capture_with_anything_in_any_place_is_read_or_refused(path: tuple[Any, ...], junk: Any) -> None:
    """Whatever is read has the forms that those who write source text of it rely on."""
    try:
        captured = read(replaced(CAPTURE, path, junk))
    except CaptureFailed as failed:
        assert str(failed).isprintable()
        return
    for graph in captured.graphs:
        for name in (*graph.input_of, *graph.node_of):
            assert name.isidentifier()
        for node in graph.nodes:
            assert node.operator == "getitem" or (node.operator.startswith("aten.") and node.operator.count(".") == 2)
            assert all(ref in graph.input_of or ref in graph.node_of for ref in node.refs)
            assert graph.tensor_of(node.name) is not None or node.several
        assert len(graph.users_of) == len(graph.inputs) + len(graph.nodes)


@pytest.mark.parametrize("path", [path for path in places(CAPTURE) if path], ids=str)
def test_a_capture_without_a_field_is_read_or_refused(path: tuple[Any, ...]) -> None:
    try:
        read(without(CAPTURE, path))
    except CaptureFailed as failed:
        assert str(failed).isprintable()


FRAGMENT = GRAPH | {
    "arguments": ["tuple", [["leaf"]]],
    "keywords": [],
    "result": ["tuple", [["leaf"], ["leaf"]]],
    "inputs": GRAPH["inputs"][:3],
    "fragment": {
        "fingerprint": "0" * 64,
        "given": ["weight", "", "seen"],
        "returned": [[1, 2]],
        "arguments": ["tuple", [["leaf"], ["leaf"]]],
        "keywords": ["scale"],
        "leaves": GRAPH["inputs"][2:],
    },
}
IN_FRAGMENTS = CAPTURE | {"graphs": [FRAGMENT, FRAGMENT]}


def test_fragments_of_a_module_have_keys_of_their_own_and_the_arguments_of_its_call() -> None:
    captured = read(IN_FRAGMENTS)
    assert [graph.key for graph in captured.graphs] == ["#1", "#2"]
    first = captured.graphs[0]
    tree, keywords, leaves = first.called_with
    assert (tree, keywords) == (GRAPH["arguments"], ("scale",))
    assert [leaf.name for leaf in leaves] == ["x", "scale"] and [leaf.name for leaf in first.leaves] == ["x"]
    assert not read(CAPTURE | {"graphs": [FRAGMENT], "eager_ms": 900.0}).contradicts, "it is not the whole model"


def test_two_graphs_of_one_module_are_refused() -> None:
    with pytest.raises(CaptureFailed, match="two graphs of one module"):
        read(CAPTURE | {"graphs": [GRAPH, GRAPH]})


REFUSED_FRAGMENTS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "names weights that it is not given": (("fragment", "given"), ["", "seen"]),
    "changes a buffer that it is not given": (("fragment", "given"), ["weight", ""]),
    "is given more than it takes": (("fragment", "given"), ["weight", "", "", "seen"]),
    "code for a fingerprint": (("fragment", "fingerprint"), "'); import os"),
    "code for a path": (("fragment", "given", 0), "weight'); import os"),
    "returns an input that it does not have": (("fragment", "returned"), [[0, 3]]),
    "returns in the place of an output that it does not have": (("fragment", "returned"), [[2, 0]]),
    "a negative place": (("fragment", "returned"), [[0, -1]]),
    "a place that is no number": (("fragment", "returned"), [["x", 0]]),
    "a dict for its results": (("result",), ["dict", ["a", "b"], [["leaf"], ["leaf"]]]),
    "results in results": (("result",), ["tuple", [["tuple", [["leaf"], ["leaf"]]]]]),
    "a constant without elements": (("inputs", 1, "base64"), ""),
    "fewer arguments of the call than leaves": (("fragment", "arguments"), ["tuple", [["leaf"]]]),
    "arguments of the call that are a list": (("fragment", "arguments"), ["list", [["leaf"], ["leaf"]]]),
    "code for a keyword": (("fragment", "keywords"), ["a=1, b"]),
    "a weight among the arguments of the call": (("fragment", "leaves", 0), GRAPH["inputs"][0]),
    "a number among its own arguments": (("inputs", 2), GRAPH["inputs"][3] | {"name": "x"}),
}


@pytest.mark.parametrize("case", REFUSED_FRAGMENTS)
def test_a_fragment_that_does_not_fit_is_refused(case: str) -> None:
    path, junk = REFUSED_FRAGMENTS[case]
    assert read(IN_FRAGMENTS)
    with pytest.raises(CaptureFailed) as failed:
        read(replaced(IN_FRAGMENTS, ("graphs", 0, *path), junk))
    assert failed.value.stage == "sandbox" and str(failed.value).isprintable()


REFUSED: dict[str, tuple[tuple[Any, ...], Any]] = {
    "a name twice": (("graphs", 0, "nodes", 1, "name"), "scaled"),
    "the name of an input": (("graphs", 0, "nodes", 0, "name"), "x"),
    "a result before it is computed": (("graphs", 0, "nodes", 0, "args", 0), {"node": "cast"}),
    "an output that nothing computes": (("graphs", 0, "outputs", 0), {"node": "nothing"}),
    "a buffer set to what nothing computes": (("graphs", 0, "mutations", 0, "value"), "nothing"),
    "an operator outside aten": (("graphs", 0, "nodes", 0, "operator"), "os.system.default"),
    "code for an operator": (("graphs", 0, "nodes", 0, "operator"), "aten.mul.Tensor(x)"),
    "code for a name": (("graphs", 0, "nodes", 3, "name"), "x; import os"),
    "code for a path": (("graphs", 0, "inputs", 0, "path"), "weight); import os"),
    "an unknown dtype": (("graphs", 0, "nodes", 1, "kwargs", "dtype"), {"dtype": "load"}),
    "another device": (("graphs", 0, "nodes", 1, "kwargs", "device"), {"device": "cuda"}),
    "code for a keyword": (("graphs", 0, "nodes", 0, "kwargs"), {"a=1, b": 1}),
    "a parameter without a path": (("graphs", 0, "inputs", 0, "path"), ""),
    "no result": (("graphs", 0, "nodes", 0, "results"), []),
    "two results of one tensor": (("graphs", 0, "nodes", 0, "results"), [TENSOR, TENSOR]),
    "a negative size": (("graphs", 0, "inputs", 0, "tensor", "shape", 0), -1),
    "more sizes than strides": (("graphs", 0, "inputs", 0, "tensor", "shape"), [2]),
    "a mean that is no number": (("graphs", 0, "inputs", 0, "tensor", "values", "mean"), math.nan),
    "a time that is no number": (("eager_ms",), math.nan),
    "a negative time": (("graphs", 0, "nodes", 0, "eager_ms"), -1.0),
    "an unknown container": (("graphs", 0, "result"), ["set", [["leaf"]]]),
    "a scalar that is a list": (("graphs", 0, "inputs", 3, "value"), [1]),
    "an operator that is no name in Python": (("graphs", 0, "nodes", 0, "operator"), "aten.random.from"),
    "an argument that has no name in Python": (("graphs", 0, "nodes", 0, "kwargs"), {"from": 1}),
    "a size beyond any memory": (("graphs", 0, "inputs", 0, "tensor", "shape", 0), 10**400),
    "a step beyond any memory": (("graphs", 0, "inputs", 0, "tensor", "stride", 0), 1 << 63),
    "more elements than any memory": (("graphs", 0, "inputs", 0, "tensor", "shape"), [1 << 40, 1 << 40]),
    "more outputs than the result has places": (("graphs", 0, "outputs"), [{"node": "scaled"}] * 9),
    "more places than there are arguments": (("graphs", 0, "arguments"), ["tuple", [["leaf"]] * 9]),
    "arguments that are a list": (("graphs", 0, "arguments"), ["list", [["leaf"]] * 2]),
    "a dict with more keys than values": (("graphs", 0, "result"), ["dict", ["a", "b"], [["leaf"]]]),
    "a dict with a key twice": (("graphs", 0, "result"), ["dict", ["a", "a"], [["leaf"], ["leaf"]]]),
    "an item at no place": (("graphs", 0, "nodes", 0, "operator"), "getitem"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused(case: str) -> None:
    path, junk = REFUSED[case]
    with pytest.raises(CaptureFailed) as failed:
        read(replaced(CAPTURE, path, junk))
    assert failed.value.stage == "sandbox" and str(failed.value).isprintable()


@pytest.mark.parametrize(
    "stdout", [b"", b"{", b"\xff", b"null", b"[]", b'{"ok": true}', b"[" * 100_000, b'{"ok": 1e999999}', b"9" * 5000]
)
def test_what_is_no_capture_is_refused(stdout: bytes) -> None:
    with pytest.raises(CaptureFailed) as failed:
        read_captured(stdout)
    assert failed.value.stage == "sandbox" and str(failed.value).isprintable()


def test_arguments_and_trees_are_not_nested_without_end() -> None:
    deep: Any = ["leaf"]
    for _ in range(40):
        deep = ["tuple", [deep]]
    for path in (("graphs", 0, "arguments"), ("graphs", 0, "nodes", 0, "args", 0)):
        with pytest.raises(CaptureFailed, match="nested too deeply"):
            read(replaced(CAPTURE, path, deep))


def test_a_failure_that_is_reported_is_one_printable_line() -> None:
    with pytest.raises(CaptureFailed) as failed:
        read({"ok": False, "stage": "call", "error": "two\nlines\x1b[0m" + "x" * 9000})
    assert failed.value.stage == "call" and str(failed.value).isprintable() and len(str(failed.value)) < 2100


def test_operators_whose_results_torch_may_put_into_their_arguments_are_known_to() -> None:
    facts = TensorFacts((), (), "float32")
    aliases = {
        f"aten.{schema.name.removeprefix('aten::')}.{schema.overload_name or 'default'}"
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::") and any("Tensor" in str(each.type) for each in schema.returns)
        if any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns)
    }
    nodes = [Node("n", operator, (), (), (facts,), False, "", "", True) for operator in aliases]
    assert len(nodes) > 80
    assert [node.operator for node in nodes if not may_alias(node)] == []
