"""Rounds of timed calls: the variants take turns on the same fresh inputs, and each answer is read and checked."""

import contextlib
import itertools
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from ..correctness import call_outputs
from ..correctness.findings import Evidence
from ..errors import BaselineFailed, ChampionFailed, Finding, RunnerFailed, of_candidate, of_failure, of_task
from ..isolation.calls import Call, InputSet
from ..isolation.handle import FOREIGN_ROLES, RunnerHandle
from ..pool.input_supply import InputSupply
from ..pool.runner_pool import RunnerPool
from ..protocol.baselines import EAGER, OTHERS
from . import spot_checks
from .spot_checks import SpotCheck
from .whole_turns import Turn

CHECKED = 0.125  # share of the turns whose untimed call is checked, too, and the state after each of their calls

_COMPARED = (EAGER, *FOREIGN_ROLES)
"""Variants whose outputs are compared in timed calls. Other baselines were judged before."""

Values = dict[str, torch.Tensor]


@dataclass
class Round:
    """What a round has measured, by variant.

    `cpu_s` is the processor time of all timed calls. `even` says that no baseline was disturbed in the round.
    """

    turns: dict[str, list[Turn]] = field(default_factory=lambda: defaultdict(list))
    cpu_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    even: bool = True

    def add_turn(self, variant: str, calls: Sequence[Call], spot_checks_ready_s: float) -> None:
        """Record a turn's calls, the first of which is not timed, and the time to get ready for spot checks."""
        untimed, *timed = calls
        ready_s = math.fsum(call.ready_s for call in calls) + spot_checks_ready_s
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
    _spot_checks_ready_s: float = 0.0  # in the present turn
    _states: dict[str, list[Values]] = field(default_factory=dict)  # after each call of a turn that is checked

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
            outputs: dict[str, list[Values]] = {}
            for variant in next(self.orders):
                calls: list[Call] = []
                self._spot_checks_ready_s = 0.0
                with blame(variant):
                    first = self._untimed(variant, self.warm[warm % len(self.warm)], calls, checked=checked)
                    timed = [self._timed(variant, inputs, checks, calls) for inputs, checks in own]
                outputs[variant] = first + timed if variant in _COMPARED else []
                del first, timed
                done.add_turn(variant, calls, self._spot_checks_ready_s)
            given = [self.warm[warm % len(self.warm)]] * checked + [inputs for inputs, _ in own]
            for inputs, want, have in zip(given, outputs["eager"], outputs["candidate"], strict=True):
                spot_checks.compare(self.pool, self.supply, self.evidence, inputs, want, have)
            if checked and "champion" in outputs:
                with blame("champion"):
                    for inputs, want, have in zip(given, outputs["eager"], outputs["champion"], strict=True):
                        spot_checks.compare(self.pool, self.supply, self.evidence, inputs, want, have)
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

    def judge(self, due: Sequence[SpotCheck]) -> None:
        """Judge the spot checks of a round that is over.

        Raises:
            Finding: one is wrong.
        """
        with self._timing_spot_checks():
            for spot_check in due:
                spot_check.judge(self.evidence)

    @contextlib.contextmanager
    def without_buffers(self) -> Iterator[None]:
        """A context in which runners that stand still hold no input buffers, where memory is short.

        It comes in every round, so that it tells nothing of what is done meanwhile.

        Raises:
            Finding: a runner has failed.
        """
        if not self.pool.frugal:
            yield
            return
        self._attach(0, 1)
        self.pool.tidy()
        yield
        self.pool.tidy()
        self._attach(self.pool.input_bytes, self.pool.slots())

    def _attach(self, slot_bytes: int, slots: int) -> None:
        for variant, handle in self.runners.items():
            with blame(variant):
                handle.attach(self.pool.platform.input_buffer(slot_bytes, slots))

    def _disturbances(self) -> list[float]:
        """The counter of each baseline."""
        found = []
        for variant, handle in self.runners.items():
            if handle.role not in FOREIGN_ROLES:
                with blame(variant):
                    found.append(handle.disturbance())
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

    def _untimed(self, variant: str, inputs: InputSet, calls: list[Call], *, checked: bool) -> list[Values]:
        call = self.call(variant, inputs)
        calls.append(call)
        return [self._read(variant, call, inputs)] if checked else []

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

    def _read(self, variant: str, call: Call, inputs: InputSet) -> Values:
        if variant in self._states:
            self._states[variant].append(spot_checks.state_after(call, self.runners[variant]))
        return spot_checks.read(self.evidence, variant, self.runners[variant], call, inputs, self.rng)

    def _timed(self, variant: str, inputs: InputSet, due: Sequence[SpotCheck], calls: list[Call]) -> Values:
        self._spot_check(due, variant)
        call = self.call(variant, inputs)
        calls.append(call)
        self.supply.resume()  # until the next call the reference may go on making inputs
        return self._read(variant, call, inputs)

    def _spot_check(self, due: Sequence[SpotCheck], variant: str) -> None:
        """Calls on other families.

        Eager makes them too, so that its state keeps up, and its answers are read too, so that both go on from alike
        caches.
        """
        with self._timing_spot_checks():
            for spot_check in due if variant in _COMPARED else ():
                handle, call = self.runners[variant], self.call(variant, spot_check.inputs)
                self._spot_checks_ready_s += call.ready_s
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
