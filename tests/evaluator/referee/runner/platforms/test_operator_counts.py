"""What eager takes on platform `simulated`: each operator of torch by the instructions that it consists of."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from evaluator.referee.protocol import cycles
from evaluator.referee.protocol.array_machine import lane_cost
from evaluator.referee.runner.platforms.operator_counts import OperatorCosts, OperatorCounter
from evaluator.referee.runner.platforms.simulated.cycle_table import CYCLE_TABLE

ROWS, COLUMNS = 8, 1024
X = torch.rand(ROWS, COLUMNS) + 0.5
WEIGHT = torch.rand(COLUMNS)
GROUPS = X.numel() // cycles.LANES  # groups of elements that an instruction works on at once
MOVED = X.numel() * 4 // cycles.MEMORY_BYTES_PER_CYCLE  # cycles to load or store X


def counted(call: Callable[[], object], costs: OperatorCosts | None = None) -> int:
    counter = OperatorCounter(costs or OperatorCosts(CYCLE_TABLE))
    with torch.no_grad(), counter:
        call()
    return counter.total


def groups(*instructions: str) -> int:
    return sum(lane_cost(name) or 0 for name in instructions) * GROUPS


@pytest.mark.parametrize(
    ("call", "instructions"),
    [
        (lambda: torch.relu(X), ("relu",)),
        (lambda: F.relu(X.clone(), inplace=True), ("relu",)),
        (lambda: X.exp(), ("exp",)),
        (lambda: X / 3, ("divide",)),
        (lambda: 1 - X, ("subtract",)),
        (lambda: X**2, ("multiply",)),
        (lambda: X**0.5, ("sqrt",)),
        (lambda: X**1.7, ("log", "multiply", "exp")),
        (lambda: torch.addcmul(X, X, X), ("multiply_add",)),
        (lambda: X.clamp(0, 1), ("maximum", "minimum")),
        (lambda: X.clamp(min=0.0), ("maximum",)),
        (lambda: X.to(torch.float16), ("convert",)),
        (lambda: F.silu(X), ("sigmoid", "multiply")),
        (lambda: F.gelu(X), ("multiply", "multiply", "erf", "add", "multiply")),
        (lambda: F.hardsigmoid(X), ("add", "maximum", "minimum", "divide")),
        (lambda: F.leaky_relu(X), ("less", "multiply", "select")),
        (lambda: torch.softmax(X, -1), ("maximum_of", "subtract", "exp", "sum", "divide")),
        (lambda: torch.log_softmax(X, -1), ("maximum_of", "subtract", "exp", "sum", "subtract")),
        (lambda: X.sum(-1), ("sum",)),
        (lambda: X.mean(-1), ("sum",)),
        (lambda: X.var(-1), ("sum", "subtract", "multiply", "sum")),
        (
            lambda: F.layer_norm(X, (COLUMNS,), WEIGHT, WEIGHT),
            (*("sum", "subtract", "multiply", "sum"), "sum", "subtract", *("multiply", "multiply", "add")),
        ),
    ],
)
def test_an_operator_computes_what_it_consists_of(call: Callable[[], object], instructions: tuple[str, ...]) -> None:
    costs = OperatorCosts(CYCLE_TABLE)
    counted(call, costs)
    computed = [value for key, value in costs.known.items() if "clone" not in key]
    # What works on one figure a row besides, such as a division by the number of columns: at most 10 instructions.
    beside = 10 * cycles.lane_cycles(ROWS, 8)
    assert sum(computed) == pytest.approx(groups(*instructions), abs=beside)


def test_each_operator_starts_a_program_that_loads_and_stores() -> None:
    one = counted(lambda: torch.relu(X))
    assert one == cycles.START_CYCLES + 2 * MOVED + GROUPS
    assert counted(lambda: torch.relu(torch.relu(X))) == 2 * one


def test_products_are_counted_by_their_operations() -> None:
    made = counted(lambda: X @ X.T)
    moved = 2 * MOVED + cycles.memory_cycles(ROWS * ROWS * 4)
    assert made == cycles.START_CYCLES + moved + cycles.product_cycles(2 * ROWS * ROWS * COLUMNS)
    heads = torch.rand(1, 2, 64, 32)
    attention = OperatorCosts(CYCLE_TABLE)
    counted(lambda: F.scaled_dot_product_attention(heads, heads, heads), attention)
    products = cycles.product_cycles(2 * 2 * 2 * 64 * 64 * 32)
    assert sum(attention.known.values()) > products + cycles.lane_cycles(2 * 64 * 64, 15)


def test_views_and_allocations_take_nothing() -> None:
    assert counted(lambda: X.T.reshape(COLUMNS, 2, ROWS // 2)[0]) == 0
    assert counted(lambda: torch.empty(1000)) == 0


def test_what_only_moves_values_takes_a_cycle_a_group() -> None:
    both = counted(lambda: torch.cat([X, X]))
    assert both == cycles.START_CYCLES + 4 * MOVED + GROUPS
    assert counted(lambda: X.argmax(-1)) == cycles.START_CYCLES + MOVED + cycles.memory_cycles(ROWS * 8) + GROUPS


def test_counting_changes_no_result() -> None:
    expected = F.layer_norm(X, (COLUMNS,), WEIGHT)
    given = X.clone()
    with OperatorCounter(OperatorCosts(CYCLE_TABLE)):
        assert torch.equal(F.layer_norm(given, (COLUMNS,), WEIGHT), expected)
        given.add_(1)
    assert torch.equal(given, X + 1)
