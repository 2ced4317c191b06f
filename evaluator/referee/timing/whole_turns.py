"""Whether whole turns took what their timed calls say: no work was done off the clock or put off into a few calls.

A speedup is a middle mean of timed calls. Work that a candidate moves to where no timed call sees it makes the speedup
too high: into getting ready for a call, into the untimed call of a turn, or into a few slow calls. All of it shows in
what the turn takes as a whole.

A turn of n timed calls has counted for (n + 1) m, where m is the variant's middle mean in that process set; the one
more is the untimed call. What it took beyond that has three parts:

    y = timed calls / (n m) - 1      d = untimed call - m      r = time to get ready for all of its calls

The candidate's uncounted work, as a share of what counted, is

    u = (n m_c (y_c - min(y_b)) + max(0, d_c - min(cold_b)) + max(0, r_c - min(r_b + waking))) / ((n + 1) m_c)

    cold_b = d_b m_c / m_b, and where the candidate is faster up to COLD_START_S more, but no more than d_b

with trimmed means over all turns, c for the candidate and b for baselines; `waking` is for threads that the candidate
has and this baseline has not. Interruptions by the machine meet all variants alike, for as long as each runs, so they
cancel in y on average. Some of what a variant finds cold after the others' turns takes it as long as them, however
short its calls are. A candidate that has less of d or r than baselines may not put other work in its place. A bootstrap
over rounds says how sure u is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch

from . import statistics

ALLOWED = 0.05
"""Uncounted work that is not objected to, as a share of what counted."""

TRIMMED = 0.05
"""Share of the turns on either side that an excess does not count: a few interruptions are far longer than a turn."""

SURE = 0.95
"""In what share of resampled measurements the uncounted work must be more than allowed to be called so."""

UNCLEAR = 0.8
"""And in what share of them for it to be unclear."""

WAKING_A_THREAD_S = 8e-6
"""Getting ready may take longer than a baseline's by this for each call and each thread that it has not. With
32 threads that sleep, stopping and continuing took 6.4 µs for each; timed calls hold the same."""

COLD_START_S = 50e-6
"""What an untimed call may take beyond a baseline's share, if the baseline's took it as well. Of three ops eager's
untimed calls took 74 to 169 µs more than its others, and those of kernels 2 to 4 times as fast up to 40 µs more than
their share of that."""

_RESAMPLES = 400


class Evenness(StrEnum):
    """What the turns show. Uneven: uncounted work beyond chance. Unclear: the machine interrupts too much to tell."""

    EVEN = "even"
    UNCLEAR = "unclear"
    UNEVEN = "uneven"


@dataclass(frozen=True)
class Turn:
    """One turn of a variant, in seconds.

    `calls_s` are the timed calls, `untimed_s` the call before them, `ready_s` the time to get ready for all of them.
    `threads` is the fewest that the runner had.
    """

    calls_s: tuple[float, ...]
    untimed_s: float = 0.0
    ready_s: float = 0.0
    threads: int = 1


Rounds = Sequence[Sequence[Turn]]
"""The turns of each round of a process set."""


def judge(sets: Mapping[str, Sequence[Rounds]], *, seed: int) -> Evenness:
    """Hold the candidate's turns against the baselines'.

    Args:
        sets: the rounds of each process set, by variant; `candidate` is one of them, all others are baselines.
        seed: of the bootstrap, which nobody can foresee.
    """
    sure = (uncounted(sets, seed=seed)[1:] > ALLOWED).double().mean()
    if sure >= SURE:
        return Evenness.UNEVEN
    return Evenness.UNCLEAR if sure >= UNCLEAR else Evenness.EVEN


def uncounted(sets: Mapping[str, Sequence[Rounds]], *, seed: int = 0) -> torch.Tensor:
    """The candidate's uncounted work as a share of what counted: measured, then of resampled rounds."""
    picks: torch.Tensor | None = None
    excess: dict[str, _Excess] = {}
    for variant, rounds_of_sets in sets.items():
        data = torch.cat([_of_turns(rounds) for rounds in rounds_of_sets if rounds])  # rounds x turns x 3
        if picks is None:
            generator = torch.Generator().manual_seed(seed)
            drawn = torch.randint(len(data), (_RESAMPLES, len(data)), generator=generator)
            picks = torch.cat([torch.arange(len(data)).unsqueeze(0), drawn])
        turns = [turn for rounds in rounds_of_sets for turns in rounds for turn in turns]
        timed, untimed_s, ready_s = (_trimmed_means(part[picks].flatten(1)) for part in data.unbind(-1))
        excess[variant] = _Excess(
            timed,
            untimed_s,
            ready_s,
            middle_s=statistics.middle_mean([call_s for turn in turns for call_s in turn.calls_s]),
            timed_calls=sum(len(turn.calls_s) for turn in turns) / len(turns),
            threads=statistics.median([turn.threads for turn in turns]),
        )
    mine = excess.pop("candidate")
    calls = mine.timed_calls + 1
    a_thread_s = calls * WAKING_A_THREAD_S
    slow = _least([each.timed for each in excess.values()])
    cold_s = _least([_cold_s(each, mine.middle_s) for each in excess.values()])
    making_ready_s = _least(
        [each.ready_s + a_thread_s * max(0.0, mine.threads - each.threads) for each in excess.values()]
    )
    hidden_s = (mine.untimed_s - cold_s).clamp_min(0.0) + (mine.ready_s - making_ready_s).clamp_min(0.0)
    return (mine.timed_calls * (mine.timed - slow) + hidden_s / mine.middle_s) / calls


def _least(of_baselines: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack([*of_baselines]).amin(dim=0)


@dataclass(frozen=True)
class _Excess:
    """What a variant's turns took beyond what they counted for, measured and resampled.

    `timed` is a share of the timed calls; `untimed_s` is of the untimed call and `ready_s` of getting ready. `middle_s`
    is the middle mean of the calls, `timed_calls` how many a turn has.
    """

    timed: torch.Tensor
    untimed_s: torch.Tensor
    ready_s: torch.Tensor
    middle_s: float
    timed_calls: float
    threads: float


def _cold_s(baseline: _Excess, middle_s: float) -> torch.Tensor:
    """What the untimed call of a variant with such a middle mean may take beyond it, by that of a baseline."""
    share = baseline.untimed_s * (middle_s / baseline.middle_s)
    return torch.maximum(share, torch.minimum(share + COLD_START_S, baseline.untimed_s))


def _of_turns(rounds: Rounds) -> torch.Tensor:
    """Of each turn of a process set the three parts of its excess."""
    calls_s = torch.tensor(
        [call_s for turns in rounds for turn in turns for call_s in turn.calls_s], dtype=torch.float64
    )
    middle_s = float(statistics.middle_means(calls_s.log().unsqueeze(0)).exp())
    return torch.tensor(
        [
            [
                (sum(turn.calls_s) / (len(turn.calls_s) * middle_s) - 1, turn.untimed_s - middle_s, turn.ready_s)
                for turn in turns
            ]
            for turns in rounds
        ],
        dtype=torch.float64,
    )


def _trimmed_means(rows: torch.Tensor) -> torch.Tensor:
    cut = int(rows.shape[1] * TRIMMED)
    return rows.sort(dim=1).values[:, cut : rows.shape[1] - cut].mean(dim=1)
