"""What a part can give to the whole, by region, module and operator, and what it must read and write."""

import math

import pytest

from whole_models.amdahl import by_module, by_operator, by_region, most, tensor_bytes
from whole_models.graph import Captured, Graph, GraphInput, Node, Ref, TensorFacts
from whole_models.regions import find_regions

FACTS = TensorFacts((10, 100), (100, 1), "float32")  # 4000 bytes
ROW = TensorFacts((100,), (1,), "float32")  # 400 bytes


def node(name: str, operator: str, *taken: str, ms: float | None, module: str = "") -> Node:
    args = tuple(Ref(each) for each in taken)
    return Node(name, operator, args, (), (FACTS,), False, module, "Block" if module else "", True, ms)


def model(*, calls: int = 1, path: str = "", timed: bool = True, eager_ms: float = 8.0) -> Captured:
    nodes = (
        node("exp", "aten.exp.default", "x", ms=1.0 if timed else None, module="a.b"),
        node("mul", "aten.mul.Tensor", "exp", "w", ms=3.0 if timed else None, module="a"),
        node("view", "aten.permute.default", "mul", ms=0.0 if timed else None, module="a"),
        node("other", "aten.unheard_of.default", "view", ms=2.0 if timed else None, module="c"),
    )
    inputs = (GraphInput("x", "argument", tensor=FACTS), GraphInput("w", "parameter", path="w", tensor=ROW))
    leaf = ["leaf"]
    graph = Graph(path, "M", (), calls, ["tuple", [leaf]], (), leaf, inputs, nodes, (Ref("other"),), (), None)
    return Captured("2.13.0", 1, (graph,), (), eager_ms, None, None, "", (), ())


def test_a_region_has_its_share_its_bound_and_its_traffic() -> None:
    whole = model()
    (chain,) = (row for row in by_region(whole, find_regions(whole)) if row.kind == "element-wise")
    assert (chain.occurrences, chain.eager_ms, chain.share, chain.most) == (1, 4.0, 0.5, 2.0)
    assert chain.traffic_bytes == 4000 + 400 + 4000
    assert chain.eager_bytes == (4000 + 4000) + (4000 + 400 + 4000)
    assert chain.gb_per_s == pytest.approx(8400 / 4e-3 / 1e9)


def test_a_graph_that_is_called_more_often_counts_as_often() -> None:
    whole = model(calls=3, eager_ms=0.0)
    (chain,) = (row for row in by_region(whole, find_regions(whole)) if row.kind == "element-wise")
    assert (chain.eager_ms, chain.traffic_bytes) == (12.0, 3 * 8400)
    assert chain.share == pytest.approx(12 / 18)
    assert {row.name: row.nodes for row in by_operator(whole)}["aten.exp.default"] == 3


def test_nothing_timed_means_no_share_and_no_rate() -> None:
    whole = model(timed=False)
    rows = by_region(whole, find_regions(whole))
    assert rows and {(row.share, row.most, row.gb_per_s) for row in rows} == {(0.0, 1.0, None)}
    assert {row.share for row in by_module(whole)} == {0.0}


def test_a_module_holds_what_is_in_it() -> None:
    rows = {row.name: (row.nodes, row.eager_ms, row.share) for row in by_module(model())}
    assert rows == {"": (4, 6.0, 0.75), "a": (3, 4.0, 0.5), "c": (1, 2.0, 0.25), "a.b": (1, 1.0, 0.125)}
    assert [row.name for row in by_module(model())] == ["", "a", "c", "a.b"]
    assert [row.name for row in by_module(model(), depth=1)] == ["", "a", "c"]
    assert [row.name for row in by_module(model(), depth=0)] == [""]


def test_modules_of_a_part_have_the_path_of_the_part_before_theirs() -> None:
    assert {row.name for row in by_module(model(path="part.0"))} >= {"", "part", "part.0", "part.0.a", "part.0.a.b"}


def test_operators_by_time() -> None:
    names = [row.name for row in by_operator(model())]
    assert names == ["aten.mul.Tensor", "aten.unheard_of.default", "aten.exp.default", "aten.permute.default"]


@pytest.mark.parametrize(("share", "bound"), [(0.0, 1.0), (0.5, 2.0), (0.75, 4.0), (1.0, math.inf)])
def test_amdahls_law(share: float, bound: float) -> None:
    assert most(share) == bound


def test_elements_that_strides_repeat_are_read_once() -> None:
    assert tensor_bytes(TensorFacts((8, 100), (0, 1), "float16")) == 200
    assert tensor_bytes(TensorFacts((0, 100), (0, 1), "float16")) == 0
    assert tensor_bytes(TensorFacts((), (), "float64")) == 8
