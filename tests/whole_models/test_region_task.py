"""The task of a region: a valid op that computes what the region computes, on inputs like those that were recorded."""

import ast
import base64
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from evaluator.evaluate import Effort, evaluate
from evaluator.platforms import load_platform
from sandbox.base import Sandbox
from tasks.declarations import declarations_of
from tasks.load import task_from_source
from tasks.outcomes import Verdict
from tests.support import small_models
from tests.support.captured_models import captured_and_values
from whole_models.capture.timing import values_of
from whole_models.graph import Captured, Graph, GraphInput, Node, Ref, TensorFacts, Values
from whole_models.region_task import region_task, tensor_text
from whole_models.regions import Occurrence, Region, find_regions

MODELS = ("decoder", "images", "clicks", "written_out")
Found = Callable[[str], tuple[Captured, dict[str, Any], tuple[Region, ...]]]


@pytest.fixture(scope="module")
def found() -> Found:
    """A small model as it was captured, the values of its nodes, and all its regions; each captured once."""
    kept: dict[str, tuple[Captured, dict[str, Any], tuple[Region, ...]]] = {}

    def regions(name: str) -> tuple[Captured, dict[str, Any], tuple[Region, ...]]:
        if name not in kept:
            torch.manual_seed(0)
            whole, values = captured_and_values(*getattr(small_models, name)())
            kept[name] = (whole, values, find_regions(whole, min_share=0))
        return kept[name]

    return regions


def run(source: str) -> dict[str, Any]:
    """What the source of a task defines."""
    defined: dict[str, Any] = {}
    exec(compile(source, "task.py", "exec"), defined)
    return defined


