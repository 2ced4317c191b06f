"""How long a call takes: calls of every variant interleaved, in freshly started process sets; see `docs/timing.md`.

A *set* is one freshly forked process of each variant. A *round* is two turns of each variant, the second ones in the
mirrored order, on inputs never shown before. In a *turn* comes an untimed call first (so that a variant meets its own
cache and allocator state, not its predecessor's), then timed ones, each with its outputs read and checked. All other
runners are stopped. A *block* is one variant's timed calls of a round.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from . import outliers, statistics
from .outliers import Evenness

HANDOVERS_AT_LEAST = 2.0
"""A call's time in questions that ask for nothing, to say something about the kernel. Whatever runs in the
candidate's process can hasten its hand-over, which must not pay."""

UNTIMED_EXTRA = 0.25
"""By what share of a timed call an untimed one of the candidate may take longer, beside twice what a baseline's
does."""

READY_EXTRA = 0.05
"""And by what share of one its getting ready may, beside a quarter more than a baseline's takes."""

WAKING_A_THREAD_S = 8e-6
"""And for each thread that it has and no baseline has: with 32 threads that sleep it took 6.4 µs for each. They have to
be woken up in timed calls, too."""

RESOLUTION = 0.004
"""Below this share nothing is told apart. An op of 10 ms against itself came out 0.2 % slower on average, in 20
evaluations whose own spread was 0.25 %."""

_A_LOOK = 250  # resamples that are enough to see whether the interval is narrow


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

    @property
    def share_s(self) -> float:
        """For how long a set is measured, if the interval stays wide."""
        return min(self.set_s, self.budget_s / self.sets)

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


@dataclass(frozen=True)
class Untimed:
    """What does not count in a turn: its first call, and getting ready for each of its calls, in seconds.

    `threads`: the fewest that the runner had in it.
    """

    call_s: float
    ready_s: float
    threads: int = 1


@dataclass
class Measurement:
    """Call times in seconds, by variant, set and block. Blocks of one round have their calls on the same inputs."""

    blocks: dict[str, list[list[list[float]]]] = field(default_factory=dict)
    untimed: dict[str, list[list[Untimed]]] = field(default_factory=dict)  # by variant and set, one of each turn
    handovers_s: list[float] = field(default_factory=list)  # what a question that asks for nothing took, by set
    seed: int = 0  # of what is resampled to judge a candidate
    resolution: float = RESOLUTION

    def open_set(self, variants: Sequence[str], handover_s: float = 0.0) -> None:
        """Begin a process set."""
        for variant in variants:
            self.blocks.setdefault(variant, []).append([])
            self.untimed.setdefault(variant, []).append([])
        self.handovers_s.append(handover_s)

    def drop_set(self) -> None:
        """Forget the last process set."""
        for blocks in self.blocks.values():
            blocks.pop()
        for turns in self.untimed.values():
            turns.pop()
        self.handovers_s.pop()

    def add_block(self, variant: str, seconds: Sequence[float]) -> None:
        """Record one block of timed calls."""
        self.blocks[variant][-1].append(list(seconds))

    def add_untimed(self, variant: str, turns: Sequence[Untimed]) -> None:
        """Record what did not count in the turns of a block."""
        self.untimed[variant][-1].extend(turns)

    def calls(self, variant: str) -> list[list[float]]:
        """Every call's time, by set; none for a variant that was not timed."""
        return [[seconds for block in blocks for seconds in block] for blocks in self.blocks.get(variant, [])]

    def timed(self) -> list[str]:
        """The variants that have times."""
        return [variant for variant in self.blocks if any(self.calls(variant))]

    def samples_ms(self, variant: str) -> list[list[float]]:
        """Every call's time, by set."""
        return [[round(seconds * 1e3, 4) for seconds in times] for times in self.calls(variant)]

    def speedup(self, baseline: str, *, resamples: int = statistics.RESAMPLES) -> tuple[float, float, float]:
        """What the ratios baseline/candidate of calls on the same inputs come to, with the 95 % interval.

        Never narrower than `RESOLUTION` on either side: what few process sets share is in no spread between them.
        """
        ratios = [
            [
                [slow / fast for slow, fast in zip(slows, fasts, strict=True)]
                for slows, fasts in zip(slow_blocks, fast_blocks, strict=False)
            ]
            for slow_blocks, fast_blocks in zip(self.blocks[baseline], self.blocks["candidate"], strict=True)
        ]
        return statistics.widened(*statistics.ratio_interval(ratios, resamples=resamples), self.resolution)

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
        """Whether the candidate's slow calls cost it clearly more than the baselines' cost them."""
        rounds = {name: [block for blocks in sets for block in blocks] for name, sets in self.blocks.items()}
        return outliers.judge(rounds, seed=self.seed)

    def told(self, plan: Plan) -> bool:
        """Whether these times tell enough: how much faster the candidate is, and that it is so in all of its calls."""
        return self.precise(plan) and self.evenness() != Evenness.UNCLEAR

    def prepares(self) -> bool:
        """Whether the candidate takes clearly longer than baselines do where its time does not count.

        There it may do what belongs into its calls: in the untimed one of a turn, beside `UNTIMED_EXTRA` and twice what
        the first call of a turn costs a baseline; in getting ready, summed up over a turn, beside `READY_EXTRA`, a
        quarter more than a baseline takes, and `WAKING_A_THREAD_S`. Middle means, as speedups are: what is done in so
        many of the turns that it flatters these shows here as much.
        """
        timed_s, first_s, ready_s, threads = {}, {}, {}, {}
        for name in self.timed():
            turns = [turn for turns in self.untimed[name] for turn in turns]
            timed_s[name] = statistics.middle_mean([seconds for times in self.calls(name) for seconds in times])
            first_s[name] = statistics.middle_mean([turn.call_s for turn in turns]) - timed_s[name]
            ready_s[name] = statistics.middle_mean([turn.ready_s for turn in turns])
            threads[name] = statistics.middle_mean([turn.threads for turn in turns])
        call_s, first_s_more, its_ready_s, its_threads = (
            by_variant.pop("candidate") for by_variant in (timed_s, first_s, ready_s, threads)
        )
        in_a_turn = sum(map(len, self.calls("candidate"))) / max(1, sum(map(len, self.untimed["candidate"])))
        waking_s = (in_a_turn + 1) * WAKING_A_THREAD_S * max(0.0, its_threads - max(threads.values()))
        ready_at_most_s = 1.25 * max(ready_s.values()) + in_a_turn * READY_EXTRA * call_s + waking_s
        first_at_most_s = 2 * max(0.0, *first_s.values()) + UNTIMED_EXTRA * call_s
        return first_s_more > first_at_most_s or its_ready_s > ready_at_most_s

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
