"""Counts over the whole store, for monitoring."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.jobs.workers import LIVE
from db.records import JobStatus, StoreCounts
from db.tables import EvaluationRow, JobRow, WorkerRow


def count_store(session: Session) -> StoreCounts:
    """Count jobs, evaluations and workers. This reads every evaluation's row, so do not call it all the time."""
    jobs = select(JobRow.status, func.count()).group_by(JobRow.status)
    queued = select(JobRow.platform, func.count(), func.min(JobRow.created_at))
    queued = queued.where(JobRow.status == JobStatus.QUEUED.value).group_by(JobRow.platform)
    verdicts = select(EvaluationRow.verdict, func.count()).group_by(EvaluationRow.verdict)
    workers = select(WorkerRow.host, WorkerRow.platform, WorkerRow.slot, WorkerRow.heartbeat_at)
    live = workers.where(WorkerRow.status.in_(LIVE))
    return StoreCounts(
        jobs={row[0]: row[1] for row in session.execute(jobs)},
        queued={row[0]: (row[1], row[2]) for row in session.execute(queued)},
        evaluations={row[0]: row[1] for row in session.execute(verdicts)},
        heartbeats={(row[0], row[1], str(row[2])): row[3] for row in session.execute(live)},
    )
