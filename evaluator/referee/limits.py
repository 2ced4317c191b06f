"""The last stage of a trial: how near the candidate came to what this device allows, and whether that can be."""

import contextlib
import os
from dataclasses import dataclass
from typing import Any

from . import roofline
from .bench import Bench
from .handle import Handle, InputSet, RunnerFailed
from .verdicts import Finding

_RETRIES = 3
_MARGIN = 0.7  # a time below this share of what the caches allow is impossible, not good


@dataclass(frozen=True)
class Found:
    """The `roofline` object of an evaluation, figures for its profile, and why the time cannot be true, if so."""

    roofline: dict[str, Any]
    profile: dict[str, Any]
    impossible: str = ""


def find(bench: Bench, reference: Handle, inputs: InputSet, output_bytes: int, candidate_s: float) -> Found:
    """Measure the device and hold the candidate's median time against it.

    Raises:
        Finding: the device cannot be measured.
    """
    state_bytes = sum(row.span_bytes for row in bench.state[0].tensors) if bench.state else 0
    nbytes = inputs.nbytes + output_bytes + state_bytes
    rotation = bench.slots() * inputs.nbytes + 2 * output_bytes + state_bytes
    share = output_bytes / max(1, nbytes)
    flops = _count_flops(reference, inputs)
    peaks = _measure(bench, nbytes, rotation, share)
    for _ in range(_RETRIES):
        if roofline.limit(nbytes, flops, peaks).impossible_s * _MARGIN <= candidate_s:
            break
        # Before calling a time impossible, make sure that the peaks were not measured while something else ran.
        peaks = roofline.best(peaks, _measure(bench, nbytes, rotation, share))
    limit = roofline.limit(nbytes, flops, peaks)
    impossible = ""
    if limit.impossible_s * _MARGIN > candidate_s:
        impossible = (
            f"the candidate takes {candidate_s * 1e3:.3f} ms; this machine needs at least "
            f"{limit.impossible_s * 1e3:.3f} ms to move or compute what the task requires"
        )
    profile = {
        "bytes_moved_min": nbytes,
        "flops": flops,
        "achieved_gb_per_s": round(nbytes / candidate_s / 1e9, 2),
        "achieved_gflop_per_s": round(flops / candidate_s / 1e9, 2),
        "peak_gb_per_s": round(peaks.bytes_per_s / 1e9, 2),
        "peak_cached_gb_per_s": round(peaks.cached_bytes_per_s / 1e9, 2),
        "peak_gflop_per_s": round(peaks.flops_per_s / 1e9, 2),
        "output_bytes": output_bytes,
        "cores": len(os.sched_getaffinity(0)),
    }
    bound = {"bound": limit.bound, "limit_ms": limit.seconds * 1e3, "fraction": limit.seconds / candidate_s}
    return Found(bound, profile, impossible)


def _count_flops(reference: Handle, inputs: InputSet) -> int:
    with contextlib.suppress(RunnerFailed, ValueError, TypeError):
        reply = reference.give({"op": "flops"}, inputs.tree, inputs.contents, timeout_s=60)
        return max(0, int(reply["flops"]))
    return 0


def _measure(bench: Bench, footprint: int, rotation: int, share: float) -> roofline.Peaks:
    message = {"op": "peaks", "footprint_bytes": footprint, "rotation_bytes": rotation, "written_share": share}
    try:
        runner = bench.seat("peaks")
        reply = runner.ask(message, timeout_s=60)
        bench.dismiss(runner)
    except RunnerFailed as failure:
        raise Finding("sandbox_error", f"the device's limits could not be measured: {failure.message}") from None
    return roofline.Peaks(**{name: float(reply[name]) for name in roofline.Peaks.__dataclass_fields__})
