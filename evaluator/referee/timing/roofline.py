"""The last stage of an evaluation: how near the candidate came to what this device allows, and whether that can be.

Roofline model: Williams, Waterman, Patterson (2009).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..correctness import call_outputs
from ..correctness.accuracy import flatten
from ..correctness.findings import Evidence
from ..errors import Finding, RunnerFailed, of_task
from ..isolation.calls import InputSet
from ..isolation.handle import RunnerHandle
from ..pool.reference_work import CountedWork, count_work
from ..pool.runner_pool import RunnerPool
from ..protocol.call_messages import KEEP_ALL
from ..protocol.peaks import Peaks, Traffic
from ..protocol.tensors import TensorRow

_RETRIES = 2
MARGIN = 0.7  # a time below this share of what writing the outputs takes is impossible, not good
NOISE = 0.9  # peaks are measured, too: what stays above this share of a limit has not broken it
NEAR = 1.2  # a baseline within this factor of a limit could not be there if it were one
_FLOATS = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Found:
    """The `roofline` object of an evaluation, figures for its profile, and what is wrong with the time, if anything.

    `impossible` says why the time cannot be true. `beyond`: it is better than a limit that nothing speaks against.
    """

    roofline: dict[str, Any] | None
    profile: dict[str, Any]
    impossible: str = ""
    beyond: bool = False


@dataclass(frozen=True)
class Work:
    """What a call of the task does, as far as it is known: bytes, FLOPs and in which types."""

    nbytes: int  # what it touches of inputs and parameters, and the outputs, each once
    output_bytes: int
    written: int  # of the outputs, what no call can have found in place
    flops: int
    dtypes: tuple[str, ...]
    rotation_bytes: int = 0  # that calls rotate over
    cache_bytes: int = 0  # of the device's largest cache

    @property
    def traffic(self) -> Traffic:
        """The bytes, and how many are too many for the caches."""
        written, most = min(self.written, self.nbytes), 4 * self.cache_bytes
        return Traffic(self.nbytes, written, self.rotation_bytes, most)


@dataclass(frozen=True)
class Limit:
    """The shortest time that the peaks allow, and what sets it."""

    seconds: float
    bound: str


def time_limit(traffic: Traffic, flops: int, peaks: Peaks, *, cached: bool) -> Limit:
    """The longer of the times for the bytes that must move and for the FLOPs that must happen.

    Memory moves one byte at a time, whichever way: between reading alone, copying and writing alone, the time for a
    byte is taken to change linearly with the share of what is written. Caches may read and write at once, so there the
    longer of the two times counts. `cached`: as if all data came from the caches.
    """
    read, written = traffic.nbytes - traffic.written, traffic.written
    if cached:
        moving = max(read / peaks.read_bytes_per_s, written / peaks.written_bytes_per_s)
    else:
        copied = min(read, written)
        moving = (
            2 * copied / peaks.rotating_copied_bytes_per_s
            + (read - copied) / peaks.rotating_read_bytes_per_s
            + (written - copied) / peaks.rotating_written_bytes_per_s
        )
    compute = flops / peaks.flops_per_s if flops else 0.0
    return Limit(moving, "cache" if cached else "memory") if moving >= compute else Limit(compute, "compute")


def find(
    pool: RunnerPool, reference: RunnerHandle, inputs: InputSet, evidence: Evidence, times_s: Mapping[str, float]
) -> Found:
    """Measure the device and hold the candidate's median time against it. `times_s`: the medians of all variants.

    Raises:
        Finding: the task fails, or the device cannot be measured.
    """
    work = _work_of(pool, reference, inputs, evidence)
    found = judge(work, _peaks(pool, work), times_s)
    for _ in range(_RETRIES):
        if found.roofline is not None and not found.beyond:
            break
        # Make sure that the peaks were not measured while something else ran. That a baseline does with less is no
        # reason to doubt a rate that several evaluations have seen.
        found = judge(work, _peaks(pool, work, again=found.beyond or bool(found.impossible)), times_s)
    return replace(found, profile={**found.profile, **pool.platform.limit_facts()})


def judge(work: Work, peaks: Peaks, times_s: Mapping[str, float]) -> Found:
    """What the candidate's time means, given what the device can do.

    The bytes and FLOPs of a task are those of the reference's way to its result. Another way may need fewer (a product
    with a diagonal matrix is no product of matrices), so being faster than they allow proves nothing by itself. Only
    the outputs must be written, whatever the way.
    """
    candidate_s = times_s["candidate"]
    profile: dict[str, Any] = {
        "bytes_moved_min": work.nbytes,
        "flops": work.flops,
        "achieved_gb_per_s": round(work.nbytes / candidate_s / 1e9, 2),
        "achieved_gflop_per_s": round(work.flops / candidate_s / 1e9, 2),
        "peak_read_gb_per_s": round(peaks.rotating_read_bytes_per_s / 1e9, 2),
        "peak_write_gb_per_s": round(peaks.rotating_written_bytes_per_s / 1e9, 2),
        "peak_copy_gb_per_s": round(peaks.rotating_copied_bytes_per_s / 1e9, 2),
        "peak_cached_read_gb_per_s": round(peaks.read_bytes_per_s / 1e9, 2),
        "peak_cached_write_gb_per_s": round(peaks.written_bytes_per_s / 1e9, 2),
        "peak_gflop_per_s": round(peaks.flops_per_s / 1e9, 2) or None,
        "output_bytes": work.output_bytes,
    }
    writing_s = work.written / peaks.written_bytes_per_s
    if candidate_s < MARGIN * writing_s:
        text = (
            f"the candidate takes {candidate_s * 1e3:.3f} ms; this machine needs at least {writing_s * 1e3:.3f} ms to "
            "write the outputs alone"
        )
        return Found(None, profile, impossible=text)
    limit = time_limit(work.traffic, work.flops, peaks, cached=False)
    if candidate_s < NOISE * limit.seconds:
        # Its inputs lay in the caches, where the referee had just written them, and it made use of that.
        limit = time_limit(work.traffic, work.flops, peaks, cached=True)
    bound = {"bound": limit.bound, "limit_ms": limit.seconds * 1e3, "fraction": limit.seconds / candidate_s}
    name, baseline_s = min(
        ((name, seconds) for name, seconds in times_s.items() if name != "candidate"), key=lambda pair: pair[1]
    )
    broken = candidate_s < NOISE * limit.seconds
    if baseline_s < NOISE * limit.seconds or (broken and baseline_s <= NEAR * limit.seconds):
        profile["roofline_note"] = (
            f"no limit is known: {name} takes {baseline_s * 1e3:.3f} ms, though the reference's {limit.bound} traffic "
            f"would need {limit.seconds * 1e3:.3f} ms; this op can be done with less"
        ).replace("compute traffic", "arithmetic")
        return Found(None, profile)
    return Found(bound, profile, beyond=broken)


def _work_of(pool: RunnerPool, reference: RunnerHandle, inputs: InputSet, evidence: Evidence) -> Work:
    state = pool.state[0].tensors if pool.state else ()
    outputs = evidence.form.tree.tensors if evidence.form is not None else ()
    counted = count_work(reference, inputs) or CountedWork()
    input_bytes = min(counted.input_bytes, inputs.nbytes)
    state_bytes = min(counted.state_bytes, sum(row.span_bytes for row in state))
    dtypes = {row.dtype for row in (*inputs.tree.tensors, *state, *outputs)} & set(_FLOATS)
    if dtypes & {"bfloat16", "float16"}:
        dtypes.add("float32")  # which a candidate may compute in
    return Work(
        nbytes=input_bytes + state_bytes + evidence.output_bytes,
        output_bytes=evidence.output_bytes,
        written=_written(pool, reference, inputs),
        flops=counted.flops,
        dtypes=tuple(sorted(dtypes or {"float32"})) if counted.flops else (),
        rotation_bytes=pool.slots() * input_bytes + 2 * evidence.output_bytes,
        cache_bytes=pool.platform.cache_bytes(),
    )


def _written(pool: RunnerPool, reference: RunnerHandle, inputs: InputSet) -> int:
    """Bytes of the outputs that lie neither in the inputs nor where they lay before, each counted once."""
    timeout_s = pool.request.call_timeout_s
    try:
        first, second = (
            reference.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=timeout_s, keep=KEEP_ALL).outputs
            for _ in range(2)
        )
        shared = call_outputs.form_of(reference, second).shared
    except RunnerFailed as failure:
        raise of_task(failure, doing="its forward pass") from None
    before = {row.place for row in first.tensors}
    rows = flatten(second).items()
    return _union(
        row for path, row in rows if isinstance(row, TensorRow) and row.place not in before and path not in shared
    )


def _union(rows: Iterable[TensorRow]) -> int:
    """Bytes that tensors cover together, and at most what their elements take."""
    total, end = 0, 0
    for row in sorted(rows, key=lambda row: row.place):
        stop = row.place + row.span_bytes
        total += min(max(0, stop - max(end, row.place)), row.element_bytes)
        end = max(end, stop)
    return total


def _peaks(pool: RunnerPool, work: Work, *, again: bool = False) -> Peaks:
    try:
        return pool.platform.peaks(pool, work.traffic, work.dtypes, again=again)
    except RunnerFailed as failure:
        raise Finding("sandbox_error", f"the device's limits could not be measured: {failure.message}") from None
