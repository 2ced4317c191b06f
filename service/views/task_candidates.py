"""All candidates of all models on a task, target by target: the best, the roofline, and the inputs that were judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from db.errors import NotInStore
from db.evaluations import results
from db.leaderboard.overview import TaskCandidate, list_task_candidates
from db.leaderboard.rules import Tier
from db.records import EvaluationRecord
from db.store import Store
from service.views.evaluation import Ratio, RooflineView, evaluation_view, ratio
from tasks.outcomes import Clock, clock_of

MOST_LINES = 100
"""Candidates in a target's table; there are dots for them alone."""

_MOST_TARGETS = 12
_MOST_INPUTS = 40
_MOST_GROUPS = 8


@dataclass(frozen=True)
class CandidateLine:
    """A candidate with its pooled figures.

    Attributes:
        candidate: the candidate.
        eager: its speedup over eager; None if nothing passed.
        compile: the same over torch.compile.
        counts: whether its figures are ranked.
        gb_per_s, gflop_per_s: the rates that follow from its latency and the op's bytes and FLOPs; None if unknown.
    """

    candidate: TaskCandidate
    eager: Ratio | None
    compile: Ratio | None
    counts: bool
    gb_per_s: float | None
    gflop_per_s: float | None

    @property
    def clock(self) -> Clock:
        """What its latency and speedups are made of."""
        return clock_of(self.candidate.tags)


@dataclass(frozen=True)
class InputView:
    """A tensor or scalar that a call was judged on."""

    dtype: str
    shape: str
    stride: str
    contiguous: bool


@dataclass(frozen=True)
class TargetCandidates:
    """The candidates on one target.

    Attributes:
        lines: the fastest, at most `MOST_LINES`.
        total: how many there are.
        best: the fastest with a rank; None without one.
        roofline: the limits, as the best evaluation with a roofline tells them; None without one.
        roofline_clock: what that evaluation's figures are made of.
    """

    platform: str
    device: str
    sandbox: str
    lines: tuple[CandidateLine, ...]
    total: int
    best: CandidateLine | None
    roofline: RooflineView | None
    roofline_clock: Clock


@dataclass(frozen=True)
class TaskCandidatesView:
    """The candidates of a task.

    Attributes:
        targets: those with candidates, at most 12.
        inputs: the inputs that candidates were judged on, one tuple for each group of shapes.
        cut: whether only the newest candidates, or evaluations of them, are here.
    """

    targets: tuple[TargetCandidates, ...]
    inputs: tuple[tuple[InputView, ...], ...]
    cut: bool


def task_candidates_view(store: Store, suite: str, name: str, source_hash: str) -> TaskCandidatesView:
    """The candidates of a task with this source."""
    with store.read() as session:
        listed = list_task_candidates(session, suite, name, source_hash)
        groups = [
            list(group)
            for _, group in groupby(listed.found, key=lambda each: (each.platform, each.device, each.sandbox))
        ][:_MOST_TARGETS]
        told = [_telling(session, group) for group in groups]
    inputs = next((judged for each in told if each is not None and (judged := judged_inputs(each.result))), ())
    targets = tuple(_target(group, each) for group, each in zip(groups, told, strict=True))
    return TaskCandidatesView(targets, inputs, listed.cut)


def _telling(session: Any, group: Sequence[TaskCandidate]) -> EvaluationRecord | None:
    """The evaluation that tells of the op itself, its bytes, FLOPs and inputs: that of the best candidate."""
    if group[0].tier is Tier.NONE_PASSED:
        return None
    try:
        return results.get_evaluation(session, group[0].evaluation_id)
    except NotInStore:
        return None


def judged_inputs(result: Mapping[str, Any]) -> tuple[tuple[InputView, ...], ...]:
    """The inputs that a candidate was judged on, by group of shapes; empty where the result does not tell."""
    correctness = result.get("correctness")
    neighbours = correctness.get("neighbours") if isinstance(correctness, Mapping) else None
    judged = neighbours.get("judged") if isinstance(neighbours, Mapping) else None
    if not isinstance(judged, list):
        return ()
    groups = [group for group in judged[:_MOST_GROUPS] if isinstance(group, list)]
    return tuple(tuple(_input(each) for each in group[:_MOST_INPUTS] if isinstance(each, Mapping)) for group in groups)


def _input(leaf: Mapping[str, Any]) -> InputView:
    if "value" in leaf:
        return InputView("value", str(leaf["value"])[:80], "", contiguous=True)
    return InputView(
        str(leaf.get("dtype", ""))[:20],
        _numbers(leaf.get("shape")),
        _numbers(leaf.get("stride")),
        contiguous=leaf.get("contiguous") is not False,
    )


def _numbers(value: object) -> str:
    return " × ".join(str(each) for each in value[:12]) or "one number" if isinstance(value, list) else ""


def _target(group: Sequence[TaskCandidate], told: EvaluationRecord | None) -> TargetCandidates:
    view = None if told is None else evaluation_view(told)
    roofline = None if view is None else view.roofline
    lines = tuple(_line(each, roofline) for each in group[:MOST_LINES])
    best = lines[0] if lines and lines[0].counts else None
    clock = clock_of(group[0].tags) if view is None else view.clock
    first = group[0]
    return TargetCandidates(first.platform, first.device, first.sandbox, lines, len(group), best, roofline, clock)


def _line(candidate: TaskCandidate, roofline: RooflineView | None) -> CandidateLine:
    given = candidate.measurements
    took_ms = given.candidate_ms
    gb = gflop = None
    if roofline is not None and took_ms is not None and took_ms > 0:
        gb = None if not roofline.bytes_moved else roofline.bytes_moved / took_ms / 1e6
        gflop = None if not roofline.flops else roofline.flops / took_ms / 1e6
    return CandidateLine(
        candidate,
        ratio(given.speedup, given.speedup_low, given.speedup_high),
        ratio(given.speedup_compile, given.speedup_compile_low, given.speedup_compile_high),
        candidate.tier is Tier.RANKED,
        gb,
        gflop,
    )
