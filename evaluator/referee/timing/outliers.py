"""Whether a candidate's calls are as even as a baseline's: what a middle mean or a median of them does not see.

Work that is put off into a few slow calls makes all others faster. Interruptions by the machine look alike, and they
may meet a short call as often as a long one; so what cannot be told apart is said to be unclear, and gets no rank.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import torch

from . import statistics

UNEVEN = ((0.05, 1.10), (0.02, 1.25))
"""By what factor, and without which share of the slowest calls, a candidate's mean over its middle may be larger than
the most even baseline's. Of 36 evaluations of an op against itself or against a slower one, the largest factors to
eager were 1.05 and 1.11."""

SURE = 0.95
"""In what share of resampled measurements it must be less even than the baselines to be called uneven."""

UNCLEAR = 0.85
"""And in what share of them to be suspected."""

CREDIT = 0.25
"""Up to which share of its middle interruptions, as the baselines met them, may excuse a candidate's slow calls."""

_RESAMPLES = 400


class Evenness(StrEnum):
    """What the calls show. Uneven: some are slow beyond chance. Unclear: the machine interrupts too much to tell."""

    EVEN = "even"
    UNCLEAR = "unclear"
    UNEVEN = "uneven"


def judge(rounds: Mapping[str, Sequence[Sequence[float]]], *, seed: int) -> Evenness:
    """Hold the candidate's calls against the baselines'; call times of each variant, by round.

    The excess of calls is their mean, without the slowest, less their middle. Allowed is the share of the middle that
    the most even baseline has, or in seconds what its jumps come to: calls half as long again as the middle or longer.
    `seed`: of the bootstrap over rounds, for nobody to foresee.
    """
    ordered = {name: _resampled(calls, seed) for name, calls in rounds.items()}
    candidate = ordered.pop("candidate")
    found = Evenness.EVEN
    for cut, most in UNEVEN:
        middle, excess, _ = _excess(candidate, cut)
        theirs = [_excess(calls, cut) for calls in ordered.values()]
        share = torch.stack([mean / their_middle for their_middle, mean, _ in theirs]).amin(dim=0)
        jumps = torch.stack([jumps for _, _, jumps in theirs]).amin(dim=0)
        proportional = (most * (1 + share) - 1) * middle
        if excess[0] <= proportional[0]:
            continue
        if excess[0] <= jumps[0] + (most - 1) * middle[0]:
            if jumps[0] > CREDIT * middle[0]:
                found = Evenness.UNCLEAR
            continue
        more = (excess - torch.maximum(share * middle, jumps))[1:]
        if more.quantile(1 - SURE) > 0:
            return Evenness.UNEVEN
        if more.quantile(1 - UNCLEAR) > 0:
            found = Evenness.UNCLEAR
    return found


def _resampled(rounds: Sequence[Sequence[float]], seed: int) -> torch.Tensor:
    """Calls in the order of their times: first those that there are, then those of resampled rounds, each in a row.

    The same rounds are drawn for all variants.
    """
    fewest = min(len(calls) for calls in rounds)
    data = torch.tensor([list(calls[:fewest]) for calls in rounds], dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    picks = torch.randint(len(data), (_RESAMPLES, len(data)), generator=generator)
    return torch.cat([data.flatten().unsqueeze(0), data[picks].flatten(1)]).sort(dim=1).values


def _excess(ordered: torch.Tensor, cut: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of each row the middle, the excess without the largest `cut` (a share) of the calls, and the jumps' part.

    The middle is what a speedup takes for it, an interquartile mean of logarithms: where every other call is slow, a
    median may lie anywhere between both kinds.
    """
    middle = statistics.middle_means(ordered.log()).exp().unsqueeze(1)
    above = (ordered - middle)[:, : ordered.shape[1] - int(ordered.shape[1] * cut)]
    jumps = torch.where(above > middle / 2, above, 0.0)
    return middle.squeeze(1), above.mean(dim=1), jumps.mean(dim=1)
