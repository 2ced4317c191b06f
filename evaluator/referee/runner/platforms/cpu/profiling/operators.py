"""Time, calls and allocations of torch operators, by torch's own profiler."""

import time
from collections.abc import Callable
from typing import Any

import torch

_ROWS = 12


def observe(call: Callable[[int], None], calls: int) -> dict[str, Any]:
    """Profile calls of a model with torch's profiler.

    Args:
        call: Calls the model; its argument is the number of the call.
        calls: How often to call it.

    Returns:
        `rows`: the operators that took longest, as [operator, times run per call of the model, its own milliseconds
        per call, its own share of the wall time]; `outside_share`: the share of the wall time outside of operators (the
        candidate's own kernels, Python, the profiler); `calls`; and `allocations`.
    """
    call(0)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        start = time.perf_counter()
        for number in range(calls):
            call(number)
        seconds = time.perf_counter() - start
    rows = [row for row in profile.key_averages() if row.key != "[memory]"]
    rows.sort(key=lambda row: -row.self_cpu_time_total)
    microseconds = max(seconds * 1e6, 1e-3)
    return {
        "rows": [
            [
                row.key[:80],
                row.count / calls,
                row.self_cpu_time_total / calls / 1e3,
                min(1.0, row.self_cpu_time_total / microseconds),
            ]
            for row in rows[:_ROWS]
        ],
        "outside_share": max(0.0, 1.0 - sum(row.self_cpu_time_total for row in rows) / microseconds),
        "calls": calls,
        "allocations": _allocations(profile, calls),
    }


def _allocations(profile: Any, calls: int) -> dict[str, float] | None:
    """Allocations through torch: their number and bytes per call; None where this torch does not record them."""
    results = getattr(getattr(profile, "profiler", None), "kineto_results", None)
    if results is None:
        return None
    sizes = [event.nbytes() for event in results.events() if event.name() == "[memory]"]
    taken = [size for size in sizes if size > 0]
    return {"count": len(taken) / calls, "bytes": sum(taken) / calls}
