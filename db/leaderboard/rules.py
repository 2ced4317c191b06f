"""The rules of the leaderboard: boards, entries and ranks.

**Boards.** A board is one task (pinned by the hash of its source) on one platform, device and sandbox. Results of
different boards are never ranked against each other. Results of the process sandbox have boards of their own, because
nothing there kept a candidate from cheating.

**Entries.** Each model has one entry on a board: its candidate with the highest speedup over eager, and of several with
the same speedup the first. A candidate has one speedup on a board: all its valid evaluations there, pooled
(db/leaderboard/pooling.py). A candidate that any evaluation found wrong has none. Retracted evaluations do not count.
(db/leaderboard/standings.py chooses the candidate.)

**Ranks.** Entries are ranked by speedup. If the intervals of two entries overlap, it is not known which is faster, and
they share a rank. Entries whose only speedups are unreliable (measured on a busy machine, or beyond the device's limit,
for example) have no rank and follow after the ranked ones. Then come those whose candidates passed in trials alone, and
models without a passed candidate come last.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

SUBMITTED = "submitted"
"""The model's name on the leaderboard for candidates that a user wrote."""


class Tier(IntEnum):
    """The groups of entries on a board; a lower one comes first. The column `worth` holds it."""

    RANKED = 0
    UNRANKED = 1  # passed, but the speedup is unreliable
    TRIED = 2  # passed in trials alone, which say which of two is better and not how fast one is
    NONE_PASSED = 3


@dataclass(frozen=True)
class Score:
    """What the position of an entry depends on."""

    model: str
    tier: int
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None


@dataclass(frozen=True)
class Position:
    """The position of an entry on its board from 0 (the column `place`), and its rank from 1 if it has one."""

    position: int
    rank: int | None


def board_key(task_id: int, platform: str, device: str, sandbox: str) -> str:
    """The key of a board: a hash, because names may be longer than an index allows."""
    return _digest([task_id, platform, device, sandbox])


def entry_key(task_id: int, platform: str, device: str, sandbox: str, model: str) -> str:
    """The key of an entry: a hash, like `board_key`."""
    return _digest([task_id, platform, device, sandbox, model])


def rank_board(scores: Sequence[Score]) -> list[Position]:
    """The positions of the entries of one board, in the order of `scores`.

    Ranks follow falling speedup: 1, 1, 3, … if the first two entries overlap. An entry shares a rank if it overlaps
    with the first entry of that rank.
    """
    order = sorted(range(len(scores)), key=lambda index: _sort_key(scores[index]))
    found: dict[int, Position] = {}
    first: Score | None = None  # the first entry of the current rank
    rank = 0
    for position, index in enumerate(order):
        score = scores[index]
        if score.tier != Tier.RANKED:
            found[index] = Position(position, None)
            continue
        if first is None or not _overlap(first, score):
            first, rank = score, position + 1
        found[index] = Position(position, rank)
    return [found[index] for index in range(len(scores))]


def _sort_key(score: Score) -> tuple[int, float, str]:
    return (score.tier, -(score.speedup or 0.0), score.model)


def _overlap(faster: Score, slower: Score) -> bool:
    """Whether the intervals of two speedups overlap. Without an interval, the value itself is used."""
    low = faster.speedup if faster.speedup_low is None else faster.speedup_low
    high = slower.speedup if slower.speedup_high is None else slower.speedup_high
    return low is not None and high is not None and high >= low


def _digest(parts: Sequence[str | int]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
