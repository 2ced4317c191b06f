"""The table `standings`, which holds the entries of the leaderboard, and how it follows from the evaluations.

An entry is computed from the evaluations of its model's candidates on its board. The transaction that stores, retracts
or restores an evaluation computes the entries of all models that have written its candidate, and ranks their board; no
other board is read. A job's cost is updated as well, because it grows after the job's best evaluation was stored.
`repair_standings` computes all entries.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, case, delete, exists, func, insert, null, select, update
from sqlalchemy.orm import Session

from db.leaderboard.pooling import CandidateFigure, Pooled, is_disqualified, pool_candidate
from db.leaderboard.rules import SUBMITTED, Score, Tier, board_key, entry_key, rank_board
from db.locks import lock_name
from db.records import MEASUREMENTS, EvaluationRecord, Measurements
from db.tables import CandidateRow, EvaluationRow, JobRow, LlmCallRow, StandingRow, TaskRow
from tasks.outcomes import NOT_JUDGED, Verdict

_COLUMNS = tuple(column.key for column in StandingRow.__table__.columns)
_ALL_BOARDS = "standings"  # a lock: shared by transactions that change a board, exclusive for a repair
_ROWS_A_STATEMENT = 1000
_ROWS_AT_ONCE = 10_000
_NOTHING_MEASURED = Measurements()


def update_entries(session: Session, evaluation: EvaluationRow) -> None:
    """Compute the entries that an evaluation bears on, after it was stored, retracted or restored: those of all models
    that have written its candidate.
    """
    origin = select(JobRow.task_id, CandidateRow.hash).join(CandidateRow, CandidateRow.job_id == JobRow.id)
    task_id, digest = session.execute(origin.where(CandidateRow.id == evaluation.candidate_id)).one()
    on_board = (task_id, evaluation.platform, evaluation.device, evaluation.sandbox)
    board = board_key(*on_board)
    lock_name(session, _ALL_BOARDS, shared=True)
    lock_name(session, "board", board)
    on_task = select(_model()).join(CandidateRow, CandidateRow.job_id == JobRow.id).where(JobRow.task_id == task_id)
    models = set(session.scalars(on_task.where(CandidateRow.hash == digest)))
    written = select(CandidateRow.hash).join(JobRow, CandidateRow.job_id == JobRow.id)
    columns = (JobRow.task_id, EvaluationRow.platform, EvaluationRow.device, EvaluationRow.sandbox)
    conditions = [column == value for column, value in zip(columns, on_board, strict=True)]
    conditions.append(CandidateRow.hash.in_(written.where(JobRow.task_id == task_id, _model().in_(models))))
    rows = _compute(session, *conditions, models=models)
    session.execute(
        delete(StandingRow).where(StandingRow.key.in_([entry_key(*on_board, model) for model in sorted(models)]))
    )
    for row in rows:
        session.execute(insert(StandingRow).values({column: row[column] for column in _COLUMNS}))
    _rank(session, board)


def candidate_figure(session: Session, evaluation: EvaluationRecord) -> CandidateFigure:
    """The figure of an evaluation's candidate on the board of this evaluation."""
    task_id = select(JobRow.task_id).where(JobRow.id == evaluation.job_id).scalar_subquery()
    conditions = (
        JobRow.task_id == task_id,
        EvaluationRow.platform == evaluation.platform,
        EvaluationRow.device == evaluation.device,
        EvaluationRow.sandbox == evaluation.sandbox,
        CandidateRow.hash == evaluation.candidate_hash,
    )
    found = [_evaluation(row) for row in session.execute(_evaluations(*conditions))]
    return CandidateFigure(pool_candidate(found), is_disqualified(found))


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


class _Evaluation(NamedTuple):
    """An evaluation with its origin; the form that `pool_candidate` reads."""

    id: str
    job_id: int
    model: str
    candidate_hash: str
    verdict: str
    code: str | None
    tags: tuple[str, ...]
    measurements: Measurements
    created_at: datetime
    retracted_at: None = None


