"""Peaks of this machine's processor, asked of a runner that has loaded nothing foreign.

The referee itself keeps no thread pool, so it does not measure them in its own process.
"""

from collections.abc import Sequence

from ...pool.runner_pool import RunnerPool
from ...protocol.peaks import Peaks, Traffic, peaks_of, points

ENOUGH = 3  # measurements, in evaluations of their own: what disturbed one has hardly disturbed all


def peaks(pool: RunnerPool, traffic: Traffic, dtypes: Sequence[str], *, again: bool) -> Peaks:
    """The highest rates known for this traffic and for matrix products of these types (of none: no peak).

    Interference only makes a peak look lower, so the highest rate counts. Points that this device has measured in
    `ENOUGH` evaluations are not measured anew, unless `again` says that something speaks against them.

    Raises:
        RunnerFailed: the runner died, failed or lied about the protocol.
    """
    wanted = points(traffic, dtypes)
    kept = pool.request.peaks
    missing = [name for name in wanted if again or kept.get(name, (0.0, 0))[1] < ENOUGH]
    if missing:
        runner = pool.start("peaks")
        reply = runner.ask({"op": "peaks", "points": list(dict.fromkeys(missing))}, timeout_s=120)
        pool.stop(runner)
        for name in missing:
            pool.peaks[name] = max(pool.peaks.get(name, 0.0), float(reply["rates"][name]))
    rates = {name: max(kept.get(name, (0.0, 0))[0], pool.peaks.get(name, 0.0)) for name in wanted}
    return peaks_of(rates, traffic, dtypes)
