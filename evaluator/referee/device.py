"""Measures the device for those who write kernels for it. No task and no candidate come into it."""

import time
from typing import Any

from .pool.runner_pool import RunnerPool, progress


def run(pool: RunnerPool) -> dict[str, Any]:
    """The figures of the device in `figures`, empty if there are none.

    Raises:
        RunnerFailed: they cannot be measured.
    """
    start = time.perf_counter()
    progress("measuring the device: memory, streaming stores, threads")
    try:
        figures = pool.platform.device_figures(pool)
    finally:
        pool.stop_all()
    return {"figures": figures, "cost_s": {"total": round(time.perf_counter() - start, 3)}}
