"""Who wrote the fastest kernel that passed.

A board is one task (pinned by the hash of its source) on one platform, device and sandbox; results of different boards
are never ranked against each other, and those of the process sandbox are boards of their own because nothing there
kept a candidate from cheating. On a board each model enters once, with its best passed candidate: the highest speedup
over eager, of equal ones the earliest. Where the intervals of two entries overlap, the difference is not known and they
share a rank. A model that was tried and passed nothing stands last, without rank or speedup; before it, without rank,
those whose only times cannot be relied on: taken on a machine that others kept busy, or better than the device's limit.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

from sqlalchemy import ColumnElement, String, case, cast, func, or_, select
from sqlalchemy.orm import Session

from db.tables import CandidateRow, EvaluationRow, JobRow, TaskRow

SUBMITTED = "submitted"
"""Stands for the model of a candidate that a user evaluated himself."""

UNRELIABLE = ("noisy", "beyond_roofline", "too_short", "cold", "uneven")
"""Tags of what gets no rank: times of a busy machine, that seem impossible, of little but the hand-over, of cold
caches, of calls some of which take much longer than the others."""

_NOT_THE_MODELS_FAULT = ("task_invalid", "sandbox_error")


@dataclass(frozen=True)
class Entry:
    """A line of the leaderboard. Speedups are ratios, latencies milliseconds; all None where nothing passed."""

    task: str
    source_hash: str
    category: str
    platform: str
    device: str
    sandbox: str
    model: str
    evaluations: int
    passed: int
    rank: int | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    speedup_compile: float | None = None
    candidate_ms: float | None = None
    eager_ms: float | None = None
    compile_ms: float | None = None
    roofline_fraction: float | None = None
    tags: tuple[str, ...] = ()
    job_id: int | None = None
    evaluation_id: str | None = None
    candidate_hash: str | None = None
    evaluated_at: datetime | None = None

    @property
    def board(self) -> tuple[str, str, str, str, str]:
        """What this entry is ranked within."""
        return (self.task, self.source_hash, self.platform, self.device, self.sandbox)


def leaderboard(
    session: Session, *, suite: str | None = None, platform: str | None = None, task: str | None = None
) -> list[Entry]:
    """All entries, board by board, each by rank. `task` is `suite/name`."""
    entries = _entries(session, suite, platform, task)
    entries.sort(
        key=lambda entry: (
            entry.board,
            entry.speedup is None,
            _is_unreliable(entry),
            -(entry.speedup or 0.0),
            entry.model,
        )
    )
    return [ranked for _, board in groupby(entries, lambda entry: entry.board) for ranked in _rank(list(board))]


def _entries(session: Session, suite: str | None, platform: str | None, task: str | None) -> list[Entry]:
    model = func.coalesce(JobRow.model, SUBMITTED)
    group = (JobRow.task_id, EvaluationRow.platform, EvaluationRow.device, EvaluationRow.sandbox, model)
    counts = case((_passed(), 1), else_=0)
    ranked = (
        select(
            EvaluationRow.id.label("evaluation_id"),
            CandidateRow.job_id,
            CandidateRow.hash.label("candidate_hash"),
            JobRow.task_id,
            model.label("model"),
            func.count().over(partition_by=group).label("evaluations"),
            func.sum(counts).over(partition_by=group).label("passed"),
            func.row_number()
            .over(
                partition_by=group,
                order_by=(
                    counts.desc(),
                    case((_unreliable(), 1), else_=0),
                    EvaluationRow.speedup.desc(),
                    EvaluationRow.created_at,
                    EvaluationRow.id,
                ),
            )
            .label("place"),
        )
        .join(CandidateRow, EvaluationRow.candidate_id == CandidateRow.id)
        .join(JobRow, CandidateRow.job_id == JobRow.id)
        .where(EvaluationRow.verdict.not_in(_NOT_THE_MODELS_FAULT))
        .subquery()
    )
    query = (
        select(ranked, EvaluationRow, TaskRow)
        .join(EvaluationRow, EvaluationRow.id == ranked.c.evaluation_id)
        .join(TaskRow, TaskRow.id == ranked.c.task_id)
        .where(ranked.c.place == 1)
    )
    if suite is not None:
        query = query.where(TaskRow.suite == suite)
    if platform is not None:
        query = query.where(EvaluationRow.platform == platform)
    if task is not None:
        wanted_suite, _, wanted_name = task.partition("/")
        query = query.where(TaskRow.suite == wanted_suite, TaskRow.name == wanted_name)
    return [
        _entry(row.EvaluationRow, row.TaskRow, row.model, row.evaluations, row.passed, row.job_id, row.candidate_hash)
        for row in session.execute(query)
    ]


def _passed() -> ColumnElement[bool]:
    return (EvaluationRow.verdict == "passed") & EvaluationRow.speedup.is_not(None)


def _unreliable() -> ColumnElement[bool]:
    """Whether the evaluator says that its figures cannot be relied on."""
    return or_(*(cast(EvaluationRow.tags, String).like(f'%"{tag}"%') for tag in UNRELIABLE))


def _is_unreliable(entry: Entry) -> bool:
    return any(tag in entry.tags for tag in UNRELIABLE)


def _entry(
    evaluation: EvaluationRow, task: TaskRow, model: str, evaluations: int, passed: int, job_id: int, candidate: str
) -> Entry:
    entry = Entry(
        task=f"{task.suite}/{task.name}",
        source_hash=task.source_hash,
        category=task.category,
        platform=evaluation.platform,
        device=evaluation.device,
        sandbox=evaluation.sandbox,
        model=model,
        evaluations=evaluations,
        passed=passed,
    )
    if not passed:
        return entry
    return replace(
        entry,
        speedup=evaluation.speedup,
        speedup_low=evaluation.speedup_low,
        speedup_high=evaluation.speedup_high,
        speedup_compile=evaluation.speedup_compile,
        candidate_ms=evaluation.candidate_ms,
        eager_ms=evaluation.eager_ms,
        compile_ms=evaluation.compile_ms,
        roofline_fraction=evaluation.roofline_fraction,
        tags=tuple(evaluation.tags),
        job_id=job_id,
        evaluation_id=evaluation.id,
        candidate_hash=candidate,
        evaluated_at=evaluation.created_at,
    )


def _rank(board: list[Entry]) -> list[Entry]:
    """Ranks for the entries of one board, given by falling speedup: 1, 1, 3, … where the first two overlap.

    One whose figures cannot be relied on gets none: it is shown, but claims nothing.
    """
    ranked: list[Entry] = []
    first: Entry | None = None  # of the entries that share the present rank
    rank = 0
    place = 0
    for entry in board:
        if entry.speedup is None or _is_unreliable(entry):
            ranked.append(entry)
            continue
        place += 1
        if first is None or not _overlap(first, entry):
            first, rank = entry, place
        ranked.append(replace(entry, rank=rank))
    return ranked


def _overlap(faster: Entry, slower: Entry) -> bool:
    """Whether the intervals of two speedups touch; one without an interval counts as its value alone."""
    low = faster.speedup if faster.speedup_low is None else faster.speedup_low
    high = slower.speedup if slower.speedup_high is None else slower.speedup_high
    return low is not None and high is not None and high >= low
