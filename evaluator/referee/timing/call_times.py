"""How long a call takes: calls of every variant interleaved, in freshly started process sets; see `docs/timing.md`.

A *set* is one freshly forked process of each variant. A *round* is two turns of each variant, the second ones in the
mirrored order, on inputs never shown before. In a *turn* comes an untimed call first (so that a variant meets its own
cache and allocator state, not its predecessor's), then timed ones, each with its outputs read and checked. All other
runners are stopped. A *block* is one variant's timed calls of a round.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..protocol.baselines import USUAL
from . import sequential, statistics, whole_turns
from .whole_turns import Evenness, Turn

HANDOVERS_AT_LEAST = 2.0
"""A call's time in calls of a model that does nothing, to say something about the kernel. Whatever runs in the
candidate's process can hasten its hand-over, which must not pay."""

RESOLUTION = 0.004
"""Below this share nothing is told apart. An op of 10 ms against itself came out 0.2 % slower on average, in 20
evaluations whose own spread was 0.25 %."""

FIRST_ROUNDS = 3
"""Rounds of a trial's first process set before the first look. More follow only where that decides nothing."""

TRIAL_BUDGET_S = 8.0
"""What timing may take where it is only asked which of two candidates is better."""

TRIAL_SET_S = 2.0
"""The most that one set is measured for there."""

_A_LOOK = 250  # resamples that are enough to see whether the interval is narrow
_NORMAL_95 = 1.96  # the normal distribution's two-sided 5 %


@dataclass(frozen=True)
class Plan:
    """How much to measure. `budget_s` is spent (starting included) only as long as the interval is wider than wanted.

    More sets follow the first `sets` where those were not enough: another process tells more than another round.
    """

    sets: int = 2
    sets_max: int = 24
    wall_s: float = math.inf  # no set begins that would not be over by then, since the stage began
    set_s: float = 0.5  # the most that one set is measured for: sets differ more than rounds do
    rounds_min: int = 6
    retries: int = 4  # rounds of a set that may be thrown away
    calls: int = 4  # timed calls of each variant in a round; half of them in each of its turns
    warm_inputs: int = 2  # sets of inputs that untimed calls take turns on
    target_width: float = 0.025  # stop when high - low of the speedup over eager is below this share of it ...
    target_effect: float = 0.25  # ... or below this share of its logarithm: what is far from 1 needs less ...
    precision: float = 0.2  # ... but never while it is wider than this share of it
    budget_s: float = 20.0
    trial: bool = False  # whether it is enough to know which of candidate and champion is better

    def for_trial(self) -> "Plan":
        """The plan by which it is decided which of two candidates is better (`sequential`)."""
        return replace(
            self,
            sets=1,
            sets_max=min(self.sets_max, sequential.SETS),
            budget_s=min(self.budget_s, TRIAL_BUDGET_S),
            set_s=TRIAL_SET_S,
            target_width=self.precision,
            trial=True,
        )

    @property
    def share_s(self) -> float:
        """For how long a set is measured, if the interval stays wide."""
        return min(self.set_s, self.budget_s / self.sets)

    def least_rounds(self, sets: int) -> int:
        """Rounds of a set, at least, where there have been so many sets."""
        return min(self.rounds_min, FIRST_ROUNDS) if self.trial and not sets else self.rounds_min

    def wanted_width(self, speedup: float) -> float:
        """How wide the interval of a speedup may be, as a share of it, for no more to be measured."""
        return min(self.precision, max(self.target_width, self.target_effect * abs(math.log(speedup))))

    def room_for_another(self, sets: int, elapsed_s: float, first_start_s: float = 0.0) -> bool:
        """Whether another set may follow these: so much time is gone, so much of it until the first was started."""
        if sets < self.sets:
            return True
        spent_s = elapsed_s - first_start_s
        each_s = spent_s / max(1, sets)
        in_time = elapsed_s + 1.5 * each_s <= self.wall_s
        return in_time and sets < self.sets_max and spent_s + each_s / 2 <= self.budget_s


