"""Regions: convex, pure, apart within a grain, together with their equals; and which ones real models have."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import small_models
from tests.support.captured_models import captured_model
from whole_models.contraction import fit_together
from whole_models.graph import Argument, Captured, Graph, GraphInput, Node, Ref, TensorFacts
from whole_models.regions import (
    CHAIN_NODES,
    CONVOLUTION_GAIN,
    MODULE_NAMES,
    PRODUCT_GAIN,
    WORDS_CHARS,
    Region,
    choose,
    counted_ms,
    find_regions,
    grains,
    is_bare_product,
    signature,
    to_gain_ms,
    with_a_block,
)

FACTS = TensorFacts((4, 4), (4, 1), "float32")
TWO = ("aten.add.Tensor", "aten.mul.Tensor", "aten.matmul.default")
ONE = (
    "aten.exp.default", "aten.mean.dim", "aten.layer_norm.default", "aten.softmax.int", "aten.permute.default",
    "aten.clone.default", "aten.unheard_of.default", "aten.scaled_dot_product_attention.default",
)  # fmt: skip


def node(name: str, operator: str, *taken: str, pure: bool = True, ms: float | None = 1.0, module: str = "") -> Node:
    """A call of an operator; of `w`, a weight, too, if it is a linear layer."""
    args: list[Argument] = [Ref(each) for each in taken]
    if operator == "aten.linear.default":
        args.append(Ref("w"))
    return Node(name, operator, tuple(args), (), (FACTS,), False, module, "Block" if module else "", pure, ms)


def graph(*nodes: Node, leaving: Iterable[str] | None = None) -> Graph:
    inputs = (
        GraphInput("x", "argument", tensor=FACTS),
        GraphInput("w", "parameter", path="layer.weight", tensor=FACTS),
        GraphInput("b", "buffer", path="layer.mask", tensor=FACTS),
    )
    outputs = tuple(Ref(name) for name in leaving or (nodes[-1].name,))
    return Graph("", "Model", (), 1, ["tuple", [["leaf"]]], (), ["leaf"], inputs, nodes, outputs, (), None)


def captured(*graphs: Graph) -> Captured:
    return Captured("2.13.0", 1, graphs, (), 0.0, None, None, "", (), ())


def regions_of(*nodes: Node, leaving: Iterable[str] | None = None) -> list[Region]:
    return list(find_regions(captured(graph(*nodes, leaving=leaving)), min_share=0))


def sets(regions: Iterable[Region], kind: str) -> set[str]:
    """The nodes of each occurrence of the regions of a kind."""
    return {" ".join(each.nodes) for region in regions if region.kind == kind for each in region.occurrences}


def is_convex(of: Graph, members: set[str]) -> bool:
    """By the definition: follow every path that leaves."""
    waiting = [user for name in members for user in of.users_of[name] if user not in members]
    seen = set(waiting)
    while waiting:
        for user in of.users_of[waiting.pop()]:
            if user in members:
                return False
            if user not in seen:
                seen.add(user)
                waiting.append(user)
    return True


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Random graphs, with views, impure nodes, nodes with two results, weights, and submodules."""
    nodes: list[Node] = []
    values = ["x", "w", "b"]
    for number in range(draw(st.integers(1, 40))):
        name = f"n{number}"
        module = draw(st.sampled_from(["", "layers.0", "layers.1", "layers.1.norm"]))
        pure = draw(st.integers(0, 9)) > 0
        recent = st.sampled_from(values[-8:] if draw(st.booleans()) else values)
        if draw(st.integers(0, 9)) == 0:
            taken = draw(recent)
            both = replace(node(name, "aten.split.Tensor", taken, pure=pure), several=True, results=(FACTS, FACTS))
            items = [replace(node(f"{name}_{i}", "getitem"), args=(Ref(name), i), pure=pure) for i in range(2)]
            nodes += [both, *items]
            values += [item.name for item in items]
            continue
        operator = draw(st.sampled_from((*TWO, *ONE, "aten.linear.default")))
        taken_names = [draw(recent) for _ in range(2 if operator in TWO else 1)]
        nodes.append(node(name, operator, *taken_names, pure=pure, module=module))
        values.append(name)
    leaving = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
    return graph(*nodes, leaving=leaving)


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_regions_of_a_grain_are_convex_pure_apart_and_computable_together(of: Graph) -> None:
    for found in grains(captured(of), of).values():
        assert fit_together(of, found)
        for members in found:
            assert is_convex(of, set(members))
            assert all(of.node_of[name].pure for name in members)
        for one, other in combinations(found, 2):
            assert set(one).isdisjoint(other)


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_what_a_region_takes_and_gives_is_all_that_passes_its_edge(of: Graph) -> None:
    regions = find_regions(captured(of), min_share=0)
    for occurrence in (each for region in regions for each in region.occurrences):
        inside = set(occurrence.nodes)
        taken = {ref for name in inside for ref in of.node_of[name].refs} - inside
        assert taken == {*occurrence.inputs, *(name for _, name in occurrence.weights)}
        assert occurrence.inputs and all(of.tensor_of(name) is not None for name in occurrence.inputs)
        needed = {name for name in inside if name in of.leaving or not inside.issuperset(of.users_of[name])}
        assert occurrence.outputs and set(occurrence.outputs) == {
            name for name in needed if not of.node_of[name].several
        }
        for name in inside:
            if of.node_of[name].several:
                assert inside.issuperset(of.users_of[name])
    assert len({region.name for region in regions}) == len(regions)
    assert all(re.fullmatch(r"r\d\d+_[a-z0-9_]+", region.name) for region in regions)


