"""Candidates of a job as they are listed and shown."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from db import results
from db.records import EvaluationRecord
from db.tables import CandidateRow


@dataclass(frozen=True)
class CandidateRecord:
    """A candidate and the latest evaluation of it in its job."""

    hash: str
    round: int
    source: str
    created_at: datetime
    evaluation: EvaluationRecord | None


def list_candidates(session: Session, job_id: int) -> list[CandidateRecord]:
    """All candidates of a job, in the order in which they were written."""
    latest = {kept.candidate_hash: kept for kept in results.list_evaluations(session, job_id)}
    query = select(CandidateRow).where(CandidateRow.job_id == job_id).order_by(CandidateRow.id)
    return [_record(row, latest.get(row.hash)) for row in session.scalars(query)]


def find_candidate(session: Session, job_id: int, candidate_hash: str) -> CandidateRecord | None:
    """A job's candidate; None if it has none with this hash."""
    query = select(CandidateRow).where(CandidateRow.job_id == job_id, CandidateRow.hash == candidate_hash)
    row = session.scalar(query)
    return None if row is None else _record(row, results.find_evaluation(session, job_id, candidate_hash))


def _record(row: CandidateRow, evaluation: EvaluationRecord | None) -> CandidateRecord:
    return CandidateRecord(row.hash, row.round, row.source, row.created_at, evaluation)
