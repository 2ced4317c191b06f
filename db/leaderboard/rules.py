"""The leaderboard's rules: what an entry claims and who ranks where. Which evaluation stands for a model is a query's
work (db/leaderboard/rebuild.py), by the same rules.

A board is one task (pinned by the hash of its source) on one platform, device and sandbox; results of different boards
are never ranked against each other, and those of the process sandbox are boards of their own because nothing there
kept a candidate from cheating. On a board each model enters once, with its best passed candidate: the highest speedup
over eager, of equal ones the earliest. Where the intervals of two entries overlap, the difference is not known and they
share a rank. A model that was tried and passed nothing stands last, without rank or speedup; before it, without rank,
those whose only times cannot be relied on: taken on a machine that was busy with other things, say, or better than the
device's limit. What was taken back counts for nothing.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

SUBMITTED = "submitted"
"""Stands for the model of a candidate that a user evaluated himself."""


class Worth(IntEnum):
    """What an entry claims; lower stands higher."""

    RANKED = 0
    UNRANKED = 1  # it passed, yet its figures cannot be relied on
    NOTHING = 2  # nothing passed


@dataclass(frozen=True)
class Claim:
    """As much of an entry as its place on its board depends on."""

    model: str
    worth: int
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None


@dataclass(frozen=True)
class Place:
    """Where an entry stands on its board: `place` counts all from 0, `rank` only those that claim something."""

    place: int
    rank: int | None


def board_key(task_id: int, platform: str, device: str, sandbox: str) -> str:
    """What entries must share to be ranked against each other, in 64 characters: names may be of any length."""
    return _digest([task_id, platform, device, sandbox])


def entry_key(task_id: int, platform: str, device: str, sandbox: str, model: str) -> str:
    """What names an entry, in 64 characters."""
    return _digest([task_id, platform, device, sandbox, model])


def places(board: Sequence[Claim]) -> list[Place]:
    """The place of each entry of one board, in the order in which they are given.

    Ranks follow falling speedup: 1, 1, 3, … where the first two overlap. Who overlaps with the first of those that
    share a rank shares it.
    """
    order = sorted(range(len(board)), key=lambda index: _standing(board[index]))
    found: dict[int, Place] = {}
    first: Claim | None = None  # of the entries that share the present rank
    rank = 0
    for place, index in enumerate(order):
        claim = board[index]
        if claim.worth != Worth.RANKED:
            found[index] = Place(place, None)
            continue
        if first is None or not _overlap(first, claim):
            first, rank = claim, place + 1
        found[index] = Place(place, rank)
    return [found[index] for index in range(len(board))]


def _standing(claim: Claim) -> tuple[int, float, str]:
    return (claim.worth, -(claim.speedup or 0.0), claim.model)


def _overlap(faster: Claim, slower: Claim) -> bool:
    """Whether the intervals of two speedups touch; one without an interval counts as its value alone."""
    low = faster.speedup if faster.speedup_low is None else faster.speedup_low
    high = slower.speedup if slower.speedup_high is None else slower.speedup_high
    return low is not None and high is not None and high >= low


def _digest(parts: Sequence[str | int]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
