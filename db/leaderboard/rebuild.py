"""The leaderboard's lines computed from the evaluations alone: what the table `standings` must always say."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, String, case, cast, exists, func, null, or_, select
from sqlalchemy.orm import Session

from db.leaderboard.rules import SUBMITTED, Claim, Worth, board_key, entry_key, places
from db.tables import CandidateRow, EvaluationRow, JobRow, LlmCallRow, TaskRow
from tasks.outcomes import NOT_JUDGED, UNRANKED, Verdict

FIGURES = (
    "speedup",
    "speedup_low",
    "speedup_high",
    "speedup_compile",
    "speedup_compile_low",
    "speedup_compile_high",
    "candidate_ms",
    "eager_ms",
    "compile_ms",
    "roofline_fraction",
)
"""What is copied from the evaluation that stands for a model."""


def standings_anew(session: Session, *only: ColumnElement[bool]) -> list[dict[str, Any]]:
    """Every line, as the columns of `standings`; with conditions on evaluations and jobs, those of these alone.

    Places and ranks are among the lines that are given back.
    """
    lines = [_line(row) for row in session.execute(_best_of_each(*only)).mappings()]
    lines.sort(key=lambda line: line["board"])
    for _, board in groupby(lines, lambda line: line["board"]):
        of_board = list(board)
        for line, place in zip(of_board, places([claim_of(line) for line in of_board]), strict=True):
            line |= {"place": place.place, "rank": place.rank}
    return lines


def claim_of(line: Mapping[str, Any]) -> Claim:
    """What the place of a line depends on."""
    return Claim(line["model"], line["worth"], line["speedup"], line["speedup_low"], line["speedup_high"])


def known_cost() -> ColumnElement[float | None]:
    """What a job of a query has cost so far in dollars; null where nobody knows: no model wrote its candidate, or one
    of its calls has no known price.
    """
    unpriced = exists().where(LlmCallRow.job_id == JobRow.id, LlmCallRow.cost_usd.is_(None))
    return case((JobRow.model.is_(None) | unpriced, null()), else_=JobRow.cost_usd)


def _line(row: RowMapping) -> dict[str, Any]:
    board = (row["task_id"], row["platform"], row["device"], row["sandbox"])
    line: dict[str, Any] = {**row, "board": board_key(*board), "key": entry_key(*board, row["model"])}
    line |= {"task": f"{row['suite']}/{line.pop('name')}", "passed": int(row["passed"])}
    if not line["passed"]:
        line |= dict.fromkeys((*FIGURES, "job_id", "candidate_hash", "evaluation_id", "evaluated_at", "cost_usd"))
        line |= {"tags": [], "worth": int(Worth.NOTHING)}
    return line


def _best_of_each(*only: ColumnElement[bool]) -> Any:
    model = func.coalesce(JobRow.model, SUBMITTED)
    group = (JobRow.task_id, EvaluationRow.platform, EvaluationRow.device, EvaluationRow.sandbox, model)
    passed = case((_passed(), 1), else_=0)
    worth = case((~_passed(), Worth.NOTHING), (_unranked(), Worth.UNRANKED), else_=Worth.RANKED)
    chosen = (
        select(
            EvaluationRow.id.label("evaluation_id"),
            CandidateRow.job_id,
            CandidateRow.hash.label("candidate_hash"),
            JobRow.task_id,
            model.label("model"),
            func.count().over(partition_by=group).label("evaluations"),
            func.sum(passed).over(partition_by=group).label("passed"),
            worth.label("worth"),
            func.row_number()
            .over(
                partition_by=group,
                order_by=(worth, EvaluationRow.speedup.desc(), EvaluationRow.created_at, EvaluationRow.id),
            )
            .label("place_of_evaluation"),
        )
        .join(CandidateRow, EvaluationRow.candidate_id == CandidateRow.id)
        .join(JobRow, CandidateRow.job_id == JobRow.id)
        .where(EvaluationRow.verdict.not_in(sorted(NOT_JUDGED)), EvaluationRow.retracted_at.is_(None), *only)
        .subquery()
    )
    taken = [column for column in chosen.c if column.name != "place_of_evaluation"]
    return (
        select(
            *taken,
            TaskRow.suite,
            TaskRow.name,
            TaskRow.source_hash,
            TaskRow.category,
            TaskRow.dtype,
            EvaluationRow.platform,
            EvaluationRow.device,
            EvaluationRow.sandbox,
            EvaluationRow.tags,
            EvaluationRow.created_at.label("evaluated_at"),
            known_cost().label("cost_usd"),
            *(getattr(EvaluationRow, name) for name in FIGURES),
        )
        .join(EvaluationRow, EvaluationRow.id == chosen.c.evaluation_id)
        .join(TaskRow, TaskRow.id == chosen.c.task_id)
        .join(JobRow, JobRow.id == chosen.c.job_id)
        .where(chosen.c.place_of_evaluation == 1)
    )


def _passed() -> ColumnElement[bool]:
    return (EvaluationRow.verdict == Verdict.PASSED) & EvaluationRow.speedup.is_not(None)


def _unranked() -> ColumnElement[bool]:
    return or_(*(cast(EvaluationRow.tags, String).like(f'%"{tag}"%') for tag in sorted(UNRANKED)))
