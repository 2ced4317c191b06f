"""A trial: correctness, then timing, then the verdict, from what the referee itself has read and timed."""

import contextlib
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from . import accuracy, correctness, limits, statistics, timing
from .accuracy import flatten
from .baselines import Baselines
from .bench import Bench, progress
from .correctness import Evidence
from .handle import Call, Handle, InputSet, RunnerFailed, tensor
from .processes import cpu_time_s, executable_files, page_faults
from .tree import TensorRow
from .verdicts import Finding, of_candidate, of_task

_CHEAP_BUILD_S = 3.0  # a candidate that builds slower is timed first in the process that was checked


@dataclass
class Trial:
    """The state of one trial and what it will report."""

    bench: Bench
    evidence: Evidence = field(default_factory=Evidence)
    measurement: timing.Measurement = field(default_factory=timing.Measurement)
    cost_s: dict[str, float] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    profile: dict[str, Any] = field(default_factory=dict)
    limit: dict[str, Any] | None = None
    timed_checks: int = 0
    warm: list[InputSet] = field(default_factory=list)  # inputs of the untimed calls

    def __post_init__(self) -> None:
        """The baselines need the bench."""
        self.plan = timing.Plan(budget_s=self.bench.request.measure_budget_s)
        self.baselines = Baselines(self.bench, self.bench.request.compile_cache)

    def run(self) -> dict[str, Any]:
        """Hold the trial; the evaluation as plain JSON."""
        try:
            finding = self._hold()
        except Finding as found:
            finding = found
        finally:
            self.bench.dismiss_all()
        return self._report(finding)

    def _hold(self) -> Finding:
        bench = self.bench
        with self._stage("reference"):
            progress("running the reference")
            reference = bench.seat_reference()
            self.warm = [bench.make_inputs(reference) for _ in range(self.plan.warm_calls)]
        if "compile" in bench.request.baselines:
            self.baselines.compile_ahead(self.warm[0], self.plan.sets)
        with self._stage("build"):
            progress("building the candidate")
            candidate = self._seat_candidate()
        with self._stage("correctness"):
            progress("checking outputs")
            correctness.examine(bench, reference, candidate, self.evidence)
        self._name_what_ran(reference, candidate)
        with self._stage("timing"):
            self._time(reference, candidate)
        with self._stage("limits"):
            self._find_limit(reference)
        return self._verdict()

    def _seat_candidate(self) -> Handle:
        try:
            return self.bench.seat_model("candidate", self.bench.request.candidate_source, "ModelNew")
        except RunnerFailed as failure:
            raise of_candidate(failure, building=True, doing="building the candidate") from None

    def _name_what_ran(self, reference: Handle, candidate: Handle) -> None:
        known = (sys.prefix, sys.base_prefix, "/usr", "/lib", "[")
        own = executable_files(candidate.pid) - executable_files(reference.pid)
        foreign = sorted(name for name in own if not name.startswith(known))
        self.tags.append("custom_kernel" if foreign else "torch_only")

    def _time(self, reference: Handle, candidate: Handle) -> None:
        # From here on one thread for the referee itself: a pool that spins for a while would steal time from runners.
        torch.set_num_threads(1)
        plan = self.plan
        rng = random.Random(self.bench.seeds.named("order"))  # noqa: S311 - order of blocks
        if self.cost_s["build"] < _CHEAP_BUILD_S:
            self.bench.dismiss(candidate)
        for number in range(plan.sets):
            progress(f"timing, process set {number + 1} of {plan.sets}")
            runners = {"eager": self.baselines.seat_eager()}
            if "compile" in self.bench.request.baselines:
                compiled = self.baselines.seat_compile(self.warm[0])
                if compiled is not None:
                    runners["compile"] = compiled
            reusable = number == 0 and candidate in self.bench.seated
            runners["candidate"] = candidate if reusable else self._seat_candidate()
            self._settle(runners)
            self._measure_set(reference, runners, plan, rng, last=number == plan.sets - 1)
            for handle in runners.values():
                self.bench.dismiss(handle)

    def _settle(self, runners: dict[str, Handle]) -> None:
        for name, handle in runners.items():
            with self._blame(name):
                for settled in (False, True):
                    for inputs in self.warm:
                        self._call(handle, inputs)
                    if not settled:
                        handle.ask({"op": "settle"}, timeout_s=60)

    def _measure_set(
        self, reference: Handle, runners: dict[str, Handle], plan: timing.Plan, rng: random.Random, *, last: bool
    ) -> None:
        self.measurement.open_set(list(runners))
        start = time.perf_counter()
        budget_s = plan.budget_s / plan.sets
        candidate = runners["candidate"]
        usage = [cpu_time_s(candidate.pid), float(page_faults(candidate.pid))]
        for number, order in enumerate(timing.orders(list(runners), plan.rounds_max, rng)):
            spent = time.perf_counter() - start
            narrow = number >= plan.rounds_min and self.measurement.precise("eager", plan.target_width)
            if number >= plan.rounds_min and (spent > budget_s or narrow):
                break
            fresh = [self.bench.make_inputs(reference) for _ in range(plan.calls)]
            self._run_round(runners, order, plan, fresh)
        usage = [cpu_time_s(candidate.pid) - usage[0], page_faults(candidate.pid) - usage[1]]
        if last:
            self._describe_candidate(candidate, usage, plan)

    def _run_round(
        self, runners: dict[str, Handle], order: tuple[str, ...], plan: timing.Plan, fresh: list[InputSet]
    ) -> None:
        outputs: dict[str, list[dict[str, torch.Tensor]]] = {}
        for variant in order:
            handle, seconds = runners[variant], []
            with self._blame(variant):
                for inputs in self.warm:
                    self._call(handle, inputs)
                for inputs in fresh:
                    call = self._call(handle, inputs)
                    seconds.append(call.seconds)
                    outputs.setdefault(variant, []).append(self._read(variant, handle, call, inputs))
            self.measurement.add_block(variant, seconds)
        for want, have in zip(outputs["eager"], outputs["candidate"], strict=True):
            self._check_timed(want, have)

    def _call(self, handle: Handle, inputs: InputSet) -> Call:
        timeout_s = self.bench.request.call_timeout_s
        return handle.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=timeout_s)

    def _read(self, variant: str, handle: Handle, call: Call, inputs: InputSet) -> dict[str, torch.Tensor]:
        """Read the outputs of a timed call; for every variant alike, so that all meet the same caches."""
        if variant != "compile":
            assert self.evidence.expected is not None
            wrong = accuracy.compare_form(self.evidence.expected, call.outputs)
            if wrong is not None:
                raise Finding("wrong_output", f"{wrong.message} (in a timed call)", wrong.code)
        if variant == "candidate":
            assert handle.inbox is not None
            for index, (row, content) in enumerate(zip(call.placed.tensors, inputs.contents, strict=True)):
                if index not in self.evidence.mutated and not handle.inbox.unchanged(row, content):
                    raise Finding("wrong_output", f"input tensor {index} was changed by a timed call", "input_mutated")
        leaves = flatten(call.outputs).items()
        return {path: tensor(row, handle.read(row)) for path, row in leaves if isinstance(row, TensorRow)}

    def _check_timed(self, want: dict[str, torch.Tensor], have: dict[str, torch.Tensor]) -> None:
        for path, value in want.items():
            if not accuracy.within(have[path], value, self.evidence.allowances[path]):
                raise Finding("wrong_output", f"output{path} of a timed call is wrong", "values")
        self.timed_checks += 1

    def _describe_candidate(self, candidate: Handle, usage: list[float], plan: timing.Plan) -> None:
        timed = self.measurement.calls["candidate"][-1]
        calls = len(timed) // plan.calls * (plan.calls + plan.warm_calls)
        median_s = statistics.median(timed)
        self.profile["cpu_utilization_cores"] = round(usage[0] / max(1e-9, calls * median_s), 2)
        self.profile["page_faults_per_call"] = round(usage[1] / max(1, calls), 1)
        with contextlib.suppress(RunnerFailed):
            inputs = self.warm[0]
            reply = candidate.give({"op": "top_operators"}, inputs.tree, inputs.contents, timeout_s=60)
            self.profile["torch_operators_claimed"] = reply.get("operators", [])[:6]

    def _find_limit(self, reference: Handle) -> None:
        candidate_s = self.measurement.latency_ms("candidate")[0] / 1e3
        found = limits.find(self.bench, reference, self.warm[0], self.evidence.output_bytes, candidate_s)
        self.profile |= found.profile
        self.limit = found.roofline
        if found.impossible:
            raise Finding("integrity", found.impossible, "impossible_time")

    def _verdict(self) -> Finding:
        value, low, high = self.measurement.speedup("eager")
        if high < 1.0:
            self.tags.append("slower")
        elif low <= 1.0:
            self.tags.append("tie")
        checks = self.evidence.families
        return Finding(
            "passed",
            f"correct on {checks} input families and {self.timed_checks} timed calls; {value:.2f}x eager "
            f"({low:.2f} to {high:.2f})",
        )

    def _report(self, finding: Finding) -> dict[str, Any]:
        passed = finding.verdict == "passed"
        timed = [name for name, sets in self.measurement.calls.items() if any(sets)]
        speedup = {name: _interval(self.measurement.speedup(name)) for name in ("eager", "compile") if name in timed}
        latency = {name: _latency(self.measurement.latency_ms(name)) for name in timed}
        return {
            "verdict": finding.verdict,
            "code": finding.code,
            "message": finding.message,
            "detail": finding.detail,
            "tags": self.tags if passed else [],
            "correctness": self.evidence.to_json(),
            "speedup": speedup if passed else None,
            "latency_ms": latency if passed else {},
            "roofline": self.limit if passed else None,
            "profile": {**self.profile, "absent": self.baselines.absent()} if passed else {},
            "cost_s": self.cost_s,
            "seed": self.bench.seeds.secret.hex(),
            "compile_cache": self.baselines.packed,
        }

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.cost_s[name] = round(time.perf_counter() - start, 3)

    @contextlib.contextmanager
    def _blame(self, variant: str) -> Iterator[None]:
        try:
            yield
        except RunnerFailed as failure:
            if variant == "candidate":
                raise of_candidate(failure, building=False, doing="a timed call") from None
            raise of_task(failure, doing=f"a timed call ({variant})") from None


def _interval(values: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip(("value", "low", "high"), values, strict=True))


def _latency(values: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip(("median", "low", "high"), values, strict=True))
