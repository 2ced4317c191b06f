"""The third mode of the referee: where a candidate's time goes, for those who want to make it faster.

Runs after a candidate has passed, in a sandbox of its own and never beside timing: a slow observer disturbs nothing
here. Nothing in it is evidence. What could not be measured is absent, with the reason.
"""

import hashlib
import time
from collections import Counter
from typing import Any

from ..errors import Finding
from ..evaluate import stage
from ..isolation.calls import InputSet
from ..pool import input_supply
from ..pool.runner_pool import Bench, progress
from ..protocol.untrusted import text
from . import callgrind, callgrind_run, compiler_remarks, native
from .compiler_remarks import Loop

SCHEMA = "kernelwright.profile/1"
PARTS = ("calls", "operators", "processor_time", "vectorization", "hardware_counters", "counts")
_SETS = 2  # of inputs, called in turn
_COUNTING_MIN_S = 15.0  # importing torch under valgrind alone takes that long


def run(bench: Bench) -> dict[str, Any]:
    """Profile the candidate within the request's measure budget (seconds, all in all)."""
    return Profiling(bench).run()


class Profiling:
    """The state of one profile."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.start = time.perf_counter()
        self.parts: dict[str, Any] = {}
        self.absent: dict[str, str] = {}
        self.cost_s: dict[str, float] = {}
        self.loops: list[Loop] = []
        self.cost: Counter[tuple[str, int]] = Counter()

    def run(self) -> dict[str, Any]:
        """Observe, and report what there is."""
        try:
            with stage(self.cost_s, "inputs"):
                progress("profile: making inputs")
                reference = self.bench.seat_reference()
                sets = [input_supply.make_inputs(self.bench, reference) for _ in range(_SETS)]
                self.bench.dismiss(reference)
            with stage(self.cost_s, "native"):
                progress("profile: watching calls")
                self._watch(sets)
            with stage(self.cost_s, "counting"):
                self._count(sets)
            self._tell_loops()
            self._missing(self.absent.get("calls", "it was not reached"))
        except Finding as finding:
            self._missing(text(finding.message, 200))
        finally:
            self.bench.dismiss_all()
        source = self.bench.request.candidate_source.encode("utf-8", "surrogatepass")
        return {
            "schema": SCHEMA,
            "candidate": hashlib.sha256(source).hexdigest(),
            **self.parts,
            "absent": self.absent,
            "cost_s": {**self.cost_s, "total": round(time.perf_counter() - self.start, 3)},
        }

    def left_s(self) -> float:
        """What is left of the budget, never less than a second."""
        return max(1.0, self.bench.request.measure_budget_s - (time.perf_counter() - self.start))

    def _watch(self, sets: list[InputSet]) -> None:
        observed = native.observe(self.bench, sets, self.left_s)
        self.parts |= observed.parts
        self.absent |= observed.absent
        self.loops = observed.loops

    def _count(self, sets: list[InputSet]) -> None:
        if "hardware_counters" in self.parts:
            self.absent["counts"] = "the processor's own counters were read instead"
            return
        call_s = self.parts.get("calls", {}).get("processor_ms_per_call", 0.0) / 1e3
        if "calls" not in self.parts:
            self.absent["counts"] = "the candidate could not be called"
        elif self.parts["calls"]["uses_torch_compile"]:
            self.absent["counts"] = "the candidate uses torch.compile, which takes minutes under valgrind"
        elif self.left_s() < _COUNTING_MIN_S:
            self.absent["counts"] = f"no time left for valgrind within {self.bench.request.measure_budget_s:g} s"
        else:
            progress("profile: counting instructions under valgrind")
            try:
                counted = callgrind_run.count(self.bench, sets, self.left_s, call_s)
            except callgrind_run.NotCounted as reason:
                self.absent["counts"] = str(reason)
                return
            self.parts["counts"] = counted.to_json(callgrind.caches())
            self.cost = counted.counts.lines

    def _tell_loops(self) -> None:
        if self.loops:
            self.parts["vectorization"] = {
                "source": "remarks of g++ on the candidate's own files",
                "loops": compiler_remarks.condense(self.loops, self.cost),
                "loops_seen": len(self.loops),
            }

    def _missing(self, reason: str) -> None:
        for part in PARTS:
            if part not in self.parts:
                self.absent.setdefault(part, reason)
