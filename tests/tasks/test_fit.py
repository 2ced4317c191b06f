"""Scaling a task down: which integers may change, in what order, what a variant says of itself, and what is refused."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.sizes import CallSizes, Measured
from service.fitting import _Walk
from tasks.build import task_from_source
from tasks.fit import (
    LEAST,
    LEAST_BATCH,
    NAME,
    Constant,
    constants_of,
    fitted_of,
    half,
    halvings,
    read_limit,
    variant,
    with_values,
)
from tasks.task import Task, TaskError

OP = """import torch


class Model(torch.nn.Module):
    def __init__(self, channels, out_channels, kernel_size):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels, out_channels, kernel_size)

    def forward(self, x, batch_size=None):
        return self.conv(x)


{constants}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{init}]
"""
CONV = OP.format(
    constants="batch_size = 16 * 4\nchannels = 32\nout_channels = 64\nheight, width = 512, 1024\nkernel_size = 65",
    inputs="torch.rand(batch_size, channels, height, width)",
    init="channels, out_channels, kernel_size",
)


def roles(source: str) -> dict[str, tuple[int, str]]:
    return {each.name: (each.value, each.role) for each in constants_of(source)}


def op(constants: str, inputs: str, init: str = "") -> str:
    return OP.format(constants=constants, inputs=inputs, init=init)


def walk(source: str, **left_alone: bool) -> list[dict[str, int]]:
    found = constants_of(source)
    start = {each: each.value for each in found}
    steps = halvings(found, start, frozenset(each for each in found if each.name in left_alone), "together")
    return [{each.name: value for each, value in values.items()} for _, values in steps]


def test_integers_that_reach_an_input_may_change_and_those_of_the_model_alone_may_not():
    assert roles(CONV) == {
        "batch_size": (64, "batch"),
        "channels": (32, "shared"),
        "height": (512, "size"),
        "width": (1024, "size"),
    }


@pytest.mark.parametrize(
    ("constants", "inputs", "found"),
    [
        ("N = 2048 * 2", "torch.rand(N, N), torch.rand(N, N)", {"N": (4096, "size")}),
        ("M, K = 64, 128", "torch.rand(M, K), torch.rand(K, M)", {"M": (64, "size"), "K": (128, "size")}),
        ("b = 64\nshape = (128, 256)", "torch.rand(b, *shape)", {"b": "batch", "shape[0]": "size", "shape[1]": "size"}),
        ("b = 64\ndim = 128\nshape = (b, dim)", "torch.rand(shape)", {"b": "batch", "dim": "size"}),
        ("h = w = 64", "torch.rand(2, h, w)", {"h, w": "size"}),
        ("b: int = 2 ** 7", "torch.rand(b, 3), torch.rand(b)", {"b": "batch"}),
        ("b = 64\nscale = 1 << 4\nhalf = 0.5\nok = True", "torch.rand(b, scale) * half", {"b": "batch"}),
        ("b = 64\nn = 10", "torch.rand(b, n), torch.randint(0, n, (b,))", {"b": "batch", "n": "size"}),
        ("b = 64\n\n\ndef sizes():\n    return b, 8", "torch.rand(sizes())", {"b": "size"}),
    ],
)
def test_integers_are_found_in_every_form_that_sets_have(constants, inputs, found):
    assert {
        name: (value if isinstance(found[name], tuple) else value[1])
        for name, value in roles(op(constants, inputs)).items()
    } == found


def test_a_parameter_of_the_same_name_is_not_a_use_of_the_constant():
    source = op("batch_size = 64", "torch.rand(batch_size, 8)")  # forward has a parameter of this name
    assert roles(source) == {"batch_size": (64, "batch")}


def test_batch_comes_first_then_sizes_with_their_ratio_then_what_the_model_shares():
    steps = walk(CONV)
    assert [step["batch_size"] for step in steps[:2]] == [32, 16]
    assert steps[1] == {"batch_size": 16, "channels": 32, "height": 512, "width": 1024}
    assert [(step["height"], step["width"]) for step in steps[2:5]] == [(256, 512), (128, 256), (64, 128)]
    assert steps[-1] == {"batch_size": 2, "channels": 16, "height": 16, "width": 16}
    assert all(step["channels"] == 32 for step in steps[:-1])


def test_a_small_dimension_beside_large_ones_is_kept_as_long_as_possible():
    steps = walk(op("M, K = 32768, 64", "torch.rand(M, K), torch.rand(K, M)"))
    assert [step["M"] for step in steps if step["K"] == 64][-1] == 64


@given(st.integers(2, 1 << 40))
def test_half_keeps_odd_numbers_odd_and_even_ones_exact(value):
    less = half(value)
    assert 0 <= less <= value // 2 and less >= value // 2 - 1
    assert 2 * less == value if value % 2 == 0 else less % 2 == 1 or less == 0 or value < 4


CONSTANTS = st.lists(
    st.tuples(st.integers(2, 1 << 20), st.sampled_from(["batch", "size", "shared"])), min_size=1, max_size=6
).map(lambda found: tuple(Constant(f"c{n}", value, role, n) for n, (value, role) in enumerate(found)))


@given(CONSTANTS, st.sampled_from(["together", "apart", "alike"]))
def test_steps_only_go_down_to_what_is_left_and_end(constants, way):
    before = {each: each.value for each in constants}
    for halved, values in halvings(constants, before, frozenset(), way):
        assert halved and all(values[each] == half(before[each]) for each in halved)
        assert all(values[each] == before[each] for each in constants if each not in halved)
        assert all(values[each] >= (LEAST_BATCH if each.role == "batch" else LEAST) for each in halved)
        before = values


@given(CONSTANTS)
def test_what_is_left_alone_never_changes(constants):
    kept = frozenset(constants[:1])
    for halved, _ in halvings(constants, {each: each.value for each in constants}, kept, "together"):
        assert not kept & set(halved)


@given(st.dictionaries(st.sampled_from([each.name for each in constants_of(CONV)]), st.integers(1, 1 << 30)))
def test_changing_values_changes_these_numbers_alone(wanted):
    by_name = {each.name: each for each in constants_of(CONV)}
    source = with_values(CONV, {by_name[name]: value for name, value in wanted.items()})
    assert {name: value for name, (value, _) in roles(source).items()} == {
        name: wanted.get(name, each.value) for name, each in by_name.items() if wanted.get(name, each.value) > 1
    }
    assert source.partition("batch_size =")[0] == CONV.partition("batch_size =")[0]
    assert len(source.splitlines()) == len(CONV.splitlines())


def task(source: str = CONV) -> Task:
    return task_from_source(source, name="1_conv", suite="bench-level1", category="convolution")


def test_a_variant_is_named_for_what_it_is_and_says_what_was_changed():
    whole = task()
    by_name = {each.name: each for each in constants_of(whole.source)}
    values = {each: each.value for each in by_name.values()} | {by_name["height"]: 256, by_name["width"]: 512}
    small = variant(whole, read_limit("256MB"), values)
    assert (small.id, small.category, small.dtype) == ("bench-level1-fit256MB/1_conv", "convolution", "float32")
    fitted = fitted_of(small.source)
    assert fitted is not None and fitted.changed == {"height": (512, 256), "width": (1024, 512)}
    assert (fitted.of, fitted.source_hash, fitted.limit_bytes) == (whole.id, whole.source_hash, 256_000_000)
    assert fitted.describe() == "height 512 -> 256; width 1024 -> 512"
    assert variant(whole, read_limit("256MB"), values) == small, "the same variant each time"
    assert fitted_of(whole.source) is None


@pytest.mark.parametrize("literal", ["5", "{'of': 1}", "{'of': 'a', 'changed': [1]}"])
def test_a_file_that_claims_to_be_a_variant_wrongly_is_told_so(literal):
    with pytest.raises(TaskError, match=f"{NAME}:.*is not what it must be"):
        fitted_of(f"{CONV}\n{NAME} = {literal}\n")


@pytest.mark.parametrize("text", ["256", "0MB", "-1MB", "1.5GB", "256mb", "MB", "12345678GB", ""])
def test_a_limit_that_is_no_size_is_refused(text):
    with pytest.raises(TaskError, match="give a whole number of MB, MiB, GB or GiB"):
        read_limit(text)
    assert (read_limit("2GiB").limit_bytes, read_limit("256MB").limit_bytes) == (2 << 30, 256 * 10**6)


def sizes(values: dict[str, int], bad: bool = False) -> CallSizes:
    """What a call of CONV touches."""
    count = 4 * values["batch_size"] * values["channels"] * values["height"] * values["width"]
    return CallSizes(count, 0, None if bad else count, "it fails" if bad else "")


def measured(walking: _Walk, fails=lambda values: False) -> Measured:
    """The answer of a sandbox in which an op of these sizes fails for some values."""
    found = []
    for source in walking.ladder().sources:
        values = {name: value for name, (value, _) in roles(source).items()}
        found.append(sizes(values, fails(values)))
        if found[-1].outputs is None or (found[-1].moved or 0) <= walking.limit.limit_bytes:
            break
    return Measured(tuple(found))


def run_walk(limit: str, fails=lambda values: False) -> _Walk:
    walking = _Walk(task(), read_limit(limit))
    for _ in range(50):
        if walking.result is not None:
            return walking
        walking.take(measured(walking, fails))
    raise AssertionError("the walk does not end")


def changed(walking: _Walk) -> dict[str, tuple[int, int]]:
    assert walking.result is not None and walking.result.variant is not None, walking.result
    fitted = fitted_of(walking.result.variant.source)
    assert fitted is not None
    return dict(fitted.changed)


def test_a_task_that_fits_is_taken_as_it_is():
    assert changed(run_walk("100GB")) == {}


def test_the_walk_ends_at_the_first_step_that_fits():
    assert changed(run_walk("3GB")) == {"batch_size": (64, 16)}
    assert changed(run_walk("256MB")) == {"batch_size": (64, 16), "height": (512, 128), "width": (1024, 256)}


def test_a_step_with_which_the_op_fails_is_not_taken_and_the_walk_goes_on_without_it():
    found = changed(run_walk("256MB", fails=lambda values: values["width"] < 1024))
    assert "width" not in found and found["height"][1] < 512


def test_what_the_rule_cannot_scale_is_refused_with_why():
    whole = {name: value for name, (value, _) in roles(CONV).items()}
    stuck = run_walk("256MB", fails=lambda values: values != whole).result
    assert stuck is not None and stuck.variant is None
    assert stuck.problem == (
        "a call moves 8,590 MB, and the rule goes no further down than"
        " batch_size 64, channels 32, height 512, width 1024;"
        " less of batch_size, height, width, channels fails or does not help (it fails)"
    )
    least = run_walk("1MB", fails=lambda values: values["height"] < 256).result
    assert least is not None and "less of height" in least.problem
    inline = _Walk(task(op("x = 1", "torch.rand(9999, 9999)", "3, 4, 5")), read_limit("1MB"))
    inline.take(Measured((CallSizes(10**9, 0, 10**9),)))
    assert inline.result is not None
    assert inline.result.problem.endswith("no integer at the top level of its file sets their sizes")


def test_the_source_of_a_variant_is_python_with_one_literal_more():
    small = run_walk("256MB").result
    assert small is not None and small.variant is not None
    before, after = ast.parse(task().source).body, ast.parse(small.variant.source).body
    assert len(after) == len(before) + 1


@pytest.mark.timeout(20)
@pytest.mark.parametrize("last", ["16", ""])
def test_tuples_of_tuples_are_looked_at_a_bounded_number_of_times(last: str) -> None:
    many = ", ".join(["{}"] * 2000)
    levels = [f"{name} = ({many.format(*[of] * 2000)})" for name, of in (("C", "D"), ("B", "C"), ("A", "B"))]
    source = "\n".join([f"D = ({last})", *levels, "", "def get_inputs():", "    return [torch.randn(*A)]", ""])
    assert [each.name for each in constants_of(source)] == ["D"] * bool(last)


def test_a_sum_of_many_terms_is_no_constant() -> None:
    source = f"N = {' + '.join(['1'] * 1500)}\nM = 4 * (2 + 2)\n\ndef get_inputs():\n    return [torch.randn(N, M)]\n"
    assert [(each.name, each.value) for each in constants_of(source)] == [("M", 16)]
