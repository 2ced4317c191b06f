"""Counts of what is in the store, for those who watch over it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.jobs.workers import SEEN
from db.records import JobStatus
from db.tables import EvaluationRow, JobRow, WorkerRow


@dataclass(frozen=True)
class Counts:
    """Jobs by status, waiting jobs with the oldest of them by platform, evaluations by verdict, and heartbeats."""

    jobs: Mapping[str, int]
    waiting: Mapping[str, tuple[int, datetime]]
    evaluations: Mapping[str, int]
    heartbeats: Mapping[tuple[str, str, str], datetime]


def count_all(session: Session) -> Counts:
    """Count once. Evaluations are counted row by row: ask no more often than every half minute."""
    of_status = select(JobRow.status, func.count()).group_by(JobRow.status)
    queued = JobRow.status == JobStatus.QUEUED.value
    line = select(JobRow.platform, func.count(), func.min(JobRow.created_at)).where(queued).group_by(JobRow.platform)
    verdicts = select(EvaluationRow.verdict, func.count()).group_by(EvaluationRow.verdict)
    workers = select(WorkerRow.host, WorkerRow.platform, WorkerRow.slot, WorkerRow.heartbeat_at)
    alive = workers.where(WorkerRow.status.in_(SEEN))
    return Counts(
        jobs={row[0]: row[1] for row in session.execute(of_status)},
        waiting={row[0]: (row[1], row[2]) for row in session.execute(line)},
        evaluations={row[0]: row[1] for row in session.execute(verdicts)},
        heartbeats={(row[0], row[1], str(row[2])): row[3] for row in session.execute(alive)},
    )
