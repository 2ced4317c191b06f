"""The model under torch.compile: how long it takes to compile and to run, and in which kernels."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from .errors import reason_of
from .timing import call_time_ms

MOST_KERNELS = 60
BETWEEN = "between kernels"
"""The name for time in the code that calls the kernels."""
_AROUND_KERNELS = ("## Call CompiledFxGraph", "Torch-Compiled Region", "TorchDynamo", "Pregraph", "AOTDispatcher")
_PROFILED_CALLS = 3
_TIMED_S = 3.0


class TooLong(BaseException):
    """The time is up. Not an Exception: compilers catch those."""


def compiled_times(
    model: torch.nn.Module, inputs: list[Any], restore: Callable[[], None], budget_s: float
) -> dict[str, Any]:
    """`compile_s`, `compile_ms`, `kernels_ms` and `compile_error` of the result, for a model that is compiled here.

    Args:
        model: the model; left as it was.
        inputs: of its `forward`.
        restore: puts back what a call changes.
        budget_s: an attempt that takes longer is given up.
    """
    found: dict[str, Any] = {"compile_s": None, "compile_ms": None, "kernels_ms": [], "compile_error": ""}
    if budget_s <= 0:
        return {**found, "compile_error": "the time for the capture was used up before; the proof times it"}
    try:
        with at_most(budget_s), _settings():
            compiled = torch.compile(model, dynamic=False)
            restore()
            began = time.perf_counter()
            compiled(*inputs)
            found["compile_s"] = time.perf_counter() - began
            until = began + budget_s
            timed_s = min(_TIMED_S, max(0.0, (until - time.perf_counter()) / 2))
            found["compile_ms"] = call_time_ms(lambda: compiled(*inputs), restore, timed_s)
            found["kernels_ms"] = _kernels(lambda: compiled(*inputs), restore)
    except TooLong:
        if found["compile_ms"] is None:
            found["compile_error"] = f"torch.compile did not finish within {budget_s:.0f} s; the proof times it again"
    except Exception as error:
        found["compile_error"] = reason_of(error)[:500]
    finally:
        with suppress(Exception):  # what was given up may have been an import
            torch._dynamo.reset()
    return found


def _kernels(call: Callable[[], Any], restore: Callable[[], None]) -> list[list[Any]]:
    """The names of what a call spends its time in, longest first, each with its own milliseconds of one call."""
    restore()
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(_PROFILED_CALLS):
            restore()
            call()
    found: dict[str, float] = {}
    for event in profile.key_averages():
        name = BETWEEN if event.key.startswith(_AROUND_KERNELS) else event.key[:300]
        found[name] = found.get(name, 0.0) + event.self_cpu_time_total / 1e3 / _PROFILED_CALLS
    longest = sorted(found.items(), key=lambda item: -item[1])[:MOST_KERNELS]
    return [[name, ms] for name, ms in longest if ms > 0]


@contextmanager
def _settings() -> Iterator[None]:
    """TorchInductor's settings under which its kernels appear in a profile by the operators that they are made of."""
    import torch._inductor.config as config

    with config.patch({"cpp.enable_kernel_profile": True, "cpp.descriptive_names": "original_aten"}):
        yield


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `TooLong` in the block once it has taken so long. A timer that runs already goes on afterwards.

    It is raised each second until the block ends: an exception in a destructor or a callback is lost.
    """
    open_block = [True]

    def stop(*_: Any) -> None:
        if open_block[0]:
            raise TooLong

    handler = signal.signal(signal.SIGALRM, stop)
    began = time.monotonic()
    other, interval = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        open_block[0] = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if other:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, other - (time.monotonic() - began)), interval)
