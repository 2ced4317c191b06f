"""Rounds of timed calls: the variants take turns on the same fresh inputs, and each answer is read and checked."""

import contextlib
import itertools
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ..correctness import call_outputs
from ..correctness.findings import Evidence
from ..errors import BaselineFailed, ChampionFailed, Finding, RunnerFailed, of_candidate, of_failure, of_task
from ..isolation.calls import Call, InputSet
from ..isolation.handle import FOREIGN_ROLES, RunnerHandle
from ..pool.input_supply import InputSupply
from ..pool.runner_pool import RunnerPool
from ..protocol.baselines import EAGER, OTHERS
from . import spot_checks
from .spot_checks import Output, SpotCheck, Values
from .whole_turns import Turn

CHECKED = 0.125  # share of the turns whose untimed call is checked, too, and the state after each of their calls

_COMPARED = (EAGER, *FOREIGN_ROLES)
"""Variants whose outputs are compared in timed calls. Other baselines were judged before."""


@dataclass
class Round:
    """What a round has measured, by variant.

    `cpu_s` is the processor time of all timed calls. `even` says that no baseline was disturbed in the round.
    """

    turns: dict[str, list[Turn]] = field(default_factory=lambda: defaultdict(list))
    cpu_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    even: bool = True

    def add_turn(self, variant: str, calls: Sequence[Call], more_ready_s: float) -> None:
        """Record a turn's calls, the first of which is not timed, and what getting ready took besides theirs."""
        untimed, *timed = calls
        ready_s = math.fsum(call.ready_s for call in calls) + more_ready_s
        threads = min(call.threads for call in calls)
        self.turns[variant].append(Turn(tuple(call.seconds for call in timed), untimed.seconds, ready_s, threads))
        self.cpu_s[variant] += math.fsum(call.cpu_s for call in timed)


