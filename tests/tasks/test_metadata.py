"""Category and dtype: as the header says, else a sensible guess."""

import pytest

from tasks.load import task_from_source
from tasks.task import TaskError

OP = (
    "import torch\nimport torch.nn.functional as F\n\ndef op(x):\n    return {}\n\ndef get_inputs():\n    return [{}]\n"
)


def op(expression: str = "x + 1", inputs: str = "torch.randn(4)") -> str:
    """A function-form op."""
    return OP.format(expression, inputs)


def test_the_header_of_the_module_docstring_decides() -> None:
    task = task_from_source('"""Adds one.\n\nCategory: Loss\n  dtype:bfloat16\n"""\n' + op(), name="op")
    assert (task.category, task.dtype) == ("loss", "bfloat16")


def test_the_caller_decides_over_the_header() -> None:
    source = '"""Category: loss\nDtype: float64"""\n' + op()
    task = task_from_source(source, name="op", category="scan", dtype="float16")
    assert (task.category, task.dtype) == ("scan", "float16")


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ("Category: normalisation", "op.py:3: unknown category 'normalisation'; did you mean 'normalization'?"),
        ("Category: cooking", "op.py:3: unknown category 'cooking'; use one of: activation, "),
        ("Category:", "op.py:3: unknown category ''; use one of: activation, "),
        ("Dtype: float23", "op.py:3: unknown dtype 'float23'; did you mean 'float32'?"),
        ("Dtype: float32\nDtype: float32", "op.py:4: gives its dtype twice; keep one of them"),
    ],
)
def test_a_header_that_means_nothing_is_refused_with_its_line(header: str, complaint: str) -> None:
    with pytest.raises(TaskError) as caught:
        task_from_source(f'"""An op.\n\n{header}\n"""\n' + op(), name="op", where="op.py")
    assert complaint in str(caught.value)


def test_a_caller_that_means_nothing_is_refused() -> None:
    with pytest.raises(TaskError, match="unknown category 'x'"):
        task_from_source(op(), name="op", category="x")
    with pytest.raises(TaskError, match="unknown dtype 'int8'"):
        task_from_source(op(), name="op", dtype="int8")


@pytest.mark.parametrize(
    ("expression", "category"),
    [
        ("x + 1", "other"),
        ("F.gelu(x)", "activation"),
        ("torch.softmax(x, dim=-1)", "activation"),
        ("F.layer_norm(x, (4,))", "normalization"),
        ("x * torch.rsqrt(x.pow(2).mean(-1))", "normalization"),
        ("x.sum(dim=-1)", "reduce"),
        ("x @ x.t()", "matmul"),
        ("torch.relu(torch.matmul(x, x))", "matmul"),
        ("F.conv2d(x, x)", "convolution"),
        ("F.max_pool2d(x, 2)", "pooling"),
        ("F.interpolate(x, scale_factor=2)", "resize"),
        ("torch.cumsum(x, 0)", "scan"),
        ("x.gather(0, x)", "index"),
        ("F.cross_entropy(x, x)", "loss"),
        ("F.max_pool2d(F.relu(F.conv2d(x, x)), 2)", "fuse"),
    ],
)
def test_a_category_is_guessed_from_what_is_called(expression: str, category: str) -> None:
    assert task_from_source(op(expression), name="op").category == category


def test_an_op_that_takes_a_gradient_is_an_optimizer_step() -> None:
    source = "def op(param, grad):\n    return param - grad.sqrt()\ndef get_inputs():\n    return [1, 2]\n"
    assert task_from_source(source, name="sgd").category == "optimizer"


@pytest.mark.parametrize(
    ("inputs", "dtype"),
    [
        ("torch.randn(4)", "float32"),
        ("torch.randn(4, dtype=torch.bfloat16)", "bfloat16"),
        ("torch.randn(4).half()", "float16"),
        ("torch.randn(4).double()", "float64"),
        ("torch.randint(0, 3, (4,), dtype=torch.int64)", "float32"),
    ],
)
def test_a_dtype_is_guessed_from_the_inputs(inputs: str, dtype: str) -> None:
    assert task_from_source(op(inputs=inputs), name="op").dtype == dtype


def test_a_dtype_is_guessed_from_a_constant_but_not_from_an_accumulator() -> None:
    assert task_from_source("import torch\nDTYPE = torch.float16\n" + op(), name="op").dtype == "float16"
    assert task_from_source(op("x.to(torch.float64).sum().to(x.dtype)"), name="op").dtype == "float32"
