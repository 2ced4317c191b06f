"""The kernels of one call with what was launched, as torch's profiler tells them."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_MOST_EVENTS = 2000
_MOST_BYTES = 64 * 1024 * 1024  # of the file that the profiler writes
_OF_THE_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")  # categories of events; older versions write `Kernel`
# Names in a kernel's `args`: libkineto, output_json.cpp.
_TOLD = ("registers per thread", "shared memory", "est. achieved occupancy %", "blocks per SM", "warps per SM")


def observe(call: Callable[[], object], file: Path) -> list[list[Any]]:
    """Have torch's profiler watch a call that ends when the device is done; see `rows_of`.

    Raises:
        ValueError: the profiler told more than is read.
    """
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as seen:
        call()
    seen.export_chrome_trace(str(file))
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise ValueError("torch's profiler told more than is read")
        return rows_of(json.loads(file.read_text(encoding="utf-8", errors="replace")))
    finally:
        file.unlink(missing_ok=True)


def rows_of(trace: Mapping[str, Any]) -> list[list[Any]]:
    """Of each kernel and copy in a trace: name, microseconds, `_TOLD`, grid and block; None for what it does not tell.

    At most 2000, the longest.
    """
    found: list[list[Any]] = []
    for event in trace.get("traceEvents", ()):
        if str(event.get("cat", "")).lower() in _OF_THE_DEVICE and event.get("ph") == "X":
            told = event.get("args") or {}
            values = [_finite(told.get(name)) for name in _TOLD]
            values += [told.get(name) for name in ("grid", "block")]
            found.append([str(event.get("name"))[:200], float(event.get("dur", 0.0)), *values])
    return sorted(found, key=lambda row: -row[1])[:_MOST_EVENTS]


def _finite(value: Any) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None
