"""Keeps the leaderboard's lines in step with the evaluations, in the transaction that changes these.

A new evaluation touches one line and the ranks of its board, however many evaluations there are. What is taken back or
brought back has its line computed anew from the evaluations of that model. What a job costs goes on growing after the
evaluation that stands for its model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.orm import Session

from db.leaderboard.rebuild import FIGURES, claim_of, cleared, known_cost, standings_anew
from db.leaderboard.rules import SUBMITTED, Worth, board_key, entry_key, merit, places, worth_of
from db.locks import lock_name
from db.tables import CandidateRow, EvaluationRow, JobRow, StandingRow, TaskRow
from tasks.outcomes import NOT_JUDGED

COLUMNS = tuple(column.key for column in StandingRow.__table__.columns)
ALL_BOARDS = "standings"
"""The lock that whoever changes a board shares, and whoever mends them all has alone."""


@dataclass(frozen=True)
class _Origin:
    """Who wrote an evaluation's candidate, for what."""

    task: TaskRow
    model: str
    job_id: int
    candidate_hash: str


def count_in(session: Session, evaluation: EvaluationRow) -> None:
    """Let an evaluation that was just stored count on its board."""
    if evaluation.verdict in NOT_JUDGED or evaluation.retracted_at is not None:
        return
    origin = _origin(session, evaluation)
    board = _lock_board(session, evaluation, origin)
    key = _key(evaluation, origin)
    known = session.execute(_lines().where(StandingRow.key == key)).mappings().one_or_none()
    line: dict[str, Any] = _new_line(evaluation, origin, board, key) if known is None else dict(known)
    worth = worth_of(evaluation.verdict, evaluation.speedup, evaluation.tags)
    line["evaluations"] += 1
    line["passed"] += worth is not Worth.NOTHING
    if worth is not Worth.NOTHING and _stands_higher(evaluation, worth, line):
        line |= {name: getattr(evaluation, name) for name in FIGURES}
        line |= {"worth": int(worth), "tags": evaluation.tags, "job_id": origin.job_id}
        line |= {"candidate_hash": origin.candidate_hash, "evaluation_id": evaluation.id}
        line |= {"evaluated_at": evaluation.created_at, "cost_usd": _cost_of(session, origin.job_id)}
    _keep(session, line, is_new=known is None)
    _rank_board(session, board)


def count_anew(session: Session, evaluation: EvaluationRow) -> None:
    """Compute anew the line that an evaluation belongs to, after it was taken back or brought back."""
    origin = _origin(session, evaluation)
    board = _lock_board(session, evaluation, origin)
    key = _key(evaluation, origin)
    found = standings_anew(
        session,
        JobRow.task_id == origin.task.id,
        func.coalesce(JobRow.model, SUBMITTED) == origin.model,
        EvaluationRow.platform == evaluation.platform,
        EvaluationRow.device == evaluation.device,
        EvaluationRow.sandbox == evaluation.sandbox,
    )
    session.execute(delete(StandingRow).where(StandingRow.key == key))
    for line in found:
        _keep(session, line, is_new=True)
    _rank_board(session, board)


def follow_cost(session: Session, job_id: int) -> None:
    """Have the lines that a job's candidates stand on say what it has cost by now; its row must be locked."""
    boards = (
        select(JobRow.task_id, EvaluationRow.platform, EvaluationRow.device, EvaluationRow.sandbox)
        .join(CandidateRow, CandidateRow.job_id == JobRow.id)
        .join(EvaluationRow, EvaluationRow.candidate_id == CandidateRow.id)
        .where(JobRow.id == job_id)
        .distinct()
    )
    keys = sorted(board_key(*row) for row in session.execute(boards))
    if not keys:
        return
    lock_name(session, ALL_BOARDS, shared=True)
    for key in keys:
        lock_name(session, "board", key)
    cost_usd = _cost_of(session, job_id)
    theirs = (
        StandingRow.board.in_(keys),
        StandingRow.job_id == job_id,
        StandingRow.cost_usd.is_distinct_from(cost_usd),
    )
    session.execute(update(StandingRow).where(*theirs).values(cost_usd=cost_usd))


def _cost_of(session: Session, job_id: int) -> float | None:
    return session.scalar(select(known_cost()).where(JobRow.id == job_id))


def _origin(session: Session, evaluation: EvaluationRow) -> _Origin:
    query = (
        select(TaskRow, JobRow.model, CandidateRow.job_id, CandidateRow.hash)
        .select_from(CandidateRow)
        .join(JobRow, CandidateRow.job_id == JobRow.id)
        .join(TaskRow, JobRow.task_id == TaskRow.id)
        .where(CandidateRow.id == evaluation.candidate_id)
    )
    task, model, job_id, candidate_hash = session.execute(query).one()
    return _Origin(task, SUBMITTED if model is None else model, job_id, candidate_hash)


def _lock_board(session: Session, evaluation: EvaluationRow, origin: _Origin) -> str:
    """The board's key; until the transaction ends nobody else changes the board."""
    board = board_key(origin.task.id, evaluation.platform, evaluation.device, evaluation.sandbox)
    lock_name(session, ALL_BOARDS, shared=True)
    lock_name(session, "board", board)
    return board


def _key(evaluation: EvaluationRow, origin: _Origin) -> str:
    return entry_key(origin.task.id, evaluation.platform, evaluation.device, evaluation.sandbox, origin.model)


def _lines() -> Any:
    return select(*(getattr(StandingRow, name) for name in COLUMNS))


def _new_line(evaluation: EvaluationRow, origin: _Origin, board: str, key: str) -> dict[str, Any]:
    task = origin.task
    return cleared(
        {
            "key": key,
            "board": board,
            "task_id": task.id,
            "suite": task.suite,
            "task": f"{task.suite}/{task.name}",
            "source_hash": task.source_hash,
            "category": task.category,
            "dtype": task.dtype,
            "platform": evaluation.platform,
            "device": evaluation.device,
            "sandbox": evaluation.sandbox,
            "model": origin.model,
            "evaluations": 0,
            "passed": 0,
            "place": 0,
            "rank": None,
        }
    )


def _stands_higher(evaluation: EvaluationRow, worth: Worth, line: Mapping[str, Any]) -> bool:
    if line["evaluation_id"] is None:
        return True
    held = merit(line["worth"], line["speedup"], line["evaluated_at"], line["evaluation_id"])
    return merit(worth, evaluation.speedup, evaluation.created_at, evaluation.id) < held


def _keep(session: Session, line: Mapping[str, Any], *, is_new: bool) -> None:
    values = {name: line[name] for name in COLUMNS}
    if is_new:
        session.execute(insert(StandingRow).values(values))
    else:
        session.execute(update(StandingRow).where(StandingRow.key == line["key"]).values(values))


def _rank_board(session: Session, board: str) -> None:
    """Give each line of a board its place and rank; writes those that changed."""
    lines = session.execute(_lines().where(StandingRow.board == board)).mappings().all()
    for line, place in zip(lines, places([claim_of(dict(line)) for line in lines]), strict=True):
        if (line["place"], line["rank"]) != (place.place, place.rank):
            moved = update(StandingRow).where(StandingRow.key == line["key"])
            session.execute(moved.values(place=place.place, rank=place.rank))
