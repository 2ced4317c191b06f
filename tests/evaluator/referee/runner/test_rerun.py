"""What stands for the oracle of a kernel: its runs on inputs that differ in their last bits."""

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from evaluator.referee.runner.oracle import RERUNS, rerun


def run(model: Callable[..., Any], *arguments: Any, seed: int = 1) -> dict[str, Any]:
    return rerun(model, list(arguments), seed, contextlib.nullcontext)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_outputs_differ_by_roundings_and_are_told_in_float64(dtype: torch.dtype) -> None:
    x = torch.randn(64, 48, dtype=torch.float64).to(dtype)
    found = run(lambda x: x * 2, x)["outputs"]
    assert found.dtype == torch.float64
    share = ((found - 2 * x.double()) / (2 * x.double())).abs()
    assert 0 < float(share.max()) <= 2 * torch.finfo(dtype).eps
    assert float((share > 0).double().mean()) > 0.8, f"of {RERUNS} runs hardly an element is the same in all"


def test_an_ill_conditioned_kernel_shows_what_its_inputs_roundings_do() -> None:
    x = torch.ones(1000) + torch.rand(1000) * 1e-4
    spread = (run(lambda x: (x - 1) * 1e4, x)["outputs"] - (x.double() - 1) * 1e4).abs().max()
    assert 1e-4 < float(spread) < 1e-2


def test_masks_integers_order_nan_and_infinities_stay() -> None:
    given = {
        "mask": (torch.rand(50) > 0.5).float(),
        "index": torch.arange(50),
        "bounds": torch.linspace(0, 1, 50).sort().values,
        "odd": torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0]),
    }
    seen: list[dict[str, Any]] = []

    def kernel(given: dict[str, Any]) -> torch.Tensor:
        seen.append(given)
        return given["odd"]

    found = run(kernel, given)
    assert len(seen) == 1 + RERUNS and found["traits"] == {}
    for each in seen:
        assert torch.equal(each["mask"], given["mask"]) and torch.equal(each["index"], given["index"])
        assert torch.equal(each["bounds"], each["bounds"].sort().values)
        assert torch.equal(each["odd"].nan_to_num(7), given["odd"].nan_to_num(7))
    assert torch.equal(found["outputs"].nan_to_num(7, 8, 9), given["odd"].double().nan_to_num(7, 8, 9))


def test_layout_of_inputs_stays() -> None:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        assert x.stride() == (1, 30)
        return x.clone()

    run(kernel, torch.randn(20, 30).t())


class Counting(torch.nn.Module):
    """It changes its state and its input, and holds what cannot be copied, as kernels hold their extension."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
        self.extension = sys

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        self.calls += 1
        x += 1
        return [x * self.calls, self.calls]


def test_each_run_has_the_state_and_the_inputs_of_the_first() -> None:
    model, x = Counting(), torch.zeros(8)
    found = run(model, x)
    assert float(model.calls) == 0 and not bool(x.any())
    assert [value.tolist() for value in found["outputs"]] == [[1.0] * 8, [1.0]]
    assert found["inputs"][0].tolist() == [1.0] * 8


def test_runs_of_other_shapes_and_random_numbers() -> None:
    shapes = iter([(3,), (4,), (3,), (5,)])
    assert run(lambda x: torch.ones(next(shapes)), torch.ones(2))["outputs"].shape == (3,)
    drawn = run(lambda x: torch.rand(9) + 0 * x, torch.ones(9), seed=5)["outputs"]
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(9).double()), "all runs have the seed of the call"