@dataclass
class ProcessSet:
    """The runners of one process set, by variant, and what their calls need.

    `warm` are the inputs of untimed calls, `orders` who goes first, `rng` what nobody can foresee; `scrub` is called
    before each call where caches shall be cold.
    """

    pool: RunnerPool
    evidence: Evidence
    runners: dict[str, RunnerHandle]
    warm: list[InputSet]
    supply: InputSupply
    orders: Iterator[tuple[str, ...]]
    rng: random.Random
    checked: Iterator[bool]  # of each turn, whether its untimed call and its states are; see `checked_turns`
    scrub: Callable[[], None] | None = None
    last: dict[str, Call] = field(default_factory=dict)  # each variant's last call
    spot_checks_s: float = 0.0  # what spot checks have taken so far
    _ready_s: float = 0.0  # in the present turn, for what are no calls of it: spot checks, a new input buffer
    excused: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """The disturbances of each variant that came of saving memory."""
    _states: dict[str, list[Values]] = field(default_factory=dict)  # after each call of a turn that is checked
    _emptied: set[str] = field(default_factory=set)  # variants without memory in their input buffers

    def run(self, fresh: Sequence[InputSet], due: Sequence[SpotCheck]) -> Round:
        """One round of two turns, with a half of the fresh inputs each; in the second, the order is the mirrored one.

        In its turn a variant makes an untimed call, to meet its own cache and allocator instead of its predecessor's,
        and then a timed one on each of the inputs. Some of the untimed calls are checked, too.

        Raises:
            Finding: a call failed or was wrong.
        """
        done = Round()
        before: list[list[SpotCheck]] = [[] for _ in fresh]  # those before each timed call
        for spot_check in due:
            before[int(spot_check.after * len(before))].append(spot_check)
        disturbances = self._disturbances()
        half = len(fresh) // 2
        for warm, turn in enumerate((range(half), range(half, len(fresh)))):
            own = [(fresh[index], before[index]) for index in turn]
            self._states = {"eager": [], "candidate": []} if next(self.checked) else {}
            checked = bool(self._states)
            outputs: dict[str, list[Output]] = {}
            for variant in next(self.orders):
                calls: list[Call] = []
                self._ready_s = 0.0
                self.hold_buffer(variant)
                with blame(variant):
                    first = self._untimed(variant, self.warm[warm % len(self.warm)], calls, checked=checked)
                    timed = [self._timed(variant, *each, calls, last=each is own[-1]) for each in own]
                self._empty_buffer(variant)
                outputs[variant] = first + timed if variant in _COMPARED else []
                del first, timed
                done.add_turn(variant, calls, self._ready_s)
            self._give_back()
            given = [self.warm[warm % len(self.warm)]] * checked + [inputs for inputs, _ in own]
            for variant in FOREIGN_ROLES:
                if variant in outputs:
                    self._compare(variant, given, outputs, compared=variant == "candidate" or checked)
            if checked:
                for want, have in zip(self._states["eager"], self._states["candidate"], strict=True):
                    spot_checks.compare_state(want, have, self.evidence)
            del own, given, outputs
        self.supply.pause()
        done.even = not any(
            self.pool.platform.is_disturbed(before, after)
            for before, after in zip(disturbances, self._disturbances(), strict=True)
        )
        return done

    def _compare(
        self, variant: str, given: Sequence[InputSet], outputs: dict[str, list[Output]], *, compared: bool
    ) -> None:
        """Read what has not been read yet, and hold a variant's outputs against eager's if they are `compared`.

        Raises:
            Finding: the candidate's are wrong.
            ChampionFailed: the champion's are.
        """
        for inputs, of_eager, output in zip(given, outputs[EAGER], outputs[variant], strict=True):
            with blame(EAGER):
                want = of_eager.values()
            with blame(variant):
                have = output.taken()
                if compared:
                    spot_checks.compare(self.pool, self.supply, self.evidence, inputs, want, have)
            del have

    def judge(self, due: Sequence[SpotCheck]) -> None:
        """Judge the spot checks of a round that is over.

        Raises:
            Finding: one is wrong.
        """
        with self._timing_spot_checks():
            for spot_check in due:
                spot_check.judge(self.evidence)

    def empty_buffers(self) -> None:
        """Where memory is short, no runner holds inputs outside of its turns."""
        for variant in self.runners:
            self._empty_buffer(variant)

    def _empty_buffer(self, variant: str) -> None:
        if self.pool.frugal and self.runners[variant].empty_buffer():
            self._emptied.add(variant)

    def hold_buffer(self, variant: str) -> None:
        """Give a runner without memory in its input buffer another one, all of which is there and mapped.

        Raises:
            Finding, ChampionFailed, BaselineFailed: the runner has failed.
        """
        if variant in self._emptied:
            self._emptied.remove(variant)
            buffer = self.pool.platform.input_buffer(self.pool.input_bytes, self.pool.slots())
            with blame(variant), self._excusing(variant):
                self._ready_s += self.runners[variant].attach(buffer)

    @contextlib.contextmanager
    def _excusing(self, variant: str) -> Iterator[None]:
        """A context in which disturbances of a runner are no sign of others'."""
        before = self.runners[variant].disturbance()
        yield
        self.excused[variant] += self.runners[variant].disturbance() - before

    def _give_back(self) -> None:
        """Where memory is short, have baselines beside eager return what their calls have used. The next is untimed."""
        for variant, handle in self.runners.items() if self.pool.frugal else ():
            if variant in OTHERS:
                with blame(variant):
                    self.pool.release(handle)

    def _disturbances(self) -> list[float]:
        """The counter of each baseline."""
        found = []
        for variant, handle in self.runners.items():
            if handle.role not in FOREIGN_ROLES:
                with blame(variant):
                    found.append(handle.disturbance() - self.excused[variant])
        return found

    def call(self, variant: str, inputs: InputSet) -> Call:
        """One call with all else stopped."""
        self.last[variant] = self.runners[variant].call(
            inputs.tree,
            inputs.contents,
            seed=inputs.seed,
            timeout_s=self.pool.request.call_timeout_s,
            state=spot_checks.reported_state(self.evidence, self.pool.names_of, variant),
            quiet=self.supply.pause,
            before=self.scrub,
        )
        return self.last[variant]

    def _untimed(self, variant: str, inputs: InputSet, calls: list[Call], *, checked: bool) -> list[Output]:
        refills = self.pool.frugal and variant in OTHERS  # what it has given back
        with self._excusing(variant) if refills else contextlib.nullcontext():
            call = self.call(variant, inputs)
        calls.append(call)
        return [self._look_at(variant, call, inputs)] if checked else []

    def compare_state(self) -> None:
        """See that the last calls have left the same state behind.

        Raises:
            Finding: they have not, or it cannot be read.
        """
        states = {}
        for variant in ("eager", "candidate"):
            with blame(variant):
                states[variant] = spot_checks.state_after(self.last[variant], self.runners[variant])
        spot_checks.compare_state(states["eager"], states["candidate"], self.evidence)

    def _look_at(self, variant: str, call: Call, inputs: InputSet, *, last: bool = False) -> Output:
        """The outputs of a call. Where memory is short, those of a turn's `last` one stay in the runner's for now."""
        if variant in self._states:
            self._states[variant].append(spot_checks.state_after(call, self.runners[variant]))
        output = Output(self.evidence, variant, self.runners[variant], call, inputs, self.rng)
        if not (last and self.pool.frugal) or not output.stays:
            output.values()
        return output

    def _timed(
        self, variant: str, inputs: InputSet, due: Sequence[SpotCheck], calls: list[Call], *, last: bool
    ) -> Output:
        self._spot_check(due, variant)
        call = self.call(variant, inputs)
        calls.append(call)
        self.supply.resume()  # until the next call the reference may go on making inputs
        return self._look_at(variant, call, inputs, last=last)

    def _spot_check(self, due: Sequence[SpotCheck], variant: str) -> None:
        """Calls on other families.

        Eager makes them too, so that its state keeps up, and its answers are read too, so that both go on from alike
        caches.
        """
        with self._timing_spot_checks():
            for spot_check in due if variant in _COMPARED else ():
                handle, call = self.runners[variant], self.call(variant, spot_check.inputs)
                self._ready_s += call.ready_s
                if variant == "candidate":
                    spot_check.take(self.evidence, handle, call)
                else:
                    call_outputs.read(handle, call, spot_check.inputs)

    @contextlib.contextmanager
    def _timing_spot_checks(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.spot_checks_s += time.perf_counter() - start


def checked_turns(rng: random.Random, turns_min: int) -> Iterator[bool]:
    """Of each turn of a process set, whether it is checked whole: a share `CHECKED` of them, and one for certain.

    The certain one is among the first `turns_min`, which there are in any set, so that no candidate gets through a set
    by luck.
    """
    certain = rng.randrange(turns_min)
    for number in itertools.count():
        yield number == certain or rng.random() < CHECKED


@contextlib.contextmanager
def blame(variant: str) -> Iterator[None]:
    """A failure of the runner inside is that of this variant.

    Raises:
        Finding: the runner failed.
        ChampionFailed: the champion did, or left something behind that a candidate would be refused for.
        BaselineFailed: a baseline other than eager did.
    """
    try:
        yield
    except Finding as finding:
        if variant == "champion":
            raise ChampionFailed(finding.message) from None
        raise
    except RunnerFailed as failure:
        if failure.role not in ("", variant):
            raise of_failure(failure) from None
        if variant == "champion":
            raise ChampionFailed(failure.message) from None
        if variant == "candidate":
            raise of_candidate(failure, building=False, doing="a timed call") from None
        if variant in OTHERS:
            raise BaselineFailed(variant, failure) from None
        raise of_task(failure, doing=f"a timed call ({variant})") from None
