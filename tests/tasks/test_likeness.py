"""How alike ops are, by their sources alone: operators count, numbers do not, and no text can break it."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.likeness import Traits, likeness, operators_of, rarity, traits_of
from tasks.suites import load_suite

OP = """
import torch
import torch.nn as nn
import torch.nn.functional as F

N, M = 64, 2 ** 10

class Model(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, 64)

    def forward(self, x):
        return F.silu(self.norm(x)) * 2.0

def get_inputs():
    return [torch.randn(N, 64, M)]

def get_init_inputs():
    return [8]
"""

traits = st.builds(
    Traits,
    st.frozensets(st.sampled_from(["add", "mul", "softmax", "conv2d", "layernorm"]), max_size=5),
    st.sampled_from(["float32", "bfloat16"]),
    st.none() | st.integers(1, 2**62),
    st.just(""),
)


def of(source, dtype="float32"):
    return traits_of(source, dtype)


def test_an_op_is_known_by_its_operators_without_bookkeeping():
    assert of(OP).operators == {"groupnorm", "silu", "mul"}


def test_a_module_and_its_function_are_one_operator():
    function = OP.replace("self.norm = nn.GroupNorm(groups, 64)", "self.groups = groups")
    function = function.replace("self.norm(x)", "F.group_norm(x, self.groups)")
    assert of(function).operators == of(OP).operators


def test_an_operator_of_aten_has_its_own_name_and_not_that_of_its_overload():
    source = "import torch\ndef op(x):\n    return torch.ops.aten.native_layer_norm.default(x)\n"
    assert operators_of(source) == {"native_layer_norm"}


def test_sizes_are_read_from_whole_numbers():
    assert of(OP).elements == 64 * 64 * 1024
    assert of(OP.replace("2 ** 10", "int(input())")).elements is None
    assert of(OP.replace("torch.randn(N, 64, M)", "torch.randint(0, 9, (N, M))")).elements == 64 * 1024


def test_an_op_with_other_sizes_is_the_same_op():
    other = OP.replace("N, M = 64, 2 ** 10", "N, M = 8, 32").replace("return [8]", "return [4]").replace("2.0", "3.5")
    assert of(other).code == of(OP).code
    assert of("# a comment\n" + OP.replace("def forward", '"""Says more."""\n\n    def forward')).code == of(OP).code
    assert of(OP.replace("silu", "gelu")).code != of(OP).code


def test_no_two_starter_ops_are_taken_for_one():
    tasks = load_suite("starter").tasks
    assert len({traits_of(task.source, task.dtype).code for task in tasks}) == len(tasks)


def test_the_nearest_of_the_starter_ops_shares_what_is_rare():
    tasks = {task.name: traits_of(task.source, task.dtype) for task in load_suite("starter").tasks}
    weights = rarity(list(tasks.values()))

    def nearest(name):
        return max((other for other in tasks if other != name), key=lambda o: likeness(tasks[name], tasks[o], weights))

    assert nearest("masked_softmax") == "softcap_attention"
    assert nearest("group_norm_silu") == "gated_running_mean"
    assert nearest("adamw_step") == "add_layer_norm"


def test_another_dtype_and_another_size_make_ops_less_alike():
    own = Traits(frozenset({"softmax"}), "float32", 2**20, "")
    assert likeness(own, own, {}) == 1
    assert likeness(own, Traits(own.operators, "float16", 2**20, ""), {}) == pytest.approx(0.8)
    assert likeness(own, Traits(own.operators, "float32", 2**4, ""), {}) == pytest.approx(0.5)
    assert likeness(own, Traits(own.operators, "float32", None, ""), {}) == 1


@given(traits, traits, st.lists(traits, max_size=5))
def test_likeness_is_a_share_and_the_same_both_ways(a, b, others):
    weights = rarity([a, b, *others])
    found = likeness(a, b, weights)
    assert 0 <= found <= 1 + 1e-9
    assert found == likeness(b, a, weights)
    assert likeness(a, a, weights) == pytest.approx(1 if a.operators else 0)


def in_c(body, size=6000, shape=(60, 100)):
    """An op whose reference is a kernel in C, which differs from others in that kernel alone."""
    head = f"void default_function_kernel(float* out, float* x) {{\n  for (int i = 0; i < {size}; ++i) {{\n"
    kernel = f'C_KERNEL = r"""\n{head}    out[i] = {body};\n  }}\n}}\n"""\n'
    called = f"        library(x.dtype).default_function_kernel(x.clone())\n        return torch.empty({shape!r})\n"
    return f"{kernel}\nclass Model(nn.Module):\n    def forward(self, x):\n{called}"


def test_an_op_whose_reference_is_c_is_known_by_that():
    exp, tanh = of(in_c("expf(x[i])")), of(in_c("tanhf(x[i])"))
    assert (exp.operators, tanh.operators) == ({"exp"}, {"tanh"})
    assert exp.code != tanh.code and likeness(exp, tanh, {}) == 0
    assert exp.code == of(in_c("expf(x[i])", 12, (3, 4))).code
    assert of(in_c("max(x[i], 1.500000e+00f)")).code == of(in_c("max(x[i], 2e-3f)")).code
    assert of(in_c("erff(x[i]) + erf(x[i])")).operators == {"erf"}
    assert likeness(exp, of("def op(x):\n    return torch.exp(x)\n"), {}) == 1


@pytest.mark.parametrize(
    "source",
    [
        "C_KERNEL = '" + "1e+a(/*" * 20_000 + "'\n",
        "C_KERNEL = 3\n",
        "not python (",
        "x = " + "(" * 5000,
        "def op(x):\n    return " + "+".join("x" for _ in range(20_000)) + "\n",
        "N = 9 ** 9 ** 9\ndef get_inputs():\n    return [torch.randn(N, N)]\n",
        f"N = {'9' * 4000}\ndef get_inputs():\n    return [torch.randn(N)]\n",
        "N = M = 1\ndef get_inputs():\n    return [torch.randn(-1, 4)]\n",
        "\ud800",
        "",
    ],
    ids=["c", "no_c", "no_python", "nested", "long", "power", "digits", "negative", "surrogate", "empty"],
)
def test_hostile_sources_have_traits_like_any_other(source):
    began = time.perf_counter()
    found = of(source)
    assert found.elements is None and len(found.code) == 64
    assert time.perf_counter() - began < 5


@given(st.text(max_size=300))
def test_any_text_has_traits(text):
    assert likeness(of(text), of(OP), {}) >= 0
