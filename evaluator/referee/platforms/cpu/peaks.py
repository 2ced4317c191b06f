"""Peaks of this machine's processor, asked of a runner that has loaded nothing foreign.

The referee itself keeps no thread pool, so it does not measure them in its own process.
"""

from collections.abc import Sequence
from dataclasses import asdict

from ...pool.runner_pool import RunnerPool
from ...protocol.peaks import Peaks, Traffic


def measured_peaks(pool: RunnerPool, traffic: Traffic, dtypes: Sequence[str]) -> Peaks:
    """Measure bandwidths for this traffic, and the peak of matrix products of these types (of none: no peak).

    Raises:
        RunnerFailed: the runner died, failed or lied about the protocol.
    """
    runner = pool.start("peaks")
    reply = runner.ask({"op": "peaks", "traffic": asdict(traffic), "dtypes": list(dtypes)}, timeout_s=60)
    pool.stop(runner)
    return Peaks(**{name: float(reply[name]) for name in Peaks.__dataclass_fields__})
