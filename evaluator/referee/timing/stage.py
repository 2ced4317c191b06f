"""The timed stage of an evaluation: starts process sets, runs their rounds until they tell enough, keeps the times."""

import math
import random
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..correctness.findings import Evidence
from ..errors import BaselineFailed, ChampionFailed, Finding
from ..isolation.calls import InputSet
from ..isolation.handle import RunnerHandle
from ..pool.baselines import Baselines
from ..pool.candidate_builder import Builder
from ..pool.input_supply import InputSupply, OneByOne
from ..pool.runner_pool import RunnerPool, progress
from ..protocol.baselines import EAGER
from . import call_times, spot_checks, statistics
from .rounds import ProcessSet, blame, checked_turns
from .spot_checks import SpotCheck

# Processor time that may go unexplained: some ticks of the kernel, and a share of the timed seconds.
UNACCOUNTED_S = 0.006  # in a process set
UNACCOUNTED_SHARE = 0.01
NO_KILLS: Mapping[str, int] = MappingProxyType({})
SETS_DROPPED = 1  # for what ran out of its turn
_HANDOVERS_MIN, _HANDOVERS, _HANDOVERS_FOR_S = 3, 15, 0.1  # per set: at least, at most, and for how long
FRESH_BYTES = 512 << 20  # of inputs for one round
_MEMORY_LOOKS_APART = (5.0, 15.0)  # in what a look takes; nobody can foresee when the next one comes


