"""Builds a candidate and does not evaluate it, so that a later evaluation finds it built."""

from typing import Any

from .errors import Finding, of_fault
from .evaluate import stage
from .pool.candidate_builder import Builder
from .pool.runner_pool import RunnerPool, progress


def run(pool: RunnerPool) -> dict[str, Any]:
    """Build the candidate.

    Returns:
        The build archive in `build_cache`, in the form that an evaluation returns it; and a message if the build
        failed. There is no verdict.
    """
    cost_s: dict[str, float] = {}
    builder = Builder(pool, "candidate", pool.request.candidate_source)
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
    return {"message": message, "build_cache": builder.for_later(), "cost_s": cost_s}
