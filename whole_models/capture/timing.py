"""What is seen when a model runs: elements of tensors, times of operators, of modules and of the whole."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from .describe import describe_results

SAMPLED = 1 << 18
"""Elements of one tensor that its mean, its spread and its shares are taken of."""
LEAST_CALLS, MOST_CALLS = 4, 20


class Recorder(torch.fx.Interpreter):
    """Runs a graph and keeps the shape, the strides and the statistics of each node's result."""

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        super().__init__(graph)
        self.results: dict[str, list[dict[str, Any]]] = {}
        self.inputs: dict[str, dict[str, Any] | None] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one node."""
        result = super().run_node(n)
        if n.op == "placeholder":
            self.inputs[n.name] = values_of(result) if isinstance(result, torch.Tensor) else None
        elif n.op == "call_function" and result is not None:
            facts, _ = describe_results(result)
            tensors = [result] if isinstance(result, torch.Tensor) else result
            self.results[n.name] = [
                {**fact, "values": values_of(tensor)} for fact, tensor in zip(facts, tensors, strict=True)
            ]
        return result


class _Clock(torch.fx.Interpreter):
    """Runs a graph and times the call of each operator."""

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        super().__init__(graph)
        self.times_s: dict[str, list[float]] = {}
        self._name = ""

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one node."""
        self._name = n.name
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call one operator."""
        began = time.perf_counter()
        result = target(*args, **kwargs)
        self.times_s.setdefault(self._name, []).append(time.perf_counter() - began)
        return result


def values_of(tensor: torch.Tensor) -> dict[str, float] | None:
    """What the elements of a tensor are like; None: it has none, or complex ones.

    The lowest and the highest are of all elements. The rest is of an even sample where there are very many.
    """
    if tensor.numel() == 0 or tensor.is_complex():
        return None
    flat = tensor.detach().reshape(-1)
    step = -(-flat.numel() // SAMPLED)
    # A step that shares a factor with the sizes would see the same columns again and again.
    sample = flat[:: step + 1 - step % 2].to(torch.float64)
    finite = sample[sample.isfinite()]
    ends = torch.aminmax(flat.to(torch.uint8) if flat.dtype == torch.bool else flat)
    low, high = float(ends.min), float(ends.max)
    if not (_finite(low) and _finite(high)):
        low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 0.0)
    mean = float(finite.mean()) if finite.numel() else 0.0
    std = float(finite.std(correction=0)) if finite.numel() else 0.0
    return {
        "low": low,
        "high": high,
        "mean": mean if _finite(mean) else 0.0,
        "std": std if _finite(std) else 0.0,
        "zeros": float(sample.eq(0).double().mean()),
        "finite": finite.numel() / sample.numel(),
    }


def operator_times_ms(
    graph: torch.fx.GraphModule, values: Sequence[Any], restore: Callable[[], None], budget_s: float
) -> dict[str, float]:
    """The median time of each node of a graph, by its name."""
    clock = _Clock(graph)
    with _no_garbage():
        until = time.perf_counter() + budget_s
        for number in range(MOST_CALLS):
            if number and time.perf_counter() > until:
                break
            restore()
            clock.run(*values)
    return {name: statistics.median(times[1:] or times) * 1e3 for name, times in clock.times_s.items()}


def call_time_ms(call: Callable[[], Any], restore: Callable[[], None], budget_s: float) -> float:
    """The median time of a call, after one that warms it up."""
    times = []
    with _no_garbage():
        until = time.perf_counter() + budget_s
        for number in range(MOST_CALLS + 1):
            if number >= LEAST_CALLS and time.perf_counter() > until:
                break
            restore()
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
    return statistics.median(times[1:]) * 1e3


class RunWaits:
    """How much of the time in which this process's threads wanted to run they waited, from now on.

    The kernel counts both for each thread (Documentation/scheduler/sched-stats.rst: /proc/<pid>/schedstat).
    """

    def __init__(self) -> None:
        self._began = self._spent_ns()

    def share(self) -> float:
        """The share, from 0 to 1; 0 where the kernel does not say."""
        now = self._spent_ns()
        ran, waited = (max(0, after - before) for after, before in zip(now, self._began, strict=True))
        return waited / (ran + waited) if ran + waited else 0.0

    @staticmethod
    def _spent_ns() -> tuple[int, int]:
        ran = waited = 0
        for path in Path("/proc/self/task").glob("*/schedstat"):
            with suppress(OSError, ValueError):  # the thread has ended, or the kernel counts nothing
                first, second, *_ = path.read_text().split()
                ran, waited = ran + int(first), waited + int(second)
        return ran, waited


def _finite(value: float) -> bool:
    return value - value == 0


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread in the block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Collect no garbage while something is timed."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