@given(graphs())
@settings(max_examples=50, deadline=None)
def test_the_chosen_share_no_node_and_can_be_computed_together(of: Graph) -> None:
    whole = captured(of)
    chosen = choose(whole, find_regions(whole, min_share=0))
    assert fit_together(of, [each.nodes for region in chosen for each in region.occurrences])
    assert all(region.nodes == region.occurrences[0].nodes for region in chosen)


@given(graphs(), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_names_of_nodes_do_not_matter(of: Graph, random: object) -> None:
    names = [item.name for item in of.nodes]
    shuffled = [f"v{number}" for number in range(len(names))]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    new = dict(zip(names, shuffled, strict=True))

    def renamed(argument: Argument) -> Argument:
        return Ref(new.get(argument.name, argument.name)) if isinstance(argument, Ref) else argument

    other = replace(
        of,
        nodes=tuple(
            replace(each, name=new[each.name], args=tuple(map(renamed, each.args))) for each in of.nodes
        ),
        outputs=tuple(map(renamed, of.outputs)),
    )  # fmt: skip
    ours, theirs = (find_regions(captured(each), min_share=0) for each in (of, other))
    for one, two in zip(ours, theirs, strict=True):
        assert (one.name, one.kind, one.eager_ms) == (two.name, two.kind, two.eager_ms)
        assert [tuple(new[name] for name in each.nodes) for each in one.occurrences] == [
            each.nodes for each in two.occurrences
        ]
        assert {signature(of, each) for each in one.occurrences} == {signature(other, each) for each in two.occurrences}
        assert len({signature(of, each) for each in one.occurrences}) == 1


def test_two_convex_sets_that_need_each_other_do_not_fit_together() -> None:
    of = graph(
        node("a1", "aten.exp.default", "x"), node("b2", "aten.exp.default", "x"),
        node("b1", "aten.exp.default", "a1"), node("a2", "aten.exp.default", "b2"),
        leaving=("a2", "b1"),
    )  # fmt: skip
    assert fit_together(of, [("a1", "a2")]) and fit_together(of, [("b1", "b2")])
    assert not fit_together(of, [("a1", "a2"), ("b1", "b2")])
    assert not fit_together(of, [("a1", "b1"), ("b1", "a2")])


def test_a_large_product_alone_is_told_from_one_with_work_around_it() -> None:
    nodes = (
        node("first", "aten.linear.default", "x"),
        node("gelu", "aten.gelu.default", "first"),
        node("second", "aten.linear.default", "gelu"),
        node("view", "aten.view.default", "second", ms=0.0),
    )
    whole = captured(graph(*nodes))
    regions = find_regions(whole)
    bare = {region.nodes for region in regions if is_bare_product(whole, region)}
    assert bare == {("second",)}
    to_gain = {region.nodes: to_gain_ms(whole, region) for region in regions}
    assert to_gain.pop(("second",)) == pytest.approx(PRODUCT_GAIN)
    assert to_gain.pop(("gelu",)) == pytest.approx(1.0), "what is around products, alone"
    assert sorted(to_gain.values()) == pytest.approx([1.0 + PRODUCT_GAIN, 1.0 + 2 * PRODUCT_GAIN]), "and with them"


@pytest.mark.parametrize(
    ("shape", "more", "share"),
    [
        ((64, 32, 3, 3), (), CONVOLUTION_GAIN),
        ((64, 32, 3, 3), ((1, 1), (1, 1)), CONVOLUTION_GAIN),
        ((64, 32, 3, 3), ((2, 2), (1, 1)), PRODUCT_GAIN),
        ((64, 32, 3, 3), ((1, 1), (1, 1), (2, 2)), PRODUCT_GAIN),
        ((64, 16, 3, 3), ((1, 1), (1, 1), (1, 1), 2), PRODUCT_GAIN),
        ((64, 32, 5, 5), (), PRODUCT_GAIN),
    ],
)
def test_of_a_convolution_more_can_be_saved_where_there_is_an_algorithm_with_less_arithmetic(
    shape: tuple[int, ...], more: tuple[Any, ...], share: float
) -> None:
    facts = TensorFacts(shape, (9 * shape[1], 9, 3, 1), "float32")
    inputs = (
        GraphInput("x", "argument", tensor=FACTS),
        GraphInput("w", "parameter", path="layer.weight", tensor=facts),
    )
    convolved = replace(node("conv", "aten.conv2d.default"), args=(Ref("x"), Ref("w"), None, *more))
    whole = captured(replace(graph(convolved, node("relu", "aten.relu.default", "conv")), inputs=inputs))
    (region,) = (each for each in find_regions(whole) if each.nodes == ("conv", "relu"))
    assert to_gain_ms(whole, region) == pytest.approx(1.0 + share)
    alone = captured(replace(graph(convolved), inputs=inputs))
    (region, *_) = find_regions(alone)
    assert region.nodes == ("conv",) and is_bare_product(alone, region) is (share == PRODUCT_GAIN)


def test_a_chain_ends_where_a_path_leaves_it_and_comes_back() -> None:
    found = regions_of(
        node("exp", "aten.exp.default", "x"),
        node("linear", "aten.linear.default", "exp"),
        node("add", "aten.add.Tensor", "linear", "exp"),
        node("mean", "aten.mean.dim", "add"),
    )
    assert sets(found, "element-wise") == {"exp"}
    assert sets(found, "reduction") == {"add mean"}
    assert "linear" in sets(found, "around a matrix product")


def test_views_join_members_and_stay_outside_at_the_edge() -> None:
    found = regions_of(
        node("first", "aten.permute.default", "x"),
        node("exp", "aten.exp.default", "first"),
        node("between", "aten.permute.default", "exp"),
        node("neg", "aten.neg.default", "between"),
        node("last", "aten.permute.default", "neg"),
    )
    assert sets(found, "element-wise") == {"exp between neg"}
    (chain,) = (region for region in found if region.kind == "element-wise")
    assert chain.occurrences[0].inputs == ("first",) and chain.occurrences[0].outputs == ("neg",)


def test_views_and_copies_alone_are_no_region() -> None:
    assert regions_of(
        node("view", "aten.permute.default", "x"),
        node("copy", "aten.clone.default", "view"),
        node("impure", "aten.exp.default", "copy", pure=False),
    ) == []  # fmt: skip


def test_a_chain_has_a_bounded_number_of_nodes() -> None:
    names = [f"n{number}" for number in range(3 * CHAIN_NODES)]
    nodes = [node(name, "aten.exp.default", before) for name, before in zip(names, ["x", *names], strict=False)]
    chains = [each for each in sets(regions_of(*nodes), "element-wise") if len(each.split()) < len(names)]
    assert {len(each.split()) for each in chains} == {CHAIN_NODES}


@pytest.mark.parametrize(
    ("operators", "words"),
    [
        (["exp", "neg"], "exp_neg"),
        (["exp", "neg", "exp", "tanh", "sin"], "exp_neg_tanh"),
        (["bitwise_right_shift", "bitwise_left_shift"], "bitwise_right_shift_bitwise_left_shift"),
        (["bitwise_right_shift", "bitwise_left_shift", "sin"], "bitwise_right_shift_bitwise_left_shift_s"),
        (["bitwise_right_shift", "hardsigmoid", "bitwise_xor"], "bitwise_right_shift_hardsigmoid_bitwise"),
        (["bitwise_right_shift", "hardsigmoid", "bitwise_xor"] * 10, "bitwise_right_shift_hardsigmoid_bitwise"),
    ],
)
def test_a_chain_is_named_by_its_first_three_operators_within_a_length(operators: list[str], words: str) -> None:
    """What is cut off leaves no `_` at the end."""
    names = [f"n{number}" for number in range(len(operators))]
    links = zip(names, operators, ["x", *names], strict=False)
    (chain,) = regions_of(*(node(name, f"aten.{operator}.default", before) for name, operator, before in links))
    assert chain.name == f"r01_{words}"
    assert len(words) <= WORDS_CHARS


@pytest.mark.parametrize(
    ("of_class", "words"),
    [
        ("RMSNormAndMLP", "rms_norm_and_mlp"),
        ("GroupedQueryAttentionWithRotaryEmbedding", "grouped_query_attention_with_rotary_embe"),
        ("GroupedQueryAttentionWithRotationalEmbedding", "grouped_query_attention_with_rotational"),
    ],
)
def test_a_block_is_named_by_its_modules_class_within_a_length(of_class: str, words: str) -> None:
    nodes = [
        node("first", "aten.linear.default", "x", module="part"),
        node("second", "aten.linear.default", "first", module="part"),
    ]
    found = regions_of(*(replace(each, module_class=of_class) for each in nodes))
    (block,) = (region for region in found if region.kind == "block")
    assert block.name.split("_", 1)[1] == words
    assert len(words) <= WORDS_CHARS


@pytest.mark.parametrize(("of_class", "words"), [("Block", "mean_sub_mul"), ("RMSNorm", "rms_norm")])
def test_a_normalization_has_the_name_of_a_module_that_is_one(of_class: str, words: str) -> None:
    nodes = [
        node("a", "aten.mean.dim", "x"),
        node("b", "aten.sub.Tensor", "x", "a"),
        node("c", "aten.mul.Tensor", "b", "b"),
        node("d", "aten.rsqrt.default", "c"),
        node("e", "aten.mul.Tensor", "b", "d"),
    ]
    found = regions_of(*(replace(each, module="part", module_class=of_class) for each in nodes))
    (norm,) = (region for region in found if region.kind == "normalization")
    assert norm.name.split("_", 1)[1] == words


def test_equal_regions_of_several_graphs_have_one_form_and_names_of_weights() -> None:
    parts = [
        Graph(
            **{
                **vars(graph(node(f"{path}_mul", "aten.mul.Tensor", "x", f"{path}_w"))),
                "path": path,
                "inputs": (
                    GraphInput("x", "argument", tensor=FACTS),
                    GraphInput(f"{path}_w", "parameter", f"scale_of_{path}", FACTS),
                ),
            }
        )
        for path in ("a", "b")
    ]
    first, second = (region for region in find_regions(captured(*parts)) if region.kind == "element-wise")
    assert first.form == second.form and (first.graph, second.graph) == ("a", "b")
    assert first.occurrences[0].weights[0][0] == second.occurrences[0].weights[0][0]
    assert (first.occurrences[0].weights[0][1], second.occurrences[0].weights[0][1]) == ("a_w", "b_w")


def test_a_value_that_many_take_joins_none_of_them() -> None:
    branches = [node(f"exp{n}", "aten.exp.default", "hub") for n in range(6)]
    ends = [node(f"out{n}", "aten.linear.default", f"exp{n}") for n in range(6)]
    found = regions_of(node("hub", "aten.neg.default", "x"), *branches, *ends, leaving=[each.name for each in ends])
    assert sets(found, "element-wise") == {"hub", *(each.name for each in branches)}


def test_a_node_that_is_not_pure_or_not_known_joins_no_chain() -> None:
    found = regions_of(
        node("exp", "aten.exp.default", "x"),
        node("noise", "aten.mul.Tensor", "exp", "exp", pure=False),
        node("neg", "aten.neg.default", "noise"),
        node("odd", "aten.unheard_of.default", "neg"),
        node("tanh", "aten.tanh.default", "odd"),
    )
    assert sets(found, "element-wise") == {"exp", "neg", "tanh"}
    assert sets(found, "whole") == set()


def test_several_results_that_leave_as_one_are_in_no_region() -> None:
    both = replace(node("both", "aten.split.Tensor", "exp"), several=True, results=(FACTS, FACTS))
    found = regions_of(node("exp", "aten.exp.default", "x"), both, leaving=("both",))
    assert [region.nodes for region in found] == [("exp",)]


def test_a_region_gives_no_view_of_what_it_takes() -> None:
    of = [
        node("view", "aten.permute.default", "x", module="part"),
        node("linear", "aten.linear.default", "view", module="part"),
    ]
    kinds = {region.kind for region in regions_of(*of, leaving=("view", "linear"))}
    assert kinds == {"around a matrix product"}  # neither the whole nor the block
    assert "whole" in {region.kind for region in regions_of(*of)}


def test_what_depends_on_weights_alone_is_no_region() -> None:
    found = regions_of(node("exp", "aten.exp.default", "w"), node("neg", "aten.neg.default", "exp"))
    assert found == []


def test_a_gate_comes_along_with_the_product_of_the_same_input() -> None:
    found = regions_of(
        node("gate", "aten.linear.default", "x"),
        node("silu", "aten.silu.default", "gate"),
        node("up", "aten.linear.default", "x"),
        node("mul", "aten.mul.Tensor", "silu", "up"),
        node("down", "aten.linear.default", "mul"),
    )
    assert sets(found, "around a matrix product") == {"gate silu up mul", "down"}


def test_a_product_whose_value_also_goes_elsewhere_stays_alone() -> None:
    found = regions_of(
        node("linear", "aten.linear.default", "x"), node("exp", "aten.exp.default", "linear"),
        leaving=("linear", "exp"),
    )  # fmt: skip
    assert sets(found, "around a matrix product") == {"linear"}
    assert sets(found, "element-wise") == {"exp"}


def test_attention_that_is_written_out_is_one_region() -> None:
    found = regions_of(
        node("keys", "aten.permute.default", "x"),
        node("scores", "aten.matmul.default", "x", "keys"),
        node("masked", "aten.add.Tensor", "scores", "b"),
        node("weights", "aten.softmax.int", "masked"),
        node("mixed", "aten.matmul.default", "weights", "x"),
        node("merged", "aten.permute.default", "mixed"),
        node("copy", "aten.clone.default", "merged"),
        node("linear", "aten.linear.default", "copy"),
    )
    assert sets(found, "attention") == {"keys scores masked weights mixed merged copy"}
    assert sets(found, "around a matrix product") == {"linear"}
    assert sets(found, "normalization") == {"masked weights"}


def test_equal_regions_are_one_and_unequal_ones_are_not() -> None:
    def place(suffix: str, taken: str, **change: object) -> list[Node]:
        exp = replace(node(f"exp{suffix}", "aten.exp.default", taken), **change)
        return [exp, node(f"linear{suffix}", "aten.linear.default", exp.name)]

    equal = [*place("1", "x"), *place("2", "linear1")]
    (region,) = (each for each in regions_of(*equal) if each.kind == "element-wise")
    assert [each.nodes for each in region.occurrences] == [("exp1",), ("exp2",)]
    assert region.eager_ms == 2
    other_shape = replace(FACTS, shape=(2, 8), stride=(8, 1))
    for change in (
        {"results": (other_shape,)},
        {"results": (replace(FACTS, stride=(1, 4)),)},
        {"results": (replace(FACTS, dtype="float16"),)},
        {"args": (Ref("linear1"), 2)},
        {"kwargs": (("out_dtype", 1),)},
        {"operator": "aten.tanh.default"},
    ):
        found = regions_of(*place("1", "x"), *place("2", "linear1", **change))
        assert [len(each.occurrences) for each in found if each.kind == "element-wise"] == [1, 1], change


def test_one_and_one_point_zero_and_true_are_different_arguments() -> None:
    nodes = [
        replace(node(f"n{n}", "aten.mul.Tensor"), args=(Ref("x"), value)) for n, value in enumerate((1, 1.0, True))
    ]
    linears = [node(f"linear{n}", "aten.linear.default", f"n{n}") for n in range(3)]
    found = regions_of(*nodes, *linears, leaving=[each.name for each in linears])
    assert sorted(len(each.occurrences) for each in found if each.kind == "element-wise") == [1, 1, 1]


def test_constants_must_be_equal_and_weights_need_not() -> None:
    def with_inputs(kind: str, *values: str) -> list[Region]:
        nodes = [
            node("a1", "aten.add.Tensor", "x", "c0"), node("l1", "aten.linear.default", "a1"),
            node("a2", "aten.add.Tensor", "l1", "c1"), node("l2", "aten.linear.default", "a2"),
        ]  # fmt: skip
        extra = tuple(
            GraphInput(f"c{number}", kind, path=f"made.{number}.c", tensor=FACTS, base64=value)
            for number, value in enumerate(values)
        )
        of = graph(*nodes)
        found = find_regions(captured(replace(of, inputs=(*of.inputs, *extra))), min_share=0)
        return [each for each in found if each.kind == "element-wise"]

    assert [len(each.occurrences) for each in with_inputs("constant", "AAAA", "AAAB")] == [1, 1]
    (same,) = with_inputs("constant", "AAAA", "AAAA")
    assert len(same.occurrences) == 2
    (weights,) = with_inputs("buffer", "", "")
    assert [each.weights for each in weights.occurrences] == [(("c", "c0"),), (("c", "c1"),)]


def test_small_shares_are_left_out_and_nothing_is_where_nothing_was_timed() -> None:
    nodes = [
        node("exp", "aten.exp.default", "x", ms=0.1),
        node("linear", "aten.linear.default", "exp", ms=99.8),
        node("neg", "aten.neg.default", "linear", ms=0.1),
    ]
    assert "neg" not in {name for r in find_regions(captured(graph(*nodes))) for name in r.nodes if len(r.nodes) == 1}
    untimed = captured(graph(*(replace(each, eager_ms=None) for each in nodes)))
    assert {len(region.nodes) for region in find_regions(untimed)} == {1, 2, 3}
    assert counted_ms(untimed) == 0


def test_views_of_two_tensors_make_no_more_paths_than_views() -> None:
    """A capture is a claim: what no operator of torch does must not make the search for regions endless."""
    nodes = []
    before = ("x", "b")
    for number in range(200):
        pair = [f"l{number}", f"r{number}"]
        nodes += [node(name, "aten.permute.default", *before) for name in pair]
        before = (pair[0], pair[1])
    nodes.append(node("exp", "aten.exp.default", before[0]))
    assert sets(regions_of(*nodes), "element-wise") == {"exp"}


def test_the_choice_takes_alternatives_once_and_keeps_occurrences_that_fit() -> None:
    nodes = [
        node("linear1", "aten.linear.default", "x"), node("exp1", "aten.exp.default", "linear1"),
        node("noise", "aten.bernoulli.default", "exp1", pure=False), node("exp2", "aten.exp.default", "noise"),
    ]  # fmt: skip
    whole = captured(graph(*nodes))
    regions = find_regions(whole, min_share=0)
    assert sets(regions, "element-wise") == {"exp1", "exp2"}
    chosen = choose(whole, regions)
    assert sets(chosen, "around a matrix product") == {"linear1 exp1"}
    assert sets(chosen, "element-wise") == {"exp2"}
    assert [region.eager_ms for region in chosen if region.kind == "element-wise"] == [1.0]


def test_no_weight_hides_what_every_module_has() -> None:
    public = {name for name in dir(torch.nn.Module()) if not name.startswith("_")}
    assert public <= MODULE_NAMES


@pytest.fixture(scope="module")
def found() -> Callable[[str], tuple[Captured, tuple[Region, ...]]]:
    """The regions of one of the small models, each captured once."""
    kept: dict[str, tuple[Captured, tuple[Region, ...]]] = {}

    def regions(name: str) -> tuple[Captured, tuple[Region, ...]]:
        if name not in kept:
            torch.manual_seed(0)
            whole = captured_model(*getattr(small_models, name)())
            kept[name] = (whole, find_regions(whole, min_share=0))
        return kept[name]

    return regions


Found = Callable[[str], tuple[Captured, tuple[Region, ...]]]


def operators(whole: Captured, region: Region) -> str:
    """The operators of a region, without views."""
    words = [whole.graphs[0].node_of[name].operator.split(".") for name in region.nodes]
    views = ("getitem", "view", "permute", "unbind", "split", "transpose", "slice", "_unsafe_view")
    return " ".join(word[1] for word in words if len(word) > 1 and word[1] not in views)


def test_the_equal_layers_of_a_decoder_are_one_region_of_each_grain(found: Found) -> None:
    whole, regions = found("decoder")
    by_operators = {operators(whole, region): (region.kind, len(region.occurrences)) for region in regions}
    rotary = "mul mul sub mul mul add cat"
    norm = "pow mean add rsqrt mul mul"
    assert by_operators[f"{rotary} {rotary} scaled_dot_product_attention clone"] == ("attention", 3)
    assert by_operators["linear silu linear mul"] == ("around a matrix product", 3)
    assert by_operators["linear silu linear mul linear"] == ("block", 3)
    assert by_operators[f"add {norm}"] in [("normalization", 5), ("normalization", 1)]
    assert by_operators[f"embedding {norm}"] == ("normalization", 1)
    assert {name.split("_", 1)[1] for name in (region.name for region in regions)} >= {"rms_norm", "layer", "swi_glu"}
    layers = [region for region in regions if region.kind == "block" and region.name.endswith("_layer")]
    assert [len(region.occurrences) for region in layers] == [3]
    assert layers[0].occurrences[2].weights[1] == (
        "attention_query_key_value_weight",
        "p_layers_2_attention_query_key_value_weight",
    )
    assert layers[0].occurrences[0].weights[0][0] == layers[0].occurrences[1].weights[0][0] == "attention_norm_weight"


@pytest.mark.parametrize("name", ["decoder", "images", "clicks", "written_out"])
def test_the_choice_covers_nearly_all_that_real_models_compute(found: Found, name: str) -> None:
    whole, regions = found(name)
    chosen = choose(whole, regions)
    assert sum(region.eager_ms for region in chosen) > 0.9 * counted_ms(whole)
    assert not {region.kind for region in chosen} & {"block", "whole"}


@pytest.mark.parametrize("name", ["decoder", "images", "clicks", "written_out"])
def test_beside_the_choice_at_most_one_block_is_offered_in_the_order_of_shares(found: Found, name: str) -> None:
    whole, regions = found(name)
    parts, offered = choose(whole, regions), with_a_block(whole, regions)
    assert [each for each in offered if each in parts] == list(parts)
    assert [each.kind for each in offered if each not in parts] in ([], ["block"])
    assert [each.name for each in offered] == sorted(each.name for each in offered)


def test_the_layer_of_a_decoder_is_offered_beside_its_parts(found: Found) -> None:
    whole, regions = found("decoder")
    (layer,) = set(with_a_block(whole, regions)) - set(choose(whole, regions))
    assert layer.name.endswith("_layer")
    assert len(layer.occurrences) == 3


def test_a_block_that_repeats_is_offered_before_one_that_takes_longer() -> None:
    def block(module: str, before: str, ms: float) -> list[Node]:
        first, second, last = (f"{module.replace('.', '')}{letter}" for letter in "abc")
        return [
            node(first, "aten.linear.default", before, ms=ms, module=module),
            node(second, "aten.linear.default", first, ms=ms, module=module),
            node(last, "aten.exp.default", second, ms=ms, module=module),
        ]

    def offered(*nodes: Node) -> list[tuple[str, ...]]:
        whole = captured(graph(*nodes))
        regions = find_regions(whole, min_share=0)
        parts = choose(whole, regions)
        return [each.nodes for each in with_a_block(whole, regions) if each not in parts]

    layers = [*block("layers.0", "x", 1.0), *block("layers.1", "layers0c", 1.0)]
    head = [*block("head", "layers1c", 9.0), node("last", "aten.sigmoid.default", "headc", ms=1.0, module="head")]
    assert offered(*layers, *head) == [("layers0a", "layers0b", "layers0c")]
    assert offered(*block("head", "x", 9.0), node("last", "aten.linear.default", "headc")) == [
        ("heada", "headb", "headc")
    ]
    assert (
        offered(node("only", "aten.linear.default", "x", module="head"), node("last", "aten.linear.default", "only"))
        == []
    )


def test_convolutions_take_their_batch_norm_along(found: Found) -> None:
    whole, regions = found("images")
    blocks = {operators(whole, region) for region in choose(whole, regions)}
    assert {"conv2d _native_batch_norm_legit_no_training relu", "linear", "log_softmax"} <= blocks


def test_a_small_product_takes_its_neighbours_and_bags_are_one_region(found: Found) -> None:
    whole, regions = found("clicks")
    chosen = {operators(whole, region): len(region.occurrences) for region in choose(whole, regions)}
    assert chosen["stack bmm index cat"] == 1
    assert chosen["arange embedding_bag"] == 5