@dataclass
class Measurement:
    """Call times in seconds, by variant, set and block. Blocks of one round have their calls on the same inputs."""

    turns: dict[str, list[list[list[Turn]]]] = field(default_factory=dict)  # by variant, set and round
    handovers_s: list[float] = field(default_factory=list)  # what a call of a model that does nothing took, by set
    seed: int = 0  # of what is resampled to judge a candidate
    resolution: float = RESOLUTION
    set_sd: float = sequential.SET_SD  # what process sets of the same code are taken to differ by at least

    def open_set(self, variants: Sequence[str], handover_s: float = 0.0) -> None:
        """Begin a process set."""
        for variant in variants:
            self.turns.setdefault(variant, []).append([])
        self.handovers_s.append(handover_s)

    def drop_set(self) -> None:
        """Forget the last process set."""
        for sets in self.turns.values():
            sets.pop()
        self.handovers_s.pop()

    def forget(self, variant: str) -> None:
        """Forget a variant's times."""
        self.turns.pop(variant, None)

    def add_round(self, turns: Mapping[str, Sequence[Turn]]) -> None:
        """Record the turns of a round, by variant."""
        for variant, each in turns.items():
            self.turns[variant][-1].append(list(each))

    def blocks(self, variant: str) -> list[list[list[float]]]:
        """The times of the calls of each round, by set."""
        return [
            [[call_s for turn in turns for call_s in turn.calls_s] for turns in rounds]
            for rounds in self.turns.get(variant, [])
        ]

    def calls(self, variant: str) -> list[list[float]]:
        """Every call's time, by set; none for a variant that was not timed."""
        return [[call_s for block in blocks for call_s in block] for blocks in self.blocks(variant)]

    def timed(self) -> list[str]:
        """The variants that have times."""
        return [variant for variant in self.turns if any(self.calls(variant))]

    def reported(self) -> list[str]:
        """The variants that have times, but for the champion: of it only the ratio to the candidate is told."""
        return [variant for variant in self.timed() if variant != "champion"]

    def samples_ms(self, variant: str) -> list[list[float]]:
        """Every call's time, by set."""
        return [[round(seconds * 1e3, 4) for seconds in times] for times in self.calls(variant)]

    def speedup(self, baseline: str, *, resamples: int = statistics.RESAMPLES) -> tuple[float, float, float]:
        """What the ratios baseline/candidate of calls on the same inputs come to, with the 95 % interval.

        Never narrower than `RESOLUTION` on either side: what few process sets share is in no spread between them.
        """
        ratios = self._ratios(baseline)
        uncertain = self.resolution
        if len(ratios) == 1:  # nothing is seen of how process sets differ
            uncertain = math.hypot(uncertain, _NORMAL_95 * self.set_sd)
        return statistics.widened(*statistics.ratio_interval(ratios, resamples=resamples), uncertain)

    def against_champion(self) -> sequential.TrialResult | None:
        """How much faster the candidate is than the champion; None if no champion was timed."""
        if "champion" not in self.timed():
            return None
        pairs = [[ratio for pairs in rounds for ratio in pairs] for rounds in self._ratios("champion")]
        return sequential.compare(pairs, set_sd=self.set_sd)

    def _ratios(self, baseline: str) -> list[list[list[float]]]:
        """The ratios baseline/candidate of calls on the same inputs, by set and round."""
        return [
            [
                [slow / fast for slow, fast in zip(slows, fasts, strict=True)]
                for slows, fasts in zip(slow_blocks, fast_blocks, strict=False)
            ]
            for slow_blocks, fast_blocks in zip(self.blocks(baseline), self.blocks("candidate"), strict=True)
        ]

    def latency_ms(self, variant: str) -> tuple[float, float, float]:
        """Median time of a call with its 95 % interval."""
        value, low, high = statistics.median_interval(self.calls(variant))
        return value * 1e3, low * 1e3, high * 1e3

    def too_short(self) -> bool:
        """Whether the candidate's call takes hardly longer than its hand-over, in half of the sets or more."""
        pairs = zip(self.calls("candidate"), self.handovers_s, strict=True)
        short = [statistics.median(calls) < HANDOVERS_AT_LEAST * handover_s for calls, handover_s in pairs]
        return 2 * sum(short) >= len(short)

    def evenness(self) -> Evenness:
        """Whether the candidate's turns took what its timed calls say; the same whatever other baselines there are."""
        own = {variant: self.turns[variant] for variant in self.reported() if variant in (*USUAL, "candidate")}
        return whole_turns.judge(own, seed=self.seed)

    def told(self, plan: Plan) -> bool:
        """Whether these times tell enough: how much faster the candidate is, and that it is so in all of its calls.

        In a trial the first is enough: the second is asked again in the proof.
        """
        compared = self.against_champion() if plan.trial else None
        if compared is not None:
            return compared.decision != sequential.Decision.OPEN
        return self.precise(plan) and (plan.trial or self.evenness() != Evenness.UNCLEAR)

    def set_told(self, plan: Plan, *, measured_s: float, started_s: float) -> bool:
        """Whether the present process set tells enough.

        In a trial this depends on how the pairs scatter and never on which side is ahead (`sequential.is_worth_more`),
        but for the early looks in the first set: a test that may stop at each round would have to count each as a look.

        Args:
            plan: how much to measure.
            measured_s: what the set's rounds have taken so far.
            started_s: what the set took to start.
        """
        if not plan.trial:
            return self.told(plan)
        ratios = self._ratios("champion" if "champion" in self.timed() else "eager")
        looks = [plan.least_rounds(0) << number for number in range(sequential.EARLY_LOOKS)]
        if len(ratios) == 1 and len(ratios[0]) in looks and self.told(plan):
            return True
        pairs = [ratio for pairs in ratios[-1] for ratio in pairs]
        return not sequential.is_worth_more(pairs, set_sd=self.set_sd, measured_s=measured_s, started_s=started_s)

    def precise(self, plan: Plan) -> bool:
        """Whether the interval of the speedup over eager is as narrow as wanted."""
        value, low, high = self.speedup("eager", resamples=_A_LOOK)
        return high - low <= value * plan.wanted_width(value)


def orders(variants: Sequence[str], rng: random.Random) -> Iterator[tuple[str, ...]]:
    """Balanced orders without end: each is followed by its mirror image (ABBA), and who precedes whom is shuffled."""
    while True:
        order = list(variants)
        rng.shuffle(order)
        yield tuple(order)
        yield tuple(reversed(order))
