"""What a user's jobs have cost, and the most that those under way may yet cost."""

import math
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session, aliased

from db.records import OPEN, RESUMABLE, JobCost, JobStatus
from db.tables import EventRow, JobRow


def worst_spending(
    session: Session,
    user: str,
    since: datetime,
    *,
    free_models: Callable[[str | None, str | None], bool],
    worst_paid: Callable[[Session, JobCost], float],
) -> float:
    """Dollars: what jobs that ended since then cost at the most, and what those under way may; infinite if unbounded.

    `free_models(model, judge_model)` says whether a job of these costs nothing; `worst_paid` what one has cost at the
    most whose process died without saying it.
    """
    columns = [getattr(JobRow, field.name) for field in fields(JobCost)]
    query = select(JobRow.kind, _died_silently(), *columns).where(
        JobRow.user == user, or_(JobRow.status.in_(OPEN), JobRow.finished_at >= since)
    )
    total = 0.0
    for kind, silent, job_id, status, *rest in session.execute(query).all():
        job = JobCost(job_id, JobStatus(status), *rest)
        spent = worst_paid(session, job) if silent else job.cost_usd + job.unsettled_usd
        if job.status in OPEN and kind == "optimize":
            budget = job.options.get("budget_usd")
            free = free_models(job.model, job.options.get("judge_model"))
            spent = max(spent, 0.0 if free else math.inf if budget is None else float(budget))
        total += spent
    return total


def _died_silently() -> ColumnElement[bool]:
    """Whether a job that ended before it was done began calls after it last said what it had spent."""
    call, end = aliased(EventRow), aliased(EventRow)
    said = select(end.id).where(end.job_id == JobRow.id, end.kind == "job_stopped", end.id > call.id)
    begun = select(call.id).where(call.job_id == JobRow.id, call.kind == "llm_started", ~said.exists())
    return and_(JobRow.status.in_(RESUMABLE), JobRow.started_at.is_not(None), begun.exists())
