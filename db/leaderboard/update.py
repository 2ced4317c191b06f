"""Keeps the leaderboard's lines in step with the evaluations, in the transaction that changes these.

What is stored, taken back or brought back has its line computed anew from the evaluations of that model on that board,
and the ranks of the board with it. What a job costs goes on growing after the evaluation that stands for its model.
"""

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.orm import Session

from db.leaderboard.rebuild import claim_of, known_cost, standings_anew
from db.leaderboard.rules import SUBMITTED, board_key, entry_key, places
from db.locks import lock_name
from db.tables import CandidateRow, EvaluationRow, JobRow, StandingRow

COLUMNS = tuple(column.key for column in StandingRow.__table__.columns)
ALL_BOARDS = "standings"
"""The lock that whoever changes a board shares, and whoever mends them all has alone."""


def count_anew(session: Session, evaluation: EvaluationRow) -> None:
    """Compute the line that an evaluation belongs to, after it was stored, taken back or brought back."""
    model = func.coalesce(JobRow.model, SUBMITTED)
    of_candidate = select(JobRow.task_id, model).join(CandidateRow, CandidateRow.job_id == JobRow.id)
    task_id, name = session.execute(of_candidate.where(CandidateRow.id == evaluation.candidate_id)).one()
    place = (task_id, evaluation.platform, evaluation.device, evaluation.sandbox)
    board = board_key(*place)
    lock_name(session, ALL_BOARDS, shared=True)
    lock_name(session, "board", board)  # until the transaction ends nobody else changes the board
    of_line = (JobRow.task_id, EvaluationRow.platform, EvaluationRow.device, EvaluationRow.sandbox, model)
    equal = (column == value for column, value in zip(of_line, (*place, name), strict=True))
    found = standings_anew(session, *equal)
    session.execute(delete(StandingRow).where(StandingRow.key == entry_key(*place, name)))
    for line in found:
        session.execute(insert(StandingRow).values({column: line[column] for column in COLUMNS}))
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


def _rank_board(session: Session, board: str) -> None:
    """Give each line of a board its place and rank; writes those that changed."""
    columns = (getattr(StandingRow, name) for name in COLUMNS)
    lines = session.execute(select(*columns).where(StandingRow.board == board)).mappings().all()
    for line, place in zip(lines, places([claim_of(dict(line)) for line in lines]), strict=True):
        if (line["place"], line["rank"]) != (place.place, place.rank):
            moved = update(StandingRow).where(StandingRow.key == line["key"])
            session.execute(moved.values(place=place.place, rank=place.rank))
