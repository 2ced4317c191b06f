"""A source kernel that is the reference is screened as a candidate would be: a faulty one makes the task invalid.

A kernel that races or leaves its memory's bounds has no outputs that others must have. No candidate is to blame then.
"""

from ...correctness.findings import Evidence
from ...correctness.reference import ask_reference
from ...correctness.tolerances import Tolerances
from ...errors import Finding
from ...isolation.handle import RunnerHandle
from ...pool import input_supply
from ...pool.runner_pool import RunnerPool, progress
from ..base import Screening
from . import screening
from .cuda import Cuda

_CODES = ("race", "out_of_bounds", "divergence", "deadlock", "order", "for_gpus", "tells_emulation")


def examine(pool: RunnerPool, reference: RunnerHandle) -> Screening:
    """Make the launches of one call of the reference again, in other orders and under sanitizers.

    Args:
        pool: the pool, whose request has a source kernel.
        reference: the reference's runner.

    Returns:
        What was shown of the kernel, and what could not be.

    Raises:
        Finding: the task is invalid.
    """
    progress("checking the source kernel")
    evidence = Evidence(tolerances=Tolerances(declared=pool.request.tolerance))
    given = [input_supply.make_inputs(pool, reference) for _ in range(screening.RECORDED_CALLS)]
    ask_reference(pool, reference, given[0], evidence, first=True)
    language = Cuda(speaks=pool.request.source_kernel["platform"])
    try:
        return screening.screened(language, pool, reference, reference, given, evidence)
    except Finding as finding:
        if finding.verdict in ("task_invalid", "sandbox_error"):
            raise
        code = finding.code if finding.code in _CODES else None
        text = f"the source kernel, which is the reference, is at fault: {finding.message}"
        raise Finding("task_invalid", text, code, finding.detail) from None
