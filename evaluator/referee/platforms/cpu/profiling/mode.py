"""The referee's mode `profile`: says where a candidate's time goes, so that its author can make it faster.

It runs after a candidate has passed, in a sandbox of its own and never beside timed calls, so the observers may be
slow. No part of a profile is evidence. A part that could not be measured is named under `absent` with the reason.
"""

import time
from typing import Any

from ....errors import Finding
from ....evaluate import stage
from ....pool import input_supply
from ....pool.runner_pool import RunnerPool, progress
from ....protocol.untrusted import text
from . import native
from .native import Observed

_INPUT_SETS = 2  # the calls use them in turn


def run(pool: RunnerPool) -> dict[str, Any]:
    """Profile the candidate. `measure_budget_s` of the request bounds the time of all that is done here."""
    start = time.perf_counter()
    cost_s: dict[str, float] = {}
    observed = Observed()

    def left_s() -> float:
        """Seconds that are left of the budget; at least one, so that an answer that is due is not cut off."""
        return max(1.0, pool.request.measure_budget_s - (time.perf_counter() - start))

    try:
        with stage(cost_s, "inputs"):
            progress("profile: making inputs")
            reference = pool.start_reference()
            inputs = [input_supply.make_inputs(pool, reference) for _ in range(_INPUT_SETS)]
            pool.stop(reference)
        with stage(cost_s, "native"):
            progress("profile: watching calls")
            native.observe(pool, inputs, left_s, observed)
    except Finding as finding:
        observed.give_up(text(finding.message, 200))
    finally:
        pool.stop_all()
    return {
        **observed.parts,
        "absent": observed.absent,
        "cost_s": {**cost_s, "total": round(time.perf_counter() - start, 3)},
    }
