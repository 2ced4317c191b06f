"""The third mode of the referee: where a candidate's time goes, for those who want to make it faster.

Runs after a candidate has passed, in a sandbox of its own and never beside timing: a slow observer disturbs nothing
here. Nothing in it is evidence. What could not be measured is absent, with the reason.
"""

import hashlib
import time
from typing import Any

from ..errors import Finding
from ..evaluate import stage
from ..isolation.calls import InputSet
from ..pool import input_supply
from ..pool.runner_pool import Bench, progress
from ..protocol.untrusted import text
from . import compiler_remarks, native
from .compiler_remarks import Loop

SCHEMA = "kernelwright.profile/2"
PARTS = ("calls", "operators", "processor_time", "vectorization")
_SETS = 2  # of inputs, called in turn


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

    def _tell_loops(self) -> None:
        if self.loops:
            self.parts["vectorization"] = {
                "source": "remarks of g++ on the candidate's own files",
                "loops": compiler_remarks.condense(self.loops),
                "loops_seen": len(self.loops),
            }

    def _missing(self, reason: str) -> None:
        for part in PARTS:
            if part not in self.parts:
                self.absent.setdefault(part, reason)
