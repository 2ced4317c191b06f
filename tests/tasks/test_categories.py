"""The category of an op follows from what it calls, and from nothing that it is called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.categories import category_of
from tasks.metadata import CATEGORIES
from tasks.parse import parse
from tasks.validate import validate

MODEL = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, a=4, b=8):
        super().__init__()
{init}

    def forward(self, {inputs}):
{forward}


def get_inputs():
    return [{given}]


def get_init_inputs():
    return []
"""


def category(forward: str, init: str = "pass", inputs: str = "x", before: str = "") -> str:
    def block(text: str) -> str:
        return "\n".join("        " + line for line in text.split("\n"))

    count = len(inputs.split(","))
    given = ", ".join(["torch.rand(4, 4)"] * count)
    text = MODEL.format(init=block(init), forward=block(forward), inputs=inputs, given=given)
    return validate(text.replace("class Model(", f"{before}\n\n\nclass Model(", 1), "op.py").category


BLOCK = (
    "class Block(nn.Module):\n    def __init__(self, a):\n        super().__init__()\n"
    "        self.conv = nn.Conv2d(a, a, 3)\n\n    def forward(self, x):\n        return F.relu(self.conv(x)) + x"
)


IN_A_LOOP = """layers = []
for n in range(3):
    layers.append(nn.Linear(a, a))
    layers.append(nn.ReLU())
self.net = nn.Sequential(*layers)"""


@pytest.mark.parametrize(
    ("forward", "init", "expected"),
    [
        ("return self.conv(x)", "self.conv = nn.Conv2d(a, b, 3)", "convolution"),
        ("return self.b(self.a(x))", "self.a = nn.Conv2d(a, b, 3)\nself.b = nn.Conv2d(b, b, 1)", "convolution"),
        ("return F.relu(self.conv(x)) * 2", "self.conv = nn.Conv2d(a, b, 3)", "fuse"),
        ("return self.norm(self.fc(x)).mean()", "self.fc = nn.Linear(a, b)\nself.norm = nn.GroupNorm(2, b)", "fuse"),
        ("return self.net(x)", "self.net = nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, a))", "arch"),
        ("return self.net(x)", IN_A_LOOP, "arch"),
        ("return self.rnn(x)[0]", "self.rnn = nn.LSTM(a, b)", "arch"),
        ("return torch.softmax(x @ x.T, -1) @ x", "pass", "attention"),
        ("return self.mha(x, x, x)[0]", "self.mha = nn.MultiheadAttention(a, 2)", "attention"),
        ("return torch.softmax(x, -1)", "pass", "activation"),
        ("return x / x.norm()", "pass", "normalization"),
        ("rms = torch.sqrt(torch.mean(x ** 2, -1, keepdim=True) + 1e-6)\nreturn x / rms", "pass", "normalization"),
        ("return self.step(x)", "pass\n\n", "other"),
    ],
)  # fmt: skip
def test_what_is_called_decides(forward, init, expected):
    assert category(forward, init) == expected


def test_blocks_of_the_files_own_make_an_architecture():
    assert category("return self.two(self.one(x))", "self.one = Block(a)\nself.two = Block(a)", before=BLOCK) == "arch"


@pytest.mark.parametrize(
    ("forward", "inputs", "expected"),
    [
        ("return x + y", "x, y", "broadcast"),
        ("return x * s", "x, s: float", "math"),
        ("return torch.mean((x - targets) ** 2)", "x, targets", "loss"),
        ("return x - 0.1 * grad", "x, grad", "optimizer"),
        ("return x.masked_fill(mask, 0)", "x, mask", "index"),
        ("x[mask] = 0\nreturn x", "x, mask", "index"),
        ("return x.sum(dim=1)", "x", "reduce"),
        ("return x + 1", "x", "other"),
        ("return x.view(-1, 2)", "x", "other"),
    ],
)
def test_an_op_without_products_has_the_category_of_its_most_specific_step(forward, inputs, expected):
    assert category(forward, inputs=inputs) == expected


def test_what_the_op_and_its_classes_are_called_counts_for_nothing():
    told = category("return conv2d_softmax_loss(x)", before="def conv2d_softmax_loss(x):\n    return torch.tanh(x)")
    assert told == "activation"


def test_a_class_that_uses_itself_is_followed_once():
    own = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net = Net()\n\n"
    own += "    def forward(self, x):\n        return self.forward(self.net(x @ x))"
    assert category("return self.net(x)", "self.net = Net()", before=own) in CATEGORIES


@given(
    st.lists(
        st.sampled_from(["self.a", "self.f(x)", "x @ x", "x[0] = 1", "Model()", "F.gelu(x)", "op(x)"]), max_size=30
    )
)
def test_any_source_has_a_category(lines):
    body = "\n".join(f"        {line}" for line in ["pass", *lines])
    tree = parse(f"class Model:\n    def f(self, x):\n{body}\n    def forward(self, x):\n{body}\n", "op.py")
    assert category_of(tree, ["x"]) in CATEGORIES
