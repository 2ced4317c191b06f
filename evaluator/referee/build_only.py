"""Builds a candidate and nothing else, so that its evaluation finds the work done."""

from typing import Any

from .errors import Finding, of_fault
from .evaluate import stage
from .pool.candidate_builder import Builder
from .pool.runner_pool import RunnerPool, progress


def run(pool: RunnerPool) -> dict[str, Any]:
    """What the build left behind, as `Trial` returns it; why there is nothing, if so. Says nothing about verdicts."""
    cost_s: dict[str, float] = {}
    builder = Builder(pool)
    message = ""
    try:
        with stage(cost_s, "reference"):
            pool.start_reference()
        with stage(cost_s, "build"):
            progress("building the candidate")
            builder.start()
    except Finding as finding:
        message = finding.message
    except Exception as error:
        message = of_fault(error).message
    finally:
        pool.stop_all()
    return {"message": message, "build_cache": builder.packed, "cost_s": cost_s}
