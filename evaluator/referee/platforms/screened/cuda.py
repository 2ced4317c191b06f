"""CUDA C++, screened: the launches of two calls are recorded, and those of the later one made again as programs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import Finding, RunnerFailed
from ...isolation.calls import InputSet
from ...isolation.handle import RunnerHandle
from ...pool.runner_pool import RunnerPool
from ...protocol.gpu_checks import NO_KERNEL, SANITIZERS
from ...protocol.tensors import Tree
from .screening import NO_FACTS, Observed, asked_checker, facts_of, made_again, recorded_calls


@dataclass(frozen=True)
class Cuda:
    """See `screening.Language`."""

    checks: Mapping[str, str] = field(default_factory=lambda: SANITIZERS)
    most_work: int = 1 << 26  # 0.3 s on the host, thread by thread
    cannot: str = "NotEmulated: "
    missing: str = ""
    undefined: str = "shared memory, and what torch::empty makes, hold NaN until they are written"
    speaks: str = ""  # as for `screening.made_again`

    def observe(
        self, pool: RunnerPool, candidate: RunnerHandle, inputs: Sequence[InputSet], *, run: bool = True
    ) -> Observed:
        """Record the launches of a call on each set of inputs, and make those of the last again.

        Raises:
            RunnerFailed: the candidate failed in a call.
        """
        recorded = recorded_calls(pool, candidate, inputs, run=run)
        sources = recorded.told[0].get("sources")  # told before it has seen the inputs that are judged
        if not isinstance(sources, list) or not sources:
            return Observed(recorded.outputs[-1], {**NO_FACTS, "error": NO_KERNEL})
        return made_again(pool, {"sources": sources}, recorded, speaks=self.speaks)

    def compile_only(
        self, pool: RunnerPool, finding: Finding, start_candidate: Callable[[], RunnerHandle]
    ) -> tuple[Finding, dict[str, Any]]:
        """Its sources are compiled, which its process has told before it gave up."""
        pool.start_reference()
        candidate = pool.start("candidate", pool.request.candidate_source)
        try:
            pool.load_model(candidate, pool.request.candidate_source, "ModelNew")
        except RunnerFailed:
            sources = candidate.ask({"op": "given_sources"}, timeout_s=60).get("sources")
        else:
            return finding, {}
        told, _ = asked_checker(pool, {"op": "compile_only", "sources": sources}, Tree({"list": []}, ()), [])
        return finding, facts_of(told)
