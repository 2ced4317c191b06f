"""An evaluation: correctness, then timing, then the verdict, from what the referee itself has read and timed."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from .correctness import check, neighbours
from .correctness.findings import Evidence
from .errors import Finding, RunnerFailed, of_failure, of_fault
from .isolation.calls import InputSet
from .isolation.handle import RunnerHandle
from .platforms.base import OWN_SHARE, Screening
from .pool import input_supply
from .pool.baselines import Baselines
from .pool.candidate_builder import Builder
from .pool.runner_pool import RunnerPool, progress
from .protocol.baselines import BASELINES, SOURCE_KERNEL
from .timing import call_times, roofline, sequential
from .timing.stage import TimingStage
from .timing.whole_turns import Evenness

_AFTERWARDS_S = 30.0  # for the profile of where time goes and the limits, and what came before


@dataclass
class Evaluation:
    """The state of one evaluation and what it will report."""

    pool: RunnerPool
    evidence: Evidence = field(default_factory=Evidence)
    measurement: call_times.Measurement = field(default_factory=call_times.Measurement)
    cost_s: dict[str, float] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    profile: dict[str, Any] = field(default_factory=dict)
    limit: dict[str, Any] | None = None
    timed_checks: int = 0
    warm: list[InputSet] = field(default_factory=list)  # inputs of the untimed calls
    smaller_inputs: list[str] = field(default_factory=list)  # what was made smaller than the task has it
    champion_fails: str = ""  # why the candidate was not compared with the champion to the end

    def __post_init__(self) -> None:
        """The baselines need the pool."""
        request = self.pool.request
        plan = call_times.Plan(budget_s=request.measure_budget_s, precision=request.precision)
        self.plan = self.pool.platform.plan(plan.for_trial() if request.trial else plan)
        self.measurement.resolution = self.pool.platform.resolution
        self.measurement.set_sd = self.pool.platform.set_sd
        self.began_s = time.perf_counter()
        self.baselines = Baselines(self.pool)
        self.builder = Builder(self.pool, "candidate", request.candidate_source, request.build_cache)
        self.champion: Builder | None = None
        if request.champion_source:
            self.champion = Builder(self.pool, "champion", request.champion_source, request.champion_cache)

    def run(self) -> dict[str, Any]:
        """Evaluate; the result as plain JSON, whatever happens."""
        try:
            try:
                finding = self._examine()
            except Exception as error:
                finding = self._finding_of(error)
            if finding.verdict in ("crashed", "build_failed", "wrong_output"):
                self.pool.stop_all()
                with contextlib.suppress(Exception):  # the verdict stands, whatever comes of looking for its cause
                    finding, found = self.pool.platform.explain(self.pool, finding, self.builder.start)
                    self._take(found)
                if self.smaller_inputs and finding.verdict in ("crashed", "wrong_output"):
                    finding.message += (
                        f" (inputs: {', '.join(self.smaller_inputs)}, because a call on the task's own takes too long "
                        "here; kernels must take sizes from their arguments)"
                    )
        finally:
            self.pool.stop_all()
        return self._report(finding)

    def _finding_of(self, error: Exception) -> Finding:
        """What ended the evaluation. A candidate that hoards what others need is the cause of how they failed."""
        if isinstance(error, RunnerFailed):
            finding = of_failure(error)
        else:
            finding = error if isinstance(error, Finding) else of_fault(error)
        kills = self.pool.kills
        if finding.verdict == "out_of_memory" and kills.in_turns["champion"] and not kills.in_turns["candidate"]:
            text = "the sandbox's memory ran out while the candidate to compare with ran: the kernel killed a process"
            return Finding("sandbox_error", text, "out_of_memory", finding.detail)
        if finding.verdict in ("task_invalid", "sandbox_error"):
            if finding.code == "out_of_memory" and self.pool.need.input_bytes and "needs about" not in finding.message:
                finding.message += f" (it {self.pool.need.says(self.pool.memory_bytes).partition(':')[0]})"
            try:
                self.pool.check_hoarding(ending=True)
            except Finding as hoarding:
                return hoarding
            except Exception as second:
                return of_fault(second)
            if finding.verdict == "task_invalid" and finding.code == "out_of_memory" and kills.beside["candidate"]:
                text = f"{finding.message} (the candidate ran at the same time, so it may have been its doing)"
                return Finding("sandbox_error", text, "out_of_memory", finding.detail)
        return finding

    def _examine(self) -> Finding:
        pool = self.pool
        # Unless an earlier evaluation of the task has examined it.
        to_examine = pool.request.source_kernel and not pool.request.baseline_caches.get(SOURCE_KERNEL)
        with stage(self.cost_s, "reference"):
            progress("running the reference")
            reference = pool.start_reference()
        if to_examine:
            with stage(self.cost_s, "source_kernel"):
                pool.platform.examine_source_kernel(pool, reference)
        with stage(self.cost_s, "inputs"):
            self.smaller_inputs = input_supply.fit_inputs(pool, reference)
            if not pool.frugal:
                self._make_warm(reference)
        if "compile" in self.baselines.others and not pool.frugal:
            self.baselines.others["compile"].start_ahead(self.warm[0], self.plan.sets)
        with stage(self.cost_s, "build"):
            progress("building the candidate")
            candidate = self.builder.start()
        with stage(self.cost_s, "correctness"):
            progress("checking outputs")
            check.examine(pool, reference, candidate, self.evidence)
            pool.check_hoarding()
        if pool.request.shape_group is not None:
            self.tags.append("other_inputs")
        if pool.platform.timed == "nothing":
            return self._screen(reference, candidate)
        foreign = pool.platform.has_foreign_code(candidate, reference)
        checked: RunnerHandle | None = candidate
        if not self.builder.slow:
            pool.stop(candidate)
            checked, pool.kept_bytes = None, 0
        if not self.warm:
            self._make_warm(reference)
        if checked is not None and pool.frugal:
            checked.empty_buffer()
        if self.baselines.others:
            with stage(self.cost_s, "baselines"):
                self._judge_baselines(reference)
            if checked not in pool.running:  # it was stopped to see whether it was why a baseline had no memory
                checked, pool.kept_bytes = None, 0
        with stage(self.cost_s, "timing"):
            candidate = self._time(reference, checked, foreign=foreign)
        with stage(self.cost_s, "limits"):
            self._find_limit(reference)
        if pool.request.trial:
            self.evidence.neighbours = neighbours.untried(self.pool, self.warm[0], self.evidence).to_json()
        else:
            with stage(self.cost_s, "neighbours"):
                self._try_neighbours(reference, candidate)
        return self._verdict()

    def _make_warm(self, reference: RunnerHandle) -> None:
        """Make the inputs of untimed calls: one set where memory is short."""
        count = 1 if self.pool.frugal else self.plan.warm_inputs
        self.warm = [input_supply.make_inputs(self.pool, reference) for _ in range(count)]

    def _take(self, found: Screening) -> None:
        self.tags += found.tags
        if found.facts:
            self.profile["screening"] = found.facts

    def _screen(self, reference: RunnerHandle, candidate: RunnerHandle) -> Finding:
        with stage(self.cost_s, "screening"):
            found = self.pool.platform.screen(self.pool, reference, candidate, self.evidence, self.builder.start)
        self._take(found)
        if self.pool.request.source_kernel:
            self.tags.append("no_oracle")
        of = f" of smaller inputs ({', '.join(self.smaller_inputs)})" if self.smaller_inputs else ""
        text = f"right on {self.evidence.families} input families{of}; not timed; {', '.join(found.tags)}"
        if self.smaller_inputs:
            self.profile.setdefault("screening", {})["smaller_inputs"] = self.smaller_inputs
        missing = found.facts.get("missing") or {}
        return Finding("screened", text + (f"; not shown: {', '.join(missing)}" if missing else ""))

    def _judge_baselines(self, reference: RunnerHandle) -> None:
        """Start each baseline but eager and check it as a candidate is checked. One that is not right is left out.

        All runners of the candidate are stopped or stand still meanwhile.
        """
        for other in self.baselines.others.values():
            progress(f"checking the baseline {other.title}")
            self.baselines.judge(other, self.warm[0], partial(check.examine_baseline, self.pool, reference))
        if judged := self.baselines.judged():
            self.profile["baselines_judged"] = judged

    def _time(self, reference: RunnerHandle, checked: RunnerHandle | None, *, foreign: bool) -> RunnerHandle:
        """Time the candidate; a runner of it that is still alive.

        Args:
            reference: the reference's runner.
            checked: the candidate's that was examined, where building another takes long.
            foreign: whether that had loaded code of its own.
        """
        # What is left of the sandbox's time, less what follows.
        left_s = self.pool.request.wall_s - (time.perf_counter() - self.began_s) - _AFTERWARDS_S
        plan = replace(self.plan, wall_s=left_s)
        self.measurement.seed = self.pool.seeds.named("evenness")
        watch = TimingStage(
            self.pool,
            self.evidence,
            self.baselines,
            self.builder,
            self.champion,
            reference,
            plan,
            self.warm,
            self.measurement,
        )
        watch.run(checked)
        self.timed_checks = watch.checked_calls
        self.champion_fails = watch.champion_fails
        self.profile |= watch.profile
        # A kernel that was loaded and never used is none.
        own = watch.own_share if watch.own_share is not None else float(foreign)
        self.tags.append("custom_kernel" if own >= OWN_SHARE else "torch_only")
        if self.pool.platform.timed != "wall":
            self.tags.append(self.pool.platform.timed)
        if self.pool.request.cold:
            self.tags.append("cold")
        if self.pool.request.trial:
            self.tags.append("trial")
        even = self.profile["evenness"]
        if even == Evenness.UNEVEN or watch.hoards:
            self.tags.append("uneven")
        if even == Evenness.UNCLEAR or watch.noisy:
            self.tags.append("noisy")
        if self.measurement.too_short():
            self.tags.append("too_short")
        assert watch.candidate is not None
        return watch.candidate

    def _try_neighbours(self, reference: RunnerHandle, candidate: RunnerHandle) -> None:
        progress("trying other inputs")
        found = neighbours.examine(self.pool, reference, candidate, self.builder, self.evidence)
        self.evidence.neighbours = found.to_json()
        if found.guards:
            self.tags.append("specialised")

    def _find_limit(self, reference: RunnerHandle) -> None:
        times_s = {name: self.measurement.latency_ms(name)[0] / 1e3 for name in self.measurement.reported()}
        found = roofline.find(self.pool, reference, self.warm[0], self.evidence, times_s)
        self.profile |= found.profile
        self.limit = found.roofline
        if found.impossible:
            raise Finding("integrity", found.impossible, "impossible_time")
        if found.beyond:
            self.tags.append("beyond_roofline")

    def _verdict(self) -> Finding:
        value, low, high = self.measurement.speedup("eager")
        if high < 1.0:
            self.tags.append("slower")
        elif low <= 1.0:
            self.tags.append("tie")
        checks, timed = self.evidence.families, self.pool.platform.timed
        note = {"wall": "", "cycles": ", timed: cycles"}.get(timed, f", counted: {timed}")
        calls = "counted" if timed == "instructions" else "timed"
        return Finding(
            "passed",
            f"correct on {checks} input families and {self.timed_checks} {calls} calls; {value:.2f}x eager "
            f"({low:.2f} to {high:.2f}){note}",
        )

    def _report(self, finding: Finding) -> dict[str, Any]:
        passed = finding.verdict == "passed"
        right = passed or finding.verdict == "screened"
        timed = self.measurement.timed()
        speedup = {name: _interval(self.measurement.speedup(name)) for name in BASELINES if name in timed}
        samples = {name: self.measurement.samples_ms(name) for name in timed}
        latency = {name: _latency(self.measurement.latency_ms(name)) for name in self.measurement.reported()}
        return {
            "verdict": finding.verdict,
            "code": finding.code,
            "message": finding.message,
            "detail": finding.detail,
            "tags": self.tags if right else [],
            "correctness": self.evidence.to_json(),
            "speedup": speedup if passed else None,
            "latency_ms": latency if passed else {},
            "champion": self._against_champion() if passed else None,
            "roofline": self.limit if passed else None,
            "profile": {**self.profile, "absent": self.baselines.absent(), "samples_ms": samples} if right else {},
            "cost_s": self.cost_s,
            "seed": self.pool.seeds.secret.hex(),
            "baseline_caches": {**self.baselines.packed(), SOURCE_KERNEL: self.pool.kernel_built},
            "build_cache": self.builder.for_later(),
        }

    def _against_champion(self) -> dict[str, Any] | None:
        """What the comparison with the champion has come to; None if there was no champion."""
        if not self.pool.request.champion_source:
            return None
        found = self.measurement.against_champion()
        if found is None:
            return {"decision": sequential.Decision.OPEN, "speedup": None, "sets": 0, "absent": self.champion_fails}
        interval = _interval((found.value, found.low, found.high))
        return {"decision": found.decision, "speedup": interval, "sets": found.sets, "absent": ""}


def _interval(values: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip(("value", "low", "high"), values, strict=True))


def _latency(values: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip(("median", "low", "high"), values, strict=True))


@contextlib.contextmanager
def stage(cost_s: dict[str, float], name: str) -> Iterator[None]:
    """Note in `cost_s` how many seconds the block took, however it ends."""
    start = time.perf_counter()
    try:
        yield
    finally:
        cost_s[name] = round(time.perf_counter() - start, 3)