@dataclass
class TimingStage:
    """Times candidate and baselines against each other.

    `warm` are the inputs of untimed calls. Afterwards `measurement` holds the times, `profile` what was seen meanwhile,
    and `checked_calls` how many timed calls were found right.
    """

    pool: RunnerPool
    evidence: Evidence
    baselines: Baselines
    builder: Builder
    champion: Builder | None
    reference: RunnerHandle
    plan: call_times.Plan
    warm: list[InputSet]
    measurement: call_times.Measurement = field(default_factory=call_times.Measurement)
    profile: dict[str, Any] = field(default_factory=dict)
    checked_calls: int = 0
    noisy: bool = False  # whether the device was too busy for the figures to be ranked
    hoards: bool = False  # whether the candidate held memory as if for the outputs of many calls
    _owed: list[str] = field(default_factory=list)  # families that must come yet, of which no spot check was made
    _owed_s: float = 0.0  # how long making these may take, and rounds that follow only for them
    _most_held: float = -math.inf  # bytes that the candidate has held beyond eager
    own_share: float | None = None  # of the candidate's time in its own code; None if too little was seen
    champion_fails: str = ""  # why the candidate was not compared with the champion to the end
    candidate: RunnerHandle | None = None  # that of the last process set, which goes on living

    def run(self, checked: RunnerHandle | None) -> None:
        """Time everything. `checked`: the candidate's runner that was examined, where building another takes long.

        Raises:
            Finding: a timed call was wrong or failed.
        """
        platform = self.pool.platform
        platform.begin_timing()
        rng = random.Random(self.pool.seeds.named("order"))  # noqa: S311 - order of turns
        load = platform.interference_meter()
        scrub = platform.cache_scrubber() if self.pool.request.cold else None
        change = spot_checks.change_of_timed(self.pool, self.reference, self.evidence)
        supply = InputSupply(self.pool, self.reference, change)
        sets, enough, started_s, started = 0, False, math.inf, time.perf_counter()
        while not enough:
            progress(f"timing, process set {sets + 1}")
            last = not self.plan.trial and sets + 1 >= self.plan.sets  # no other need follow
            begun = time.perf_counter()
            with (
                self.pool.kills.others_run(),
                ThreadPoolExecutor(1, initializer=platform.begin_timing) as beside,
            ):
                pending = beside.submit(self._make_spot_checks, rng.getrandbits(64), last=last)
                if self.pool.frugal:
                    wait([pending])
                runners = self._start_runners(checked)
            checked = None
            started_s = min(started_s, time.perf_counter() - started)  # the first may have waited for a compiler
            orders = call_times.orders(list(runners), rng)
            least = self.plan.least_rounds(sets)
            checked_ones = checked_turns(rng, 2 * least)
            running = ProcessSet(self.pool, self.evidence, runners, self.warm, supply, orders, rng, checked_ones, scrub)
            sets_before = len(self.measurement.handovers_s)
            kills_before, turns_before = self.pool.kills.count(), Counter(self.pool.kills.in_turns)
            try:
                with platform.beside_calls():
                    self.measurement.open_set(list(runners), self._settle(running))
                    load.begin()
                    self.pool.account.begin()
                    ready = pending.result()
                    started_for_s = time.perf_counter() - begun
                    self._measure_set(running, ready, rng, least, started_s=started_for_s, last=last)
                    self.pool.account.end()
                    load.end()
                in_turns = Counter(self.pool.kills.in_turns)
                in_turns.subtract(turns_before)
                sets += self._check_turns(kills=self.pool.kills.count() > kills_before, in_turns=in_turns)
            except (BaselineFailed, ChampionFailed) as failure:
                if len(self.measurement.handovers_s) > sets_before:
                    self.measurement.drop_set()
                if isinstance(failure, BaselineFailed):
                    self.baselines.others[failure.name].leave_out(failure.failure, doing="a timed call")
                    self.measurement.forget(failure.name)
                else:
                    self._go_on_without_champion(str(failure))
                supply.collect()
                self.pool.stop(*runners.values())
                continue
            told = sets >= self.plan.sets and self.measurement.told(self.plan)
            enough = told or not self.plan.room_for_another(sets, time.perf_counter() - started, started_s)
            if enough:
                running.hold_buffer("candidate")
                self.candidate = runners.pop("candidate")
                self._look_into(self.candidate, rng)
                self.pool.kill(*runners.values())  # nothing is timed any more while they end
            else:
                self.pool.stop(*runners.values())
        self.profile["handover_ms"] = round(statistics.median(self.measurement.handovers_s) * 1e3, 4)
        self.profile["evenness"] = self.measurement.evenness().value
        self.profile |= load.facts()
        self.noisy = load.is_noisy()

    def _start_runners(self, checked: RunnerHandle | None) -> dict[str, RunnerHandle]:
        """Fresh runners of all variants; the candidate's is `checked`, if there is one."""
        if not self.pool.frugal:
            self.baselines.start_ahead(self.warm[0], 1)
        runners = {EAGER: self.baselines.start_eager()}
        if checked is None:
            candidate = self.builder.start()
        else:
            self.pool.load_state(candidate := checked)
        runners |= self.baselines.start_others(self.warm[0])
        if (champion := self._start_champion()) is not None:
            runners["champion"] = champion
        return {**runners, "candidate": candidate}

    def _start_champion(self) -> RunnerHandle | None:
        if self.champion is None:
            return None
        try:
            return self.champion.start()
        except Finding as failure:
            self._go_on_without_champion(failure.message)
            return None

    def _go_on_without_champion(self, reason: str) -> None:
        """Compare the candidate with eager alone from now on: that the champion fails is no fault of it."""
        self.champion, self.champion_fails = None, reason[:300]
        self.pool.kills.in_turns.pop("champion", None)  # it has no part in what follows
        self.measurement.forget("champion")

    def _make_spot_checks(self, seed: int, *, last: bool) -> list[SpotCheck]:
        """Those of a process set; made on another thread, while its runners are started.

        `last`: no other set need follow, so each family must have come in the end.
        """
        rng = random.Random(seed)  # noqa: S311 - which families, and where
        expected = math.ceil(spot_checks.CHANCE * self._calls() * self.plan.rounds_min)
        limit_s = spot_checks.TIME_SHARE * self.plan.share_s
        self._owed = spot_checks.unused(self.evidence) if last else []
        self._owed_s = spot_checks.TIME_SHARE * self.plan.wall_s
        return self._made(rng, most=expected, limit_s=limit_s)

    def _made(self, rng: random.Random, *, most: int, limit_s: float = 0.0) -> list[SpotCheck]:
        """Some of the families that are owed, as far as there is time and room, and at most so many others."""
        start = time.perf_counter()
        made = spot_checks.make(
            self.pool,
            self.reference,
            self.evidence,
            rng,
            most=most,
            limit_s=limit_s,
            owed=self._owed,
            owed_s=self._owed_s,
        )
        self._take_from_owed(time.perf_counter() - start)
        return made

    def _take_from_owed(self, spent_s: float) -> None:
        """Count time that was spent on families that are owed. None is owed any more once all of it is gone."""
        self._owed_s -= spent_s
        if self._owed_s <= 0:
            self._owed.clear()

    def _check_turns(self, *, kills: bool = False, in_turns: Mapping[str, int] = NO_KILLS) -> bool:
        """Whether nothing ran out of its turn in the last set. Once that may be an accident, and the set is dropped.

        Args:
            kills: whether the kernel has killed processes for memory in this set, whose end takes time of nobody's.
            in_turns: how many of them in turns of each role.

        Raises:
            Finding: it was so in another set already.
        """
        account = self.pool.account
        if not account.possible:
            self.profile["unaccounted_ms"] = None
            return True
        timed_s = sum(sum(self.measurement.calls(variant)[-1]) for variant in self.measurement.timed())
        if account.unaccounted_s <= UNACCOUNTED_S + UNACCOUNTED_SHARE * timed_s:
            most = max(self.profile.get("unaccounted_ms") or 0.0, round(account.unaccounted_s * 1e3, 3))
            self.profile["unaccounted_ms"] = most
            return True
        if in_turns.get("candidate"):
            text = "the kernel killed processes in the candidate's turn, because the sandbox had no memory left"
            raise Finding("out_of_memory", text, "memory")
        if kills and in_turns.get("champion") and self.champion is not None:
            raise ChampionFailed("the kernel killed processes for memory in its turn")
        if self.champion is not None and self.profile.get("sets_dropped", 0) >= SETS_DROPPED:
            raise ChampionFailed("processes ran out of their turn, which may have been its own")
        self.measurement.drop_set()
        self.profile["sets_dropped"] = self.profile.get("sets_dropped", 0) + 1
        if self.profile["sets_dropped"] > SETS_DROPPED and kills:
            text = "the sandbox's memory ran out while calls were timed, and nobody knows by whose doing"
            raise Finding("sandbox_error", text, "out_of_memory")
        if self.profile["sets_dropped"] > SETS_DROPPED:
            raise Finding(
                "integrity",
                f"processes ran for {account.unaccounted_s * 1e3:.1f} ms out of their turn, while all but the referee "
                "and the one that was timed had been stopped; so it was in another set of processes",
                "ran_out_of_turn",
            )
        return False

    def _settle(self, running: ProcessSet) -> float:
        """Untimed calls, until threads and memory are as they will stay; what a hand-over takes, in seconds."""
        handovers: list[float] = []
        for name, handle in running.runners.items():
            with blame(name):
                for settled in (False, True):
                    for inputs in self.warm:
                        running.call(name, inputs)
                    if not settled:
                        handle.ask({"op": "settle"}, timeout_s=60)
            if name == "eager":  # before the candidate runs in this set
                handovers = self._handovers_s(handle)
        return statistics.median(handovers)

    def _handovers_s(self, eager: RunnerHandle) -> list[float]:
        """Several, on inputs that take turns; fewer where inputs are large."""
        begun, found = time.perf_counter(), list[float]()
        state = spot_checks.reported_state(self.evidence, self.pool.names_of, EAGER)
        while len(found) < _HANDOVERS_MIN or (
            len(found) < _HANDOVERS and time.perf_counter() - begun < _HANDOVERS_FOR_S
        ):
            inputs = self.warm[len(found) % len(self.warm)]
            found.append(self.pool.platform.handover_s(eager, inputs, state))
        return found

    def _look_at_memory(self, runners: dict[str, RunnerHandle]) -> None:
        """See whether the candidate holds much more than eager.

        Memory may hold what was prepared for timed calls, in the calls that settle a process set or in an untimed one.
        """
        held = {name: self.pool.platform.held_bytes(handle) for name, handle in runners.items()}
        self.hoards = self.hoards or held["candidate"] > self.pool.may_hold_bytes(held["eager"])
        if (more := held["candidate"] - held["eager"]) > self._most_held:
            self._most_held = more
            self.profile["resident_mb"] = {name: round(size / (1 << 20), 1) for name, size in held.items()}

    def _calls(self) -> int:
        """How many timed calls each variant makes in a round: fewer where their inputs are large."""
        if self.pool.frugal:
            return 2
        return self.plan.calls if self.plan.calls * self.warm[0].nbytes <= FRESH_BYTES else 2

    def _measure_set(
        self,
        running: ProcessSet,
        ready: list[SpotCheck],
        rng: random.Random,
        least: int,
        *,
        started_s: float,
        last: bool,
    ) -> None:
        """Run rounds, at least `least`, until they tell enough.

        `started_s` is what the set took to start; `last` says that no other set need follow.
        """
        runners, supply, calls = running.runners, running.supply, self._calls()
        candidate = runners["candidate"]
        self._look_at_memory(runners)
        disturbances = self._disturbance(candidate)
        thrown_away = rounds = 0
        cpu_s = 0.0
        looked_s = look_at = made_s = 0.0
        second_look, next_look_at = rng.randrange(least), 0.0
        running.empty_buffers()
        start = time.perf_counter()
        while True:
            spent = time.perf_counter() - start - looked_s
            missing = spot_checks.families_missing(ready, self.evidence) if last else 0
            if rounds >= least and not missing and not self._owed:
                if spent > self.plan.share_s:
                    break
                if spent >= look_at:
                    look = time.perf_counter()
                    if self.measurement.set_told(self.plan, measured_s=spent, started_s=started_s):
                        break
                    look = time.perf_counter() - look
                    looked_s, look_at = looked_s + look, spent + 9 * look  # a tenth of the time at most
            fresh = OneByOne(supply, calls) if self.pool.frugal else supply.take(calls)
            # Made whenever there is time and kept for any later round, so that the pause tells nothing. A candidate
            # that counts its rounds must never know that no spot check will follow.
            if not ready and self._owed:  # there was no room for all at once
                ready += self._made(rng, most=0)
                missing = spot_checks.families_missing(ready, self.evidence)
            elif not ready and made_s + running.spot_checks_s < spot_checks.TIME_SHARE * spent:
                made = time.perf_counter()
                ready += self._made(rng, most=1)
                made_s += time.perf_counter() - made
            self.pool.tidy()
            supply.prepare(calls)
            # Missing families come evenly in the rounds that there are in any case, and then at once.
            at_least = math.ceil((missing + len(self._owed)) / max(1, least - rounds))
            began = time.perf_counter()
            due = spot_checks.draw(ready, rng, calls=calls, at_least=at_least)
            done = running.run(fresh, due)
            running.judge(due)
            del due
            self.pool.tidy()
            if rounds >= least:
                self._take_from_owed(time.perf_counter() - began)
            del fresh  # before the next are copied
            self.checked_calls += calls
            # A baseline that was disturbed is not itself. A candidate's disturbances are its own: if its rounds were
            # repeated for them, it could choose which rounds count.
            if not done.even and thrown_away < self.plan.retries:
                thrown_away += 1
                continue
            if rounds == second_look or (rounds >= least and not self.plan.trial and spent >= next_look_at):
                look = time.perf_counter()
                self._look_at_memory(runners)
                look = time.perf_counter() - look
                looked_s += look
                next_look_at = spent + look * rng.uniform(*_MEMORY_LOOKS_APART)
            rounds += 1
            cpu_s += done.cpu_s["candidate"]
            self.measurement.add_round(done.turns)
        disturbances = self._disturbance(candidate) - disturbances - running.excused["candidate"]
        supply.collect()
        running.compare_state()
        timed_s = math.fsum(self.measurement.calls("candidate")[-1])
        every_call = (rounds + thrown_away) * (calls + 2)
        self.profile |= self.pool.platform.usage_facts(
            disturbances=disturbances, calls=every_call, cpu_s=cpu_s, timed_s=timed_s
        )
        self.profile["rounds_measured_again"] = self.profile.get("rounds_measured_again", 0) + thrown_away

    def _look_into(self, candidate: RunnerHandle, rng: random.Random) -> None:
        """Where the candidate's time goes: as seen from outside, and as it says itself."""
        inputs = self.warm[0]
        call_s = statistics.median(self.measurement.calls("candidate")[-1])
        with blame("candidate"):
            timeout_s = self.pool.request.call_timeout_s
            if not self.plan.trial:
                self._see_repeated(candidate, inputs, call_s, timeout_s)
            found = self.pool.platform.own_code(
                candidate, inputs, rng, call_s=call_s, timeout_s=timeout_s, brief=self.plan.trial
            )
        self.own_share = found.share
        self.profile |= found.facts

    def _see_repeated(self, candidate: RunnerHandle, inputs: InputSet, call_s: float, timeout_s: float) -> None:
        repeated_s = self.pool.platform.repeated_call_s(candidate, inputs, call_s=call_s, timeout_s=timeout_s)
        if repeated_s is not None:
            self.profile["repeated_call_ms"] = round(repeated_s * 1e3, 4)
            self.profile["timed_call_ms"] = round(call_s * 1e3, 4)

    def _disturbance(self, candidate: RunnerHandle) -> float:
        """The candidate's counter of disturbances.

        Raises:
            Finding: the candidate is gone.
        """
        with blame("candidate"):
            return candidate.disturbance()
