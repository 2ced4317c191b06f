"""Which tensors of the oracle's answer only that answer refers to, so that their memory may go once they were read."""

from typing import Any

import numpy as np
import pytest
import torch

from evaluator.referee.protocol.tensors import encode
from evaluator.referee.runner import oracle

KEPT = torch.arange(4096, dtype=torch.float64)
TABLE = np.arange(4096)
CACHE: dict[torch.dtype, torch.Tensor] = {}


def alone(forward: Any, *, inputs_after: bool = False) -> list[bool]:
    """Of each tensor of the oracle's answer for an input of 4,096 numbers: the outputs, then inputs after the call."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4096))

        def forward(self, x: torch.Tensor) -> Any:
            return forward(self, x)

    value = oracle.evaluate(Model(), [torch.randn(4096)], inputs_after=inputs_after)
    _, tensors = encode(value)
    kept = [(value, tensors)]  # as a runner does
    del value, tensors
    numbers = oracle.held_alone(kept[-1][1])
    return [number in numbers for number in range(len(kept[-1][1]))]


def cached(model: object, x: torch.Tensor) -> torch.Tensor:
    if x.dtype not in CACHE:
        CACHE[x.dtype] = torch.ones_like(x)
    return CACHE[x.dtype]


def twice(model: object, x: torch.Tensor) -> list[torch.Tensor]:
    y = x * 2
    return [y, y]


def whole_and_part(model: object, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x * 2
    return y[:64], y


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        pytest.param(lambda model, x: x * 2, [True], id="one output"),
        pytest.param(lambda model, x: (x * 2, {"z": x + 1}), [True, True], id="two"),
        pytest.param(lambda model, x: (x * 2)[:64], [True], id="a part of what is gone"),
        pytest.param(twice, [False, False], id="the same twice"),
        pytest.param(whole_and_part, [False, False], id="a whole and a part of it"),
        pytest.param(lambda model, x: (x * 2).view(64, 64).t(), [True], id="a view of what is gone"),
        pytest.param(lambda model, x: KEPT.to(x.dtype).view(64, 64), [False], id="a view of a constant"),
        pytest.param(
            lambda model, x: (model.weight * 1).view(64, 64), [True], id="a view of what was made of a parameter"
        ),
        pytest.param(lambda model, x: model.weight.view(64, 64), [True], id="a view of a parameter of the copy"),
        pytest.param(lambda model, x: model.weight, [True], id="a parameter of the copy that ran"),
        pytest.param(lambda model, x: (x * 2).chunk(2), [False, False], id="parts of one"),
        pytest.param(lambda model, x: (x * 2, KEPT.to(x.dtype)), [True, False], id="a constant of the module's"),
        pytest.param(lambda model, x: torch.from_numpy(TABLE), [False], id="an array of NumPy's"),
        pytest.param(lambda model, x: torch.frombuffer(TABLE.data, dtype=torch.int64), [False], id="a buffer"),
        pytest.param(lambda model, x: torch.from_numpy(TABLE).view(64, 64), [False], id="a view of an array"),
        pytest.param(lambda model, x: torch.from_numpy(TABLE) + 1, [True], id="what was made of an array"),
        pytest.param(cached, [False], id="what the module keeps by type"),
    ],
)
def test_only_what_nothing_else_refers_to_is_alone(forward: Any, expected: list[bool]) -> None:
    assert alone(forward) == expected


@pytest.mark.parametrize("forward", [lambda model, x: x.mul_(2), lambda model, x: x.mul_(2)[:64]])
def test_an_input_that_is_told_after_the_call_is_not_alone_with_its_output(forward: Any) -> None:
    assert alone(forward, inputs_after=True) == [False, False]


def test_what_a_model_keeps_that_is_no_module_is_not_alone() -> None:
    class Model:
        weight = torch.ones(4096, dtype=torch.float64)

        def __call__(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [self.weight, x * 2]

    model = Model()
    value = oracle.evaluate(model, [torch.randn(4096)], inputs_after=False)
    _, tensors = encode(value)
    assert oracle.held_alone(tensors) == [1]
