"""Whether whole turns took what their timed calls say: no work was done off the clock or put off into a few calls.

A speedup is a middle mean of timed calls. Work that a candidate moves to where no timed call sees it makes the speedup
too high: into getting ready for a call, into the untimed call of a turn, or into a few slow calls. All of it shows in
what the turn takes as a whole.

A turn of n timed calls has counted for (n + 1) m, where m is the variant's middle mean in that process set; the one
more is the untimed call. Its excess has two parts:

    x = (untimed call + timed calls) / ((n + 1) m) - 1      r = time to get ready for all of its calls

The candidate's uncounted work, as a share of what counted, is

    u = x_candidate - min(x_baseline) + (r_candidate - min(r_baseline + waking)) / ((n + 1) m_candidate)

with trimmed means over all turns; `waking` is for threads that the candidate has and this baseline has not.
Interruptions by the machine meet all variants alike, for as long as each runs, so they cancel in x on average, and a
bootstrap over rounds says how sure u is.
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
    excess: dict[str, torch.Tensor] = {}
    ready_s: dict[str, torch.Tensor] = {}
    for variant, rounds_of_sets in sets.items():
        data = torch.cat([_excess_and_ready(rounds) for rounds in rounds_of_sets if rounds])  # rounds x turns x 2
        if picks is None:
            generator = torch.Generator().manual_seed(seed)
            drawn = torch.randint(len(data), (_RESAMPLES, len(data)), generator=generator)
            picks = torch.cat([torch.arange(len(data)).unsqueeze(0), drawn])
        excess[variant], ready_s[variant] = (_trimmed_means(part[picks].flatten(1)) for part in data.unbind(-1))
    turns = {variant: [turn for rounds in each for turns in rounds for turn in turns] for variant, each in sets.items()}
    threads = {variant: statistics.median([turn.threads for turn in each]) for variant, each in turns.items()}
    calls = 1 + sum(len(turn.calls_s) for turn in turns["candidate"]) / len(turns["candidate"])
    counted_s = calls * statistics.middle_mean([call_s for turn in turns["candidate"] for call_s in turn.calls_s])
    mine = (excess.pop("candidate"), ready_s.pop("candidate"), threads.pop("candidate"))
    a_thread_s = calls * WAKING_A_THREAD_S
    expected_s = [each + a_thread_s * max(0.0, mine[2] - threads[variant]) for variant, each in ready_s.items()]
    least_excess, expected_ready_s = (torch.stack([*each]).amin(dim=0) for each in (excess.values(), expected_s))
    return mine[0] - least_excess + (mine[1] - expected_ready_s) / counted_s


def _excess_and_ready(rounds: Rounds) -> torch.Tensor:
    """Of each turn of a process set the share by which its calls took longer than they count for, and `ready_s`."""
    calls_s = torch.tensor(
        [call_s for turns in rounds for turn in turns for call_s in turn.calls_s], dtype=torch.float64
    )
    middle_s = float(statistics.middle_means(calls_s.log().unsqueeze(0)).exp())
    return torch.tensor(
        [
            [
                (
                    (turn.untimed_s + sum(turn.calls_s)) / ((len(turn.calls_s) + 1) * middle_s) - 1,
                    turn.ready_s,
                )
                for turn in turns
            ]
            for turns in rounds
        ],
        dtype=torch.float64,
    )


def _trimmed_means(rows: torch.Tensor) -> torch.Tensor:
    cut = int(rows.shape[1] * TRIMMED)
    return rows.sort(dim=1).values[:, cut : rows.shape[1] - cut].mean(dim=1)
