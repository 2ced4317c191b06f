"""The table `standings`, which holds the entries of the leaderboard, and how it follows from the evaluations.

An entry is computed by one query over the evaluations of its model on its board. The transaction that stores, retracts
or restores an evaluation computes the entry and ranks its board; no other board is read. A job's cost is updated as
well, because it grows after the job's best evaluation was stored. `repair_standings` computes all entries.
"""

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from sqlalchemy import (
    ColumnElement,
    RowMapping,
    String,
    case,
    cast,
    delete,
    exists,
    func,
    insert,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.orm import Session

from db.leaderboard.rules import SUBMITTED, Score, Tier, board_key, entry_key, rank_board
from db.locks import lock_name
from db.records import MEASUREMENTS
from db.tables import CandidateRow, EvaluationRow, JobRow, LlmCallRow, StandingRow, TaskRow
from tasks.outcomes import NOT_JUDGED, UNRANKED, Verdict

_COLUMNS = tuple(column.key for column in StandingRow.__table__.columns)
_ALL_BOARDS = "standings"  # a lock: shared by transactions that change a board, exclusive for a repair
_ROWS_A_STATEMENT = 1000


def update_entry(session: Session, evaluation: EvaluationRow) -> None:
    """Compute the entry that an evaluation belongs to, after the evaluation was stored, retracted or restored."""
    model = func.coalesce(JobRow.model, SUBMITTED)
    origin = select(JobRow.task_id, model).join(CandidateRow, CandidateRow.job_id == JobRow.id)
    task_id, name = session.execute(origin.where(CandidateRow.id == evaluation.candidate_id)).one()
    on_board = (task_id, evaluation.platform, evaluation.device, evaluation.sandbox)
    board = board_key(*on_board)
    lock_name(session, _ALL_BOARDS, shared=True)
    lock_name(session, "board", board)
    columns = (JobRow.task_id, EvaluationRow.platform, EvaluationRow.device, EvaluationRow.sandbox, model)
    of_entry = (column == value for column, value in zip(columns, (*on_board, name), strict=True))
    rows = _compute(session, *of_entry)
    session.execute(delete(StandingRow).where(StandingRow.key == entry_key(*on_board, name)))
    for row in rows:
        session.execute(insert(StandingRow).values({column: row[column] for column in _COLUMNS}))
    _rank(session, board)


def update_cost(session: Session, job_id: int) -> None:
    """Store a job's present cost in the entries of its candidates. The caller has locked the job's row."""
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
    lock_name(session, _ALL_BOARDS, shared=True)
    for key in keys:
        lock_name(session, "board", key)
    cost_usd = session.scalar(select(_known_cost()).where(JobRow.id == job_id))
    conditions = (
        StandingRow.board.in_(keys),
        StandingRow.job_id == job_id,
        StandingRow.cost_usd.is_distinct_from(cost_usd),
    )
    session.execute(update(StandingRow).where(*conditions).values(cost_usd=cost_usd))


def standings_problems(session: Session) -> list[str]:
    """One line for each entry that differs from the evaluations. Reads all evaluations."""
    expected, stored = _expected(session), _stored(session)
    problems = []
    for key in sorted(expected.keys() | stored.keys()):
        if expected.get(key) == stored.get(key):
            continue
        if key not in stored:
            what = "is missing"
        elif key not in expected:
            what = "has no evaluations"
        else:
            differing = [name for name in _COLUMNS if expected[key][name] != stored[key][name]]
            what = f"differs from the evaluations in {', '.join(differing)}"
        row = expected.get(key) or stored[key]
        where = f"{row['task']} on {row['platform']}, {row['device']}, {row['sandbox']}"
        problems.append(f"leaderboard: {row['model']} for {where} {what}: run `kernelwright db upgrade`")
    return problems


def repair_standings(session: Session) -> int:
    """Compute all entries and store those that differ. No evaluation can be stored meanwhile.

    Returns:
        The number of entries that differed.
    """
    lock_name(session, _ALL_BOARDS)
    expected, stored = _expected(session), _stored(session)
    wrong = [key for key in expected.keys() | stored.keys() if expected.get(key) != stored.get(key)]
    for begin in range(0, len(wrong), _ROWS_A_STATEMENT):
        keys = wrong[begin : begin + _ROWS_A_STATEMENT]
        session.execute(delete(StandingRow).where(StandingRow.key.in_(keys)))
        rows = [expected[key] for key in keys if key in expected]
        if rows:
            session.execute(insert(StandingRow), rows)
    return len(wrong)


def _expected(session: Session) -> dict[str, dict[str, Any]]:
    return {row["key"]: {name: row[name] for name in _COLUMNS} for row in _compute(session)}


def _stored(session: Session) -> dict[str, dict[str, Any]]:
    query = select(*(getattr(StandingRow, name) for name in _COLUMNS))
    return {row["key"]: dict(row) for row in session.execute(query).mappings()}


def _rank(session: Session, board: str) -> None:
    """Rank the entries of a board and store the positions that have changed."""
    columns = (getattr(StandingRow, name) for name in _COLUMNS)
    rows = session.execute(select(*columns).where(StandingRow.board == board)).mappings().all()
    for row, position in zip(rows, rank_board([_score(dict(row)) for row in rows]), strict=True):
        if (row["place"], row["rank"]) != (position.position, position.rank):
            moved = update(StandingRow).where(StandingRow.key == row["key"])
            session.execute(moved.values(place=position.position, rank=position.rank))


def _compute(session: Session, *conditions: ColumnElement[bool]) -> list[dict[str, Any]]:
    """The rows of `standings` as the evaluations give them.

    Args:
        session: A transaction.
        conditions: Conditions on evaluations and jobs, which must select all evaluations of an entry or none. Entries
            are ranked among those that are selected.
    """
    rows = [_entry(best) for best in session.execute(_best_evaluations(*conditions)).mappings()]
    rows.sort(key=lambda row: row["board"])
    for _, group in groupby(rows, lambda row: row["board"]):
        board = list(group)
        for row, position in zip(board, rank_board([_score(row) for row in board]), strict=True):
            row |= {"place": position.position, "rank": position.rank}
    return rows


def _entry(best: RowMapping) -> dict[str, Any]:
    on_board = (best["task_id"], best["platform"], best["device"], best["sandbox"])
    row: dict[str, Any] = {**best, "board": board_key(*on_board), "key": entry_key(*on_board, best["model"])}
    row |= {"task": f"{best['suite']}/{row.pop('name')}", "passed": int(best["passed"])}
    if not row["passed"]:
        row |= dict.fromkeys((*MEASUREMENTS, "job_id", "candidate_hash", "evaluation_id", "evaluated_at", "cost_usd"))
        row |= {"tags": [], "worth": int(Tier.NONE_PASSED)}
    return row


def _score(row: Mapping[str, Any]) -> Score:
    return Score(row["model"], row["worth"], row["speedup"], row["speedup_low"], row["speedup_high"])


def _best_evaluations(*conditions: ColumnElement[bool]) -> Any:
    """A query for the best evaluation of each model on each board, with the model's numbers of evaluations there."""
    model = func.coalesce(JobRow.model, SUBMITTED)
    group = (JobRow.task_id, EvaluationRow.platform, EvaluationRow.device, EvaluationRow.sandbox, model)
    passed = case((_passed(), 1), else_=0)
    tier = case((~_passed(), Tier.NONE_PASSED), (_unranked(), Tier.UNRANKED), else_=Tier.RANKED)
    ordered = (
        select(
            EvaluationRow.id.label("evaluation_id"),
            CandidateRow.job_id,
            CandidateRow.hash.label("candidate_hash"),
            JobRow.task_id,
            model.label("model"),
            func.count().over(partition_by=group).label("evaluations"),
            func.sum(passed).over(partition_by=group).label("passed"),
            tier.label("worth"),
            func.row_number()
            .over(
                partition_by=group,
                order_by=(tier, EvaluationRow.speedup.desc(), EvaluationRow.created_at, EvaluationRow.id),
            )
            .label("number"),
        )
        .join(CandidateRow, EvaluationRow.candidate_id == CandidateRow.id)
        .join(JobRow, CandidateRow.job_id == JobRow.id)
        .where(EvaluationRow.verdict.not_in(sorted(NOT_JUDGED)), EvaluationRow.retracted_at.is_(None), *conditions)
        .subquery()
    )
    return (
        select(
            *(column for column in ordered.c if column.name != "number"),
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
            _known_cost().label("cost_usd"),
            *(getattr(EvaluationRow, name) for name in MEASUREMENTS),
        )
        .join(EvaluationRow, EvaluationRow.id == ordered.c.evaluation_id)
        .join(TaskRow, TaskRow.id == ordered.c.task_id)
        .join(JobRow, JobRow.id == ordered.c.job_id)
        .where(ordered.c.number == 1)
    )


def _passed() -> ColumnElement[bool]:
    return (EvaluationRow.verdict == Verdict.PASSED) & EvaluationRow.speedup.is_not(None)


def _unranked() -> ColumnElement[bool]:
    return or_(*(cast(EvaluationRow.tags, String).like(f'%"{tag}"%') for tag in sorted(UNRANKED)))


def _known_cost() -> ColumnElement[float | None]:
    """The cost of a job in a query, in dollars. It is null if it is not known: the job has no model, or one of its LLM
    calls has no known price.
    """
    unpriced = exists().where(LlmCallRow.job_id == JobRow.id, LlmCallRow.cost_usd.is_(None))
    return case((JobRow.model.is_(None) | unpriced, null()), else_=JobRow.cost_usd)