def results(model: torch.nn.Module, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        given = model(*inputs)
    return given if isinstance(given, tuple) else (given,)


def form(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype


@pytest.mark.parametrize("name", MODELS)
def test_with_the_recorded_weights_and_inputs_it_gives_what_the_graph_gives_in_every_place(
    found: Found, name: str
) -> None:
    whole, values, regions = found(name)
    assert len(regions) > 4
    for region in regions:
        model = run(region_task(whole, region, model_name=name))["Model"]()
        for place in region.occurrences:
            weights = {local: values[path] for local, path in place.weights}
            assert {local: form(each) for local, each in model.state_dict().items()} == {
                local: form(each) for local, each in weights.items()
            }
            model.load_state_dict(weights)
            outputs = results(model, [values[each] for each in place.inputs])
            assert len(outputs) == len(place.outputs)
            for got, wanted in zip(outputs, (values[each] for each in place.outputs), strict=True):
                assert form(got) == form(wanted), region.name
                assert torch.allclose(got, wanted, rtol=1e-5, atol=1e-6, equal_nan=True), region.name


@pytest.mark.parametrize("name", MODELS)
def test_it_is_an_ordinary_task_whose_inputs_have_the_recorded_form(found: Found, name: str) -> None:
    whole, values, regions = found(name)
    for region in regions:
        source = region_task(whole, region, model_name=name)
        task = task_from_source(source, name=region.name)
        assert task.dtype == "float32" and task.source == source
        defined = run(source)
        torch.manual_seed(1)
        model, inputs = defined["Model"](), defined["get_inputs"]()
        assert defined["get_init_inputs"]() == []
        assert list(map(form, inputs)) == [form(values[each]) for each in region.occurrences[0].inputs], region.name
        for got in results(model, inputs):
            assert not got.is_floating_point() or bool(got.isfinite().all()), region.name
        torch.manual_seed(1)
        again = [defined["Model"]().state_dict(), defined["get_inputs"]()]
        assert all(torch.equal(each, again[0][key]) for key, each in model.state_dict().items())
        assert all(map(torch.equal, inputs, again[1]))


@pytest.mark.docker
@pytest.mark.parametrize(
    ("model", "word"), [("decoder", "attention"), ("clicks", "embedding_bag"), ("images", "batch_norm_add_relu")]
)
def test_the_referee_takes_it_as_an_op(found: Found, shared_docker_sandbox: Sandbox, model: str, word: str) -> None:
    """It judges the op's own code as a candidate; all its input families meet weights, layouts and indexes."""
    whole, _, regions = found(model)
    region = next(each for each in regions if word in each.name and each.kind not in ("block", "whole"))
    source = region_task(whole, region, model_name=model)
    candidate = source.replace("class Model(", "class ModelNew(").split("def get_inputs")[0]
    effort = Effort(wall_s=120, memory_mb=4096, measure_budget_s=0.2, baselines=("eager",))
    task = task_from_source(source, name=region.name)
    judged = evaluate(task, candidate, sandbox=shared_docker_sandbox, platform=load_platform("cpu"), effort=effort)
    assert judged.verdict is Verdict.PASSED, judged


def test_parameters_and_buffers_are_what_they_were(found: Found) -> None:
    whole, _, regions = found("images")
    region = next(each for each in regions if "batch_norm" in each.name)
    model = run(region_task(whole, region, model_name="images"))["Model"]()
    kinds = {whole.graphs[0].input_of[path].kind for _, path in region.occurrences[0].weights}
    assert kinds == {"parameter", "buffer"}
    for local, path in region.occurrences[0].weights:
        holder = dict(
            model.named_parameters() if whole.graphs[0].input_of[path].kind == "parameter" else model.named_buffers()
        )
        assert local in holder


def test_the_docstring_says_where_it_is_from_and_how_much_it_takes(found: Found) -> None:
    whole, _, regions = found("decoder")
    region = next(each for each in regions if each.kind == "attention")
    text = ast.get_docstring(ast.parse(region_task(whole, region, model_name="decoder")))
    assert text is not None
    first, where = text.split("\n")[0], text.split("\n")[2]
    assert first.startswith(f"{region.name} of decoder: attention, 3 times in a call, ")
    assert first.endswith("% of its time under eager.")
    assert where == "The first is in layers.0.attention (Attention)."


def test_the_docstring_says_what_feeds_each_input_and_which_operators_take_the_time(found: Found) -> None:
    whole, _, regions = found("decoder")
    region = next(each for each in regions if each.kind == "attention")
    graph = whole.graphs[0]
    timed = replace(
        whole,
        graphs=(
            replace(
                graph,
                nodes=tuple(
                    replace(
                        node,
                        eager_ms={"aten.scaled_dot_product_attention.default": 6.0, "aten.cat.default": 2.0}.get(
                            node.operator, 0.0
                        ),
                    )
                    for node in graph.nodes
                ),
            ),
        ),
    )
    text = ast.get_docstring(ast.parse(region_task(timed, region, model_name="decoder"))) or ""
    assert text.split("\n")[3:5] == [
        "There it takes x0 from linear in layers.0.attention.query_key_value (Linear), x1 from cos, x2 from sin.",
        "Its operators one by one under eager: scaled_dot_product_attention 60 %, cat 40 %, others the rest.",
    ]


def test_the_docstring_names_an_argument_of_the_model_and_no_shares_that_were_not_measured(found: Found) -> None:
    whole, _, regions = found("decoder")
    untimed = replace(
        whole,
        graphs=tuple(
            replace(graph, nodes=tuple(replace(node, eager_ms=None) for node in graph.nodes)) for graph in whole.graphs
        ),
    )
    region = next(each for each in regions if len(each.occurrences) == 1 and each.occurrences[0].inputs == ("tokens",))
    text = ast.get_docstring(ast.parse(region_task(untimed, region, model_name="decoder"))) or ""
    assert "It takes x0 from the argument tokens." in text.split("\n")
    assert "under eager: " not in text


@pytest.mark.parametrize(
    ("model", "kind", "category"),
    [
        ("decoder", "attention", "attention"),
        ("decoder", "block", "arch"),
        ("decoder", "normalization", "normalization"),
        ("images", "around a matrix product", "convolution"),
        ("images", "reduction", "pooling"),
        ("decoder", "around a matrix product", "matmul"),
        ("clicks", "indexing", "index"),
    ],
)
def test_the_category_goes_with_the_kind(found: Found, model: str, kind: str, category: str) -> None:
    whole, _, regions = found(model)
    region = next(each for each in regions if each.kind == kind)
    assert task_from_source(region_task(whole, region, model_name=model), name="op").category == category


def test_indexes_stay_in_range_and_the_task_declares_it(found: Found) -> None:
    whole, _, regions = found("clicks")
    bag = next(each for each in regions if "embedding_bag" in each.name)
    source = region_task(whole, bag, model_name="clicks")
    assert declarations_of(source).domain == ("bounded",)
    (indices,) = run(source)["get_inputs"]()
    assert indices.dtype == torch.int64 and int(indices.min()) >= 0 and int(indices.max()) < 40
    whole, _, regions = found("decoder")
    norm = next(each for each in regions if each.kind == "attention")
    assert declarations_of(region_task(whole, norm, model_name="decoder")).domain == ()


def test_offsets_of_bags_ascend_from_zero(found: Found) -> None:
    whole, _, regions = found("written_out")
    region = next(each for each in regions if "embedding_bag" in each.name)
    _, offsets = run(region_task(whole, region, model_name="m"))["get_inputs"]()
    assert offsets.tolist() == [0, 3, 6, 9]


def test_masks_that_were_causal_are(found: Found) -> None:
    whole, values, regions = found("written_out")
    region = next(each for each in regions if each.kind == "attention")
    assert torch.equal(run(region_task(whole, region, model_name="m"))["Model"]().visible, values["b_visible"])


def test_constants_keep_their_values(found: Found) -> None:
    whole, _, regions = found("clicks")
    region = next(each for each in regions if "log1p" in each.name)
    model = run(region_task(whole, region, model_name="m"))["Model"]()
    assert [each.tolist() for each in model.buffers()] == [[0.5, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0]]


FACTS = TensorFacts((2, 3), (3, 1), "float32")


def one_node(
    *extra: GraphInput, operator: str = "aten.add.Tensor", module: str = "", module_class: str = ""
) -> Captured:
    """A model of one node, which takes an activation and perhaps something else."""
    taken = tuple(Ref(each.name) for each in extra)
    node = Node("y", operator, (Ref("x"), *taken), (), (FACTS,), False, module, module_class, True, 1.0)
    inputs = (GraphInput("x", "argument", tensor=FACTS), *extra)
    only = Graph("", "M", (), 1, ["tuple", [["leaf"]]], (), ["leaf"], inputs, (node,), (Ref("y"),), (), None)
    return Captured("2.13.0", 1, (only,), (), 1.0, None, None, "", (), ())


def source_of(whole: Captured, *, model_name: str = "m") -> str:
    return region_task(whole, find_regions(whole)[0], model_name=model_name)


@pytest.mark.parametrize(("dtype", "form_"), [("float64", "d"), ("int32", "i"), ("float32", "f")])
def test_large_constants_are_written_as_bytes(dtype: str, form_: str) -> None:
    facts = TensorFacts((30, 3), (1, 30), dtype)
    data = base64.b64encode(struct.pack(f"<90{form_}", *range(90))).decode()
    source = source_of(one_node(GraphInput("c", "constant", path="c", tensor=facts, base64=data)))
    (constant,) = run(source)["Model"]().buffers()
    assert constant.stride() == (1, 30) and constant.dtype == getattr(torch, dtype)
    assert constant.flatten().tolist() == list(range(90))


@pytest.mark.parametrize("data", ["", "AAAA", "A"])
def test_a_constant_whose_bytes_do_not_fit_is_drawn(data: str) -> None:
    source = source_of(one_node(GraphInput("c", "constant", path="c", tensor=FACTS, base64=data)))
    (constant,) = run(source)["Model"]().buffers()
    assert constant.shape == (2, 3)


def test_scalars_that_the_model_is_given_are_written_into_the_op() -> None:
    source = source_of(one_node(GraphInput("s", "scalar", value=-2.5)))
    assert "x0 + (-2.5)" in source
    assert len(run(source)["get_inputs"]()) == 1


@pytest.mark.parametrize("operator", ["aten.__and__.Tensor", "aten._if.Tensor", "aten.__.Tensor", "aten.NOT.Tensor"])
def test_operators_whose_names_are_words_of_python_get_other_variables(operator: str) -> None:
    source = source_of(one_node(GraphInput("w", "parameter", path="w", tensor=FACTS), operator=operator))
    assert f"torch.ops.{operator}(" in ast.unparse(ast.parse(source))


HOSTILE = ['"""\nimport os', "\\", 'x"', "Category: loss", "a\nDtype: float16", "`${}'"]


@pytest.mark.parametrize("text", HOSTILE)
def test_names_from_a_model_neither_end_the_docstring_nor_make_headers(text: str) -> None:
    source = source_of(
        one_node(GraphInput("w", "parameter", path="w", tensor=FACTS), module_class=text), model_name=text
    )
    tree = ast.parse(source)
    assert [type(each).__name__ for each in tree.body] == [
        "Expr", "Import", "Import", "ClassDef", "FunctionDef", "FunctionDef",
    ]  # fmt: skip
    task = task_from_source(source, name="op")
    assert (task.category, task.dtype) == ("broadcast", "float32")


@pytest.mark.parametrize("text", HOSTILE)
def test_nor_do_the_names_of_what_feeds_a_region(found: Found, text: str) -> None:
    whole, _, regions = found("decoder")
    region = next(each for each in regions if each.kind == "attention")
    graph = whole.graphs[0]
    named = replace(
        graph,
        nodes=tuple(replace(node, module=text, module_class=text) for node in graph.nodes),
        inputs=tuple(replace(item, path=text) if item.kind == "buffer" else item for item in graph.inputs),
    )
    task = task_from_source(region_task(replace(whole, graphs=(named,)), region, model_name="m"), name="op")
    assert (task.category, task.dtype) == ("attention", "float32")
    assert [type(each).__name__ for each in ast.parse(task.source).body] == [
        "Expr", "Import", "Import", "ClassDef", "FunctionDef", "FunctionDef",
    ]  # fmt: skip


@pytest.mark.parametrize("path", ["class", "forward", "0", "layers.0.weight", "half", "self", "x0", "a.b.c_d", "_"])
def test_local_names_are_names_that_a_module_can_have(path: str) -> None:
    whole = one_node(GraphInput("w", "parameter", path=path, tensor=FACTS))
    ((local, name),) = find_regions(whole)[0].occurrences[0].weights
    assert local.isidentifier() and name == "w"
    defined = run(source_of(whole))
    model = defined["Model"]()
    assert list(model.state_dict()) == [local]
    assert model(*defined["get_inputs"]()).shape == (2, 3)


def test_weights_whose_names_would_be_the_same_get_different_ones() -> None:
    weights = [
        GraphInput(f"w{n}", "parameter", path=path, tensor=FACTS) for n, path in enumerate(("a_b.c", "a.b_c", "a.b.c"))
    ]
    whole = one_node(*weights, operator="aten.addcmul.default")
    occurrence = find_regions(whole)[0].occurrences[0]
    assert [local for local, _ in occurrence.weights] == ["a_b_c", "a_b_c_2", "a_b_c_3"]


def drawn(shape: tuple[int, ...], stride: tuple[int, ...], dtype: str, **seen: float) -> torch.Tensor:
    """The tensor that is drawn for these statistics."""
    values = Values(**{"low": 0.0, "high": 0.0, "mean": 0.0, "std": 0.0, "zeros": 0.0, "finite": 1.0, **seen})
    torch.manual_seed(0)
    text = tensor_text(TensorFacts(shape, stride, dtype, values if seen else None))
    made = eval(text, {"torch": torch})
    assert form(made) == (shape, stride, getattr(torch, dtype))
    return made


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "seen",
    [
        {"low": -4.2, "high": 4.4, "mean": 0.0, "std": 1.0},
        {"low": -2.0, "high": 11.0, "mean": 4.0, "std": 1.5},
        {"low": 0.0, "high": 1.0, "mean": 0.5, "std": 0.289},
        {"low": -3.0, "high": -1.0, "mean": -2.0, "std": 0.577},
        {"low": 0.5, "high": 9.0, "mean": 4.0, "std": 1.0},
        {"low": 0.0, "high": 4.0, "mean": 0.4, "std": 0.58, "zeros": 0.5},
        {"low": 0.0, "high": 3.0, "mean": 0.05, "std": 0.2, "zeros": 0.9},
        {"low": -4.0, "high": 4.0, "mean": 0.0, "std": 0.5, "zeros": 0.75},
        {"low": 2.0, "high": 2.0, "mean": 2.0, "std": 0.0},
    ],
)
def test_floats_are_drawn_like_what_was_seen(dtype: str, seen: dict[str, float]) -> None:
    made = drawn((100, 200), (200, 1), dtype, **seen).double()
    spread = seen["std"] + 0.01
    assert abs(made.mean().item() - seen["mean"]) < 0.1 * spread
    assert abs(made.std().item() - seen["std"]) < 0.3 * spread
    assert abs((made == 0).double().mean().item() - seen.get("zeros", 0.0)) < 0.02
    if seen["low"] >= 0 or seen["high"] <= 0:
        assert bool(((made >= seen["low"] - 0.01) & (made <= seen["high"] + 0.01)).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("zeros", [0, 32, 63])
def test_masks_of_the_lowest_number_stay_in_the_range_of_their_dtype(dtype: torch.dtype, zeros: int) -> None:
    lowest = torch.finfo(dtype).min
    mask = torch.full((64,), lowest, dtype=dtype)
    mask[:zeros] = 0
    seen = values_of(mask)
    assert seen is not None
    made = drawn((100, 200), (200, 1), str(dtype).removeprefix("torch."), **seen)
    assert bool(made.isfinite().all())
    if dtype is not torch.float64:  # a sum of such elements is beyond float64, so that their mean is not known
        assert abs(made.eq(0).double().mean().item() - zeros / 64) < 0.02
        assert bool(((made == 0) | (made <= lowest * 0.999)).all())
    else:
        assert bool((made <= 0).all())


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8", "uint16", "uint32"])
def test_integers_are_drawn_from_the_range_that_was_seen(dtype: str) -> None:
    made = drawn((50, 20), (20, 1), dtype, low=3, high=7, mean=5, std=1.4).to(torch.int64)
    assert sorted(set(made.flatten().tolist())) == [3, 4, 5, 6, 7]


def test_masks_keep_their_density_and_infinities_their_share() -> None:
    mask = drawn((100, 100), (100, 1), "bool", low=0, high=1, mean=0.3, std=0.46, zeros=0.7)
    assert abs(mask.double().mean().item() - 0.3) < 0.02
    values = drawn((100, 50), (50, 1), "float32", low=-1, high=1, mean=0, std=0.3, finite=0.8)
    assert abs(values.isneginf().double().mean().item() - 0.2) < 0.02
    assert bool(drawn((5,), (1,), "float32", finite=0.0).isneginf().all())


@pytest.mark.parametrize("side", [2, 7, 64])
def test_square_masks_with_the_density_of_a_triangle_are_causal(side: int) -> None:
    shape, stride = (2, side, side), (side * side, side, 1)
    visible, hidden = (side + 1) / (2 * side), (side - 1) / (2 * side)
    ones = torch.ones(shape, dtype=torch.bool)
    assert torch.equal(drawn(shape, stride, "bool", high=1, zeros=1 - visible), ones.tril())
    assert torch.equal(drawn(shape, stride, "bool", high=1, zeros=1 - hidden), ones.triu(1))
    assert torch.equal(drawn(shape, stride, "float32", zeros=visible, finite=visible).isneginf(), ones.triu(1))


@pytest.mark.parametrize(
    ("shape", "stride"),
    [
        ((2, 3, 4), (12, 4, 1)),
        ((2, 3, 4), (1, 8, 2)),
        ((2, 4, 3, 3), (36, 1, 12, 4)),
        ((2, 3), (100, 1)),
        ((2, 3), (0, 1)),
        ((4, 3), (1, 1)),
        ((2, 1, 3), (3, 7, 1)),
        ((), ()),
        ((0, 3), (3, 1)),
        ((3, 0), (1, 3)),
        ((1, 5), (77, 1)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64", "bfloat16"])
def test_layouts_are_reproduced(shape: tuple[int, ...], stride: tuple[int, ...], dtype: str) -> None:
    drawn(shape, stride, dtype)
    if dtype != "complex64":
        drawn(shape, stride, dtype, low=0, high=2, mean=1, std=0.5)


def test_statistics_of_all_places_are_taken_together() -> None:
    facts = [replace(FACTS, values=Values(low, low + 1, low + 0.5, 0.25, 0.0, 1.0)) for low in (0.0, 10.0)]
    inputs = tuple(GraphInput(f"x{n}", "argument", tensor=each) for n, each in enumerate(facts))
    nodes = tuple(
        Node(f"y{n}", "aten.exp.default", (Ref(f"x{n}"),), (), (FACTS,), False, "", "", True, 1.0) for n in range(2)
    )
    only = Graph("", "M", (), 1, ["tuple", []], (), ["tuple", []], inputs, nodes, (Ref("y0"), Ref("y1")), (), None)
    whole = Captured("2.13.0", 1, (only,), (), 2.0, None, None, "", (), ())
    region = next(each for each in find_regions(whole) if each.kind == "element-wise")
    assert region.occurrences == (
        Occurrence(("y0",), ("x0",), (), ("y0",)), Occurrence(("y1",), ("x1",), (), ("y1",)),
    )  # fmt: skip
    assert "        torch.rand([2, 3]) * 11,\n" in region_task(whole, region, model_name="m")
