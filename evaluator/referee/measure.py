"""The timed stage of a trial: seats process sets, runs their blocks, checks what every timed call returned."""

import contextlib
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from . import sampling, statistics, timed_checks, timing
from .baselines import Baselines
from .bench import Bench, progress
from .building import Builder
from .calls import Call, InputSet
from .cold import Scrubber
from .evidence import Evidence
from .failures import RunnerFailed
from .handle import Handle
from .load import LoadMeter
from .processes import cpu_time_s, page_faults
from .timed_checks import Surprise
from .verdicts import Finding, of_candidate, of_task

_FRESH_BYTES = 512 * 1024 * 1024  # inputs made ahead for one round
# Processor time that may go unexplained: some ticks of the kernel, and a share of the timed seconds.
_UNACCOUNTED_S = 0.010
_UNACCOUNTED_SHARE = 0.01
_HANDOVERS = 15
_FEW_FAULTS = 32  # page faults in a block that are not worth a thought


@dataclass
class Stopwatch:
    """Times candidate and baselines against each other.

    `warm` are the inputs of untimed calls. Afterwards `measurement` holds the times, `profile` what was seen meanwhile,
    and `checked_calls` how many timed calls were found right.
    """

    bench: Bench
    evidence: Evidence
    baselines: Baselines
    builder: Builder
    reference: Handle
    plan: timing.Plan
    warm: list[InputSet]
    measurement: timing.Measurement = field(default_factory=timing.Measurement)
    profile: dict[str, Any] = field(default_factory=dict)
    checked_calls: int = 0
    own_share: float | None = None  # of the candidate's time in its own code; None if too little was seen
    scrub: Scrubber | None = None  # called before each call, where caches shall be cold

    def run(self, checked: Handle | None) -> None:
        """Time everything. `checked`: the candidate's runner that was examined, where building another takes long.

        Raises:
            Finding: a timed call was wrong or failed.
        """
        # From here on one thread for the referee itself: a pool that spins for a while would steal time from runners.
        torch.set_num_threads(1)
        rng = random.Random(self.bench.seeds.named("order"))  # noqa: S311 - order of blocks
        load = LoadMeter()
        if self.bench.request.cold:
            self.scrub = Scrubber()
        sets, spent_s, enough = 0, 0.0, False
        while not enough:
            sets += 1
            progress(f"timing, process set {sets}")
            runners = {"eager": self.baselines.seat_eager()}
            if "compile" in self.bench.request.baselines:
                compiled = self.baselines.seat_compile(self.warm[0])
                if compiled is not None:
                    runners["compile"] = compiled
            runners["candidate"] = checked or self.builder.seat()
            if checked is not None:
                self.bench.load_state(checked)
            checked = None
            call_s = self._settle(runners)
            load.begin()
            self.bench.audit.begin()
            spent_s += self._measure_set(runners, self._calls(call_s), rng)
            self.bench.audit.end()
            load.end()
            self._nothing_else_ran()
            narrow = sets >= self.plan.sets and self.measurement.precise(self.plan.target_width)
            enough = narrow or not self.plan.room_for_another(sets, spent_s)
            if enough:
                self._look_into(runners["candidate"], rng)
            for handle in runners.values():
                self.bench.dismiss(handle)
        others = load.others_cores()
        self.profile["others_cores_busy"] = None if others is None else round(others, 2)

    def _nothing_else_ran(self) -> None:
        """Refuse what was timed while something ran out of its turn.

        Raises:
            Finding: it did.
        """
        audit = self.bench.audit
        if not audit.possible:
            self.profile["unaccounted_ms"] = None
            return
        self.profile["unaccounted_ms"] = round(audit.unaccounted_s * 1e3, 3)
        timed_s = sum(sum(times) for variant in self.measurement.timed() for times in self.measurement.calls(variant))
        if audit.unaccounted_s > _UNACCOUNTED_S + _UNACCOUNTED_SHARE * timed_s:
            raise Finding(
                "integrity",
                f"processes ran for {audit.unaccounted_s * 1e3:.1f} ms out of their turn, while all but the referee "
                "and the one that was timed had been stopped",
                "ran_out_of_turn",
            )

    def _settle(self, runners: dict[str, Handle]) -> float:
        """Untimed calls, until threads and memory are as they will stay; the shortest call of the eager baseline."""
        shortest = math.inf
        for name, handle in runners.items():
            with _blame(name):
                for settled in (False, True):
                    for inputs in self.warm:
                        seconds = self._call(handle, inputs).seconds
                        if name == "eager":
                            shortest = min(shortest, seconds)
                    if not settled:
                        handle.ask({"op": "settle"}, timeout_s=60)
        handovers = [runners["eager"].handover_s() for _ in range(_HANDOVERS)]
        self.profile["handover_ms"] = round(statistics.median(handovers) * 1e3, 4)
        return shortest

    def _calls(self, call_s: float) -> int:
        """How many timed calls make a block that is long against the noise of a single one."""
        wanted = max(self.plan.calls_min, math.ceil(self.plan.block_s / max(call_s, 1e-6)))
        room = _FRESH_BYTES // max(1, self.warm[0].nbytes)
        return max(self.plan.calls_min, min(wanted, self.plan.calls_max, room))

    def _measure_set(self, runners: dict[str, Handle], calls: int, rng: random.Random) -> float:
        """Measure one set; how many seconds that took."""
        self.measurement.open_set(list(runners))
        candidate = runners["candidate"]
        usage = [cpu_time_s(candidate.pid), float(page_faults(candidate.pid))]
        thrown_away = rounds = 0
        places = {"rounds": self.plan.rounds_min, "calls": calls + len(self.warm)}
        surprises = timed_checks.surprises(self.bench, self.reference, self.evidence, rng, **places)
        start = time.perf_counter()
        for order in timing.orders(list(runners), self.plan.rounds_max + self.plan.retries, rng):
            if rounds >= self.plan.rounds_min:
                spent = time.perf_counter() - start
                # After both orders of a pair, so that neither counts more than the other.
                if rounds % 2 == 0 and (spent > self.plan.share_s or self.measurement.precise(self.plan.target_width)):
                    break
            fresh = self.bench.make_many(self.reference, calls)
            # A baseline that meets fresh pages is not itself. (If a candidate does, that is its own affair: were its
            # blocks repeated for it, it could choose which ones count.)
            again = thrown_away < self.plan.retries
            now = surprises.pop() if surprises else []
            if self._run_round(runners, order, fresh, now, may_reject=again):
                rounds += 1
            else:
                thrown_away += 1
        spent = time.perf_counter() - start
        usage = [cpu_time_s(candidate.pid) - usage[0], page_faults(candidate.pid) - usage[1]]
        with _blame("candidate"):
            timed_checks.compare_state(self.bench, runners["eager"], candidate, self.evidence)
        timed = self.measurement.calls("candidate")[-1]
        every_call = (rounds + thrown_away) * (calls + len(self.warm))
        self.profile["cpu_utilization_cores"] = round(usage[0] / max(1e-9, every_call * statistics.median(timed)), 2)
        self.profile["page_faults_per_call"] = round(usage[1] / max(1, every_call), 1)
        self.profile["blocks_measured_again"] = self.profile.get("blocks_measured_again", 0) + thrown_away
        return spent

    def _run_round(
        self,
        runners: dict[str, Handle],
        order: tuple[str, ...],
        fresh: list[InputSet],
        surprises: Sequence[Surprise],
        *,
        may_reject: bool,
    ) -> bool:
        """One block of each; whether its times count."""
        outputs: dict[str, list[dict[str, torch.Tensor]]] = {}
        seconds: dict[str, list[float]] = {}
        good = True
        for variant in order:
            handle = runners[variant]
            with _blame(variant):
                for number, inputs in enumerate(self.warm):
                    self._surprise(surprises, number, variant, handle)
                    self._call(handle, inputs)
                faults = page_faults(handle.pid)
                for number, inputs in enumerate(fresh, len(self.warm)):
                    self._surprise(surprises, number, variant, handle)
                    call = self._call(handle, inputs)
                    seconds.setdefault(variant, []).append(call.seconds)
                    found = timed_checks.read(self.evidence, variant, handle, call, inputs)
                    outputs.setdefault(variant, []).append(found)
                if variant != "candidate" and page_faults(handle.pid) - faults > _FEW_FAULTS:
                    good = False
        for want, have in zip(outputs["eager"], outputs["candidate"], strict=True):
            timed_checks.compare(self.evidence, want, have)
            self.checked_calls += 1
        for surprise in surprises:
            surprise.judge(self.evidence)
        if good or not may_reject:
            for variant, times in seconds.items():
                self.measurement.add_block(variant, times)
        return good or not may_reject

    def _call(self, handle: Handle, inputs: InputSet) -> Call:
        timeout_s = self.bench.request.call_timeout_s
        return handle.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=timeout_s, before=self.scrub)

    def _surprise(self, surprises: Sequence[Surprise], place: int, variant: str, handle: Handle) -> None:
        """The calls that are not timed and have this place. Eager makes them too, so that its state keeps up."""
        for surprise in surprises:
            if surprise.place == place and variant != "compile":
                call = self._call(handle, surprise.inputs)
                if variant == "candidate":
                    surprise.take(self.evidence, handle, call)

    def _look_into(self, candidate: Handle, rng: random.Random) -> None:
        """Where the candidate's time goes: as seen from outside, and as it says itself."""
        inputs = self.warm[0]
        call_s = statistics.median(self.measurement.calls("candidate")[-1])
        with _blame("candidate"):
            timeout_s = self.bench.request.call_timeout_s
            cache = f"{candidate.home}/built/inductor"
            found = sampling.watch(candidate, inputs, rng, cache=cache, call_s=call_s, timeout_s=timeout_s)
        self.own_share = found.own_share(cache)
        self.profile["time_by_file"] = found.shares()
        with contextlib.suppress(RunnerFailed):
            reply = candidate.give({"op": "top_operators"}, inputs.tree, inputs.contents, timeout_s=60)
            self.profile["torch_operators_claimed"] = sampling.claimed_operators(reply)


@contextlib.contextmanager
def _blame(variant: str) -> Iterator[None]:
    try:
        yield
    except RunnerFailed as failure:
        if variant == "candidate":
            raise of_candidate(failure, building=False, doing="a timed call") from None
        raise of_task(failure, doing=f"a timed call ({variant})") from None
