"""Queries for what jobs are told of earlier ones: the kernels that lead boards, and the judged candidates on a device.

Both are read when a job begins and follow the store: what was retracted, refused later or deleted is not among them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, or_, select, tuple_
from sqlalchemy.orm import Session

from db.records import JudgedRecord, RankedKernel
from db.tables import CandidateRow, EvaluationRow, JobRow, StandingRow, TaskRow
from tasks.outcomes import DISQUALIFYING, NOT_JUDGED, is_disqualifying

MAX_RANKED = 1000  # each may be of another op, whose source is read and parsed
MAX_JUDGED = 1500
_KEYS_A_QUERY = 400
_HEAD_CHARS = 400


def list_ranked(session: Session, platform: str, *, limit: int = MAX_RANKED) -> list[RankedKernel]:
    """The ranked entries of the leaderboard that are faster than eager for certain, the newest first.

    Entries whose candidate was retracted or found wrong on the task in any evaluation are left out.
    """
    query = (
        select(
            *(
                getattr(StandingRow, name)
                for name in ("task_id", "task", "suite", "device", "sandbox", "model", "tags")
            ),
            *(StandingRow.speedup, StandingRow.speedup_low, StandingRow.speedup_high),
            *(StandingRow.job_id, StandingRow.evaluation_id, StandingRow.candidate_hash),
            JobRow.user,
        )
        .join(JobRow, JobRow.id == StandingRow.job_id)
        .where(StandingRow.platform == platform, StandingRow.rank.is_not(None), StandingRow.speedup_low > 1)
        .order_by(StandingRow.evaluated_at.desc(), StandingRow.key)
        .limit(limit)
    )
    rows = session.execute(query).all()
    out = _refused(session, platform, {(row.task_id, row.candidate_hash) for row in rows})
    return [
        RankedKernel(**{**row._asdict(), "tags": tuple(row.tags)})
        for row in rows
        if (row.task_id, row.candidate_hash) not in out
    ]


def list_judged(session: Session, platform: str, device: str, *, limit: int = MAX_JUDGED) -> list[JudgedRecord]:
    """The newest evaluations on a device that judged a candidate and still count, the newest first.

    Those of candidates that were retracted, or that another evaluation on the task found wrong, are left out unless
    they found so themselves.
    """
    champion, roofline = EvaluationRow.result["champion"], EvaluationRow.result["roofline"]
    query = (
        select(
            *(EvaluationRow.id, EvaluationRow.verdict, EvaluationRow.code, EvaluationRow.tags),
            champion.label("champion"),
            roofline.label("roofline"),
            *(CandidateRow.job_id, CandidateRow.hash, JobRow.task_id, JobRow.model),
        )
        .join(CandidateRow, EvaluationRow.candidate_id == CandidateRow.id)
        .join(JobRow, JobRow.id == CandidateRow.job_id)
        .where(
            EvaluationRow.platform == platform,
            EvaluationRow.device == device,
            EvaluationRow.retracted_at.is_(None),
            EvaluationRow.verdict.not_in(NOT_JUDGED),
        )
        .order_by(EvaluationRow.created_at.desc(), EvaluationRow.id)
        .limit(limit)
    )
    rows = session.execute(query).all()
    out = _refused(session, platform, {(row.task_id, row.hash) for row in rows})
    return [
        JudgedRecord(
            evaluation_id=row.id,
            job_id=row.job_id,
            task_id=row.task_id,
            candidate_hash=row.hash,
            model=row.model,
            verdict=row.verdict,
            tags=tuple(row.tags),
            champion=row.champion if isinstance(row.champion, dict) else None,
            bound=_bound(row.roofline),
        )
        for row in rows
        if (row.task_id, row.hash) not in out or is_disqualifying(row.verdict, row.code)
    ]


def list_sources(
    session: Session, keys: Collection[tuple[int, str]], *, head: bool = False
) -> dict[tuple[int, str], str]:
    """The sources of candidates, by job and hash. `head`: only their first characters, with the first line."""
    column = func.substr(CandidateRow.source, 1, _HEAD_CHARS) if head else CandidateRow.source
    found: dict[tuple[int, str], str] = {}
    for some in _parts(sorted(keys)):
        query = select(CandidateRow.job_id, CandidateRow.hash, column.label("source"))
        query = query.where(tuple_(CandidateRow.job_id, CandidateRow.hash).in_(some))
        found |= {(row.job_id, row.hash): row.source for row in session.execute(query)}
    return found


@dataclass(frozen=True)
class TaskSource:
    """What is read of a task to tell which op it is."""

    suite: str
    name: str
    source: str
    dtype: str


def list_task_sources(session: Session, task_ids: Collection[int]) -> Mapping[int, TaskSource]:
    """The sources of tasks with what names them, by id."""
    found: dict[int, TaskSource] = {}
    for some in _parts(sorted(task_ids)):
        query = select(TaskRow.id, TaskRow.suite, TaskRow.name, TaskRow.source, TaskRow.dtype)
        for row in session.execute(query.where(TaskRow.id.in_(some))):
            found[row.id] = TaskSource(row.suite, row.name, row.source, row.dtype)
    return found


def _refused(session: Session, platform: str, keys: Collection[tuple[int, str]]) -> set[tuple[int, str]]:
    """Those of these candidates, by task and hash, that were retracted or found wrong on the platform."""
    query = (
        select(JobRow.task_id, CandidateRow.hash, EvaluationRow.verdict, EvaluationRow.code, EvaluationRow.retracted_at)
        .join(CandidateRow, CandidateRow.job_id == JobRow.id)
        .join(EvaluationRow, EvaluationRow.candidate_id == CandidateRow.id)
        .where(EvaluationRow.platform == platform)
        .where(or_(EvaluationRow.retracted_at.is_not(None), EvaluationRow.verdict.in_(DISQUALIFYING)))
    )
    out = set()
    for some in _parts(sorted({digest for _, digest in keys})):
        for row in session.execute(query.where(CandidateRow.hash.in_(some))):
            if row.retracted_at is not None or is_disqualifying(row.verdict, row.code):
                out.add((row.task_id, row.hash))
    return out & set(keys)


def _bound(roofline: object) -> str | None:
    bound = roofline.get("bound") if isinstance(roofline, dict) else None
    return bound if isinstance(bound, str) else None


def _parts(keys: Sequence[Any]) -> list[Sequence[Any]]:
    return [keys[begin : begin + _KEYS_A_QUERY] for begin in range(0, len(keys), _KEYS_A_QUERY)]
