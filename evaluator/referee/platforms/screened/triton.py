"""Kernels of Triton, screened: the launches of two calls are recorded, and those of the later one made again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import Finding
from ...isolation.calls import InputSet
from ...isolation.handle import RunnerHandle
from ...pool import input_supply
from ...pool.runner_pool import RunnerPool
from ...protocol.gpu_checks import WATCHES, triton_package
from .screening import RECORDED_CALLS, Observed, made_again, recorded_calls


@dataclass(frozen=True)
class Triton:
    """See `screening.Language`."""

    checks: Mapping[str, str] = field(default_factory=lambda: WATCHES)
    most_work: int = 1 << 22  # a second or so in the interpreter, where a program takes about 10 ms
    cannot: str = "NotEmulated: "
    undefined: str = (
        "what torch.empty makes holds NaN until it is written, and so does what a mask leaves out of a load "
        "without `other`"
    )

    @property
    def missing(self) -> str:
        """Triton itself."""
        return "" if triton_package() else "Triton is not installed (pip install 'kernelwright[triton]')"

    def observe(
        self, pool: RunnerPool, candidate: RunnerHandle, inputs: Sequence[InputSet], *, run: bool = True
    ) -> Observed:
        """Record the launches of a call on each set of inputs, and make those of the last again.

        Raises:
            RunnerFailed: the candidate failed in a call.
        """
        recorded = recorded_calls(pool, candidate, inputs, run=run)
        return made_again(pool, {"source": pool.request.candidate_source}, recorded)

    def compile_only(
        self, pool: RunnerPool, finding: Finding, start_candidate: Callable[[], RunnerHandle]
    ) -> tuple[Finding, dict[str, Any]]:
        """Its launches are recorded and not carried out, which tells what to compile."""
        reference = pool.start_reference()
        inputs = [input_supply.make_inputs(pool, reference) for _ in range(RECORDED_CALLS)]
        return finding, {**self.observe(pool, start_candidate(), inputs, run=False).facts, "runs": []}