def _compute(
    session: Session, *conditions: ColumnElement[bool], models: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """The rows of `standings` as the evaluations give them.

    Args:
        session: A transaction.
        conditions: Conditions on evaluations, candidates and jobs. They must select all evaluations of the models'
            candidates, those in other models' jobs as well. Entries are ranked among those that are computed.
        models: The models whose entries are computed; None: all.
    """
    rows: list[dict[str, Any]] = []
    options = {"yield_per": _ROWS_AT_ONCE} if models is None else {}
    found = session.execute(_evaluations(*conditions), execution_options=options)
    for on_board, group in groupby(found, lambda row: (row.task_id, row.platform, row.device, row.sandbox)):
        board = _entries_of_board(on_board, [_evaluation(row) for row in group], models)
        for row, position in zip(board, rank_board([_score(row) for row in board]), strict=True):
            row |= {"place": position.position, "rank": position.rank}
        rows += board
    _add_tasks(session, rows)
    _add_costs(session, rows)
    return rows


def _entries_of_board(
    on_board: tuple[int, str, str, str], evaluations: Sequence[_Evaluation], models: Collection[str] | None
) -> list[dict[str, Any]]:
    """The entries of a board without task, cost and position."""
    by_candidate: dict[str, list[_Evaluation]] = {}
    by_model: dict[str, list[_Evaluation]] = {}
    for each in evaluations:
        by_candidate.setdefault(each.candidate_hash, []).append(each)
        if models is None or each.model in models:
            by_model.setdefault(each.model, []).append(each)
    figures = {digest: pool_candidate(group) for digest, group in by_candidate.items()}
    board = board_key(*on_board)
    return [
        {
            **dict(zip(("task_id", "platform", "device", "sandbox"), on_board, strict=True)),
            **{"board": board, "key": entry_key(*on_board, model), "model": model, "evaluations": len(own)},
            **_best_candidate(own, figures),
        }
        for model, own in by_model.items()
    ]


def _best_candidate(own: Sequence[_Evaluation], figures: Mapping[str, Pooled | None]) -> dict[str, Any]:
    """The columns that a model's best candidate determines.

    Args:
        own: The evaluations of the model on a board.
        figures: The figure of each candidate on the board.
    """
    first: dict[str, _Evaluation] = {}  # of each candidate
    for each in sorted(own, key=lambda each: (each.created_at, each.id)):
        first.setdefault(each.candidate_hash, each)
    passed = sum(each.measurements.speedup is not None and figures[each.candidate_hash] is not None for each in own)
    best: tuple[tuple[Any, ...], Pooled, _Evaluation] | None = None
    for digest, written in first.items():
        if (figure := figures[digest]) is not None:
            merit = (figure.tier, -(figure.measurements.speedup or 0.0), written.created_at, written.id)
            if best is None or merit < best[0]:
                best = (merit, figure, written)
    if best is None:
        nothing = (*MEASUREMENTS, "job_id", "candidate_hash", "evaluation_id", "evaluated_at")
        return {"passed": 0, "pooled": 0, "worth": int(Tier.NONE_PASSED), "tags": [], **dict.fromkeys(nothing)}
    _, figure, written = best
    return {
        **vars(figure.measurements),
        "passed": passed,
        "pooled": figure.evaluations,
        "worth": int(figure.tier),
        "tags": list(figure.tags),
        "job_id": written.job_id,
        "candidate_hash": written.candidate_hash,
        "evaluation_id": figure.latest_id,
        "evaluated_at": figure.latest_at,
    }


def _add_tasks(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    columns = (TaskRow.id, TaskRow.suite, TaskRow.name, TaskRow.source_hash, TaskRow.category, TaskRow.dtype)
    found = {row.id: row for row in _by_id(session, columns, {row["task_id"] for row in rows})}
    for row in rows:
        task = found[row["task_id"]]
        row |= {name: getattr(task, name) for name in ("suite", "source_hash", "category", "dtype")}
        row["task"] = f"{task.suite}/{task.name}"


def _add_costs(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    columns = (JobRow.id, _known_cost().label("cost_usd"))
    jobs = {row["job_id"] for row in rows if row["job_id"] is not None}
    found = {row.id: row.cost_usd for row in _by_id(session, columns, jobs)}
    for row in rows:
        row["cost_usd"] = found.get(row["job_id"])


def _by_id(session: Session, columns: Sequence[Any], ids: Collection[int]) -> Iterator[Any]:
    """These columns, the first of which is the id, of the rows with these ids."""
    wanted = sorted(ids)
    for begin in range(0, len(wanted), _ROWS_A_STATEMENT):
        yield from session.execute(select(*columns).where(columns[0].in_(wanted[begin : begin + _ROWS_A_STATEMENT])))


def _score(row: Mapping[str, Any]) -> Score:
    return Score(row["model"], row["worth"], row["speedup"], row["speedup_low"], row["speedup_high"])


def _evaluations(*conditions: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    """A query for the evaluations that count on the leaderboard, board by board."""
    on_board = (JobRow.task_id, EvaluationRow.platform, EvaluationRow.device, EvaluationRow.sandbox)
    return (
        select(
            *on_board,
            EvaluationRow.id,
            CandidateRow.job_id,
            _model().label("model"),
            CandidateRow.hash,
            EvaluationRow.verdict,
            EvaluationRow.code,
            EvaluationRow.tags,
            EvaluationRow.created_at,
            *(getattr(EvaluationRow, name) for name in MEASUREMENTS),
        )
        .join(CandidateRow, EvaluationRow.candidate_id == CandidateRow.id)
        .join(JobRow, CandidateRow.job_id == JobRow.id)
        .where(EvaluationRow.verdict.not_in(sorted(NOT_JUDGED)), EvaluationRow.retracted_at.is_(None), *conditions)
        .order_by(*on_board)
    )


def _evaluation(row: Any) -> _Evaluation:
    measured = _NOTHING_MEASURED
    if row.verdict == Verdict.PASSED:
        measured = Measurements(*row[-len(MEASUREMENTS) :])
    known = (row.id, row.job_id, row.model, row.hash, row.verdict, row.code)
    return _Evaluation(*known, tuple(row.tags), measured, row.created_at)


def _model() -> ColumnElement[str]:
    """The name of a job's model on the leaderboard."""
    return func.coalesce(JobRow.model, SUBMITTED)


def _known_cost() -> ColumnElement[float | None]:
    """The cost of a job in a query, in dollars. It is null if it is not known: the job has no model, or one of its LLM
    calls has no known price.
    """
    unpriced = exists().where(LlmCallRow.job_id == JobRow.id, LlmCallRow.cost_usd.is_(None))
    return case((JobRow.model.is_(None) | unpriced, null()), else_=JobRow.cost_usd)
