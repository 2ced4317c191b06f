"""The timed stage of a trial: seats process sets, runs their blocks, checks what every timed call returned."""

import contextlib
import math
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch

from . import sampling, statistics, timed_checks, timing
from .baselines import Baselines
from .bench import Bench, progress
from .building import Builder
from .calls import InputSet
from .cold import Scrubber
from .evidence import Evidence
from .failures import RunnerFailed
from .fresh import Supply
from .handle import Handle
from .load import LoadMeter
from .processes import cpu_time_s, page_faults
from .rounds import ProcessSet, blame
from .timed_checks import Surprise
from .verdicts import Finding

# Processor time that may go unexplained: some ticks of the kernel, and a share of the timed seconds.
_UNACCOUNTED_S = 0.006  # in a process set
_UNACCOUNTED_SHARE = 0.01
_HANDOVERS = 15
_LATE_A_S = 1.0  # surprises a second in later rounds


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

    def run(self, checked: Handle | None) -> None:
        """Time everything. `checked`: the candidate's runner that was examined, where building another takes long.

        Raises:
            Finding: a timed call was wrong or failed.
        """
        # From here on one thread for the referee itself: a pool that spins for a while would steal time from runners.
        torch.set_num_threads(1)
        rng = random.Random(self.bench.seeds.named("order"))  # noqa: S311 - order of blocks
        load = LoadMeter()
        scrub = Scrubber() if self.bench.request.cold else None
        supply = Supply(self.bench, self.reference)
        sets, enough, begun = 0, False, math.inf
        while not enough:
            sets += 1
            progress(f"timing, process set {sets}")
            with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as beside:
                surprises = beside.submit(self._surprises, rng.getrandbits(64))
                runners = self._seat(checked)
            checked = None
            begun = min(begun, time.perf_counter())  # the first runners may have waited for a compiler
            orders = timing.orders(list(runners), rng)
            seated = ProcessSet(self.bench, self.evidence, runners, self.warm, supply, orders, scrub)
            calls = self._calls(self._settle(seated))
            load.begin()
            self.bench.audit.begin()
            self._measure_set(seated, calls, surprises.result(), rng)
            self.bench.audit.end()
            load.end()
            self._nothing_else_ran()
            narrow = sets >= self.plan.sets and self.measurement.precise(self.plan)
            enough = narrow or not self.plan.room_for_another(sets, time.perf_counter() - begun)
            if enough:
                self._look_into(runners["candidate"], rng)
            for handle in runners.values():
                self.bench.dismiss(handle)
        others = load.others_cores()
        self.profile["others_cores_busy"] = None if others is None else round(others, 2)

    def _seat(self, checked: Handle | None) -> dict[str, Handle]:
        """Fresh runners of all variants; the candidate's is `checked`, if there is one."""
        compiles = "compile" in self.bench.request.baselines
        if compiles:
            self.baselines.compile_ahead(self.warm[0], 1)
        runners = {"eager": self.baselines.seat_eager()}
        if checked is None:
            candidate = self.builder.seat()
        else:
            self.bench.load_state(candidate := checked)
        if compiles and (compiled := self.baselines.seat_compile(self.warm[0])) is not None:
            runners["compile"] = compiled
        return {**runners, "candidate": candidate}

    def _surprises(self, seed: int) -> list[list[Surprise]]:
        """Those of a process set; made on another thread, while its runners are seated."""
        rng = random.Random(seed)  # noqa: S311 - which families, and where
        rounds = self.plan.rounds_min
        return timed_checks.surprises(self.bench, self.reference, self.evidence, rng, rounds=rounds)

    def _nothing_else_ran(self) -> None:
        """Refuse what was timed in the last set while something ran out of its turn.

        Raises:
            Finding: it did.
        """
        audit = self.bench.audit
        if not audit.possible:
            self.profile["unaccounted_ms"] = None
            return
        self.profile["unaccounted_ms"] = max(
            self.profile.get("unaccounted_ms") or 0.0, round(audit.unaccounted_s * 1e3, 3)
        )
        timed_s = sum(sum(self.measurement.calls(variant)[-1]) for variant in self.measurement.timed())
        if audit.unaccounted_s > _UNACCOUNTED_S + _UNACCOUNTED_SHARE * timed_s:
            raise Finding(
                "integrity",
                f"processes ran for {audit.unaccounted_s * 1e3:.1f} ms out of their turn, while all but the referee "
                "and the one that was timed had been stopped",
                "ran_out_of_turn",
            )

    def _settle(self, seated: ProcessSet) -> float:
        """Untimed calls, until threads and memory are as they will stay; the shortest call of the eager baseline."""
        shortest = math.inf
        for name, handle in seated.runners.items():
            with blame(name):
                for settled in (False, True):
                    for inputs in self.warm:
                        seconds = seated.call(handle, inputs).seconds
                        if name == "eager":
                            shortest = min(shortest, seconds)
                    if not settled:
                        handle.ask({"op": "settle"}, timeout_s=60)
        handovers = [seated.runners["eager"].handover_s() for _ in range(_HANDOVERS)]
        self.profile["handover_ms"] = round(statistics.median(handovers) * 1e3, 4)
        return shortest

    def _calls(self, call_s: float) -> int:
        """How many timed calls each variant makes in a round: an even number, so that both orders count alike."""
        wanted = 2 * math.ceil(self.plan.round_s / 2 / max(call_s, 1e-6))
        return max(self.plan.calls_min, min(wanted, self.plan.calls_max))

    def _measure_set(self, seated: ProcessSet, calls: int, surprises: list[list[Surprise]], rng: random.Random) -> None:
        runners, supply = seated.runners, seated.supply
        self.measurement.open_set(list(runners))
        candidate = runners["candidate"]
        usage = [cpu_time_s(candidate.pid), float(page_faults(candidate.pid))]
        thrown_away = rounds = 0
        looked_s = look_at = last_s = spent = 0.0
        start = time.perf_counter()
        while True:
            last_s, spent = spent, time.perf_counter() - start - looked_s
            if rounds >= self.plan.rounds_min:
                if spent > self.plan.share_s:
                    break
                if spent >= look_at:
                    look = time.perf_counter()
                    if self.measurement.precise(self.plan):
                        break
                    look = time.perf_counter() - look
                    looked_s, look_at = looked_s + look, spent + 4 * look  # a fifth of the time at most
            fresh = supply.take(calls)
            now = surprises.pop() if surprises else self._late_surprise(rng, spent - last_s)
            supply.prepare(calls)
            done = seated.run(fresh, now)
            self.checked_calls += calls
            # A baseline that meets fresh pages is not itself. (If a candidate does, that is its own affair: were its
            # rounds repeated for it, it could choose which ones count.)
            if not done.even and thrown_away < self.plan.retries:
                thrown_away += 1
                continue
            rounds += 1
            for variant, seconds in done.seconds.items():
                self.measurement.add_block(variant, seconds)
        usage = [cpu_time_s(candidate.pid) - usage[0], page_faults(candidate.pid) - usage[1]]
        supply.collect()
        with blame("candidate"):
            timed_checks.compare_state(self.bench, runners["eager"], candidate, self.evidence)
        timed = self.measurement.calls("candidate")[-1]
        every_call = (rounds + thrown_away) * 2 * calls
        self.profile["cpu_utilization_cores"] = round(usage[0] / max(1e-9, every_call * statistics.median(timed)), 2)
        self.profile["page_faults_per_call"] = round(usage[1] / max(1, every_call), 1)
        self.profile["rounds_measured_again"] = self.profile.get("rounds_measured_again", 0) + thrown_away

    def _late_surprise(self, rng: random.Random, seconds: float) -> list[Surprise]:
        """Perhaps one for a later round: a candidate that counts its rounds must never know that none will follow."""
        if rng.random() > _LATE_A_S * seconds:
            return []
        return timed_checks.late_surprise(self.bench, self.reference, self.evidence, rng)

    def _look_into(self, candidate: Handle, rng: random.Random) -> None:
        """Where the candidate's time goes: as seen from outside, and as it says itself."""
        inputs = self.warm[0]
        call_s = statistics.median(self.measurement.calls("candidate")[-1])
        with blame("candidate"):
            timeout_s = self.bench.request.call_timeout_s
            cache = f"{candidate.home}/built/inductor"
            found = sampling.watch(candidate, inputs, rng, cache=cache, call_s=call_s, timeout_s=timeout_s)
        self.own_share = found.own_share(cache)
        self.profile["time_by_file"] = found.shares()
        with contextlib.suppress(RunnerFailed):
            reply = candidate.give({"op": "top_operators"}, inputs.tree, inputs.contents, timeout_s=60)
            self.profile["torch_operators_claimed"] = sampling.claimed_operators(reply)
